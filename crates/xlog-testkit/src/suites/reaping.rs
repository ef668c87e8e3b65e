//! Reaping: what leaves the count, what stays, and that nothing is lost when either fails or races.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use xlog_cuda::device_runtime::{Access, AllocTag, DeviceBlock, ResourceError, StreamId};

use crate::{DriverCall, Gate, INJECTED, Rig, TestCase, TestDevice, cases, eventually, fail};

pub(super) const CASES: &[TestCase] = cases![
    reaping_nothing_is_ok_and_asks_nobody,
    a_reap_synchronises_only_streams_with_pending_frees,
    a_reap_waits_for_the_work_before_the_free,
    a_reap_stopped_by_a_failure_keeps_that_stream_and_all_not_yet_visited,
    a_reap_that_fails_at_every_stream_keeps_everything,
    a_free_that_comes_while_a_reap_waits_stays_pending,
    a_failed_free_is_tried_again_by_every_reap_until_it_works,
    a_failed_free_does_not_keep_other_bytes_from_being_reaped,
    try_reap_does_not_wait_and_takes_only_what_is_done,
    try_reap_drains_a_stream_that_is_never_idle,
    try_reap_keeps_what_it_cannot_ask_about,
    try_reap_tries_failed_frees_again,
    a_captured_stream_is_not_reaped_until_the_capture_ends,
    a_reaped_stream_can_be_released,
    two_reaps_at_once_count_each_free_once,
    racing_frees_and_reaps_lose_nothing,
    racing_frees_and_failing_reaps_lose_nothing,
];

/// The counters that must agree when nobody is at work.
#[track_caller]
fn assert_pending(rig: &Rig, bytes: usize) {
    let books = rig.books();
    assert_eq!(books.pending_free_bytes, bytes);
    assert_eq!(books.pending_per_stream_total, bytes);
    assert_eq!(books.bytes_outstanding, books.live_bytes + bytes);
}

/// Frees a block of `bytes` bytes on `stream`; answers how many that were.
fn pend(rig: &Rig, bytes: usize, stream: StreamId) -> usize {
    let block = rig.block(bytes, stream);
    let granted = block.bytes;
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    granted
}

fn synchronisations(rig: &Rig, work: impl FnOnce()) -> u64 {
    rig.driver.count_during(DriverCall::SynchronizeStream, work)
}

fn reaping_nothing_is_ok_and_asks_nobody(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.block(64, stream);
    let asked = synchronisations(&rig, || {
        rig.runtime.reap_pending().unwrap_or_else(fail);
        rig.runtime.try_reap().unwrap_or_else(fail);
    });
    assert_eq!(asked, 0);
    assert_eq!(rig.resource.live_bytes(), block.bytes);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn a_reap_synchronises_only_streams_with_pending_frees(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, held] = rig.streams();
    let bytes = pend(&rig, 1000, a) + pend(&rig, 3000, b) + pend(&rig, 500, b);
    assert_pending(&rig, bytes);
    // A stream without pending frees may be at work for as long as it likes.
    let gate = Gate::new(&rig);
    gate.hold(&rig, held);
    let asked = synchronisations(&rig, || rig.runtime.reap_pending().unwrap_or_else(fail));
    assert!(!rig.is_idle(held), "the reap did not wait for it");
    assert_eq!(asked, 2);
    assert_pending(&rig, 0);
    gate.open();
}

fn a_reap_waits_for_the_work_before_the_free(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let gate = Gate::new(&rig);
    gate.hold(&rig, stream);
    let bytes = pend(&rig, 4096, stream);
    let reaped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rig.runtime.reap_pending().unwrap_or_else(fail);
            reaped.store(true, Ordering::SeqCst);
        });
        let early = eventually(Duration::from_millis(10), || reaped.load(Ordering::SeqCst));
        let counted = rig.resource.pending_free_bytes();
        gate.open();
        assert!(!early && counted == bytes, "the device has not passed the free");
    });
    assert_pending(&rig, 0);
}

/// Streams with distinct numbers of pending bytes: from what is left one can tell whose they are.
fn pend_on_each(rig: &Rig, streams: &[StreamId]) -> Vec<usize> {
    streams.iter().enumerate().map(|(index, &stream)| pend(rig, 1000 << index, stream)).collect()
}

fn a_reap_stopped_by_a_failure_keeps_that_stream_and_all_not_yet_visited(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; 4] = rig.streams();
    for visited in 0..4 {
        let bytes = pend_on_each(&rig, &streams);
        let total: usize = bytes.iter().sum();
        assert_pending(&rig, total);
        rig.driver.fail_after(DriverCall::SynchronizeStream, visited, 1);
        let asked = synchronisations(&rig, || match rig.runtime.reap_pending() {
            Err(ResourceError::Driver(error)) => assert_eq!(error.code(), INJECTED),
            other => panic!("a synchronisation failed: {other:?}"),
        });
        assert_eq!(asked, visited + 1, "it stops at the failure");
        let gone = total - rig.resource.pending_free_bytes();
        let whole: Vec<usize> = (0..1 << bytes.len())
            .filter(|set: &u32| set.count_ones() == visited as u32)
            .map(|set| (0..bytes.len()).filter(|i| set >> i & 1 == 1).map(|i| bytes[i]).sum())
            .collect();
        assert!(whole.contains(&gone), "{gone} of {bytes:?} left: not {visited} whole streams");
        assert_pending(&rig, total - gone);
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_pending(&rig, 0);
    }
    assert_eq!(rig.books().tracker.blocks, 0);
}

fn a_reap_that_fails_at_every_stream_keeps_everything(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; 3] = rig.streams();
    let total = pend_on_each(&rig, &streams).iter().sum();
    rig.driver.fail_always(DriverCall::SynchronizeStream);
    for _ in 0..5 {
        rig.runtime.reap_pending().expect_err("nothing can be synchronised");
        assert_pending(&rig, total);
    }
    for stream in streams {
        rig.pool.release(stream).expect_err("its pending free names it");
    }
    rig.driver.heal();
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_pending(&rig, 0);
}

fn a_free_that_comes_while_a_reap_waits_stays_pending(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    pend(&rig, 1000, a);
    let (late_on_a, late_on_b) = std::thread::scope(|scope| {
        let stall = rig.driver.stall(DriverCall::SynchronizeStream);
        let reaper = scope.spawn(|| rig.runtime.reap_pending());
        stall.wait_until_entered();
        // The reap has taken note of what is pending, and waits.
        let late = (pend(&rig, 2000, a), pend(&rig, 4000, b));
        drop(stall);
        reaper.join().unwrap().unwrap_or_else(fail);
        late
    });
    // Counted wholly after: the reap says nothing of bytes it had not seen.
    assert_pending(&rig, late_on_a + late_on_b);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_pending(&rig, 0);
}

fn a_failed_free_is_tried_again_by_every_reap_until_it_works(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (x, y) = (rig.block(1000, a), rig.block(3000, b));
    let bytes = [x.bytes, y.bytes];
    rig.driver.fail_always(DriverCall::FreeOn);
    rig.runtime.deallocate(x).expect_err("the driver failed");
    rig.runtime.deallocate(y).expect_err("the driver failed");
    for _ in 0..3 {
        let tried = rig.driver.count_during(DriverCall::FreeOn, || {
            rig.runtime.reap_pending().expect_err("the driver failed again");
        });
        assert_eq!(tried, 2, "one that fails does not keep the other from its turn");
        assert_eq!(rig.resource.live_bytes(), bytes[0] + bytes[1]);
        assert_pending(&rig, 0);
    }
    rig.driver.heal();
    rig.driver.fail_after(DriverCall::FreeOn, 1, 1);
    rig.runtime.reap_pending().expect_err("one of the two failed");
    assert!(bytes.contains(&rig.runtime.bytes_outstanding()), "the other is gone for good");
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
    assert_eq!(rig.books().tracker.blocks, 0);
}

fn a_failed_free_does_not_keep_other_bytes_from_being_reaped(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let stuck = rig.block(1000, a);
    let bytes = stuck.bytes;
    pend(&rig, 3000, a);
    rig.driver.fail_always(DriverCall::FreeOn);
    rig.runtime.deallocate(stuck).expect_err("the driver failed");
    rig.runtime.reap_pending().expect_err("the driver failed again");
    assert_pending(&rig, 0);
    assert_eq!(rig.runtime.bytes_outstanding(), bytes);
    rig.driver.heal();
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn try_reap_does_not_wait_and_takes_only_what_is_done(device: TestDevice) {
    let rig = Rig::new(device);
    let [held, free] = rig.streams();
    let gate = Gate::new(&rig);
    gate.hold(&rig, held);
    let (waiting, done) = (pend(&rig, 1000, held), pend(&rig, 3000, free));
    assert_pending(&rig, waiting + done);
    let asked = synchronisations(&rig, || {
        let settled = eventually(Duration::from_secs(10), || {
            rig.runtime.try_reap().unwrap_or_else(fail);
            rig.resource.pending_free_bytes() == waiting
        });
        assert!(settled, "what is done is taken");
        for _ in 0..50 {
            rig.runtime.try_reap().unwrap_or_else(fail);
            assert_pending(&rig, waiting);
        }
        assert!(!rig.is_idle(held));
        gate.open();
        let drained = eventually(Duration::from_secs(10), || {
            rig.runtime.try_reap().unwrap_or_else(fail);
            rig.resource.pending_free_bytes() == 0
        });
        assert!(drained, "it drains once the stream has passed the free");
    });
    assert_eq!(asked, 0, "nothing was waited for");
    assert_pending(&rig, 0);
}

fn try_reap_drains_a_stream_that_is_never_idle(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let gates = [Gate::new(&rig), Gate::new(&rig)];
    gates[0].hold(&rig, stream);
    let bytes = pend(&rig, 1000, stream);
    rig.runtime.try_reap().unwrap_or_else(fail);
    gates[1].hold(&rig, stream);
    // Freed behind the second gate: only the first free can be reaped for now.
    let later = pend(&rig, 3000, stream);
    rig.runtime.try_reap().unwrap_or_else(fail);
    assert_pending(&rig, bytes + later);
    gates[0].open();
    let drained = eventually(Duration::from_secs(10), || {
        rig.runtime.try_reap().unwrap_or_else(fail);
        rig.resource.pending_free_bytes() == later
    });
    let busy = !rig.is_idle(stream);
    gates[1].open();
    assert!(drained && busy, "a busy stream drains as far as it has come");
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_pending(&rig, 0);
}

fn try_reap_keeps_what_it_cannot_ask_about(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; 2] = rig.streams();
    let total = pend_on_each(&rig, &streams).iter().sum();
    rig.driver.fail_always(DriverCall::StreamProgress);
    rig.runtime.try_reap().expect_err("the driver does not say");
    assert_pending(&rig, total);
    rig.driver.heal();
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_pending(&rig, 0);
}

fn try_reap_tries_failed_frees_again(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let block = rig.block(1000, a);
    let bytes = block.bytes;
    rig.driver.fail_after(DriverCall::FreeOn, 0, 2);
    rig.runtime.deallocate(block).expect_err("the driver failed");
    rig.runtime.try_reap().expect_err("the driver failed again");
    assert_eq!(rig.resource.live_bytes(), bytes);
    let drained = eventually(Duration::from_secs(10), || {
        rig.runtime.try_reap().unwrap_or_else(fail);
        rig.runtime.bytes_outstanding() == 0
    });
    assert!(drained);
}

/// Synchronising a stream that is being captured would end somebody's capture with an error.
fn a_captured_stream_is_not_reaped_until_the_capture_ends(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let bytes = pend(&rig, 1000, stream);
    assert!(rig.pool.resolve(stream).is_some(), "from here on somebody may capture it");
    let asked = || {
        [DriverCall::SynchronizeStream, DriverCall::StreamProgress, DriverCall::RecordEvent]
            .map(|call| rig.driver.count(call))
    };
    let before = asked();
    rig.driver.set_capturing(true);
    for answer in [rig.runtime.reap_pending(), rig.runtime.try_reap()] {
        let error = answer.expect_err("the stream is being captured");
        assert!(matches!(error, ResourceError::StreamMisuse(_)), "{error:?}");
        assert!(error.to_string().contains("captured"), "{error}");
    }
    assert_eq!(asked(), before);
    assert_pending(&rig, bytes);
    rig.driver.set_capturing(false);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_pending(&rig, 0);
}

fn a_reaped_stream_can_be_released(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    for _ in 0..3 {
        // Frees of blocks that another stream used, so that they may be enqueued over there.
        let block = rig.block(1000, a);
        rig.touch(&block, b, Access::Write);
        rig.runtime.deallocate(block).unwrap_or_else(fail);
        pend(&rig, 500, b);
    }
    rig.runtime.reap_pending().unwrap_or_else(fail);
    for stream in [a, b] {
        rig.pool.release(stream).unwrap_or_else(fail);
    }
}

fn two_reaps_at_once_count_each_free_once(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let kept = rig.block(500, b);
    pend(&rig, 1000, a);
    std::thread::scope(|scope| {
        let stall = rig.driver.stall(DriverCall::SynchronizeStream);
        let first = scope.spawn(|| rig.runtime.reap_pending());
        stall.wait_until_entered();
        // The second overtakes the first, which has already taken note of the same free.
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_pending(&rig, 0);
        let late = pend(&rig, 2000, a);
        drop(stall);
        first.join().unwrap().unwrap_or_else(fail);
        assert_pending(&rig, late);
    });
    assert_eq!(rig.resource.live_bytes(), kept.bytes);
    rig.runtime.deallocate(kept).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
    for stream in [a, b] {
        rig.pool.release(stream).unwrap_or_else(fail);
    }
}

/// Four threads allocate, use and free on streams of their own and of each other; two reap all the
/// while. `failed` says what a reap that failed means.
fn race(rig: &Rig, rounds: usize, failed: impl Fn(ResourceError) + Sync) {
    let streams: [StreamId; 4] = rig.streams();
    let sentinel = rig.block(4096, StreamId::DEFAULT);
    let (working, granted) = (AtomicU64::new(4), AtomicU64::new(0));
    let most = 4096 + 4 * rounds * 8192;
    let free = |block: DeviceBlock| match rig.runtime.deallocate(block) {
        Ok(()) => {}
        Err(error) => failed(error),
    };
    std::thread::scope(|scope| {
        for (index, &mine) in streams.iter().enumerate() {
            let (working, granted, streams, free) = (&working, &granted, &streams, &free);
            scope.spawn(move || {
                let other = streams[(index + 1) % 4];
                for round in 0..rounds {
                    let bytes = 256 * (1 + (round * 7 + index) % 32);
                    let block = rig.runtime.allocate(bytes, mine, AllocTag("race"));
                    let block = block.unwrap_or_else(fail);
                    granted.fetch_add(block.bytes as u64, Ordering::Relaxed);
                    if round % 3 == 0 {
                        rig.touch(&block, other, Access::Write);
                    }
                    free(block);
                }
                working.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for blocking in [true, false] {
            let (working, failed) = (&working, &failed);
            let least = sentinel.bytes;
            scope.spawn(move || {
                while working.load(Ordering::SeqCst) > 0 {
                    let reaped =
                        if blocking { rig.runtime.reap_pending() } else { rig.runtime.try_reap() };
                    reaped.unwrap_or_else(failed);
                    let outstanding = rig.runtime.bytes_outstanding();
                    assert!(outstanding >= least && outstanding <= most, "{outstanding}");
                    // Read together or not at all: neither is ever half of a free.
                    let pending = rig.resource.pending_free_bytes();
                    assert!(pending <= most, "{pending}");
                }
            });
        }
    });
    let books = rig.books();
    assert_eq!(books.pending_free_bytes, books.pending_per_stream_total, "all is quiet");
    assert!(granted.load(Ordering::Relaxed) > 0);
    rig.driver.heal();
    rig.runtime.reap_pending().unwrap_or_else(fail);
    let books = rig.books();
    assert_eq!((books.live_bytes, books.pending_free_bytes), (sentinel.bytes, 0));
    assert_eq!((books.bytes_outstanding, books.tracker.blocks), (sentinel.bytes, 1));
    assert_eq!(books.pending_per_stream_total, 0);
    rig.runtime.deallocate(sentinel).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
    for stream in streams {
        rig.pool.release(stream).unwrap_or_else(fail);
    }
}

fn racing_frees_and_reaps_lose_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    race(&rig, 600, |error| fail(error));
    // Every allocation was freed exactly once.
    let calls = [DriverCall::AllocateOn, DriverCall::FreeOn].map(|call| rig.driver.count(call));
    assert_eq!(calls[0], calls[1]);
}

fn racing_frees_and_failing_reaps_lose_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let failures = AtomicU64::new(0);
    for call in [DriverCall::SynchronizeStream, DriverCall::FreeOn, DriverCall::StreamProgress] {
        for pass in [0, 5, 20] {
            rig.driver.fail_after(call, pass, 7);
        }
    }
    race(&rig, 300, |error| {
        failures.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(error, ResourceError::Driver(_)), "{error:?}");
    });
    assert!(failures.load(Ordering::Relaxed) > 0, "something failed on the way");
}
