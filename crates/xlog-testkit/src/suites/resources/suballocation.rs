//! The pool: whose memory is whose, and what has to be waited for before it is used again.

use std::{collections::BTreeMap, sync::Arc};

use xlog_cuda::{
    device_runtime::{
        Access, AllocTag, BlockId, DeviceBlock, DeviceMemoryResource, Generation, PoolOptions,
        PoolResource, ResourceError, StreamId,
    },
    launch::LaunchRecorder,
    memory::TrackedCudaSlice,
};

use super::super::support::{comes_true, handle_of, is_injected};
use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    blocks_never_overlap_and_keep_their_contents,
    the_remainder_of_stolen_memory_waits_for_whoever_freed_it,
    without_waits_stolen_memory_is_wrong_every_time,
    memory_joined_from_two_streams_waits_for_both,
    one_half_of_joined_memory_waits_for_its_own_uses_only,
    memory_in_use_elsewhere_is_reused_behind_a_wait_and_the_host_goes_on,
    memory_that_needs_no_wait_is_preferred,
    another_streams_first_use_waits_for_the_uses_of_the_range_and_no_allocation,
    a_pair_on_one_stream_asks_nothing_of_the_driver,
    streams_that_need_little_take_little,
    a_stream_that_keeps_borrowing_gets_memory_of_its_own,
    an_address_that_comes_back_has_a_larger_generation,
    a_stream_can_be_released_though_the_pool_grew_on_it,
    a_pool_over_a_pool_keeps_both_books,
    wrong_handles_are_refused_and_change_nothing,
    a_free_between_preflight_and_commit_waits_for_the_commit,
    the_maximum_is_exact_and_the_pool_usable_after_a_refusal,
    trim_gives_back_what_nobody_uses_and_no_more,
    a_dropped_pool_gives_everything_back,
    each_failing_driver_call_leaves_the_books_exact,
    a_slab_that_cannot_be_given_back_stays_in_the_pool,
];

pub(super) const SLAB: usize = 2 << 20;
const LEN: usize = SLAB / 4;
const OLD: u32 = 0x0bad_0bad;
const NEW: u32 = 0x600d_600d;

/// A pool of slabs of 2 MiB, and a rig over it.
pub(super) fn pooled(device: TestDevice, maximum: Option<usize>) -> (Rig, Arc<PoolResource>) {
    let mut options = PoolOptions::default().with_first_slab(SLAB).with_largest_slab(SLAB);
    if let Some(maximum) = maximum {
        options = options.with_maximum(maximum);
    }
    let mut pool = None;
    let rig = Rig::decorated(device, |resource| {
        let streams = Arc::clone(resource.stream_pool());
        let made = Arc::new(PoolResource::new(Box::new(resource), streams, options));
        pool = Some(Arc::clone(&made));
        Box::new(made)
    });
    (rig, pool.expect("made above"))
}

fn slice(rig: &Rig, len: usize, stream: StreamId) -> TrackedCudaSlice<u32> {
    rig.manager.alloc_on(len, stream, AllocTag("pool test")).unwrap_or_else(fail)
}

fn all_are(slice: &TrackedCudaSlice<u32>, value: u32) -> bool {
    slice.download().unwrap_or_else(fail).iter().all(|found| *found == value)
}

fn blocks_never_overlap_and_keep_their_contents(device: TestDevice) {
    let (rig, pool) = pooled(device, None);
    let [a] = rig.streams();
    let largest = if device == TestDevice::Cuda { 1 << 28 } else { 1 << 22 };
    let mut lens: Vec<usize> = (0..40).map(|step| 1 + step * step * 37).collect();
    lens.extend([1, 2, 63, 64, 65, 1 << 14, 1 << 18, largest]);
    let slices: Vec<_> = lens.iter().map(|len| slice(&rig, *len, a)).collect();
    for (value, slice) in (1..).zip(&slices) {
        rig.fill(slice, value, a).unwrap_or_else(fail);
        assert_eq!(slice.ptr() % 256, 0, "aligned as promised");
    }
    let mut ranges: Vec<(u64, u64)> =
        slices.iter().map(|slice| (slice.ptr(), slice.ptr() + 4 * slice.len() as u64)).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two blocks overlap");
    for (value, slice) in (1..).zip(&slices) {
        assert!(all_are(slice, value), "the block of {} values lost its contents", slice.len());
    }
    drop(slices);
    assert_eq!((pool.bytes_outstanding(), pool.report().live_blocks), (0, 0));
}

/// `a` frees a whole slab that a held launch still writes; `b` gets the first half of it and `c`
/// the second. Answers whether both halves hold what `b` and `c` wrote.
fn steal(rig: &Rig, [a, b, c]: [StreamId; 3]) -> bool {
    let whole = slice(rig, LEN, a);
    let gate = Gate::new(rig);
    gate.hold(rig, a);
    rig.fill(&whole, OLD, a).unwrap_or_else(fail);
    drop(whole);
    let halves = [b, c].map(|stream| {
        let half = slice(rig, LEN / 2, stream);
        rig.fill(&half, NEW, stream).unwrap_or_else(fail);
        half
    });
    // With waits neither stream gets past the gate; deaf, both are done in no time.
    let idle = [b, c].map(|stream| comes_true(|| rig.is_idle(stream)));
    gate.open();
    rig.runtime.fence().unwrap_or_else(fail);
    idle == [false, false] && halves.iter().all(|half| all_are(half, NEW))
}

/// Defect 6: the remainder of what was stolen goes to a third stream.
fn the_remainder_of_stolen_memory_waits_for_whoever_freed_it(device: TestDevice) {
    let (rig, pool) = pooled(device, Some(SLAB));
    let streams = rig.streams();
    for round in 0..5 {
        assert!(steal(&rig, streams), "round {round}");
        assert_eq!(pool.report().slab_bytes, SLAB, "there is one slab, and it was shared");
    }
}

fn without_waits_stolen_memory_is_wrong_every_time(device: TestDevice) {
    let (rig, _pool) = pooled(device, Some(SLAB));
    let streams = rig.streams();
    let _ = steal(&rig, streams);
    rig.driver.set_deaf(true);
    let wrong = (0..20).filter(|_| !steal(&rig, streams)).count();
    rig.driver.set_deaf(false);
    assert_eq!(wrong, 20);
}

/// Two halves of one slab, each still written by a held launch of its own stream, both freed.
fn two_held_halves(rig: &Rig, streams: [StreamId; 2]) -> [Gate; 2] {
    let halves = streams.map(|stream| slice(rig, LEN / 2, stream));
    let gates = streams.map(|stream| {
        let gate = Gate::new(rig);
        gate.hold(rig, stream);
        gate
    });
    for (half, stream) in halves.iter().zip(streams) {
        rig.fill(half, OLD, stream).unwrap_or_else(fail);
    }
    gates
}

/// Defect 5: neighbours that join keep both dependencies.
fn memory_joined_from_two_streams_waits_for_both(device: TestDevice) {
    let (rig, _pool) = pooled(device, Some(SLAB));
    let [a, b, c] = rig.streams();
    for first in [0, 1] {
        let gates = two_held_halves(&rig, [a, b]);
        let whole = slice(&rig, LEN, c);
        rig.fill(&whole, NEW, c).unwrap_or_else(fail);
        gates[first].open();
        assert!(!comes_true(|| rig.is_idle(c)), "the other half is still being written");
        gates[1 - first].open();
        rig.runtime.fence().unwrap_or_else(fail);
        assert!(all_are(&whole, NEW));
    }
}

fn one_half_of_joined_memory_waits_for_its_own_uses_only(device: TestDevice) {
    let (rig, pool) = pooled(device, Some(SLAB));
    let [a, b, c] = rig.streams();
    let gates = two_held_halves(&rig, [a, b]);
    // Joined by being taken whole and given back on a stream that adds no use of its own.
    let whole = slice(&rig, LEN, c);
    drop(whole);
    assert_eq!(pool.report().live_blocks, 0);
    gates[0].open();
    gates[1].open();
    rig.runtime.fence().unwrap_or_else(fail);
    // Again, with pieces that differ: cut from the ranges, each half follows its own writer.
    let gates = two_held_halves(&rig, [a, b]);
    let waits = rig.waits(|| {
        let half = slice(&rig, LEN / 2, c);
        rig.fill(&half, NEW, c).unwrap_or_else(fail);
    });
    assert_eq!(waits, 1, "one half has one writer");
    gates.iter().for_each(Gate::open);
}

fn memory_in_use_elsewhere_is_reused_behind_a_wait_and_the_host_goes_on(device: TestDevice) {
    let (rig, pool) = pooled(device, Some(2 * SLAB));
    let [a, b] = rig.streams();
    let seen = rig.filled(LEN, OLD, b);
    for round in 0..3 {
        let data = rig.filled(LEN, NEW, a);
        let ptr = data.ptr();
        let gate = Gate::new(&rig);
        gate.hold(&rig, b);
        rig.copy(&data, &seen, b).unwrap_or_else(fail);
        drop(data);
        // The host is here while b is held: it did not wait. The memory comes back behind b.
        let mut again = None;
        let waits = rig.waits(|| again = Some(slice(&rig, LEN, a)));
        let again = again.expect("allocated");
        assert_eq!((again.ptr(), waits), (ptr, 1), "round {round}: the same memory, behind b");
        rig.fill(&again, OLD, a).unwrap_or_else(fail);
        assert!(!comes_true(|| rig.is_idle(a)), "a waits for b's read");
        gate.open();
        assert!(all_are(&seen, NEW), "round {round}: b read what was there before the free");
        assert_eq!(pool.report().slab_bytes, 2 * SLAB);
    }
}

fn memory_that_needs_no_wait_is_preferred(device: TestDevice) {
    let (rig, _pool) = pooled(device, None);
    let [a, b] = rig.streams();
    let block = |stream| rig.block(64 << 10, stream);
    let (clean, used) = (block(a), block(a));
    let clean_ptr = clean.ptr;
    let gate = Gate::new(&rig);
    gate.hold(&rig, b);
    rig.touch(&used, b, Access::Write);
    // The last one freed would be the first one taken.
    rig.runtime.deallocate(clean).unwrap_or_else(fail);
    rig.runtime.deallocate(used).unwrap_or_else(fail);
    let mut next = None;
    assert_eq!(rig.waits(|| next = Some(block(a))), 0);
    let next = next.expect("allocated");
    assert_eq!(next.ptr, clean_ptr);
    gate.open();
    rig.runtime.deallocate(next).unwrap_or_else(fail);
}

/// Rule 7, the second half.
fn another_streams_first_use_waits_for_the_uses_of_the_range_and_no_allocation(device: TestDevice) {
    let (rig, _pool) = pooled(device, None);
    let [a, b] = rig.streams();
    let first = rig.block(4096, a);
    rig.touch(&first, a, Access::Write);
    rig.touch(&first, b, Access::Read);
    rig.runtime.deallocate(first).unwrap_or_else(fail);
    // b followed a's write and reads in its own order: nothing is left that it has to wait for.
    rig.runtime.synchronize(b).unwrap_or_else(fail);
    let again = rig.block(4096, a);
    assert_eq!(rig.waits(|| rig.touch(&again, b, Access::Write)), 0);
    rig.touch(&again, a, Access::Write);
    rig.runtime.deallocate(again).unwrap_or_else(fail);
    let third = rig.block(4096, a);
    assert_eq!(rig.waits(|| rig.touch(&third, b, Access::Read)), 1, "a's write is still there");
    rig.runtime.deallocate(third).unwrap_or_else(fail);
}

fn a_pair_on_one_stream_asks_nothing_of_the_driver(device: TestDevice) {
    let (rig, _pool) = pooled(device, None);
    let [a] = rig.streams();
    let pair = || {
        let block = rig.block(1 << 20, a);
        rig.touch(&block, a, Access::Write);
        rig.runtime.deallocate(block).unwrap_or_else(fail);
    };
    pair();
    let calls = |call| rig.driver.count_during(call, || (0..100).for_each(|_| pair()));
    for call in [DriverCall::AllocateOn, DriverCall::FreeOn, DriverCall::WaitEvent] {
        assert_eq!(calls(call), 0, "{call:?}");
    }
}

/// Whichever thread hands the memory out, and whether it was a block of its own or part of a range
/// in between.
fn a_stream_that_keeps_borrowing_gets_memory_of_its_own(device: TestDevice) {
    for (maximum, slabs) in [(None, 2), (Some(SLAB), 1)] {
        let (rig, pool) = pooled(device, maximum);
        let [a, b] = rig.streams();
        drop(slice(&rig, 1024, a));
        rig.runtime.synchronize(a).unwrap_or_else(fail);
        let borrow = |times: usize| (0..times).for_each(|_| drop(slice(&rig, 1024, b)));
        borrow(20);
        assert_eq!(pool.report().slabs, 1, "there is enough for both");
        borrow(400);
        assert_eq!(pool.report().slabs, slabs, "one of its own, if it may be, and no more");
        if slabs == 2 {
            let _more = [(); 5].map(|()| slice(&rig, LEN / 4, b));
            assert_eq!(pool.report().slabs, 2, "what does not fit there is borrowed again");
        }
        assert_eq!((pool.report().live_blocks, pool.bytes_outstanding()), (0, 0));
    }
}

fn an_address_that_comes_back_has_a_larger_generation(device: TestDevice) {
    let (rig, pool) = pooled(device, Some(SLAB));
    let [a] = rig.streams();
    let mut last = BTreeMap::<u64, Generation>::new();
    let mut allocate = |bytes: usize, on_another_thread: bool| {
        let block = if on_another_thread {
            let other = || rig.block(bytes, a);
            std::thread::scope(|scope| scope.spawn(other).join().expect("a block"))
        } else {
            rig.block(bytes, a)
        };
        let before = last.insert(block.ptr, block.generation);
        assert!(before.is_none_or(|before| before < block.generation), "{before:?}, {block:?}");
        rig.runtime.deallocate(block).unwrap_or_else(fail);
    };
    for round in 0..40 {
        allocate(64 << 10, round % 2 == 0);
        // All of it, so that the smaller block's slot is given up.
        allocate(SLAB, round % 3 == 0);
    }
    assert_eq!(pool.report().live_blocks, 0);
}

/// A stream's slabs grow with that stream, not with the pool.
fn streams_that_need_little_take_little(device: TestDevice) {
    let rig = Rig::new(device);
    let options = PoolOptions::default().with_first_slab(SLAB);
    let resource = Box::new(Arc::clone(&rig.resource));
    let pool = PoolResource::new(resource, Arc::clone(&rig.pool), options);
    let streams: [StreamId; 30] = rig.streams();
    let blocks =
        streams.map(|stream| pool.allocate(8, stream, AllocTag("little")).unwrap_or_else(fail));
    assert!(pool.report().slab_bytes <= 30 * SLAB, "{:?}", pool.report());
    for block in blocks {
        pool.deallocate(block).unwrap_or_else(fail);
    }
}

fn a_stream_can_be_released_though_the_pool_grew_on_it(device: TestDevice) {
    let (rig, pool) = pooled(device, None);
    let [a] = rig.streams();
    let block = rig.block(4096, a);
    assert!(rig.pool.release(a).is_err(), "a live block names it");
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.pool.release(a).unwrap_or_else(fail);
    assert_eq!(pool.report().slabs, 1);
    // Whoever comes next gets the memory that was left behind.
    let block = rig.block(4096, StreamId::DEFAULT);
    assert_eq!(pool.report().slabs, 1);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    pool.trim().unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.resource.bytes_outstanding(), 0);
}

fn a_pool_over_a_pool_keeps_both_books(device: TestDevice) {
    let (rig, below) = pooled(device, None);
    let [a, b] = rig.streams();
    let streams = Arc::clone(&rig.pool);
    let above = PoolResource::new(Box::new(Arc::clone(&below)), streams, PoolOptions::default());
    for _ in 0..3 {
        let blocks = [a, b, a]
            .map(|stream| above.allocate(100_000, stream, AllocTag("above")).unwrap_or_else(fail));
        assert_eq!(above.report().live_blocks, 3);
        assert!(rig.pool.release(a).is_err(), "live blocks name it");
        for block in blocks {
            above.deallocate(block).unwrap_or_else(fail);
        }
        above.trim().unwrap_or_else(fail);
        assert_eq!((above.report().slabs, below.report().live_blocks), (0, 0));
    }
    for stream in [a, b] {
        rig.pool.release(stream).unwrap_or_else(fail);
    }
    drop(above);
    below.trim().unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!((rig.resource.bytes_outstanding(), rig.pool.stats().blocks), (0, 0));
}

fn wrong_handles_are_refused_and_change_nothing(device: TestDevice) {
    let (rig, pool) = pooled(device, None);
    let [a, b] = rig.streams();
    let zero = pool.allocate(0, a, AllocTag("zero"));
    assert!(matches!(zero, Err(ResourceError::Driver(_))), "{zero:?}");
    let unknown = pool.allocate(64, StreamId(77), AllocTag("unknown"));
    assert!(matches!(unknown, Err(ResourceError::StreamMisuse(_))), "{unknown:?}");
    let huge = pool.allocate(usize::MAX, a, AllocTag("huge"));
    assert!(matches!(huge, Err(ResourceError::Driver(_))), "{huge:?}");
    let (live, gone) = (rig.block(4096, a), rig.block(4096, a));
    rig.touch(&live, b, Access::Read);
    let stale = handle_of(&gone);
    rig.runtime.deallocate(gone).unwrap_or_else(fail);
    let of_driver = rig.resource.allocate(4096, a, AllocTag("not the pool's")).unwrap_or_else(fail);
    let wrong = [
        handle_of(&stale),
        handle_of(&of_driver),
        DeviceBlock { ptr: live.ptr + 256, ..handle_of(&live) },
        DeviceBlock { generation: Generation::next(), ..handle_of(&live) },
        DeviceBlock { device_ordinal: 3, ..handle_of(&live) },
        DeviceBlock { alloc_stream: StreamId(99), ..handle_of(&live) },
    ];
    let before = (pool.report(), rig.books());
    for block in wrong {
        let text = format!("{block:?}");
        let (returned, _) = pool.try_deallocate(handle_of(&block)).expect_err(&text);
        assert_eq!(BlockId::from_block(&returned), BlockId::from_block(&block));
        pool.deallocate(block).expect_err(&text);
        assert_eq!((pool.report(), rig.books()), before, "{text}");
    }
    let again = rig.block(4096, a);
    assert_eq!(again.ptr, stale.ptr, "the same memory under another name");
    assert!(pool.deallocate(stale).is_err(), "the old handle does not tear it down");
    rig.runtime.deallocate(again).unwrap_or_else(fail);
    rig.runtime.deallocate(live).unwrap_or_else(fail);
    rig.resource.deallocate(of_driver).unwrap_or_else(fail);
}

fn a_free_between_preflight_and_commit_waits_for_the_commit(device: TestDevice) {
    let (rig, pool) = pooled(device, None);
    let [a] = rig.streams();
    let data = slice(&rig, 1024, a);
    let ptr = data.ptr();
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.write(&data);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    drop(data);
    assert_eq!(pool.report().live_blocks, 1, "the launch still has it");
    let other = slice(&rig, 1024, a);
    assert_ne!(other.ptr(), ptr);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(pool.report().live_blocks, 1, "now it is free");
    assert_eq!(slice(&rig, 1024, a).ptr(), ptr);
}

fn the_maximum_is_exact_and_the_pool_usable_after_a_refusal(device: TestDevice) {
    let (rig, pool) = pooled(device, Some(3 * SLAB));
    let [a, b] = rig.streams();
    let held: Vec<_> = [a, b, a].map(|stream| rig.block(SLAB, stream)).into();
    let refused = pool.allocate(1, a, AllocTag("one more"));
    assert_eq!(refused.err(), Some(ResourceError::OutOfBudget { requested: SLAB, remaining: 0 }));
    assert_eq!((pool.report().slab_bytes, pool.bytes_outstanding()), (3 * SLAB, 3 * SLAB));
    for block in held {
        rig.runtime.deallocate(block).unwrap_or_else(fail);
    }
    // Three slabs of two streams: none is large enough, so they are given back for one that is.
    let large = rig.block(3 * SLAB, b);
    assert_eq!(pool.report().slab_bytes, 3 * SLAB);
    rig.runtime.deallocate(large).unwrap_or_else(fail);
}

fn trim_gives_back_what_nobody_uses_and_no_more(device: TestDevice) {
    let (rig, pool) = pooled(device, None);
    let [a, b] = rig.streams();
    let (first, second) = (rig.block(SLAB, a), rig.block(SLAB, b));
    let small = rig.block(256, a);
    rig.touch(&second, a, Access::Read);
    rig.runtime.deallocate(second).unwrap_or_else(fail);
    assert_eq!(pool.report().slabs, 3);
    pool.trim().unwrap_or_else(fail);
    assert_eq!((pool.report().slabs, pool.report().live_blocks), (2, 2));
    rig.runtime.deallocate(first).unwrap_or_else(fail);
    rig.runtime.deallocate(small).unwrap_or_else(fail);
    pool.trim().unwrap_or_else(fail);
    assert_eq!(pool.report(), Default::default());
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!((rig.resource.bytes_outstanding(), rig.pool.stats().blocks), (0, 0));
}

fn a_dropped_pool_gives_everything_back(device: TestDevice) {
    let (rig, pool) = pooled(device, None);
    let Rig { driver: _driver, device: _device, pool: streams, resource, runtime, manager } = rig;
    let [a, b] = [streams.acquire().unwrap_or_else(fail), streams.acquire().unwrap_or_else(fail)];
    for stream in [a, b] {
        let block = pool.allocate(1 << 20, stream, AllocTag("gone")).unwrap_or_else(fail);
        pool.deallocate(block).unwrap_or_else(fail);
    }
    drop((manager, runtime, pool));
    resource.reap_pending().unwrap_or_else(fail);
    assert_eq!((resource.bytes_outstanding(), streams.stats().blocks), (0, 0));
}

fn each_failing_driver_call_leaves_the_books_exact(device: TestDevice) {
    for call in [DriverCall::AllocateOn, DriverCall::RecordEvent, DriverCall::CreateEvent] {
        let (rig, pool) = pooled(device, None);
        let [a, _b] = rig.streams();
        rig.driver.fail_always(call);
        let refused = pool.allocate(4096, a, AllocTag("fails"));
        rig.driver.heal();
        match refused {
            Err(error) => assert!(is_injected(&error), "{call:?}: {error}"),
            Ok(block) => pool.deallocate(block).unwrap_or_else(fail),
        }
        assert_eq!((pool.bytes_outstanding(), pool.report().live_blocks), (0, 0), "{call:?}");
        let block = rig.block(4096, a);
        rig.runtime.deallocate(block).unwrap_or_else(fail);
        pool.trim().unwrap_or_else(fail);
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!(rig.resource.bytes_outstanding(), 0, "{call:?}: nothing was lost");
    }
    // A wait that cannot be queued: the memory stays where it was.
    let (rig, pool) = pooled(device, Some(SLAB));
    let [a, b] = rig.streams();
    let block = rig.block(SLAB, a);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.touch(&block, a, Access::Write);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    let before = pool.report().live_bytes;
    rig.driver.fail_after(DriverCall::WaitEvent, 0, 1);
    let refused = pool.allocate(SLAB, b, AllocTag("fails")).expect_err("the wait failed");
    assert!(is_injected(&refused), "{refused}");
    assert_eq!(pool.report().live_bytes, before);
    let block = rig.block(SLAB, b);
    gate.open();
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn a_slab_that_cannot_be_given_back_stays_in_the_pool(device: TestDevice) {
    let (rig, pool) = pooled(device, None);
    let [a] = rig.streams();
    let block = rig.block(4096, a);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    let error = pool.trim().expect_err("the driver failed");
    assert!(is_injected(&error), "{error}");
    assert_eq!((pool.report().slabs, pool.report().slab_bytes), (1, SLAB));
    let block = rig.block(4096, a);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    pool.trim().unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!((pool.report().slabs, rig.resource.bytes_outstanding()), (0, 0));
}
