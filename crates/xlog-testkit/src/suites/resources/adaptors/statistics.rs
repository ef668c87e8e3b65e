//! The resource that counts.

use std::sync::{Arc, Barrier};

use xlog_cuda::device_runtime::{
    AllocTag, Counter, DeviceBlock, DeviceMemoryResource, DirectCudaResource, Generation,
    Statistics, StatisticsResource, StreamId,
};

use super::{super::super::support::*, over};
use crate::{DriverCall, Rig, TestDevice, fail};

const TAG: AllocTag = AllocTag("counted");

fn counter(current: i64, peak: u64, total: u64) -> Counter {
    Counter { current, peak, total }
}

#[track_caller]
fn assert_counts(counted: &StatisticsResource, bytes: Counter, blocks: Counter) {
    assert_eq!(counted.statistics(), Statistics { bytes, blocks });
}

/// Fails a free as the driver would, through `deallocate`.
#[track_caller]
fn fail_to_free(rig: &Rig, block: DeviceBlock) {
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    let error = rig.runtime.deallocate(block).expect_err("the driver failed");
    assert!(is_injected(&error), "{error:?}");
    rig.driver.heal();
}

pub(super) fn statistics_count_what_was_granted_step_by_step(device: TestDevice) {
    let (rig, counted) = over(device, StatisticsResource::new);
    let [stream] = rig.streams();
    assert_counts(&counted, counter(0, 0, 0), counter(0, 0, 0));
    let a = rig.block(1000, stream);
    assert_counts(&counted, counter(1000, 1000, 1000), counter(1, 1, 1));
    let b = rig.block(24, stream);
    assert_counts(&counted, counter(1024, 1024, 1024), counter(2, 2, 2));
    rig.runtime.allocate(0, stream, TAG).expect_err("of nothing");
    rig.driver.fail_after(DriverCall::AllocateOn, 0, 1);
    rig.runtime.allocate(64, stream, TAG).expect_err("the driver failed");
    assert_counts(&counted, counter(1024, 1024, 1024), counter(2, 2, 2));
    rig.runtime.deallocate(a).unwrap_or_else(fail);
    assert_counts(&counted, counter(24, 1024, 1024), counter(1, 2, 2));
    // Handed back is handed back: pending bytes are the resource's below.
    assert_eq!(counted.bytes_outstanding(), 1024);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_counts(&counted, counter(24, 1024, 1024), counter(1, 2, 2));
    let c = rig.block(500, stream);
    assert_counts(&counted, counter(524, 1024, 1524), counter(2, 2, 3));
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    let (c, _) = rig.runtime.try_deallocate(c).expect_err("the driver failed");
    assert_counts(&counted, counter(524, 1024, 1524), counter(2, 2, 3));
    rig.runtime.try_deallocate(c).map_err(|(_, error)| error).unwrap_or_else(fail);
    assert_counts(&counted, counter(24, 1024, 1524), counter(1, 2, 3));
    rig.runtime.deallocate(b).unwrap_or_else(fail);
    assert_counts(&counted, counter(0, 1024, 1524), counter(0, 2, 3));
    let text = format!("{counted:?}");
    assert_says(&text, &["StatisticsResource", "current: 0", "peak: 1024", "total: 1524"]);
}

pub(super) fn statistics_scopes_nest(device: TestDevice) {
    let (rig, counted) = over(device, StatisticsResource::new);
    let [stream] = rig.streams();
    assert_eq!(counted.pop(), None);
    let old = rig.block(1000, stream);
    counted.push();
    let first = rig.block(100, stream);
    counted.push();
    assert_eq!(counted.statistics(), Statistics::default());
    let second = rig.block(200, stream);
    rig.runtime.deallocate(second).unwrap_or_else(fail);
    rig.runtime.deallocate(old).unwrap_or_else(fail);
    assert_counts(&counted, counter(-1000, 200, 200), counter(-1, 1, 1));
    let inner = counted.pop().expect("a scope is open");
    let expected = Statistics { bytes: counter(-1000, 200, 200), blocks: counter(-1, 1, 1) };
    assert_eq!(inner, expected);
    assert_counts(&counted, counter(-900, 300, 300), counter(0, 2, 2));
    // A free that failed in one scope and is reaped in another counts where it is reaped.
    fail_to_free(&rig, first);
    let outer = counted.pop().expect("a scope is open");
    assert_eq!((outer.bytes, outer.blocks), (counter(-900, 300, 300), counter(0, 2, 2)));
    counted.push();
    rig.runtime.reap_pending().unwrap_or_else(fail);
    let reaped = counted.pop().expect("a scope is open");
    assert_eq!((reaped.bytes, reaped.blocks), (counter(-100, 0, 0), counter(-1, 0, 0)));
    assert_counts(&counted, counter(0, 1300, 1300), counter(0, 3, 3));
    assert_eq!(counted.pop(), None);
}

pub(super) fn statistics_count_a_failed_free_until_it_is_reaped(device: TestDevice) {
    let (rig, counted) = over(device, StatisticsResource::new);
    let [stream] = rig.streams();
    let reaps: [fn(&Rig) -> _; 2] =
        [|rig| rig.runtime.reap_pending(), |rig| rig.runtime.try_reap()];
    for (round, reap) in (1..).zip(reaps) {
        let block = rig.block(4096, stream);
        fail_to_free(&rig, block);
        assert_counts(&counted, counter(4096, 4096, 4096 * round), counter(1, 1, round));
        reap(&rig).unwrap_or_else(fail);
        assert_counts(&counted, counter(0, 4096, 4096 * round), counter(0, 1, round));
        // Once is enough.
        reap(&rig).unwrap_or_else(fail);
        assert_counts(&counted, counter(0, 4096, 4096 * round), counter(0, 1, round));
    }
}

pub(super) fn statistics_settle_each_failed_free_by_itself(device: TestDevice) {
    let (rig, counted) = over(device, StatisticsResource::new);
    let [stream] = rig.streams();
    let (first, second) = (rig.block(100, stream), rig.block(200, stream));
    fail_to_free(&rig, first);
    fail_to_free(&rig, second);
    assert_counts(&counted, counter(300, 300, 300), counter(2, 2, 2));
    // The reap fails at one of the two, and says so.
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    rig.runtime.reap_pending().expect_err("one free failed again");
    let live = rig.resource.live_bytes();
    assert!(live == 100 || live == 200, "one of them is free by now: {live}");
    assert_counts(&counted, counter(live as i64, 300, 300), counter(1, 2, 2));
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_counts(&counted, counter(0, 300, 300), counter(0, 2, 2));
}

pub(super) fn statistics_over_a_resource_without_a_tracker_wait_for_a_whole_reap(
    device: TestDevice,
) {
    let rig = Rig::new(device);
    let direct = DirectCudaResource::new(Arc::clone(&rig.device), 0);
    let counted = StatisticsResource::new(Box::new(direct));
    let block = counted.allocate(4096, StreamId::DEFAULT, TAG).unwrap_or_else(fail);
    let bytes = block.bytes;
    rig.driver.fail_after(DriverCall::Free, 0, 2);
    counted.deallocate(block).expect_err("the driver failed");
    counted.try_reap().unwrap_or_else(fail);
    counted.reap_pending().expect_err("the driver failed again");
    assert_eq!(counted.bytes_outstanding(), bytes);
    assert_counts(&counted, counter(4096, 4096, 4096), counter(1, 1, 1));
    counted.reap_pending().unwrap_or_else(fail);
    assert_eq!(counted.bytes_outstanding(), 0);
    assert_counts(&counted, counter(0, 4096, 4096), counter(0, 1, 1));
}

/// Whatever a mistaken program hands back, before and after a reap, the real block counts once.
pub(super) fn statistics_ignore_refused_handles(device: TestDevice) {
    let (rig, counted) = over(device, StatisticsResource::new);
    let [stream] = rig.streams();
    let block = rig.block(4096, stream);
    let stale = handle_of(&block);
    for wrong in [
        DeviceBlock { device_ordinal: 7, ..handle_of(&block) },
        DeviceBlock { alloc_stream: StreamId(999), ..handle_of(&block) },
        DeviceBlock { generation: Generation::next(), ..handle_of(&block) },
    ] {
        rig.runtime.deallocate(handle_of(&wrong)).expect_err("a wrong handle");
        rig.runtime.try_deallocate(wrong).expect_err("a wrong handle");
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_counts(&counted, counter(4096, 4096, 4096), counter(1, 1, 1));
    }
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.runtime.deallocate(stale).expect_err("freed already");
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_counts(&counted, counter(0, 4096, 4096), counter(0, 1, 1));
}

pub(super) fn statistics_are_exact_under_threads(device: TestDevice) {
    const THREADS: usize = 4;
    const PAIRS: usize = 2_000;
    let (rig, counted) = over(device, StatisticsResource::new);
    let streams: [StreamId; THREADS] = rig.streams();
    let (scope, whole, outstanding) = within("threads that allocate", move || {
        let kept = rig.block(4096, streams[0]);
        counted.push();
        let (all_hold, runtime) = (Barrier::new(THREADS), &rig.runtime);
        std::thread::scope(|scope| {
            for (index, stream) in streams.into_iter().enumerate() {
                let all_hold = &all_hold;
                scope.spawn(move || {
                    for pair in 0..PAIRS {
                        let bytes = 256 * (index + 1);
                        let block = runtime.allocate(bytes, stream, TAG).unwrap_or_else(fail);
                        if pair == 0 {
                            all_hold.wait();
                        }
                        runtime.deallocate(block).unwrap_or_else(fail);
                    }
                });
            }
        });
        let scope = counted.pop().expect("a scope is open");
        runtime.deallocate(kept).unwrap_or_else(fail);
        runtime.reap_pending().unwrap_or_else(fail);
        (scope, counted.statistics(), runtime.bytes_outstanding())
    });
    // Once, all four held a block; no thread ever held two.
    let pairs = PAIRS as u64;
    let (bytes, blocks) = (counter(0, 2560, 2560 * pairs), counter(0, 4, 4 * pairs));
    assert_eq!(scope, Statistics { bytes, blocks });
    let bytes = counter(0, 4096 + 2560, 4096 + 2560 * pairs);
    assert_eq!(whole, Statistics { bytes, blocks: counter(0, 5, 4 * pairs + 1) });
    assert_eq!(outstanding, 0);
}
