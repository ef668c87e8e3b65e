//! Buffers in the middle of a copy.

use xlog_cuda::{
    device_runtime::{PinnedBuffer, StreamId},
    memory::TrackedCudaSlice,
};

use super::{super::super::support::*, *};
use crate::{Gate, TestDevice, fail};

const LEN: usize = 1024;

fn values(buffer: &PinnedBuffer) -> &[u32] {
    buffer.values().unwrap_or_else(fail)
}

fn buffer(pool: &PinnedPoolResource, value: u32) -> PinnedBuffer {
    let mut buffer = pool.allocate(4 * LEN).unwrap_or_else(fail);
    buffer.values_mut::<u32>().unwrap_or_else(fail).fill(value);
    buffer
}

/// Buffers that are there already: pinned memory is not asked for under a held stream.
fn warm(pool: &PinnedPoolResource, count: usize) {
    let all: Vec<_> = (0..count).map(|_| buffer(pool, 0)).collect();
    drop(all);
}

fn slice(rig: &Rig, value: u32, stream: StreamId) -> TrackedCudaSlice<u32> {
    rig.filled(LEN, value, stream)
}

pub(super) fn a_buffer_is_not_handed_out_before_its_last_copy_is_over(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let pool = pool(&rig);
    warm(&pool, 2);
    let mut target = slice(&rig, 0, a);
    for wait_late in [false, true] {
        let gate = Gate::new(&rig);
        gate.hold(&rig, a);
        let used = buffer(&pool, 7);
        let address = used.as_ptr();
        let copy = target.start_upload_from(used, a).unwrap_or_else(fail);
        assert_eq!((pool.report().in_use_buffers, pool.report().copying_bytes), (1, 0));
        assert!(!comes_true(|| copy.is_done().unwrap_or_else(fail)));
        let pending = if wait_late {
            Some(copy)
        } else {
            drop(copy);
            assert_eq!((pool.report().in_use_buffers, pool.report().copying_bytes), (0, 4096));
            None
        };
        // There is another one; the one in the middle of a copy is not it, however often one asks.
        let mut other = buffer(&pool, 9);
        for _ in 0..5 {
            assert_ne!(other.as_ptr(), address, "handed out in the middle of its copy");
            drop(other);
            other = buffer(&pool, 9);
        }
        gate.open();
        rig.runtime.synchronize(a).unwrap_or_else(fail);
        match pending {
            Some(copy) => {
                let back = copy.wait().unwrap_or_else(fail);
                assert_eq!((back.as_ptr(), values(&back)), (address, &[7; LEN][..]));
            }
            None => {
                let again = pool.allocate(4 * LEN).unwrap_or_else(fail);
                assert_eq!(again.as_ptr(), address, "over, so it is handed out again");
                assert_eq!(pool.report().copying_bytes, 0);
            }
        }
        assert_eq!(target.download().unwrap_or_else(fail), [7; LEN]);
        drop(other);
    }
    assert_eq!(pool.report().held_buffers, 2, "none was asked for in between");
    assert_consistent(&pool);
}

pub(super) fn finding_a_buffer_takes_one_question_a_stream(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let pool = pool(&rig);
    warm(&pool, 31);
    let source = slice(&rig, 5, a);
    let (late, early) = (Gate::new(&rig), Gate::new(&rig));
    late.hold(&rig, a);
    late.hold(&rig, b);
    early.hold(&rig, c);
    for stream in [a, b, c] {
        for _ in 0..10 {
            let copy = source.start_download_into(buffer(&pool, 0), stream).unwrap_or_else(fail);
            drop(copy);
        }
    }
    assert_eq!(pool.report().copying_bytes, 30 * 4096);
    let last = pool.allocate(4 * LEN).unwrap_or_else(fail);
    early.open();
    rig.runtime.synchronize(c).unwrap_or_else(fail);
    // Whatever stands first, the ten of the stream that is through are found, one after the other.
    let mut found = Vec::new();
    for _ in 0..10 {
        let questions = rig.driver.count_during(DriverCall::EventDone, || {
            found.push(pool.allocate(4 * LEN).unwrap_or_else(fail));
        });
        assert!(questions <= 3, "{questions} questions");
    }
    assert_eq!((pool.report().copying_bytes, pool.report().held_buffers), (20 * 4096, 31));
    late.open();
    drop((found, last));
    rig.runtime.fence().unwrap_or_else(fail);
    pool.trim().unwrap_or_else(fail);
    assert_eq!((pool.report().held_bytes, pool.report().copying_bytes), (0, 0));
}

pub(super) fn a_dropped_copy_arrives_in_memory_that_nobody_else_has(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let pool = pool(&rig);
    warm(&pool, 4);
    let source = slice(&rig, 1, a);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    drop(source.start_download_into(buffer(&pool, 0), a).unwrap_or_else(fail));
    // Were the buffer handed out again, the copy would arrive in the middle of one of these.
    let others: Vec<_> = (0..3).map(|_| buffer(&pool, 2)).collect();
    gate.open();
    rig.runtime.synchronize(a).unwrap_or_else(fail);
    assert!(others.iter().all(|other| values(other) == [2; LEN]));
    let arrived = pool.allocate(4 * LEN).unwrap_or_else(fail);
    assert_eq!(values(&arrived), [1; LEN], "this is where it went");
}

pub(super) fn copies_with_a_buffer_are_ordered_like_launches(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let pool = pool(&rig);
    warm(&pool, 2);
    let (mut data, seen) = (slice(&rig, 1, a), slice(&rig, 0, a));
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    // A write behind a held reader on another stream, and a read behind that write.
    rig.copy(&data, &seen, a).unwrap_or_else(fail);
    let up = data.start_upload_from(buffer(&pool, 2), b).unwrap_or_else(fail);
    let down = data.start_download_into(buffer(&pool, 0), b).unwrap_or_else(fail);
    assert!(!comes_true(|| up.is_done().unwrap_or_else(fail) || rig.is_idle(b)));
    gate.open();
    let down = down.wait().unwrap_or_else(fail);
    assert!(up.is_done().unwrap_or_else(fail), "the read was behind it");
    assert_eq!(values(&down), [2; LEN]);
    assert_eq!(seen.download().unwrap_or_else(fail), [1; LEN]);
    // Without waits the same is wrong: the write overtakes the reader.
    let gate = Gate::new(&rig);
    rig.driver.set_deaf(true);
    gate.hold(&rig, a);
    rig.copy(&data, &seen, a).unwrap_or_else(fail);
    drop((up, down));
    let up = data.start_upload_from(buffer(&pool, 3), b).unwrap_or_else(fail);
    assert!(crate::eventually(std::time::Duration::from_secs(10), || rig.is_idle(b)));
    drop(up);
    gate.open();
    rig.device.synchronize().unwrap_or_else(fail);
    rig.driver.set_deaf(false);
    assert_eq!(seen.download().unwrap_or_else(fail), [3; LEN], "polite");
}

pub(super) fn a_refused_copy_gives_the_buffer_back_as_it_was(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let pool = pool(&rig);
    let mut target = slice(&rig, 1, a);
    let wrong = pool.allocate(4 * LEN + 4).unwrap_or_else(fail);
    let before = rig.books();
    let refused = target.start_upload_from(wrong, b).expect_err("another length");
    assert_says(&refused.to_string(), &["4100 bytes", "range of 4096"]);
    assert_eq!(refused.buffer.as_ref().map(|buffer| buffer.len()), Some(4100));
    assert_eq!(rig.books(), before);
    let mut kept = buffer(&pool, 8);
    let address = kept.as_ptr();
    for download in [false, true] {
        for failing in [None, Some(DriverCall::CopyToDevice), Some(DriverCall::CopyToHost)] {
            if failing.is_some() && (failing == Some(DriverCall::CopyToHost)) != download {
                continue;
            }
            let stream = if let Some(call) = failing {
                rig.driver.fail_after(call, 0, 1);
                b
            } else {
                StreamId(4711)
            };
            let refused = if download {
                target.start_download_into(kept, stream)
            } else {
                target.start_upload_from(kept, stream)
            };
            let refused = refused.expect_err("refused, or failed");
            kept = refused.buffer.expect("nothing was enqueued");
            assert_eq!((kept.as_ptr(), values(&kept)), (address, &[8; LEN][..]));
        }
    }
    assert_unclaimed(&rig, &target, b);
    assert_eq!(target.download().unwrap_or_else(fail), [1; LEN]);
    drop(target.start_upload_from(kept, b).unwrap_or_else(fail));
    assert_eq!(target.download().unwrap_or_else(fail), [8; LEN]);
}

pub(super) fn buffers_are_copied_with_untracked_memory_at_once(device: TestDevice) {
    let rig = Rig::new(device);
    let pool = pool(&rig);
    let mut bare = untracked(&rig, LEN);
    let up = bare.start_upload_from(buffer(&pool, 4), StreamId::DEFAULT).unwrap_or_else(fail);
    assert!(up.is_done().unwrap_or_else(fail), "it waited already");
    let mut buffer = up.wait().unwrap_or_else(fail);
    buffer.fill(0);
    let down = bare.start_download_into(buffer, StreamId::DEFAULT).unwrap_or_else(fail);
    assert_eq!(values(&down.wait().unwrap_or_else(fail)), [4; LEN]);
    assert_eq!(pool.report().held_buffers, 1);
    assert_eq!((pool.report().in_use_buffers, pool.report().copying_bytes), (0, 0));
}

pub(super) fn uploads_and_downloads_go_through_the_runtimes_pool(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let staging = rig.runtime.staging().clone();
    assert_eq!(staging.report(), Default::default());
    let mut target = slice(&rig, 0, a);
    target.upload_on(&[1; LEN], a).unwrap_or_else(fail);
    assert_eq!((staging.report().held_bytes, staging.report().copying_bytes), (4096, 4096));
    let down = target.start_download(a).unwrap_or_else(fail);
    assert_eq!(staging.report().in_use_buffers, 1, "a download has its buffer");
    assert_eq!(down.wait().unwrap_or_else(fail), [1; LEN]);
    assert_eq!(staging.report().in_use_buffers, 0);
    // A program's own buffers come from there too, and the pool keeps its maximum for both.
    rig.runtime.synchronize(a).unwrap_or_else(fail);
    rig.runtime.trim().unwrap_or_else(fail);
    assert_eq!((staging.report().held_bytes, with_driver(&rig)), (0, 0));
    staging.set_maximum(Some(4096));
    let own = staging.allocate(1).unwrap_or_else(fail);
    assert!(target.upload_on(&[2; LEN], a).is_err_and(|error| error.is_out_of_memory()));
    assert!(target.start_download(a).is_err_and(|error| error.is_out_of_memory()));
    drop(own);
    assert_unclaimed(&rig, &target, a);
    target.upload_on(&[3; LEN], a).unwrap_or_else(fail);
    rig.runtime.synchronize(a).unwrap_or_else(fail);
    assert_eq!(target.download().unwrap_or_else(fail), [3; LEN]);
    assert_consistent(&staging);
}

pub(super) fn buffers_are_values(device: TestDevice) {
    let rig = Rig::new(device);
    let mut buffer = plain(&rig).allocate(24).unwrap_or_else(fail);
    buffer.values_mut::<u64>().unwrap_or_else(fail).copy_from_slice(&[1, 2, 3]);
    assert_eq!(buffer.values::<u64>().unwrap_or_else(fail), [1, 2, 3]);
    assert_eq!(buffer.values::<u32>().unwrap_or_else(fail).len(), 6);
    let refused = buffer.values::<[u64; 2]>().expect_err("one and a half").to_string();
    assert_says(&refused, &["24 bytes", "values of 16 bytes", "allocate a multiple"]);
    assert!(buffer.values_mut::<[u32; 4]>().is_err());
}
