//! One contract for every resource and adaptor: the same checks over each stack there is.
//!
//! A stack that tracks no uses keeps the contract by other means: it refuses to have uses recorded,
//! and its frees wait for the device. What a check needs tracking for, it holds against that.

mod stacks;

use std::{collections::BTreeMap, sync::mpsc};

use parking_lot::Mutex;
use xlog_cuda::{
    device_runtime::{
        Access, AllocTag, BlockId, DeviceBlock, Generation, ResourceError, ResourceResult, StreamId,
    },
    memory::TrackedCudaSlice,
};

pub(super) use self::stacks::{ALIGNED_FROM, STACKS, Stage};
use super::super::support::{
    Random, assert_says, comes_true, copy_raw, fill_raw, handle_of, misuse,
};
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
    every_stack_keeps_a_stream_that_has_blocks,
];

fn on_every_stack(device: TestDevice, check: impl Fn(&str, &Stage)) {
    for stack in STACKS {
        let stage = stack.stage(device);
        check(stack.name, &stage);
        // Whatever was done, everything comes back.
        stage.settle();
        assert_eq!(stage.rig.runtime.bytes_outstanding(), 0, "{}: bytes are left over", stack.name);
    }
}

fn free(rig: &Rig, block: DeviceBlock) {
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

/// A refusal of a launch because nothing tracks its memory.
#[track_caller]
fn assert_untracked(refused: ResourceResult<()>) {
    assert_says(&misuse(refused), &["does not support cross-stream use tracking"]);
}

/// Fills a slice and waits for that: with a launch, or with a copy if launches are refused.
fn fill(stage: &Stage, slice: &mut TrackedCudaSlice<u32>, value: u32, stream: StreamId) {
    if stage.stack.tracks {
        return stage.rig.fill(slice, value, stream).unwrap_or_else(fail);
    }
    assert_untracked(stage.rig.fill(slice, value, stream));
    slice.upload(&vec![value; slice.len()]).unwrap_or_else(fail);
}

fn every_stack_hands_out_aligned_memory_that_keeps_its_contents(device: TestDevice) {
    on_every_stack(device, |name, stage| {
        let rig = &stage.rig;
        // The largest by the two that programs use most: a gigabyte takes its time.
        let largest = match (device, name) {
            (TestDevice::Host, _) => 1 << 20,
            (TestDevice::Cuda, "async" | "production") => 1 << 28,
            (TestDevice::Cuda, _) => 1 << 23,
        };
        let lens = [1, 2, 63, 64, 65, 1_000, 4_096, 70_001, largest];
        let [a] = rig.streams();
        let mut slices = lens.map(|len| {
            let slice = rig.manager.alloc_on::<u32>(len, a, AllocTag("conformance"));
            slice.unwrap_or_else(fail)
        });
        for (value, slice) in (1..).zip(&mut slices) {
            let align = if 4 * slice.len() >= ALIGNED_FROM { stage.stack.align } else { 256 };
            assert_eq!(slice.ptr() % align as u64, 0, "{name}");
            let promised = slice.runtime_block().map_or(0, |block| block.align);
            assert!(promised >= align && slice.ptr() % promised as u64 == 0, "{name}");
            fill(stage, slice, value, a);
        }
        for (value, slice) in (1..).zip(&slices) {
            let right = slice.download().unwrap_or_else(fail).iter().all(|found| *found == value);
            assert!(right, "{name}: {} values lost", slice.len());
        }
    });
}

fn every_stack_keeps_its_books_in_any_order_of_calls(device: TestDevice) {
    on_every_stack(device, |name, stage| {
        let rig = &stage.rig;
        let streams: [StreamId; 3] = rig.streams();
        let mut random = Random::from_seed(11);
        let (mut live, mut ranges) = (Vec::<(usize, DeviceBlock)>::new(), BTreeMap::new());
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
                    live.push((bytes, block));
                }
                4..=5 if !live.is_empty() => {
                    let (_, block) = live.swap_remove(random.below(live.len()));
                    ranges.remove(&block.ptr);
                    free(rig, block);
                }
                6 if !live.is_empty() => {
                    let access = [Access::Read, Access::ReadWrite][random.below(2)];
                    stage.touch(&live[random.below(live.len())].1, stream, access);
                }
                _ => rig.runtime.try_reap().unwrap_or_else(fail),
            }
            let held: usize = live.iter().map(|(_, block)| block.bytes).sum();
            assert!(rig.runtime.bytes_outstanding() >= held, "{name}/{step}");
        }
        stage.settle();
        if let Some(taken) = stage.stack.taken {
            let held: usize = live.iter().map(|(asked, block)| taken(*asked, block)).sum();
            assert_eq!(rig.runtime.bytes_outstanding(), held, "{name}: exact once it is quiet");
        }
        live.drain(..).for_each(|(_, block)| free(rig, block));
    });
}

fn every_stack_serves_threads_that_free_each_others_blocks(device: TestDevice) {
    on_every_stack(device, |name, stage| {
        let rig = &stage.rig;
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
                        stage.touch(&block, stream, Access::Write);
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
    on_every_stack(device, |name, stage| {
        let rig = &stage.rig;
        let [a, b] = rig.streams();
        let (data, seen) = (filled(stage, OLD, a), filled(stage, OLD, b));
        let gate = Gate::new(rig);
        gate.hold(rig, a);
        if stage.stack.tracks {
            rig.fill(&data, NEW, a).unwrap_or_else(fail);
            rig.copy(&data, &seen, b).unwrap_or_else(fail);
            assert!(!comes_true(|| rig.is_idle(b)), "{name}: the copy did not wait for the write");
        } else {
            // What nobody could order is not enqueued at all.
            let launches = rig.driver.count_during(DriverCall::Launch, || {
                assert_untracked(rig.fill(&data, NEW, a));
                assert_untracked(rig.copy(&data, &seen, b));
            });
            assert_eq!(launches, 0, "{name}");
        }
        gate.open();
        rig.runtime.fence().unwrap_or_else(fail);
        let expected = if stage.stack.tracks { NEW } else { OLD };
        assert_eq!(seen.download().unwrap_or_else(fail), [expected; LEN], "{name}");
    });
}

/// A slice of `value`s that every stream may use without a wait: it is all done.
fn filled(stage: &Stage, value: u32, stream: StreamId) -> TrackedCudaSlice<u32> {
    let slice = stage.rig.manager.alloc_on::<u32>(LEN, stream, AllocTag("filled"));
    let mut slice = slice.unwrap_or_else(fail);
    fill(stage, &mut slice, value, stream);
    stage.rig.runtime.synchronize(stream).unwrap_or_else(fail);
    slice
}

/// A block is freed while a held launch on another stream still reads it; whoever gets its memory
/// next writes it. Answers whether the reader saw what it should.
fn free_while_in_use(stage: &Stage, [a, b]: [StreamId; 2]) -> bool {
    let rig = &stage.rig;
    let (data, seen) = (filled(stage, NEW, a), filled(stage, OLD, b));
    let gate = Gate::new(rig);
    gate.hold(rig, b);
    if stage.stack.tracks {
        rig.copy(&data, &seen, b).unwrap_or_else(fail);
    } else {
        copy_raw(rig, &data, &seen, b);
    }
    if stage.stack.frees_wait {
        std::thread::scope(|scope| {
            let freeing = scope.spawn(move || drop(data));
            assert!(!comes_true(|| freeing.is_finished()), "freed under a running launch");
            gate.open();
        });
    } else {
        drop(data);
    }
    // Enough of that size that one of them has the memory, if it can be had at all.
    let next: Vec<_> = (0..64)
        .map(|_| {
            let slice = rig.manager.alloc_on::<u32>(LEN, a, AllocTag("next"));
            let mut slice = slice.unwrap_or_else(fail);
            fill(stage, &mut slice, OLD, a);
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
    on_every_stack(device, |name, stage| {
        let streams = stage.rig.streams();
        for round in 0..3 {
            assert!(free_while_in_use(stage, streams), "{name}, round {round}");
        }
    });
}

/// The control: deaf to waits, or past the recorder where there is nobody to queue any, a hand-over
/// between streams is wrong on every stack.
fn every_stack_goes_wrong_without_waits(device: TestDevice) {
    on_every_stack(device, |name, stage| {
        let rig = &stage.rig;
        let [a, b] = rig.streams();
        let (data, seen) = (filled(stage, OLD, a), filled(stage, OLD, b));
        let gate = Gate::new(rig);
        rig.driver.set_deaf(true);
        gate.hold(rig, a);
        if stage.stack.tracks {
            rig.fill(&data, NEW, a).unwrap_or_else(fail);
            rig.copy(&data, &seen, b).unwrap_or_else(fail);
        } else {
            fill_raw(rig, &data, NEW, a);
            copy_raw(rig, &data, &seen, b);
        }
        assert!(crate::eventually(std::time::Duration::from_secs(10), || rig.is_idle(b)), "{name}");
        gate.open();
        rig.device.synchronize().unwrap_or_else(fail);
        rig.driver.set_deaf(false);
        assert_eq!(seen.download().unwrap_or_else(fail), [OLD; LEN], "{name}: polite");
    });
}

fn every_stack_refuses_the_same_mistakes(device: TestDevice) {
    on_every_stack(device, |name, stage| {
        let rig = &stage.rig;
        let [a, b] = rig.streams();
        let allocate = |bytes, stream| rig.runtime.allocate(bytes, stream, AllocTag("mistake"));
        assert!(matches!(allocate(0, a), Err(ResourceError::Driver(_))), "{name}");
        assert!(
            matches!(allocate(64, StreamId(77)), Err(ResourceError::StreamMisuse(_))),
            "{name}"
        );
        let (live, gone) = (rig.block(4096, a), rig.block(4096, a));
        stage.touch(&live, b, Access::Read);
        let stale = handle_of(&gone);
        free(rig, gone);
        let outstanding = rig.runtime.bytes_outstanding();
        let use_after_free =
            |block: &DeviceBlock| Err(ResourceError::UseAfterFree { generation: block.generation });
        let never = DeviceBlock { generation: Generation::next(), ..handle_of(&live) };
        for wrong in [stale, never] {
            let expected = use_after_free(&wrong);
            let id = BlockId::from_block(&wrong);
            let prepared = rig.runtime.prepare_block_use(id, a, Access::Read);
            if stage.stack.tracks {
                assert_eq!(prepared, expected, "{name}");
            } else {
                assert_untracked(prepared);
            }
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
    on_every_stack(device, |name, stage| {
        let rig = &stage.rig;
        let [a] = rig.streams();
        rig.driver.fail_always(DriverCall::AllocateOn);
        rig.driver.fail_always(DriverCall::Allocate);
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

fn every_stack_keeps_a_stream_that_has_blocks(device: TestDevice) {
    on_every_stack(device, |name, stage| {
        let rig = &stage.rig;
        for bytes in [100, 100_000] {
            let [a] = rig.streams();
            let block = rig.block(bytes, a);
            let refused = rig.pool.release(a);
            if stage.stack.tracks {
                assert_says(&misuse(refused), &["live blocks or pending frees"]);
                free(rig, block);
                stage.settle();
                rig.pool.release(a).unwrap_or_else(fail);
            } else {
                // Plain memory is of no stream, and outlives the one it was asked for on.
                refused.unwrap_or_else(fail);
                free(rig, block);
            }
            let unknown = rig.runtime.allocate(bytes, a, AllocTag("late"));
            assert!(matches!(unknown, Err(ResourceError::StreamMisuse(_))), "{name}: {unknown:?}");
        }
    });
}
