//! Record, preflight, enqueue, commit: each step's rule and refusals.

use std::sync::Arc;

use xlog_core::{Access, MemoryBudget};
use xlog_cuda::{
    GpuMemoryManager,
    device_runtime::{
        AllocTag, BlockId, DirectCudaResource, Generation, ResourceError, StreamId,
        XlogDeviceRuntime,
    },
    kernels,
    launch::{LaunchRecorder, RecorderMode},
    memory::{ArrowDeviceColumn, CudaColumn, DlpackColumn},
};

use super::super::support::{
    assert_says, assert_unclaimed, assert_works, block_of, comes_true, fill_raw, misuse, recycled,
    untracked,
};
use crate::{DriverCall, Gate, Rig, TestDevice, fail};

const DLPACK: CudaColumn = CudaColumn::Dlpack(DlpackColumn { ptr: 0x1000, bytes: 64 });
const ARROW: CudaColumn = CudaColumn::ArrowDevice(ArrowDeviceColumn { ptr: 0x2000, bytes: 64 });

#[track_caller]
fn new(mode: RecorderMode, stream: StreamId) -> LaunchRecorder {
    match mode {
        RecorderMode::Strict => LaunchRecorder::new_strict(stream),
        RecorderMode::Permissive => LaunchRecorder::new_permissive(stream),
    }
}

pub(super) fn recorders_say_their_stream_and_mode(_: TestDevice) {
    let strict = LaunchRecorder::new_strict(StreamId(7));
    let permissive = LaunchRecorder::new_permissive(StreamId::DEFAULT);
    assert_eq!((strict.launch_stream(), strict.mode()), (StreamId(7), RecorderMode::Strict));
    assert_eq!(permissive.launch_stream(), StreamId::DEFAULT);
    assert_eq!(permissive.mode(), RecorderMode::Permissive);
}

pub(super) fn counts_come_before_deduplication_and_without_the_skipped(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (one, two, bare) = (rig.zeros(8, stream), rig.zeros(8, stream), untracked(&rig, 8));
    let mut recorder = LaunchRecorder::new_permissive(stream);
    assert_eq!((recorder.recorded_count(), recorder.skipped_count()), (0, 0));
    recorder.read(&one).write(&one).read_write(&one).read(&two).read(&bare).write(&bare);
    recorder.read_column(&DLPACK);
    assert_eq!((recorder.recorded_count(), recorder.skipped_count()), (4, 3));
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    assert_eq!((recorder.recorded_count(), recorder.skipped_count()), (4, 3));
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    let mut strict = LaunchRecorder::new_strict(stream);
    strict.read(&one).read(&bare);
    assert_eq!((strict.recorded_count(), strict.skipped_count()), (1, 0), "refused, not skipped");
    misuse(strict.commit(&rig.runtime));
}

pub(super) fn strict_refuses_a_runtime_less_slice_in_preflight_and_in_commit(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (tracked, bare) = (rig.zeros(8, stream), untracked(&rig, 8));
    let before = rig.books();
    for record in [
        |r: &mut LaunchRecorder, s: &_| r.read(s).recorded_count(),
        |r: &mut LaunchRecorder, s: &_| r.write(s).recorded_count(),
        |r: &mut LaunchRecorder, s: &_| r.read_write(s).recorded_count(),
    ] {
        let mut recorder = LaunchRecorder::new_strict(stream);
        record(&mut recorder, &bare);
        let parts = ["untracked buffer rejected", "GpuMemoryManager::with_runtime"];
        assert_says(&misuse(recorder.preflight(&rig.runtime)), &parts);
        assert_says(&misuse(recorder.preflight(&rig.runtime)), &parts);
        assert_says(&misuse(recorder.commit(&rig.runtime)), &parts);
    }
    assert_eq!(rig.books(), before, "a refusal changes nothing");
    // A tracked buffer beside it does not get through either, and keeps no claim.
    let mut recorder = LaunchRecorder::new_strict(stream);
    recorder.write(&tracked).write(&bare);
    assert_says(&misuse(recorder.preflight(&rig.runtime)), &["untracked buffer rejected"]);
    assert_unclaimed(&rig, &tracked, stream);
    assert_says(&misuse(recorder.commit(&rig.runtime)), &["untracked buffer rejected"]);
    assert_works(&rig, stream);
}

pub(super) fn strict_refuses_external_columns_and_says_what_to_do(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    for (column, name) in [(&DLPACK, "DLPack"), (&ARROW, "Arrow")] {
        for write in [false, true] {
            let mut recorder = LaunchRecorder::new_strict(stream);
            if write {
                recorder.write_column(column);
            } else {
                recorder.read_column(column);
            }
            let refusal = misuse(recorder.preflight(&rig.runtime));
            assert_says(&refusal, &["untracked buffer rejected", name, "stream or event"]);
            assert_eq!(misuse(recorder.commit(&rig.runtime)), refusal);
        }
    }
}

pub(super) fn refusals_of_external_and_runtime_less_memory_differ(device: TestDevice) {
    let rig = Rig::new(device);
    let bytes = GpuMemoryManager::new(Arc::clone(&rig.device), MemoryBudget::unlimited());
    let bare = CudaColumn::owned(bytes.alloc(64).unwrap_or_else(fail));
    let refusal_of = |column: &CudaColumn| {
        let mut recorder = LaunchRecorder::new_strict(StreamId::DEFAULT);
        misuse(recorder.read_column(column).preflight(&rig.runtime))
    };
    let (external, runtime_less) = (refusal_of(&DLPACK), refusal_of(&bare));
    assert!(external.contains("another library") && !external.contains("with_runtime"));
    assert!(runtime_less.contains("with_runtime") && !runtime_less.contains("another library"));
}

pub(super) fn permissive_skips_what_it_cannot_track_and_launches(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (tracked, bare) = (rig.zeros(64, stream), untracked(&rig, 64));
    let mut recorder = LaunchRecorder::new_permissive(stream);
    recorder.write(&tracked).read(&bare).read_column(&ARROW).write_column(&DLPACK);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    fill_raw(&rig, &tracked, 5, stream);
    assert_eq!(recorder.skipped_count(), 3);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(tracked.download().unwrap_or_else(fail), [5; 64]);
    // With nothing tracked at all there is nothing to do, and nothing to refuse.
    let before = rig.books();
    let mut recorder = LaunchRecorder::new_permissive(stream);
    recorder.read(&bare).write_column(&ARROW);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(rig.books(), before);
}

pub(super) fn a_resource_without_tracking_is_refused_before_anything_is_enqueued(
    device: TestDevice,
) {
    let rig = Rig::new(device);
    let direct = DirectCudaResource::new(Arc::clone(&rig.device), 0);
    let runtime = Arc::new(XlogDeviceRuntime::with_resource(
        Arc::clone(&rig.device),
        0,
        Arc::clone(&rig.pool),
        Box::new(direct),
    ));
    assert!(!runtime.supports_block_use_tracking());
    let manager = GpuMemoryManager::with_runtime(
        Arc::clone(&rig.device),
        MemoryBudget::unlimited(),
        Arc::clone(&runtime),
    );
    let [stream] = rig.streams();
    let slice = manager.alloc::<u32>(16).unwrap_or_else(fail);
    let calls = |rig: &Rig| {
        [DriverCall::Launch, DriverCall::WaitEvent, DriverCall::RecordEvent]
            .map(|call| rig.driver.count(call))
    };
    let before = calls(&rig);
    for mode in [RecorderMode::Strict, RecorderMode::Permissive] {
        let mut recorder = new(mode, stream);
        let refusal = misuse(recorder.write(&slice).preflight(&runtime));
        assert_says(&refusal, &["does not support cross-stream use tracking"]);
        let refusal = misuse(recorder.commit(&runtime));
        assert_says(&refusal, &["without a successful preflight"]);
    }
    let kernel = runtime.load_kernel(&kernels::FILL_U32).unwrap_or_else(fail);
    let launched = xlog_cuda::launch::LaunchBuilder::new(&runtime, &kernel, stream)
        .output(&slice)
        .value(1u32)
        .value(16u64)
        .launch(xlog_cuda::LaunchDims::linear(1, 16));
    assert_says(&misuse(launched), &["does not support cross-stream use tracking"]);
    assert_eq!(calls(&rig), before, "nothing was enqueued");
}

pub(super) fn commit_without_preflight_is_refused_and_still_protects(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (data, seen) = (rig.zeros(64, a), rig.zeros(64, b));
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    for mode in [RecorderMode::Strict, RecorderMode::Permissive] {
        let mut recorder = new(mode, a);
        recorder.write(&data);
        let refusal = misuse(recorder.commit(&rig.runtime));
        assert_says(&refusal, &["without a successful preflight", file!()]);
    }
    // Whoever gets this wrong has work in flight by now: later work waits for it all the same.
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.write(&data);
    gate.hold(&rig, a);
    fill_raw(&rig, &data, 9, a);
    assert_says(&misuse(recorder.commit(&rig.runtime)), &["without a successful preflight"]);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    assert!(!comes_true(|| rig.is_idle(b)), "the reader waits for the refused launch");
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [9; 64]);
}

pub(super) fn a_use_recorded_after_preflight_is_refused_in_both_modes(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (first, late) = (rig.zeros(8, stream), rig.zeros(8, stream));
    let bare = untracked(&rig, 8);
    for mode in [RecorderMode::Strict, RecorderMode::Permissive] {
        for tracked in [true, false] {
            for same_block_again in [true, false] {
                let mut recorder = new(mode, stream);
                recorder.write(&first).preflight(&rig.runtime).unwrap_or_else(fail);
                match (tracked, same_block_again) {
                    (true, true) => recorder.read(&first),
                    (true, false) => recorder.read(&late),
                    (false, true) => recorder.read(&bare),
                    (false, false) => recorder.write_column(&DLPACK),
                };
                let again = misuse(recorder.preflight(&rig.runtime));
                assert_says(&again, &["recorded after preflight"]);
                let refusal = misuse(recorder.commit(&rig.runtime));
                assert_says(&refusal, &["recorded after preflight", file!()]);
                assert_unclaimed(&rig, &first, stream);
                assert_unclaimed(&rig, &late, stream);
            }
        }
    }
    assert_works(&rig, stream);
}

pub(super) fn a_late_use_of_an_empty_recorder_is_refused_too(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (late, bare) = (rig.zeros(8, stream), untracked(&rig, 8));
    for mode in [RecorderMode::Strict, RecorderMode::Permissive] {
        for tracked in [true, false] {
            let mut recorder = new(mode, stream);
            recorder.preflight(&rig.runtime).unwrap_or_else(fail);
            recorder.write(if tracked { &late } else { &bare });
            let again = misuse(recorder.preflight(&rig.runtime));
            assert_says(&again, &["recorded after preflight"]);
            assert_says(&misuse(recorder.commit(&rig.runtime)), &["recorded after preflight"]);
        }
    }
}

pub(super) fn an_empty_recorder_is_a_no_op_in_every_step(device: TestDevice) {
    let rig = Rig::new(device);
    let before = rig.books();
    // Not even the stream is looked at.
    for stream in [StreamId::DEFAULT, StreamId(4711)] {
        for mode in [RecorderMode::Strict, RecorderMode::Permissive] {
            let mut recorder = new(mode, stream);
            recorder.preflight(&rig.runtime).unwrap_or_else(fail);
            recorder.preflight(&rig.runtime).unwrap_or_else(fail);
            recorder.commit(&rig.runtime).unwrap_or_else(fail);
            new(mode, stream).commit(&rig.runtime).unwrap_or_else(fail);
            drop(new(mode, stream));
        }
    }
    assert_eq!(rig.books(), before);
    assert_eq!(rig.pool.stats().dropped_recorders, 0);
}

pub(super) fn several_registrations_of_a_block_are_one_use_of_the_strongest_access(
    device: TestDevice,
) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let data = rig.zeros(8, a);
    let count = || rig.resource.pending_use_event_count(data.ptr());
    let run = |stream, record: &dyn Fn(&mut LaunchRecorder)| {
        let mut recorder = LaunchRecorder::new_strict(stream);
        record(&mut recorder);
        // Two registrations that were two uses would refuse each other here.
        recorder.preflight(&rig.runtime).unwrap_or_else(fail);
        recorder.commit(&rig.runtime).unwrap_or_else(fail);
    };
    assert_eq!(count(), Some(1));
    run(b, &|r| {
        r.read(&data).read(&data).read(&data);
    });
    assert_eq!(count(), Some(2), "three reads are one reading stream");
    run(b, &|r| {
        r.read(&data).write(&data);
    });
    assert_eq!(count(), Some(1), "read and write is a write: it replaces the reads");
    run(a, &|r| {
        r.read(&data);
    });
    assert_eq!(count(), Some(2));
    run(b, &|r| {
        r.write(&data).read(&data).read(&data);
    });
    assert_eq!(count(), Some(1), "the order of registration does not matter");
}

pub(super) fn blocks_are_told_apart_by_generation_not_by_address(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream, other] = rig.streams();
    let old = rig.zeros(64, stream);
    let (address, old_id) = (old.ptr(), BlockId::from_block(block_of(&old)));
    let mut recorder = LaunchRecorder::new_strict(other);
    recorder.read(&old);
    drop(old);
    let new = recycled(&rig, 64, stream, address).expect("reused at once on its own stream");
    assert!(block_of(&new).generation > old_id.generation);
    recorder.read(&new);
    assert_eq!(recorder.recorded_count(), 2);
    let refusal = misuse(recorder.preflight(&rig.runtime));
    assert_says(&refusal, &["use after free", &old_id.generation.0.to_string()]);
    // The refused commit publishes what it can: the new block's read, which the old registration
    // at the same address did not swallow.
    assert_eq!(rig.resource.pending_use_event_count(address), Some(1));
    misuse(recorder.commit(&rig.runtime));
    assert_eq!(rig.resource.pending_use_event_count(address), Some(2));
    // An ordinal that is not ours makes it another block, too.
    let foreign = BlockId { device_ordinal: 5, ..BlockId::from_block(block_of(&new)) };
    let refused = rig.runtime.prepare_block_use(foreign, stream, Access::Read);
    assert!(matches!(refused, Err(ResourceError::Driver(_))), "{refused:?}");
    let stale = rig.runtime.prepare_block_use(old_id, stream, Access::Read);
    assert_eq!(stale, Err(ResourceError::UseAfterFree { generation: old_id.generation }));
    let unknown = BlockId { generation: Generation(u64::MAX), ..old_id };
    assert!(rig.runtime.finish_block_use(unknown, stream, Access::Write).is_err());
}

pub(super) fn one_launch_records_one_event_however_many_blocks(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let slices: Vec<_> = (0..20).map(|_| rig.zeros(8, stream)).collect();
    let before = rig.driver.count(DriverCall::RecordEvent);
    let mut recorder = LaunchRecorder::new_strict(stream);
    slices.iter().for_each(|slice| {
        recorder.read_write(slice);
    });
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(rig.driver.count(DriverCall::RecordEvent), before + 1);
}

pub(super) fn recording_lets_go_of_the_borrow(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let mut data = rig.zeros(8, stream);
    let mut recorder = LaunchRecorder::new_strict(stream);
    recorder.read(&data);
    // The slice is borrowed mutably, and used by another launch, while the recorder lives.
    data.upload_on(&[3; 8], stream).unwrap_or_else(fail);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(data.download().unwrap_or_else(fail), [3; 8]);
}

pub(super) fn views_and_columns_are_recorded_like_slices(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let data = rig.zeros(64, a);
    let bytes = rig.manager.alloc_on::<u8>(64, a, AllocTag("bytes")).unwrap_or_else(fail);
    let (data_at, bytes_at) = (data.ptr(), bytes.ptr());
    let column = CudaColumn::owned(bytes);
    let count = |at| rig.resource.pending_use_event_count(at);
    let (front, back) = (data.view(..8).unwrap_or_else(fail), data.view(32..).unwrap_or_else(fail));
    let run = |record: &dyn Fn(&mut LaunchRecorder)| {
        let mut recorder = LaunchRecorder::new_strict(b);
        record(&mut recorder);
        recorder.preflight(&rig.runtime).unwrap_or_else(fail);
        recorder.commit(&rig.runtime).unwrap_or_else(fail);
    };
    run(&|r| {
        r.read_view(&front).read_view(&back).read_column(&column);
    });
    assert_eq!((count(data_at), count(bytes_at)), (Some(2), Some(2)));
    run(&|r| {
        r.read_view(&front).write_view(&back).write_column(&column);
    });
    assert_eq!((count(data_at), count(bytes_at)), (Some(1), Some(1)), "two views, one block");
    run(&|r| {
        r.read_write_view(&front);
    });
    assert_eq!(count(data_at), Some(1));
}

pub(super) fn preflight_queues_the_waits_and_commit_publishes(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let (data, seen) = (rig.zeros(64, a), rig.zeros(64, c));
    rig.copy(&data, &seen, c).unwrap_or_else(fail);
    fill_raw(&rig, &seen, 0, c);
    rig.runtime.synchronize(c).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.fill(&data, 1, a).unwrap_or_else(fail);
    let waits = rig.driver.count(DriverCall::WaitEvent);
    let mut recorder = LaunchRecorder::new_strict(b);
    recorder.write(&data);
    assert_eq!(rig.driver.count(DriverCall::WaitEvent), waits, "recording queues nothing");
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    let queued = rig.driver.count(DriverCall::WaitEvent);
    assert!(queued > waits, "the wait stands in the stream before the work does");
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(rig.driver.count(DriverCall::WaitEvent), queued, "a second preflight adds nothing");
    fill_raw(&rig, &data, 2, b);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    rig.copy(&data, &seen, c).unwrap_or_else(fail);
    assert!(!comes_true(|| rig.is_idle(b) || rig.is_idle(c)), "both are behind the gate");
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [2; 64]);
}

pub(super) fn a_failed_preflight_publishes_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (data, other) = (rig.zeros(64, a), rig.zeros(64, b));
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.fill(&data, 1, a).unwrap_or_else(fail);
    let records = rig.driver.count(DriverCall::RecordEvent);
    rig.driver.fail_after(DriverCall::WaitEvent, 0, 1);
    let mut recorder = LaunchRecorder::new_strict(b);
    recorder.read(&data).write(&other);
    let refused = recorder.preflight(&rig.runtime);
    assert!(matches!(&refused, Err(error) if super::super::support::is_injected(error)));
    assert_eq!(rig.resource.pending_use_event_count(data.ptr()), Some(1), "no read published");
    assert_eq!(rig.driver.count(DriverCall::RecordEvent), records);
    assert_unclaimed(&rig, &other, b);
    // The same recorder may try again, now that the driver answers.
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(rig.resource.pending_use_event_count(data.ptr()), Some(2));
    gate.open();
}

pub(super) fn a_stale_block_is_refused_by_preflight_as_misuse(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (stale, good) = (rig.zeros(8, stream), rig.zeros(8, stream));
    let generation = block_of(&stale).generation;
    let mut recorder = LaunchRecorder::new_strict(stream);
    recorder.write(&good).read(&stale);
    drop(stale);
    let before = rig.books();
    let refusal = misuse(recorder.preflight(&rig.runtime));
    assert_says(&refusal, &["use after free", &generation.0.to_string()]);
    assert_eq!(rig.books(), before);
    assert_unclaimed(&rig, &good, stream);
    misuse(recorder.commit(&rig.runtime));
}

pub(super) fn a_recorder_of_an_unknown_stream_is_refused(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let data = rig.zeros(8, stream);
    let before = rig.books();
    let mut recorder = LaunchRecorder::new_strict(StreamId(4711));
    recorder.write(&data);
    assert_says(&misuse(recorder.preflight(&rig.runtime)), &["4711", "StreamPool::acquire"]);
    assert_says(&misuse(recorder.commit(&rig.runtime)), &["without a successful preflight"]);
    assert_eq!(rig.books(), before);
    assert_unclaimed(&rig, &data, stream);
}

pub(super) fn a_recorder_committed_on_another_runtime_is_refused_and_protects(device: TestDevice) {
    let (rig, other) = (Rig::new(device), Rig::new(device));
    let [a, b] = rig.streams();
    let (data, seen) = (rig.zeros(64, a), rig.zeros(64, b));
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.write(&data).preflight(&rig.runtime).unwrap_or_else(fail);
    assert_says(&misuse(recorder.preflight(&other.runtime)), &["another runtime"]);
    gate.hold(&rig, a);
    fill_raw(&rig, &data, 4, a);
    assert_says(&misuse(recorder.commit(&other.runtime)), &["another runtime"]);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    assert!(!comes_true(|| rig.is_idle(b)), "the reader waits for the launch");
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [4; 64]);
    assert_eq!(other.pool.stats().blocks, 0);
}
