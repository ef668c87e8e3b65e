//! The stream pool: who has which stream, and for how long.

use std::sync::{
    Arc, Barrier,
    atomic::{AtomicBool, Ordering},
};

use xlog_cuda::{
    device_runtime::{Access, AllocTag, BlockId, ResourceError, StreamId, StreamPool},
    launch::LaunchRecorder,
};
use xlog_driver::{Driver, RawStream};

use super::super::support::misuse;
use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    ids_count_from_one_and_resolve_to_streams_of_their_own,
    a_full_pool_is_an_error_and_never_a_silent_share,
    a_larger_pool_can_be_asked_for,
    a_released_id_is_never_used_again,
    the_default_stream_always_resolves_and_cannot_be_released,
    an_unknown_stream_resolves_to_nothing_and_cannot_be_released,
    release_is_refused_while_live_blocks_name_the_stream,
    release_is_refused_while_pending_frees_name_the_stream,
    release_is_refused_while_a_launch_is_between_preflight_and_commit,
    release_waits_for_the_streams_work,
    a_release_that_cannot_wait_leaves_the_stream_in_the_pool,
    a_refused_release_disturbs_nobody_on_the_stream,
    uses_on_a_released_stream_are_over,
    an_adopted_stream_takes_part_and_is_not_destroyed,
    cudas_default_streams_are_not_adopted,
    a_captured_stream_is_not_adopted,
    a_captured_stream_of_the_pool_is_refused,
    an_acquire_the_driver_fails_takes_no_room,
];

fn ids_count_from_one_and_resolve_to_streams_of_their_own(device: TestDevice) {
    let rig = Rig::new(device);
    let ids: [StreamId; 5] = rig.streams();
    assert_eq!(ids, [1, 2, 3, 4, 5].map(StreamId));
    let raw = |id| rig.pool.resolve(id).expect("acquired");
    let mut handles: Vec<RawStream> = ids.into_iter().map(raw).collect();
    handles.push(raw(StreamId::DEFAULT));
    for (index, handle) in handles.iter().enumerate() {
        assert!(handle.0 > 2, "none of CUDA's default streams");
        assert!(!handles[..index].contains(handle), "no two share a stream");
    }
    assert_eq!(raw(ids[2]), handles[2], "and it stays the same");
}

fn a_full_pool_is_an_error_and_never_a_silent_share(device: TestDevice) {
    let rig = Rig::new(device);
    let ids: [StreamId; 32] = rig.streams();
    let what = misuse(rig.pool.acquire());
    assert!(what.contains("32"), "says how many there are: {what}");
    let raw = rig.driver.create_stream().unwrap_or_else(fail);
    // SAFETY: the stream was created just now, and is destroyed only below.
    misuse(unsafe { rig.pool.adopt(raw) });
    // SAFETY: created above, and the pool did not take it.
    unsafe { rig.driver.destroy_stream(raw) }.unwrap_or_else(fail);
    rig.pool.release(ids[7]).unwrap_or_else(fail);
    let next = rig.pool.acquire().unwrap_or_else(fail);
    assert!(!ids.contains(&next), "room again, under a new id");
    misuse(rig.pool.acquire());
}

fn a_larger_pool_can_be_asked_for(device: TestDevice) {
    let rig = Rig::new(device);
    let pool = StreamPool::with_capacity(Arc::clone(&rig.device), 3).unwrap_or_else(fail);
    let ids = [(); 3].map(|()| pool.acquire().unwrap_or_else(fail));
    assert_eq!(ids, [1, 2, 3].map(StreamId));
    misuse(pool.acquire());
    misuse(StreamPool::with_capacity(Arc::clone(&rig.device), 1 << 20).map(drop));
}

fn a_released_id_is_never_used_again(device: TestDevice) {
    let rig = Rig::new(device);
    let [kept] = rig.streams();
    let mut seen = vec![StreamId::DEFAULT, kept];
    for _ in 0..100 {
        let id = rig.pool.acquire().unwrap_or_else(fail);
        assert!(!seen.contains(&id), "{id:?} a second time");
        seen.push(id);
        rig.pool.release(id).unwrap_or_else(fail);
        assert!(rig.pool.resolve(id).is_none());
        misuse(rig.pool.release(id));
        misuse(rig.runtime.allocate(64, id, AllocTag::UNTAGGED));
    }
    assert!(rig.pool.resolve(kept).is_some());
}

fn the_default_stream_always_resolves_and_cannot_be_released(device: TestDevice) {
    let rig = Rig::new(device);
    let raw = rig.pool.resolve(StreamId::DEFAULT).expect("always there");
    assert!(rig.pool.contains(StreamId::DEFAULT));
    misuse(rig.pool.release(StreamId::DEFAULT));
    assert_eq!(rig.pool.resolve(StreamId::DEFAULT), Some(raw));
    let [stream] = rig.streams();
    rig.pool.release(stream).unwrap_or_else(fail);
    assert_eq!(rig.pool.resolve(StreamId::DEFAULT), Some(raw));
}

fn an_unknown_stream_resolves_to_nothing_and_cannot_be_released(device: TestDevice) {
    let rig = Rig::new(device);
    let [_first] = rig.streams();
    // 34 and 66 share their remainders with ids that are taken.
    for unknown in [2, 33, 34, 66, u32::MAX].map(StreamId) {
        assert!(rig.pool.resolve(unknown).is_none() && !rig.pool.contains(unknown));
        misuse(rig.pool.release(unknown));
        misuse(rig.runtime.synchronize(unknown));
    }
}

fn release_is_refused_while_live_blocks_name_the_stream(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let blocks = [rig.block(64, a), rig.block(64, a)];
    let before = rig.books();
    let what = misuse(rig.pool.release(a));
    assert!(what.contains('2'), "says how many: {what}");
    assert_eq!(rig.books(), before);
    assert!(rig.pool.resolve(a).is_some(), "the stream is still there");
    rig.touch(&blocks[0], a, Access::Write);
    // A stream that only used the block is not named by it.
    rig.touch(&blocks[0], b, Access::Read);
    rig.pool.release(b).unwrap_or_else(fail);
    for block in blocks {
        rig.runtime.deallocate(block).unwrap_or_else(fail);
    }
    rig.runtime.reap_pending().unwrap_or_else(fail);
    rig.pool.release(a).unwrap_or_else(fail);
}

fn release_is_refused_while_pending_frees_name_the_stream(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let own = rig.block(64, a);
    rig.runtime.deallocate(own).unwrap_or_else(fail);
    let what = misuse(rig.pool.release(a));
    assert!(what.contains("reap_pending"), "says what to do: {what}");
    rig.runtime.reap_pending().unwrap_or_else(fail);
    // The free of a block from `a` goes to `b`, which follows all its uses: now both must stay
    // until the reap, or at least the one that has the free.
    let moved = rig.block(64, a);
    rig.touch(&moved, b, Access::Write);
    rig.runtime.deallocate(moved).unwrap_or_else(fail);
    let refused = [a, b].map(|stream| rig.pool.release(stream).is_err());
    assert!(refused.contains(&true), "somebody has the pending free");
    assert_eq!(rig.resource.pending_free_bytes(), rig.resource.pending_per_stream_total());
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
    for (stream, refused) in [a, b].into_iter().zip(refused) {
        assert_eq!(rig.pool.release(stream).is_ok(), refused, "each is released once");
    }
}

fn release_is_refused_while_a_launch_is_between_preflight_and_commit(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let slice = rig.zeros(16, a);
    let mut recorder = LaunchRecorder::new_strict(b);
    recorder.read(&slice);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    let what = misuse(rig.pool.release(b));
    assert!(what.contains("commit"), "says what to do: {what}");
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    rig.pool.release(b).unwrap_or_else(fail);
}

fn release_waits_for_the_streams_work(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (data, seen) = (rig.zeros(256, a), rig.zeros(256, a));
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    let raw = rig.pool.resolve(b).expect("acquired");
    rig.pool.release(b).unwrap_or_else(fail);
    // SAFETY: a stream of the pool stays alive with the pool.
    let progress = unsafe { rig.driver.stream_progress(raw) }.unwrap_or_else(fail);
    assert_eq!(progress, xlog_driver::StreamProgress::Idle);
    assert_eq!(seen.download().unwrap_or_else(fail), [7; 256]);
}

fn a_release_that_cannot_wait_leaves_the_stream_in_the_pool(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    rig.driver.fail_after(DriverCall::SynchronizeStream, 0, 1);
    let answer = rig.pool.release(stream);
    assert!(matches!(answer, Err(ResourceError::Driver(_))), "{answer:?}");
    let block = rig.block(64, stream);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    rig.pool.release(stream).unwrap_or_else(fail);
}

fn a_refused_release_disturbs_nobody_on_the_stream(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let slice = rig.zeros(16, a);
    let (done, start) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            while !done.load(Ordering::SeqCst) {
                misuse(rig.pool.release(a));
            }
        });
        start.wait();
        let mut answer = Ok(());
        for _ in 0..2_000 {
            answer = answer.and(rig.increment(&slice, 1, a));
        }
        done.store(true, Ordering::SeqCst);
        answer.unwrap_or_else(fail);
    });
    assert_eq!(slice.download().unwrap_or_else(fail), [2_000; 16]);
}

fn uses_on_a_released_stream_are_over(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let block = rig.block(64, a);
    rig.touch(&block, b, Access::Read);
    rig.pool.release(b).unwrap_or_else(fail);
    // The reader is gone and was waited for, and with it the allocation that it had waited for: a
    // writer needs no wait.
    let waits = rig.driver.count_during(DriverCall::WaitEvent, || {
        rig.touch(&block, c, Access::Write);
    });
    assert_eq!(waits, 0);
    // Another stream in the same place is not taken for the one that left.
    let d = rig.pool.acquire().unwrap_or_else(fail);
    let waits = rig.driver.count_during(DriverCall::WaitEvent, || {
        rig.touch(&block, d, Access::Read);
    });
    assert_eq!(waits, 1);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn an_adopted_stream_takes_part_and_is_not_destroyed(device: TestDevice) {
    let rig = Rig::new(device);
    let driver = Arc::clone(&rig.driver);
    let raw = driver.create_stream().unwrap_or_else(fail);
    let [a] = rig.streams();
    // SAFETY: the stream is this device's, and outlives the pool.
    let adopted = unsafe { rig.pool.adopt(raw) }.unwrap_or_else(fail);
    assert_eq!(rig.pool.resolve(adopted), Some(raw));
    let (data, seen) = (rig.zeros(256, a), rig.zeros(256, adopted));
    rig.copy(&data, &seen, adopted).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    rig.copy(&data, &seen, adopted).unwrap_or_else(fail);
    let _ = crate::eventually(std::time::Duration::from_millis(5), || rig.is_idle(adopted));
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [7; 256]);
    misuse(rig.pool.release(adopted));
    drop((data, seen));
    rig.runtime.reap_pending().unwrap_or_else(fail);
    rig.pool.release(adopted).unwrap_or_else(fail);
    assert_eq!(driver.count(DriverCall::DestroyStream), 0);
    // SAFETY: as above.
    let again = unsafe { rig.pool.adopt(raw) }.unwrap_or_else(fail);
    assert_ne!(again, adopted);
    let created = driver.count(DriverCall::CreateStream);
    drop(gate);
    drop(rig);
    assert_eq!(driver.count(DriverCall::DestroyStream), created - 1, "all but the adopted one");
    // SAFETY: created above, destroyed here for the first time.
    unsafe {
        driver.synchronize_stream(raw).unwrap_or_else(fail);
        driver.destroy_stream(raw).unwrap_or_else(fail);
    }
}

fn cudas_default_streams_are_not_adopted(device: TestDevice) {
    let rig = Rig::new(device);
    let before = rig.books();
    // None, legacy, per-thread: they order themselves against others behind the runtime's back.
    for raw in [0, 1, 2].map(RawStream) {
        // SAFETY: these handles name CUDA's own streams, and the call refuses them unused.
        misuse(unsafe { rig.pool.adopt(raw) });
    }
    assert_eq!(rig.books(), before);
    assert_eq!(rig.pool.acquire(), Ok(StreamId(1)), "no id was used up");
}

fn a_captured_stream_is_not_adopted(device: TestDevice) {
    let rig = Rig::new(device);
    let raw = rig.driver.create_stream().unwrap_or_else(fail);
    rig.driver.set_capturing(true);
    // SAFETY: the stream was created just now, and is destroyed only below.
    let what = misuse(unsafe { rig.pool.adopt(raw) });
    assert!(what.contains("captur"), "{what}");
    rig.driver.set_capturing(false);
    // SAFETY: as above.
    let adopted = unsafe { rig.pool.adopt(raw) }.unwrap_or_else(fail);
    rig.pool.release(adopted).unwrap_or_else(fail);
    // SAFETY: created above; the pool has let it go.
    unsafe { rig.driver.destroy_stream(raw) }.unwrap_or_else(fail);
}

fn a_captured_stream_of_the_pool_is_refused(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let block = rig.block(64, a);
    let id = BlockId::from_block(&block);
    assert!(rig.pool.resolve(a).is_some(), "from here on somebody may capture it");
    rig.driver.set_capturing(true);
    let before = rig.books();
    for answer in [
        rig.runtime.allocate(64, a, AllocTag::UNTAGGED).map(drop),
        rig.runtime.prepare_block_use(id, a, Access::Read),
        rig.runtime.synchronize(a),
    ] {
        let what = misuse(answer);
        assert!(what.contains("captured"), "{what}");
    }
    let slice_calls = rig.driver.count_during(DriverCall::Launch, || {
        let slice = rig.manager.alloc::<u32>(16).unwrap_or_else(fail);
        misuse(rig.fill(&slice, 1, a));
    });
    assert_eq!(slice_calls, 0);
    assert_eq!(rig.books().live_bytes, before.live_bytes);
    rig.driver.set_capturing(false);
    rig.runtime.synchronize(a).unwrap_or_else(fail);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn an_acquire_the_driver_fails_takes_no_room(device: TestDevice) {
    let rig = Rig::new(device);
    for call in [DriverCall::CreateStream, DriverCall::RecordEvent] {
        // Something on the default stream, so that the first acquire has an event to record.
        let block = rig.block(64, StreamId::DEFAULT);
        rig.driver.fail_after(call, 0, 1);
        let answer = rig.pool.acquire();
        rig.driver.heal();
        assert!(matches!(answer, Err(ResourceError::Driver(_))), "{call:?}: {answer:?}");
        assert_eq!(rig.books().tracker.streams, 1, "{call:?}");
        rig.runtime.deallocate(block).unwrap_or_else(fail);
        let stream = rig.pool.acquire().unwrap_or_else(fail);
        rig.pool.release(stream).unwrap_or_else(fail);
    }
    let streams: [StreamId; 32] = rig.streams();
    assert_eq!(streams.len(), 32);
}
