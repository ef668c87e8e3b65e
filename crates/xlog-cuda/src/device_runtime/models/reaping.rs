//! Reaping: a free that races a reap is counted wholly before it or wholly after it.

use std::sync::Arc;

use crate::{
    device_runtime::{
        AllocTag, AsyncCudaResource, DeviceBlock, DeviceMemoryResource, StreamId, VirtualThread,
        tracker::models::{Asked, Rig},
    },
    sync::{
        Step,
        models::{at_once, explore, must_fail_without},
    },
};

const BYTES: usize = 1024;

fn set_up(blocks: usize) -> (Rig, Arc<AsyncCudaResource>, Vec<DeviceBlock>) {
    let rig = Rig::new(1, true);
    let device = Arc::clone(rig.pool.device());
    let resource = AsyncCudaResource::new(device, 0, Arc::clone(&rig.pool));
    let allocate =
        |_| resource.allocate(BYTES, StreamId::DEFAULT, AllocTag("model")).expect("memory");
    let blocks = VirtualThread::new().run(|| (0..blocks).map(allocate).collect());
    (rig, Arc::new(resource), blocks)
}

/// What holds whoever is counting: nothing is lost, and nothing counts as free that was not.
fn check(rig: &Rig, resource: &AsyncCudaResource) {
    let pending = resource.pending_free_bytes();
    assert_eq!(pending, resource.pending_per_stream_total(), "lanes and their sum");
    let raw = rig.pool.resolve(StreamId::DEFAULT).expect("a stream");
    let asked = rig.driver.queue(raw);
    let unseen = asked[rig.driver.waited_for(raw)..].iter();
    let unseen = unseen.filter(|asked| matches!(asked, Asked::Free(_))).count();
    assert!(pending >= unseen * BYTES, "a free was counted that nobody had waited for");
}

/// One block is freed beforehand; another while somebody reaps.
fn free_meets_reap() {
    let (rig, resource, mut blocks) = set_up(2);
    let threads = (VirtualThread::new(), VirtualThread::new());
    let (first, second) = (blocks.pop().expect("a block"), blocks.pop().expect("a block"));
    threads.0.run(|| resource.deallocate(first)).expect("freed");
    let theirs = Arc::clone(&resource);
    let (freed, reaped) = at_once(
        (threads.0, move || theirs.deallocate(second)),
        (threads.1, || resource.reap_pending()),
    );
    freed.and(reaped).expect("nothing fails here");
    check(&rig, &resource);
    assert_eq!(resource.live_bytes(), 0);
    resource.reap_pending().expect("reaped");
    assert_eq!((resource.pending_free_bytes(), rig.pool.tracker().lanes()[0].blocks()), (0, 0));
}

/// Two threads reap the same frees.
fn reap_meets_reap(one_asks: bool) {
    let (rig, resource, blocks) = set_up(1);
    let threads = (VirtualThread::new(), VirtualThread::new());
    for block in blocks {
        threads.0.run(|| resource.deallocate(block)).expect("freed");
    }
    let theirs = Arc::clone(&resource);
    let reap = move || if one_asks { theirs.try_reap() } else { theirs.reap_pending() };
    let (first, second) = at_once((threads.0, reap), (threads.1, || resource.reap_pending()));
    first.and(second).expect("nothing fails here");
    assert_eq!((resource.pending_free_bytes(), resource.pending_per_stream_total()), (0, 0));
    assert_eq!(rig.pool.tracker().lanes()[0].blocks(), 0, "counted once");
}

#[test]
fn a_free_is_counted_before_a_reap_or_after_it() {
    explore("reaping, a free meets a reap", Some(5), free_meets_reap);
}

#[test]
fn two_reaps_count_a_free_once() {
    explore("reaping, two reaps", Some(5), || reap_meets_reap(false));
    explore("reaping, a reap and a question", Some(4), || reap_meets_reap(true));
}

#[test]
fn a_reap_must_settle_what_it_saw_before() {
    let what = "a free was counted that nobody had waited for";
    must_fail_without(Step::SeenBefore, what, Some(3), free_meets_reap);
}
