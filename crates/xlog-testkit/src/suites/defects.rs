//! Defects seen in systems of this kind, under their numbers in the list of them: each test is a
//! program that such a system gets wrong.
//!
//! Where two threads must meet at one place, a stalled driver call makes them, so that a system
//! with the defect fails every time. Numbers 5 and 6 are about suballocation, which this resource
//! leaves to the driver.

use std::{
    panic::catch_unwind,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use xlog_cuda::{
    CudaDevice,
    device_runtime::{Access, BlockId, BlockUse, ResourceError, StreamId},
    launch::LaunchRecorder,
    memory::TrackedCudaSlice,
};
use xlog_driver::DeviceKind;

use super::support::{copy_raw, handle_of, recycled, warm_up};
use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, eventually, fail};

pub(super) const CASES: &[TestCase] = cases![
    defect_01_a_writer_waits_for_readers_on_every_stream,
    defect_02_readers_do_not_pile_up_between_writes,
    defect_03_a_wait_counts_only_once_it_stands_in_the_stream,
    defect_04_a_launch_that_overtakes_another_on_its_stream_hides_nothing,
    defect_04_threads_on_one_stream_lose_no_read,
    defect_07_two_writers_never_see_the_same_predecessor,
    defect_07_racing_writers_lose_no_update,
    defect_08_the_first_use_on_another_stream_does_not_meet_recycled_bytes,
    defect_09_a_stale_handle_does_not_touch_the_block_at_its_address,
    defect_10_a_commit_that_cannot_record_waits_for_the_work_instead,
    defect_10_work_that_can_be_neither_recorded_nor_awaited_is_never_reused,
    defect_10_a_copy_that_fails_half_way_gives_up_its_claims,
    defect_11_a_reap_that_waits_blocks_nobody_else,
    defect_12_a_copy_records_its_read_on_the_stream_that_copies,
    defect_13_a_failed_free_loses_neither_the_memory_nor_its_name,
    defect_14_a_gpu_test_without_a_gpu_fails,
];

const LEN: usize = 512;
/// Long enough for a missing wait to show, nearly always; a correct program uses all of it.
const MOMENT: Duration = Duration::from_millis(10);
/// Long enough for any device to get done what it can.
const PLENTY: Duration = Duration::from_secs(10);

fn values(slice: &TrackedCudaSlice<u32>) -> Vec<u32> {
    slice.download().unwrap_or_else(fail)
}

/// One read event for each buffer, re-recorded: after readers on a and b, a writer waits for b
/// only.
fn defect_01_a_writer_waits_for_readers_on_every_stream(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    warm_up(&rig, LEN, &[a, b, c]);
    let (data, seen_by_a, seen_by_b) =
        (rig.filled(LEN, 7, c), rig.filled(LEN, 0, a), rig.filled(LEN, 0, b));
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.copy(&data, &seen_by_a, a).unwrap_or_else(fail);
    rig.copy(&data, &seen_by_b, b).unwrap_or_else(fail);
    rig.fill(&data, 9, c).unwrap_or_else(fail);
    let early = eventually(MOMENT, || rig.is_idle(c));
    gate.open();
    assert!(!early, "the writer forgot the first reader");
    assert_eq!((values(&seen_by_a), values(&seen_by_b)), (vec![7; LEN], vec![7; LEN]));
}

/// A reader list that grows with every launch until the next write.
fn defect_02_readers_do_not_pile_up_between_writes(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; 3] = rig.streams();
    let block = rig.block(64, streams[0]);
    for round in 0..5_000 {
        rig.touch(&block, streams[round % 3], Access::Read);
    }
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(4));
    let events = rig.driver.count(DriverCall::CreateEvent);
    assert!(events <= 4_000, "{events} events for reads that are long over");
    for round in 0..20_000 {
        rig.touch(&block, streams[round % 3], Access::Read);
        if round % 500 == 0 {
            rig.runtime.synchronize(streams[round % 3]).unwrap_or_else(fail);
        }
    }
    let more = rig.driver.count(DriverCall::CreateEvent);
    assert!(more <= 5_000, "{more} events: they are not used again");
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(4));
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

/// A pair of streams marked as synchronised before the wait is issued: a second thread skips the
/// wait and launches first. The first thread is stopped right before its wait reaches the device.
fn defect_03_a_wait_counts_only_once_it_stands_in_the_stream(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let (data, first_seen, second_seen) =
        (rig.filled(LEN, 0, a), rig.filled(LEN, 0, b), rig.filled(LEN, 0, b));
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    let second_launched = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stall = rig.driver.stall(DriverCall::WaitEvent);
        scope.spawn(|| rig.copy(&data, &first_seen, b).unwrap_or_else(fail));
        stall.wait_until_entered();
        scope.spawn(|| {
            rig.copy(&data, &second_seen, b).unwrap_or_else(fail);
            second_launched.store(true, Ordering::SeqCst);
        });
        let early = eventually(MOMENT, || second_launched.load(Ordering::SeqCst));
        // Had it launched without the wait, it would be done before the writer is let go.
        let ran = early && eventually(MOMENT, || rig.is_idle(b));
        drop(stall);
        gate.open();
        assert!(!ran, "the second thread believed in a wait that was not there yet");
    });
    assert_eq!((values(&first_seen), values(&second_seen)), (vec![7; LEN], vec![7; LEN]));
}

/// Event numbers drawn before the record: of two launches on one stream, the one that began first
/// is enqueued last, and "latest wins" drops it.
fn defect_04_a_launch_that_overtakes_another_on_its_stream_hides_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let (data, slow, quick) = (rig.filled(LEN, 7, a), rig.filled(LEN, 0, a), rig.filled(LEN, 0, a));
    let gate = Gate::new(&rig);
    let (mut first, mut second) = (LaunchRecorder::new_strict(a), LaunchRecorder::new_strict(a));
    first.read(&data).write(&slow);
    second.read(&data).write(&quick);
    first.preflight(&rig.runtime).unwrap_or_else(fail);
    second.preflight(&rig.runtime).unwrap_or_else(fail);
    copy_raw(&rig, &data, &quick, a);
    second.commit(&rig.runtime).unwrap_or_else(fail);
    gate.hold(&rig, a);
    copy_raw(&rig, &data, &slow, a);
    first.commit(&rig.runtime).unwrap_or_else(fail);
    rig.fill(&data, 9, b).unwrap_or_else(fail);
    let early = eventually(MOMENT, || rig.is_idle(b));
    gate.open();
    assert!(!early, "the writer waited for the launch that was recorded first only");
    assert_eq!((values(&slow), values(&quick)), (vec![7; LEN], vec![7; LEN]));
}

/// The same by threads: four read one block on one stream and are stopped at no place of their
/// choosing; a writer that comes behind a gate must still be behind all of them.
fn defect_04_threads_on_one_stream_lose_no_read(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let data = rig.filled(LEN, 0, a);
    let seen: Vec<_> = (0..4).map(|_| rig.filled(LEN, 0, a)).collect();
    for round in 1..20u32 {
        rig.fill(&data, round, a).unwrap_or_else(fail);
        let gate = Gate::new(&rig);
        gate.hold(&rig, a);
        std::thread::scope(|scope| {
            for seen in &seen {
                let (rig, data) = (&rig, &data);
                scope.spawn(move || rig.copy(data, seen, a).unwrap_or_else(fail));
            }
        });
        rig.fill(&data, 0xdead, b).unwrap_or_else(fail);
        gate.open();
        for seen in &seen {
            assert_eq!(values(seen), [round; LEN], "round {round}");
        }
    }
}

/// Prepare, launch and finish not atomic: two threads that write one block on two streams see the
/// same predecessor. The first is stopped between its waits and its launch.
fn defect_07_two_writers_never_see_the_same_predecessor(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let data = rig.filled(LEN, 0, a);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    let second_launched = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stall = rig.driver.stall(DriverCall::Launch);
        scope.spawn(|| rig.increment(&data, 1, a).unwrap_or_else(fail));
        stall.wait_until_entered();
        scope.spawn(|| {
            rig.increment(&data, 1, b).unwrap_or_else(fail);
            second_launched.store(true, Ordering::SeqCst);
        });
        let early = eventually(MOMENT, || second_launched.load(Ordering::SeqCst));
        drop(stall);
        assert!(!early, "the second writer planned against a state about to change");
    });
    // Both are enqueued; the second waits for the first, which is held.
    let early = eventually(MOMENT, || rig.is_idle(b));
    gate.open();
    assert!(!early, "the second writer did not wait for the first");
    assert_eq!(values(&data), [2; LEN]);
}

fn defect_07_racing_writers_lose_no_update(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; 4] = rig.streams();
    warm_up(&rig, LEN, &streams);
    let data = rig.filled(LEN, 0, streams[0]);
    std::thread::scope(|scope| {
        for stream in streams {
            let (rig, data) = (&rig, &data);
            scope.spawn(move || {
                for _ in 0..250 {
                    rig.increment(data, 1, stream).unwrap_or_else(fail);
                }
            });
        }
    });
    assert_eq!(values(&data), [1_000; LEN]);
}

/// No allocation-ready dependency: the first use on another stream meets recycled bytes, here a
/// held write of the block that had the address before.
fn defect_08_the_first_use_on_another_stream_does_not_meet_recycled_bytes(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let old = rig.filled(LEN, 0, a);
    let address = old.ptr();
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.fill(&old, 9, a).unwrap_or_else(fail);
    drop(old);
    let new = recycled(&rig, LEN, a, address).expect("reused at once on its own stream");
    rig.fill(&new, 7, b).unwrap_or_else(fail);
    let early = eventually(MOMENT, || rig.is_idle(b));
    gate.open();
    assert!(!early, "the new block was used before its memory was its own");
    assert_eq!(values(&new), [7; LEN]);
}

fn defect_09_a_stale_handle_does_not_touch_the_block_at_its_address(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let old = rig.block(4 * LEN, a);
    let (stale, id) = (handle_of(&old), BlockId::from_block(&old));
    rig.runtime.deallocate(old).unwrap_or_else(fail);
    let new = recycled(&rig, LEN, a, id.ptr).expect("reused at once on its own stream");
    rig.fill(&new, 7, b).unwrap_or_else(fail);
    let (live, count) = (rig.resource.live_bytes(), rig.resource.pending_use_event_count(id.ptr));
    let refused = Err(ResourceError::UseAfterFree { generation: id.generation });
    assert_eq!(rig.runtime.prepare_block_use(id, b, Access::Write), refused);
    assert_eq!(rig.runtime.finish_block_use(id, b, Access::Write), refused);
    assert_eq!(rig.runtime.record_block_use(&stale, b), refused);
    assert_eq!(rig.runtime.finish_uses(&[BlockUse::new(id, Access::Read)], a), refused);
    assert_eq!(rig.runtime.deallocate(stale), refused);
    assert_eq!(rig.resource.live_bytes(), live);
    assert_eq!(rig.resource.pending_use_event_count(id.ptr), count);
    assert_eq!(values(&new), [7; LEN]);
}

/// Commit stops at the first error, and later blocks of a launch already in flight go unrecorded.
/// Here the record itself fails, and the commit must wait for the launch, which a gate holds.
fn defect_10_a_commit_that_cannot_record_waits_for_the_work_instead(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let (data, seen) = (rig.filled(LEN, 7, a), rig.filled(LEN, 0, a));
    let gate = Gate::new(&rig);
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.read(&data).write(&seen);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    gate.hold(&rig, a);
    copy_raw(&rig, &data, &seen, a);
    rig.driver.fail_after(DriverCall::RecordEvent, 0, 1);
    let before = rig.driver.count(DriverCall::SynchronizeStream);
    let committed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (rig, committed) = (&rig, &committed);
        scope.spawn(move || {
            let answer = recorder.commit(&rig.runtime);
            committed.store(true, Ordering::SeqCst);
            assert!(matches!(answer, Err(ResourceError::Driver(_))), "{answer:?}");
        });
        let waits = eventually(PLENTY, || rig.driver.count(DriverCall::SynchronizeStream) > before);
        let early = eventually(MOMENT, || committed.load(Ordering::SeqCst));
        gate.open();
        assert!(waits && !early, "work in flight was left without protection");
    });
    // Both blocks, not only the first: whoever comes now comes after.
    rig.fill(&data, 9, b).unwrap_or_else(fail);
    assert_eq!(values(&seen), [7; LEN]);
}

fn defect_10_work_that_can_be_neither_recorded_nor_awaited_is_never_reused(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let blocks = [rig.block(4096, a), rig.block(4096, a)];
    let uses = blocks.each_ref().map(|b| BlockUse::new(BlockId::from_block(b), Access::Read));
    rig.runtime.prepare_uses(&uses, b).unwrap_or_else(fail);
    rig.driver.fail_after(DriverCall::RecordEvent, 0, 1);
    rig.driver.fail_after(DriverCall::SynchronizeStream, 0, 1);
    rig.runtime.finish_uses(&uses, b).expect_err("neither worked");
    rig.driver.heal();
    let (addresses, live) = (blocks.each_ref().map(|b| b.ptr), rig.resource.live_bytes());
    let frees = rig.driver.count_during(DriverCall::FreeOn, || {
        for block in blocks {
            rig.runtime.deallocate(block).expect_err("never reused");
        }
        rig.runtime.reap_pending().unwrap_or_else(fail);
    });
    assert_eq!(frees, 0);
    assert_eq!(rig.resource.live_bytes(), live, "the memory is still known");
    assert_eq!(rig.books().tracker.leaked_blocks, 2, "and counted");
    let next = rig.block(4096, a);
    assert!(!addresses.contains(&next.ptr));
    rig.runtime.deallocate(next).unwrap_or_else(fail);
}

/// One piece of an upload is in flight when the next one fails: the error must leave the block
/// neither claimed nor unprotected.
fn defect_10_a_copy_that_fails_half_way_gives_up_its_claims(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    // More than one piece, and staging memory for both before anything is held.
    const MANY: usize = 3 << 20;
    let (mut data, sevens) = (rig.zeros(MANY, a), vec![7; MANY]);
    data.upload_on(&vec![0; MANY], b).unwrap_or_else(fail);
    rig.runtime.synchronize(b).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, b);
    rig.driver.fail_after(DriverCall::CopyToDevice, 1, 1);
    let answer = data.upload_on(&sevens, b);
    rig.driver.heal();
    assert!(matches!(answer, Err(ResourceError::Driver(_))), "{answer:?}");
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.read_write(&data);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    let early = eventually(MOMENT, || rig.is_idle(a));
    gate.open();
    assert!(!early, "the first piece is in flight, and nobody waits for it");
    assert_eq!(values(&data)[0], 7);
}

/// Reap blocks everyone behind a lock. The reaper waits for a held stream; everybody else, on
/// that stream and on others, goes on.
fn defect_11_a_reap_that_waits_blocks_nobody_else(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let (on_a, on_b) = (rig.filled(LEN, 0, a), rig.filled(LEN, 0, b));
    let pending = rig.block(4096, a);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.runtime.deallocate(pending).unwrap_or_else(fail);
    std::thread::scope(|scope| {
        let before = rig.driver.count(DriverCall::SynchronizeStream);
        let reaper = scope.spawn(|| rig.runtime.reap_pending());
        let waits = eventually(PLENTY, || rig.driver.count(DriverCall::SynchronizeStream) > before);
        for stream in [a, b] {
            let block = rig.block(1024, stream);
            rig.touch(&block, b, Access::Write);
            rig.touch(&block, a, Access::Read);
            rig.runtime.deallocate(block).unwrap_or_else(fail);
        }
        rig.fill(&on_a, 7, a).unwrap_or_else(fail);
        rig.fill(&on_b, 7, b).unwrap_or_else(fail);
        rig.runtime.try_reap().unwrap_or_else(fail);
        let extra = rig.pool.acquire().unwrap_or_else(fail);
        rig.pool.release(extra).unwrap_or_else(fail);
        let books = rig.books();
        // A gate that opened by itself, after a long time, would have let the reaper go.
        let all_along = !reaper.is_finished();
        gate.open();
        assert!(waits && all_along, "others had to wait for the reaper");
        assert!(books.pending_free_bytes >= 4096 && books.live_bytes > 0);
        reaper.join().unwrap().unwrap_or_else(fail);
    });
    assert_eq!((values(&on_a), values(&on_b)), (vec![7; LEN], vec![7; LEN]));
}

/// A copy records the read on the source's stream rather than on the copying one: then a writer on
/// the source's own stream does not wait for the copy.
fn defect_12_a_copy_records_its_read_on_the_stream_that_copies(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    warm_up(&rig, LEN, &[a, b, c]);
    let (source, mut target) = (rig.filled(LEN, 7, a), rig.filled(LEN, 0, b));
    let gate = Gate::new(&rig);
    gate.hold(&rig, c);
    target.copy_from(&source, c).unwrap_or_else(fail);
    assert_eq!(rig.resource.pending_use_event_count(source.ptr()), Some(2));
    let on_the_copying_stream = rig.driver.count_during(DriverCall::WaitEvent, || {
        let block = source.runtime_block().expect("a block");
        let id = BlockId::from_block(block);
        rig.runtime.prepare_block_use(id, c, Access::Write).unwrap_or_else(fail);
    });
    assert_eq!(on_the_copying_stream, 0, "the read is its own");
    let on_the_sources = rig.driver.count_during(DriverCall::WaitEvent, || {
        rig.fill(&source, 9, a).unwrap_or_else(fail);
    });
    assert_eq!(on_the_sources, 1, "the read is another stream's");
    let early = eventually(MOMENT, || rig.is_idle(a));
    gate.open();
    assert!(!early, "the source was overwritten before it was copied");
    assert_eq!((values(&target), values(&source)), (vec![7; LEN], vec![9; LEN]));
}

fn defect_13_a_failed_free_loses_neither_the_memory_nor_its_name(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    // Dropped as users drop them: nobody sees the error.
    let slices = [rig.filled(LEN, 0, a), rig.filled(LEN, 0, b)];
    let live = rig.resource.live_bytes();
    rig.driver.fail_after(DriverCall::FreeOn, 0, 2);
    drop(slices);
    rig.driver.heal();
    assert_eq!(rig.resource.live_bytes(), live);
    assert_eq!(rig.books().tracker.blocks, 2, "the runtime still knows them");
    let freed = rig.driver.count_during(DriverCall::FreeOn, || {
        rig.runtime.reap_pending().unwrap_or_else(fail);
    });
    assert_eq!((freed, rig.runtime.bytes_outstanding()), (2, 0));
    assert_eq!(rig.books().tracker.blocks, 0);
    let counts = [DriverCall::AllocateOn, DriverCall::FreeOn].map(|call| rig.driver.count(call));
    assert_eq!(counts[1] - counts[0], 2, "every allocation once, and the two that failed");
}

/// Tests that return early without a device and count as passed.
fn defect_14_a_gpu_test_without_a_gpu_fails(_: TestDevice) {
    let opened = catch_unwind(|| TestDevice::Cuda.driver().info().kind);
    match (opened, CudaDevice::new(0)) {
        (Ok(kind), Ok(_)) => assert_eq!(kind, DeviceKind::Cuda, "a GPU, and not the host"),
        (Err(panic), Err(missing)) => {
            let said = panic.downcast_ref::<String>().expect("a message");
            assert!(said.contains("needs a GPU"), "{said}");
            assert!(!missing.to_string().is_empty(), "and the error says what is missing");
        }
        (opened, device) => panic!("a test's GPU: {opened:?}; a program's: {device:?}"),
    }
    assert_eq!(TestDevice::Host.driver().info().kind, DeviceKind::Host);
}
