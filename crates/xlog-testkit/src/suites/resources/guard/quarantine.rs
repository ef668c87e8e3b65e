//! How long freed memory is kept, and what makes it go.

use std::sync::Arc;

use xlog_cuda::device_runtime::{
    AllocTag, AsyncCudaResource, DebugGuardResource, DeviceMemoryResource, DirectCudaResource,
    GlobalDeviceBudget, GuardOptions, PoolOptions, PoolResource, ResourceError, ResourceStack,
    StreamId,
};

use super::{super::super::support::*, block, guarded};
use crate::{Rig, TestDevice, fail};

pub(super) fn quarantine_keeps_an_address_from_being_used_again(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default().with_quarantine(1 << 20, 8));
    let [a] = rig.streams();
    let first = block(&rig, 1024, a, "first");
    let ptr = first.ptr;
    assert_eq!(ptr % 256, 0);
    rig.runtime.deallocate(first).unwrap_or_else(fail);
    for frees in 1..=7 {
        assert_eq!(guard.quarantined().0, frees);
        let next = block(&rig, 1024, a, "next");
        assert_ne!(next.ptr, ptr, "after {frees} frees");
        rig.runtime.deallocate(next).unwrap_or_else(fail);
    }
    // The next free pushes it out, and then it can be had again.
    let next = block(&rig, 1024, a, "next");
    rig.runtime.deallocate(next).unwrap_or_else(fail);
    assert!(recycled(&rig, 256, a, ptr).is_some());
    assert_eq!(guard.findings().len(), 0);
}

pub(super) fn quarantine_is_bounded_in_blocks_and_in_bytes(device: TestDevice) {
    for (options, blocks, bytes) in [
        (GuardOptions::default().with_quarantine(usize::MAX, 3), 3, 3 * 1536),
        (GuardOptions::default().with_quarantine(5000, usize::MAX), 3, 3 * 1536),
        (GuardOptions::default().with_quarantine(0, 10), 0, 0),
        (GuardOptions::default().with_quarantine(1 << 20, 0), 0, 0),
    ] {
        let (rig, guard) = guarded(device, options);
        let [a] = rig.streams();
        for _ in 0..20 {
            let one = block(&rig, 1024, a, "one");
            rig.runtime.deallocate(one).unwrap_or_else(fail);
        }
        assert_eq!(guard.quarantined(), (blocks, bytes), "{options:?}");
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!(rig.runtime.bytes_outstanding(), bytes, "{options:?}: all else went back");
        guard.empty_quarantine().unwrap_or_else(fail);
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!(rig.runtime.bytes_outstanding(), 0, "{options:?}");
        assert_eq!(rig.pool.stats().blocks, 0, "{options:?}: no identity is left");
    }
}

/// A guard over what `make` makes, beside the rig's own runtime.
fn beside(
    rig: &Rig,
    make: impl FnOnce(Arc<AsyncCudaResource>) -> Box<dyn DeviceMemoryResource + Send + Sync>,
) -> DebugGuardResource {
    let inner = make(Arc::clone(&rig.resource));
    DebugGuardResource::new(inner, Arc::clone(&rig.pool), GuardOptions::default())
}

pub(super) fn a_full_device_empties_the_quarantine(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let guard = beside(&rig, |inner| Box::new(GlobalDeviceBudget::new(Box::new(inner), 10_000)));
    let tag = AllocTag("budget");
    let kept = guard.allocate(1488, a, tag).unwrap_or_else(fail);
    for _ in 0..3 {
        let one = guard.allocate(1488, a, tag).unwrap_or_else(fail);
        guard.deallocate(one).unwrap_or_else(fail);
    }
    assert_eq!(guard.quarantined(), (3, 6000));
    let large = guard.allocate(7000, a, tag).unwrap_or_else(fail);
    assert_eq!(guard.quarantined(), (0, 0));
    let refused = guard.allocate(7000, a, tag).expect_err("there is nothing left to give back");
    assert!(refused.is_out_of_memory(), "{refused}");
    guard.deallocate(large).unwrap_or_else(fail);
    guard.deallocate(kept).unwrap_or_else(fail);
    assert_eq!(guard.findings().len(), 0);
}

pub(super) fn a_stream_can_be_released_though_its_blocks_are_in_quarantine(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a, b] = rig.streams();
    let (on_a, on_b) = (block(&rig, 64, a, "a"), block(&rig, 64, b, "b"));
    rig.touch(&on_a, b, xlog_cuda::device_runtime::Access::Write);
    misuse(rig.pool.release(a));
    rig.runtime.deallocate(on_a).unwrap_or_else(fail);
    rig.runtime.deallocate(on_b).unwrap_or_else(fail);
    assert_eq!(guard.quarantined().0, 2);
    rig.pool.release(a).unwrap_or_else(fail);
    assert_eq!(guard.quarantined().0, 1, "and only its own blocks go");
    guard.check().unwrap_or_else(fail);
    // The same over a resource that knows nothing of streams.
    let plain = DirectCudaResource::new(Arc::clone(&rig.device), 0);
    let guard = beside(&rig, |_| Box::new(plain));
    let held = guard.allocate(64, b, AllocTag("held")).unwrap_or_else(fail);
    misuse(rig.pool.release(b));
    guard.deallocate(held).unwrap_or_else(fail);
    rig.pool.release(b).unwrap_or_else(fail);
    assert_eq!(guard.quarantined().0, 0);
}

pub(super) fn a_dropped_guard_gives_everything_back(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let guard = beside(&rig, |inner| Box::new(inner));
    for stream in [a, b, a] {
        let one = guard.allocate(512, stream, AllocTag("one")).unwrap_or_else(fail);
        guard.deallocate(one).unwrap_or_else(fail);
    }
    assert_eq!(rig.resource.live_bytes(), 3 * 1024);
    drop(guard);
    assert_eq!(rig.resource.live_bytes(), 0);
    rig.resource.reap_pending().unwrap_or_else(fail);
    assert_eq!((rig.resource.bytes_outstanding(), rig.pool.stats().blocks), (0, 0));
}

pub(super) fn a_guard_works_over_any_resource(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let pool = PoolResource::new(
        Box::new(Arc::clone(&rig.resource)),
        Arc::clone(&rig.pool),
        PoolOptions::default().with_first_slab(2 << 20),
    );
    let plain = DirectCudaResource::new(Arc::clone(&rig.device), 0);
    for guard in [beside(&rig, |_| Box::new(pool)), beside(&rig, |_| Box::new(plain))] {
        assert!(guard.supports_block_use_tracking() && guard.direct_tracker().is_some());
        for bytes in [1, 1000, 300_000] {
            let one = guard.allocate(bytes, a, AllocTag("one")).unwrap_or_else(fail);
            assert_eq!(one.bytes, bytes, "so that one byte too many is seen");
            super::write_raw(&rig, one.ptr + bytes as u64 / 4 * 4, 1, a);
            let generation = one.generation;
            assert_eq!(guard.deallocate(one), Err(ResourceError::OutOfBounds { generation }));
            let clean = guard.allocate(bytes, a, AllocTag("clean")).unwrap_or_else(fail);
            guard.deallocate(clean).unwrap_or_else(fail);
        }
        assert_eq!(guard.findings().len(), 3);
        guard.empty_quarantine().unwrap_or_else(fail);
        guard.reap_pending().unwrap_or_else(fail);
        assert_eq!(guard.bytes_outstanding(), 0);
    }
}

pub(super) fn the_stack_for_debugging_has_a_guard(device: TestDevice) {
    let rig = Rig::new(device);
    let streams = Arc::clone(&rig.pool);
    let stack = ResourceStack::over_driver_for(Arc::clone(&rig.device), streams)
        .as_for_debugging()
        .build()
        .unwrap_or_else(fail);
    let guard = stack.guard.as_ref().expect("a guard");
    let keys = stack.runtime.allocate(1000, StreamId::DEFAULT, AllocTag("keys"));
    let keys = keys.unwrap_or_else(fail);
    let statistics = stack.statistics.as_ref().expect("statistics");
    assert_eq!(statistics.statistics().bytes.current, 1000, "margins are the guard's own");
    super::write_raw(&rig, keys.ptr, 251, StreamId::DEFAULT);
    let generation = keys.generation;
    assert_eq!(stack.runtime.deallocate(keys), Err(ResourceError::OutOfBounds { generation }));
    assert_eq!(guard.findings().len(), 1);
    assert!(format!("{guard:?}").contains("findings: 1"));
}

/// Its slabs are the guard's blocks, which the guard counts itself.
pub(super) fn a_pool_over_a_guard_keeps_both_books(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a, b] = rig.streams();
    let options = PoolOptions::default().with_first_slab(2 << 20);
    let pool = PoolResource::new(Box::new(Arc::clone(&guard)), Arc::clone(&rig.pool), options);
    for _ in 0..3 {
        let blocks = [a, b, a]
            .map(|stream| pool.allocate(100_000, stream, AllocTag("above")).unwrap_or_else(fail));
        for block in blocks {
            pool.deallocate(block).unwrap_or_else(fail);
        }
        pool.trim().unwrap_or_else(fail);
        guard.empty_quarantine().unwrap_or_else(fail);
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!((pool.report().slabs, guard.bytes_outstanding()), (0, 0));
    }
    for stream in [a, b] {
        rig.pool.release(stream).unwrap_or_else(fail);
    }
    assert!(guard.findings().is_empty());
}
