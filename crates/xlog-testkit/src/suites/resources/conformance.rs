//! One contract for every resource and adaptor: the same checks over each stack there is.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
};

use parking_lot::Mutex;
use xlog_cuda::device_runtime::{
    Access, AllocTag, AsyncCudaResource, BlockId, DeviceBlock, DeviceMemoryResource,
    FailureCallbackResource, FaultInjectionResource, FaultPlan, Generation, GlobalDeviceBudget,
    LoggingResource, MemorySink, PoolOptions, PoolResource, ResourceError, StatisticsResource,
    StreamId, TrackingResource,
};

use super::super::support::{Random, comes_true, handle_of};
use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    every_stack_hands_out_aligned_memory_that_keeps_its_contents,
    every_stack_keeps_its_books_in_any_order_of_calls,
    every_stack_serves_threads_that_free_each_others_blocks,
    every_stack_keeps_the_order_between_streams,
    every_stack_reuses_memory_only_behind_its_last_use,
    every_stack_goes_wrong_without_waits,
    every_stack_refuses_the_same_mistakes,
    every_stack_passes_the_drivers_errors_on,
];

pub(super) type Boxed = Box<dyn DeviceMemoryResource + Send + Sync>;
pub(super) type Make = fn(Arc<AsyncCudaResource>) -> Boxed;

const LIMIT: usize = 1 << 40;

fn pool_over(streams: &Arc<AsyncCudaResource>, inner: Boxed) -> Boxed {
    let options = PoolOptions::default().with_first_slab(2 << 20);
    Box::new(PoolResource::new(inner, Arc::clone(streams.stream_pool()), options))
}

/// Every resource that tracks uses, each adaptor over it, and the two stacks programs get.
pub(super) const STACKS: &[(&str, Make)] = &[
    ("async", |driver| Box::new(driver)),
    ("budget", |driver| Box::new(GlobalDeviceBudget::new(Box::new(driver), LIMIT))),
    ("pool", |driver| pool_over(&driver, Box::new(Arc::clone(&driver)))),
    ("statistics", |driver| Box::new(StatisticsResource::new(Box::new(driver)))),
    ("tracking", |driver| Box::new(TrackingResource::new(Box::new(driver)))),
    ("logging", |driver| Box::new(LoggingResource::new(Box::new(driver), MemorySink::new(1_000)))),
    ("logging without uses", |driver| {
        Box::new(LoggingResource::without_uses(Box::new(driver), MemorySink::new(1_000)))
    }),
    ("failure callback", |driver| {
        Box::new(FailureCallbackResource::new(Box::new(driver), Box::new(|_| false)))
    }),
    ("fault injection", |driver| {
        Box::new(FaultInjectionResource::new(Box::new(driver), FaultPlan::default()))
    }),
    ("production", |driver| {
        let budget = GlobalDeviceBudget::new(Box::new(Arc::clone(&driver)), LIMIT);
        Box::new(StatisticsResource::new(pool_over(&driver, Box::new(budget))))
    }),
    ("debugging", |driver| {
        let counted = StatisticsResource::new(Box::new(driver));
        Box::new(TrackingResource::new(Box::new(counted)))
    }),
    ("logged pool, tracked and counted", |driver| {
        let pool = pool_over(&driver, Box::new(Arc::clone(&driver)));
        let logged = LoggingResource::new(pool, MemorySink::new(1_000));
        let counted = StatisticsResource::new(Box::new(logged));
        Box::new(TrackingResource::new(Box::new(counted)))
    }),
];

fn on_every_stack(device: TestDevice, check: impl Fn(&str, &Rig)) {
    for (name, make) in STACKS {
        let rig = Rig::decorated(device, make);
        check(name, &rig);
        // Whatever was done, everything comes back.
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!(rig.runtime.bytes_outstanding(), 0, "{name}: bytes are left over");
    }
}

fn free(rig: &Rig, block: DeviceBlock) {
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn every_stack_hands_out_aligned_memory_that_keeps_its_contents(device: TestDevice) {
    let largest = if device == TestDevice::Cuda { 1 << 28 } else { 1 << 20 };
    let lens = [1, 2, 63, 64, 65, 1_000, 4_096, 70_001, largest];
    on_every_stack(device, |name, rig| {
        let [a] = rig.streams();
        let slices = lens.map(|len| {
            let slice = rig.manager.alloc_on::<u32>(len, a, AllocTag("conformance"));
            slice.unwrap_or_else(fail)
        });
        for (value, slice) in (1..).zip(&slices) {
            assert_eq!(slice.ptr() % 256, 0, "{name}");
            rig.fill(slice, value, a).unwrap_or_else(fail);
        }
        for (value, slice) in (1..).zip(&slices) {
            let right = slice.download().unwrap_or_else(fail).iter().all(|found| *found == value);
            assert!(right, "{name}: {} values lost", slice.len());
        }
    });
}

fn every_stack_keeps_its_books_in_any_order_of_calls(device: TestDevice) {
    on_every_stack(device, |name, rig| {
        let streams: [StreamId; 3] = rig.streams();
        let mut random = Random::from_seed(11);
        let (mut live, mut ranges) = (Vec::<DeviceBlock>::new(), BTreeMap::new());
        for step in 0..300 {
            let stream = streams[random.below(3)];
            match random.below(8) {
                0..=3 => {
                    let bits = random.below(20);
                    let bytes = 1 + random.below(1 << bits);
                    let block = rig.block(bytes, stream);
                    assert!(block.bytes >= bytes, "{name}/{step}");
                    let (start, end) = (block.ptr, block.ptr + block.bytes as u64);
                    let before: Option<(&u64, &u64)> = ranges.range(..end).next_back();
                    assert!(before.is_none_or(|(_, e)| *e <= start), "{name}/{step}: overlap");
                    ranges.insert(start, end);
                    live.push(block);
                }
                4..=5 if !live.is_empty() => {
                    let block = live.swap_remove(random.below(live.len()));
                    ranges.remove(&block.ptr);
                    free(rig, block);
                }
                6 if !live.is_empty() => {
                    let access = [Access::Read, Access::ReadWrite][random.below(2)];
                    rig.touch(&live[random.below(live.len())], stream, access);
                }
                _ => rig.runtime.try_reap().unwrap_or_else(fail),
            }
            let held: usize = live.iter().map(|block| block.bytes).sum();
            assert!(rig.runtime.bytes_outstanding() >= held, "{name}/{step}");
        }
        rig.runtime.reap_pending().unwrap_or_else(fail);
        let held: usize = live.iter().map(|block| block.bytes).sum();
        assert_eq!(rig.runtime.bytes_outstanding(), held, "{name}: exact once it is quiet");
        live.drain(..).for_each(|block| free(rig, block));
    });
}

fn every_stack_serves_threads_that_free_each_others_blocks(device: TestDevice) {
    on_every_stack(device, |name, rig| {
        let streams: [StreamId; 4] = rig.streams();
        let owned: Mutex<BTreeMap<u64, u64>> = Mutex::default();
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::sync_channel::<DeviceBlock>(16);
            scope.spawn({
                let owned = &owned;
                move || {
                    for block in receive {
                        owned.lock().remove(&block.ptr);
                        free(rig, block);
                    }
                }
            });
            for (thread, stream) in streams.into_iter().enumerate() {
                let (owned, send) = (&owned, send.clone());
                scope.spawn(move || {
                    let mut random = Random::from_seed(thread as u64 + 5);
                    for _ in 0..200 {
                        let block = rig.block(1 + random.below(100_000), stream);
                        rig.touch(&block, stream, Access::Write);
                        let end = block.ptr + block.bytes as u64;
                        {
                            let mut owned = owned.lock();
                            let before = owned.range(..end).next_back();
                            assert!(before.is_none_or(|(_, e)| *e <= block.ptr), "{name}: overlap");
                            owned.insert(block.ptr, end);
                        }
                        send.send(block).expect("the other thread is there");
                    }
                });
            }
        });
    });
}

const LEN: usize = 4_096;
const OLD: u32 = 0x0bad_0001;
const NEW: u32 = 0x600d_0001;

fn every_stack_keeps_the_order_between_streams(device: TestDevice) {
    on_every_stack(device, |name, rig| {
        let [a, b] = rig.streams();
        let (data, seen) = (rig.filled(LEN, OLD, a), rig.filled(LEN, OLD, b));
        let gate = Gate::new(rig);
        gate.hold(rig, a);
        rig.fill(&data, NEW, a).unwrap_or_else(fail);
        rig.copy(&data, &seen, b).unwrap_or_else(fail);
        assert!(!comes_true(|| rig.is_idle(b)), "{name}: the copy did not wait for the write");
        gate.open();
        rig.runtime.fence().unwrap_or_else(fail);
        assert_eq!(seen.download().unwrap_or_else(fail), [NEW; LEN], "{name}");
    });
}

/// A block is freed while a held launch on another stream still reads it; whoever gets its memory
/// next writes it. Answers whether the reader saw what it should.
fn free_while_in_use(rig: &Rig, [a, b]: [StreamId; 2]) -> bool {
    let (data, seen) = (rig.filled(LEN, NEW, a), rig.filled(LEN, OLD, b));
    let gate = Gate::new(rig);
    gate.hold(rig, b);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    drop(data);
    // Enough of that size that one of them has the memory, if it can be had at all.
    let next: Vec<_> = (0..64)
        .map(|_| {
            let slice = rig.manager.alloc_on::<u32>(LEN, a, AllocTag("next")).unwrap_or_else(fail);
            rig.fill(&slice, OLD, a).unwrap_or_else(fail);
            slice
        })
        .collect();
    let _ = comes_true(|| rig.is_idle(a));
    gate.open();
    rig.runtime.fence().unwrap_or_else(fail);
    drop(next);
    seen.download().unwrap_or_else(fail) == [NEW; LEN]
}

fn every_stack_reuses_memory_only_behind_its_last_use(device: TestDevice) {
    on_every_stack(device, |name, rig| {
        let streams = rig.streams();
        for round in 0..3 {
            assert!(free_while_in_use(rig, streams), "{name}, round {round}");
        }
    });
}

/// The control: deaf to waits, a hand-over between streams is wrong on every stack.
fn every_stack_goes_wrong_without_waits(device: TestDevice) {
    on_every_stack(device, |name, rig| {
        let [a, b] = rig.streams();
        let (data, seen) = (rig.filled(LEN, OLD, a), rig.filled(LEN, OLD, b));
        let gate = Gate::new(rig);
        rig.driver.set_deaf(true);
        gate.hold(rig, a);
        rig.fill(&data, NEW, a).unwrap_or_else(fail);
        rig.copy(&data, &seen, b).unwrap_or_else(fail);
        assert!(crate::eventually(std::time::Duration::from_secs(10), || rig.is_idle(b)), "{name}");
        gate.open();
        rig.device.synchronize().unwrap_or_else(fail);
        rig.driver.set_deaf(false);
        assert_eq!(seen.download().unwrap_or_else(fail), [OLD; LEN], "{name}: polite");
    });
}

fn every_stack_refuses_the_same_mistakes(device: TestDevice) {
    on_every_stack(device, |name, rig| {
        let [a, b] = rig.streams();
        let allocate = |bytes, stream| rig.runtime.allocate(bytes, stream, AllocTag("mistake"));
        assert!(matches!(allocate(0, a), Err(ResourceError::Driver(_))), "{name}");
        assert!(
            matches!(allocate(64, StreamId(77)), Err(ResourceError::StreamMisuse(_))),
            "{name}"
        );
        let (live, gone) = (rig.block(4096, a), rig.block(4096, a));
        rig.touch(&live, b, Access::Read);
        let stale = handle_of(&gone);
        free(rig, gone);
        let outstanding = rig.runtime.bytes_outstanding();
        let use_after_free =
            |block: &DeviceBlock| Err(ResourceError::UseAfterFree { generation: block.generation });
        let never = DeviceBlock { generation: Generation::next(), ..handle_of(&live) };
        for wrong in [stale, never] {
            let expected = use_after_free(&wrong);
            let id = BlockId::from_block(&wrong);
            assert_eq!(rig.runtime.prepare_block_use(id, a, Access::Read), expected, "{name}");
            let returned = rig.runtime.try_deallocate(handle_of(&wrong));
            assert_eq!(returned.map_err(|(_, error)| error), expected, "{name}");
            assert_eq!(rig.runtime.deallocate(wrong), expected, "{name}");
        }
        let foreign = DeviceBlock { device_ordinal: 9, ..handle_of(&live) };
        let refused = rig.runtime.deallocate(foreign);
        assert!(matches!(refused, Err(ResourceError::Driver(_))), "{name}: {refused:?}");
        assert_eq!(rig.runtime.bytes_outstanding(), outstanding, "{name}: nothing changed");
        free(rig, live);
    });
}

fn every_stack_passes_the_drivers_errors_on(device: TestDevice) {
    on_every_stack(device, |name, rig| {
        let [a] = rig.streams();
        rig.driver.fail_always(DriverCall::AllocateOn);
        let refused = rig.runtime.allocate(8 << 20, a, AllocTag("fails"));
        rig.driver.heal();
        let error = refused.expect_err(name);
        assert!(
            matches!(&error, ResourceError::Driver(cause) if cause.code() == crate::INJECTED),
            "{name}: {error}"
        );
        assert_eq!(rig.runtime.bytes_outstanding(), 0, "{name}");
        let block = rig.block(8 << 20, a);
        free(rig, block);
    });
}
