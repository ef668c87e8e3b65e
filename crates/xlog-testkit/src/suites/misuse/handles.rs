//! Handles that name nothing, or nothing of ours; and recorders used out of order.

use std::sync::Arc;

use xlog_core::Access;
use xlog_cuda::{
    device_runtime::{
        AllocTag, BlockId, BlockUse, DeviceBlock, DeviceMemoryResource, DirectCudaResource,
        Generation, ResourceError, ResourceResult, StreamId,
    },
    launch::{LaunchRecorder, RecorderMode},
};

use super::super::support::{
    assert_says, assert_unclaimed, assert_works, block_of, handle_of, misuse, recycled, untracked,
    within,
};
use crate::{Rig, TestDevice, fail};

/// Every call that takes a block, on the runtime and on the resource under it.
fn every_call(rig: &Rig, block: &DeviceBlock, stream: StreamId) -> Vec<ResourceResult<()>> {
    let id = BlockId::from_block(block);
    let uses = [BlockUse::new(id, Access::Write)];
    let (runtime, resource) = (&rig.runtime, &rig.resource);
    let mut answers = vec![
        runtime.prepare_block_use(id, stream, Access::Read),
        runtime.finish_block_use(id, stream, Access::ReadWrite),
        runtime.record_block_use(block, stream),
        runtime.prepare_uses(&uses, stream),
        runtime.finish_uses(&uses, stream),
        resource.prepare_block_use(id, stream, Access::Write),
        resource.finish_block_use(id, stream, Access::Read),
        resource.record_block_use(block, stream),
        resource.prepare_uses(&uses, stream),
        resource.finish_uses(&uses, stream),
    ];
    if stream == block.alloc_stream {
        answers.push(runtime.deallocate(handle_of(block)));
        answers.push(resource.deallocate(handle_of(block)));
        for answer in
            [runtime.try_deallocate(handle_of(block)), resource.try_deallocate(handle_of(block))]
        {
            answers.push(answer.map_err(|(returned, error)| {
                assert_eq!(BlockId::from_block(&returned), id, "the block comes back");
                error
            }));
        }
    }
    answers
}

#[track_caller]
fn assert_all(answers: Vec<ResourceResult<()>>, is_right: impl Fn(&ResourceError) -> bool) {
    for (index, answer) in answers.into_iter().enumerate() {
        assert!(answer.as_ref().is_err_and(&is_right), "call {index}: {answer:?}");
    }
}

pub(super) fn a_stale_handle_is_refused_by_every_call(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.runtime.allocate(256, stream, AllocTag("gone")).unwrap_or_else(fail);
    let stale = handle_of(&block);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    let expected = ResourceError::UseAfterFree { generation: stale.generation };
    let before = rig.books();
    assert_all(every_call(&rig, &stale, stream), |error| *error == expected);
    let never =
        DeviceBlock { ptr: 0xdead_0000, generation: Generation(u64::MAX), ..handle_of(&stale) };
    let expected = ResourceError::UseAfterFree { generation: never.generation };
    assert_all(every_call(&rig, &never, stream), |error| *error == expected);
    assert_eq!(rig.books(), before);
    assert_eq!(rig.resource.pending_use_event_count(stale.ptr), None);
    assert_eq!(rig.resource.pending_use_event_count(0), None);
    assert_works(&rig, stream);
}

pub(super) fn a_stale_handle_does_not_reach_the_block_at_its_address(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream, other] = rig.streams();
    let old = rig.zeros(64, stream);
    let stale = handle_of(block_of(&old));
    drop(old);
    let new = recycled(&rig, 64, stream, stale.ptr).expect("reused at once on its own stream");
    rig.fill(&new, 5, stream).unwrap_or_else(fail);
    let expected = ResourceError::UseAfterFree { generation: stale.generation };
    let before = rig.books();
    assert_all(every_call(&rig, &stale, stream), |error| *error == expected);
    assert_all(every_call(&rig, &stale, other), |error| *error == expected);
    assert_eq!(rig.books(), before);
    assert_eq!(rig.resource.pending_use_event_count(new.ptr()), Some(1));
    assert_eq!(new.download().unwrap_or_else(fail), [5; 64]);
}

pub(super) fn a_double_free_is_refused(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.runtime.allocate(1000, stream, AllocTag("twice")).unwrap_or_else(fail);
    let again = [handle_of(&block), handle_of(&block)];
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    let before = rig.books();
    let [first, second] = again;
    let generation = first.generation;
    let expected = ResourceError::UseAfterFree { generation };
    assert_eq!(rig.runtime.deallocate(first), Err(expected.clone()));
    assert_eq!(rig.books(), before);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.deallocate(second), Err(expected), "after the reap, too");
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
    assert_works(&rig, stream);
}

pub(super) fn a_block_of_another_device_is_refused_by_every_call(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.runtime.allocate(256, stream, AllocTag("here")).unwrap_or_else(fail);
    let before = rig.books();
    for ordinal in [1, 7, u32::MAX] {
        let foreign = DeviceBlock { device_ordinal: ordinal, ..handle_of(&block) };
        assert_all(every_call(&rig, &foreign, stream), |error| {
            matches!(error, ResourceError::Driver(_))
                && error.to_string().contains(&format!("device {ordinal}"))
        });
    }
    assert_eq!(rig.books(), before);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    assert_works(&rig, stream);
}

pub(super) fn a_block_of_another_runtime_is_refused(device: TestDevice) {
    let (rig, other) = (Rig::new(device), Rig::new(device));
    let ([stream], [theirs]) = (rig.streams(), other.streams());
    let block = other.runtime.allocate(256, theirs, AllocTag("theirs")).unwrap_or_else(fail);
    let (before, beyond) = (rig.books(), other.books());
    let expected = ResourceError::UseAfterFree { generation: block.generation };
    assert_all(every_call(&rig, &block, stream), |error| *error == expected);
    assert_eq!((rig.books(), other.books()), (before, beyond));
    other.runtime.deallocate(block).unwrap_or_else(fail);
}

pub(super) fn an_unknown_stream_is_refused_by_every_call(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream, released] = rig.streams();
    rig.pool.release(released).unwrap_or_else(fail);
    let block = rig.runtime.allocate(256, stream, AllocTag("here")).unwrap_or_else(fail);
    let before = rig.books();
    for unknown in [released, StreamId(4711), StreamId(u32::MAX)] {
        let mut answers = every_call(&rig, &block, unknown);
        let elsewhere = DeviceBlock { alloc_stream: unknown, ..handle_of(&block) };
        answers.push(rig.runtime.deallocate(elsewhere));
        answers.push(rig.runtime.allocate(8, unknown, AllocTag::UNTAGGED).map(drop));
        answers.push(rig.resource.allocate(8, unknown, AllocTag::UNTAGGED).map(drop));
        answers.push(rig.runtime.synchronize(unknown));
        answers.push(rig.pool.synchronize(unknown));
        answers.push(rig.pool.join(unknown));
        answers.push(rig.pool.release(unknown));
        assert_all(answers, |error| {
            matches!(error, ResourceError::StreamMisuse(_))
                && error.to_string().contains(&unknown.0.to_string())
        });
        assert!(rig.pool.resolve(unknown).is_none() && !rig.pool.contains(unknown));
    }
    assert_eq!(rig.books(), before);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    assert_works(&rig, stream);
}

pub(super) fn device_then_stream_then_block_is_the_order_of_refusals(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let wrong = |device_ordinal, ptr| BlockId {
        ptr,
        generation: Generation(u64::MAX),
        alloc_stream: stream,
        device_ordinal,
    };
    let nowhere = StreamId(4711);
    type Call = fn(&Rig, BlockId, StreamId) -> ResourceResult<()>;
    let calls: [Call; 2] = [
        |rig, id, on| rig.runtime.prepare_block_use(id, on, Access::Read),
        |rig, id, on| rig.runtime.finish_block_use(id, on, Access::Write),
    ];
    for call in calls {
        let everything_wrong = call(&rig, wrong(9, 0), nowhere);
        assert!(matches!(everything_wrong, Err(ResourceError::Driver(_))), "the device first");
        let stream_wrong = call(&rig, wrong(0, 0), nowhere);
        assert!(matches!(stream_wrong, Err(ResourceError::StreamMisuse(_))), "then the stream");
        let block_wrong = call(&rig, wrong(0, 0), stream);
        assert!(matches!(block_wrong, Err(ResourceError::UseAfterFree { .. })), "then the block");
    }
}

pub(super) fn zero_bytes_are_refused(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let direct = DirectCudaResource::new(Arc::clone(&rig.device), 0);
    let before = rig.books();
    let answers = vec![
        rig.runtime.allocate(0, stream, AllocTag::UNTAGGED).map(drop),
        rig.resource.allocate(0, stream, AllocTag::UNTAGGED).map(drop),
        direct.allocate(0, stream, AllocTag::UNTAGGED).map(drop),
        rig.manager.alloc::<u64>(0).map(drop),
    ];
    assert_all(answers, |error| {
        matches!(error, ResourceError::Driver(_)) && error.to_string().contains("zero bytes")
    });
    assert_eq!(rig.books(), before);
    assert_works(&rig, stream);
}

pub(super) fn more_than_the_device_has_is_refused(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let direct = DirectCudaResource::new(Arc::clone(&rig.device), 0);
    let total = rig.device.memory().unwrap_or_else(fail).total as usize;
    let before = rig.books();
    for bytes in [total + 1, total * 2, 1 << 60, usize::MAX] {
        let answers = vec![
            rig.runtime.allocate(bytes, stream, AllocTag("huge")).map(drop),
            direct.allocate(bytes, stream, AllocTag("huge")).map(drop),
        ];
        assert_all(answers, |error| matches!(error, ResourceError::Driver(_)));
    }
    assert_eq!((rig.books(), direct.bytes_outstanding()), (before, 0));
    assert_works(&rig, stream);
}

pub(super) fn recording_after_preflight_changes_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (data, late) = (rig.zeros(8, stream), rig.zeros(8, stream));
    let mut recorder = LaunchRecorder::new_strict(stream);
    recorder.read(&data).preflight(&rig.runtime).unwrap_or_else(fail);
    let before = rig.books();
    recorder.write(&late);
    assert_says(&misuse(recorder.preflight(&rig.runtime)), &["recorded after preflight"]);
    assert_eq!(rig.books(), before);
    assert_says(&misuse(recorder.commit(&rig.runtime)), &["recorded after preflight"]);
    assert_unclaimed(&rig, &data, stream);
    assert_unclaimed(&rig, &late, stream);
    assert_works(&rig, stream);
}

pub(super) fn a_commit_without_preflight_changes_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let data = rig.zeros(8, stream);
    let mut recorder = LaunchRecorder::new_strict(stream);
    recorder.write(&data);
    let before = rig.books().ignoring_frees();
    assert_says(&misuse(recorder.commit(&rig.runtime)), &["without a successful preflight"]);
    assert_eq!(rig.books().ignoring_frees(), before, "but for the event that protects");
    assert_unclaimed(&rig, &data, stream);
    assert_works(&rig, stream);
}

pub(super) fn a_conflicting_use_of_another_thread_changes_nothing(device: TestDevice) {
    let rig = Arc::new(Rig::new(device));
    let [stream, other] = rig.streams();
    let data = Arc::new(rig.zeros(8, stream));
    let mut holder = LaunchRecorder::new_strict(stream);
    holder.write(&data).preflight(&rig.runtime).unwrap_or_else(fail);
    let (theirs, block) = (Arc::clone(&rig), Arc::clone(&data));
    let mut recorder = within("a conflicting preflight", move || {
        let before = theirs.books();
        let mut recorder = LaunchRecorder::new_strict(other);
        let refusal = misuse(recorder.read(&block).preflight(&theirs.runtime));
        assert_says(&refusal, &["has not committed yet", file!()]);
        assert_eq!(theirs.books(), before);
        recorder
    });
    holder.commit(&rig.runtime).unwrap_or_else(fail);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_works(&rig, other);
}

pub(super) fn untracked_buffers_change_nothing_in_either_mode(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let bare = untracked(&rig, 8);
    let before = rig.books();
    for mode in [RecorderMode::Strict, RecorderMode::Permissive] {
        let mut recorder = match mode {
            RecorderMode::Strict => LaunchRecorder::new_strict(stream),
            RecorderMode::Permissive => LaunchRecorder::new_permissive(stream),
        };
        let answer = recorder.read(&bare).preflight(&rig.runtime);
        match mode {
            RecorderMode::Strict => {
                assert_says(&misuse(answer), &["untracked buffer rejected"]);
                misuse(recorder.commit(&rig.runtime));
            }
            RecorderMode::Permissive => {
                answer.unwrap_or_else(fail);
                assert_eq!((recorder.recorded_count(), recorder.skipped_count()), (0, 1));
                recorder.commit(&rig.runtime).unwrap_or_else(fail);
            }
        }
    }
    assert_eq!(rig.books(), before);
    assert_works(&rig, stream);
}

pub(super) fn plain_memory_refuses_misuse_and_tracking(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let direct = DirectCudaResource::new(Arc::clone(&rig.device), 0);
    let block = direct.allocate(100, stream, AllocTag("plain")).unwrap_or_else(fail);
    let id = BlockId::from_block(&block);
    let uses = [BlockUse::new(id, Access::Read)];
    let answers = vec![
        direct.prepare_block_use(id, stream, Access::Read),
        direct.finish_block_use(id, stream, Access::Read),
        direct.record_block_use(&block, stream),
        direct.prepare_uses(&uses, stream),
        direct.finish_uses(&uses, stream),
    ];
    assert_all(answers, |error| {
        matches!(error, ResourceError::StreamMisuse(what)
            if what.contains("does not support cross-stream use tracking"))
    });
    assert!(!direct.supports_block_use_tracking());
    let foreign = DeviceBlock { device_ordinal: 3, ..handle_of(&block) };
    assert!(matches!(direct.deallocate(foreign), Err(ResourceError::Driver(_))));
    let stale = DeviceBlock { generation: Generation(u64::MAX), ..handle_of(&block) };
    assert!(matches!(direct.deallocate(stale), Err(ResourceError::UseAfterFree { .. })));
    assert_eq!(direct.bytes_outstanding(), 100);
    let again = handle_of(&block);
    direct.deallocate(block).unwrap_or_else(fail);
    assert!(matches!(direct.try_deallocate(again), Err((_, ResourceError::UseAfterFree { .. }))));
    direct.reap_pending().unwrap_or_else(fail);
    assert_eq!((direct.bytes_outstanding(), direct.device_ordinal()), (0, 0));
}
