//! The pool: no memory is handed out twice, and what is handed on follows what was done with it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    device_runtime::{
        AllocTag, AsyncCudaResource, DeviceBlock, DeviceMemoryResource, PoolOptions, PoolResource,
        ResourceResult, StreamId, VirtualThread,
        tracker::models::{Place, Rig},
    },
    sync::{
        Step,
        models::{at_once, explore, must_fail_without},
    },
};

/// Large enough to be cut singly.
const BYTES: usize = 1 << 20;
const SLAB: usize = 2 << 20;

fn set_up(streams: usize, maximum: usize) -> (Rig, Arc<PoolResource>) {
    let rig = Rig::new(streams, false);
    let inner = AsyncCudaResource::new(Arc::clone(rig.pool.device()), 0, Arc::clone(&rig.pool));
    let options = PoolOptions::default().with_first_slab(SLAB).with_maximum(maximum);
    let pool = PoolResource::new(Box::new(inner), Arc::clone(&rig.pool), options);
    (rig, Arc::new(pool))
}

fn allocate(pool: &PoolResource, bytes: usize, stream: u32) -> ResourceResult<DeviceBlock> {
    pool.allocate(bytes, StreamId(stream), AllocTag("model"))
}

/// Two threads allocate from one arena, whose bin has one block for them.
fn two_allocate() {
    let (_rig, pool) = set_up(1, usize::MAX);
    let threads = (VirtualThread::new(), VirtualThread::new());
    threads.0.run(|| {
        let block = allocate(&pool, BYTES, 0).expect("memory");
        pool.deallocate(block).expect("freed");
    });
    let theirs = Arc::clone(&pool);
    let take = |pool: &PoolResource| allocate(pool, BYTES, 0).expect("memory");
    let (first, second) = at_once((threads.0, move || take(&theirs)), (threads.1, || take(&pool)));
    assert!(first.ptr.abs_diff(second.ptr) >= BYTES as u64, "memory was handed out twice");
    let report = pool.report();
    assert_eq!((report.live_blocks, report.live_bytes), (2, 2 * BYTES));
    let last = VirtualThread::new();
    last.run(|| pool.deallocate(first).and(pool.deallocate(second))).expect("freed");
    assert_eq!(pool.bytes_outstanding(), 0);
}

/// One thread frees what another allocated, while that one allocates again.
fn free_meets_allocate() {
    let (_rig, pool) = set_up(1, usize::MAX);
    let threads = (VirtualThread::new(), VirtualThread::new());
    let block = threads.1.run(|| allocate(&pool, BYTES, 0)).expect("memory");
    let theirs = Arc::clone(&pool);
    let (freed, again) = at_once(
        (threads.0, move || theirs.deallocate(block)),
        (threads.1, || allocate(&pool, BYTES, 0)),
    );
    freed.expect("freed");
    let again = again.expect("memory");
    let report = pool.report();
    assert_eq!((report.live_blocks, report.live_bytes), (1, BYTES));
    assert_eq!(report.free_bytes, report.slab_bytes - BYTES, "every byte is somewhere");
    VirtualThread::new().run(|| pool.deallocate(again)).expect("freed");
}

/// Runs in which memory went from one stream to the other.
static HANDED_ON: AtomicUsize = AtomicUsize::new(0);

/// One thread uses a block on its stream and frees it; another, on its own stream, gets the memory
/// if it is free by then, because there is no more.
fn memory_changes_streams() {
    let (rig, pool) = set_up(2, SLAB);
    let threads = (VirtualThread::new(), VirtualThread::new());
    let block = threads.0.run(|| allocate(&pool, SLAB, 0)).expect("memory");
    let ptr = block.ptr;
    let (their_rig, theirs) = (rig.clone(), Arc::clone(&pool));
    let use_and_free = move || -> Place {
        let place = their_rig.write(&block, StreamId(0));
        theirs.deallocate(block).expect("freed");
        place
    };
    let get = || {
        let block = allocate(&pool, SLAB, 1).ok()?;
        let place = rig.write(&block, StreamId(1));
        Some((block, place))
    };
    let (before, after) = at_once((threads.0, use_and_free), (threads.1, get));
    if let Some((block, after)) = after {
        // Or it went back to the device, which gave other memory for it.
        if block.ptr == ptr {
            HANDED_ON.fetch_add(1, Ordering::Relaxed);
            assert!(rig.driver.follows(after, before), "memory was used before its last use");
        }
        VirtualThread::new().run(|| pool.deallocate(block)).expect("freed");
    }
    assert_eq!(pool.bytes_outstanding(), 0);
}

#[test]
fn no_memory_is_handed_out_twice() {
    explore("pool, two allocate", Some(4), two_allocate);
    explore("pool, a free meets an allocation", Some(4), free_meets_allocate);
}

#[test]
fn memory_that_changes_streams_follows_its_last_use() {
    explore("pool, memory changes streams", Some(3), memory_changes_streams);
    assert!(HANDED_ON.load(Ordering::Relaxed) > 0, "no run in which the memory was handed on");
}

#[test]
fn arenas_must_be_locked() {
    must_fail_without(Step::LockRelease, "Causality violation", Some(2), two_allocate);
}
