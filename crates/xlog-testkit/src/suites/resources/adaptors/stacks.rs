//! What holds for every adaptor, and for all of them on top of each other.

use std::sync::Arc;

use xlog_cuda::device_runtime::{
    Access, AllocTag, BlockId, BlockUse, DeviceBlock, DeviceMemoryResource, DirectCudaResource,
    FailureCallbackResource, FaultInjectionResource, FaultPlan, Generation, Operation,
    ResourceError, ResourceResult, StatisticsResource, StreamId, TrackingResource,
};

use super::{super::super::support::*, Inner};
use crate::{DriverCall, Gate, Rig, TestDevice, fail};

/// A plan that sees every use and fails none of those a test makes.
fn far_away() -> FaultPlan {
    FaultPlan::nth(Operation::PrepareUse, u64::MAX)
        .and(FaultPlan::nth(Operation::FinishUse, u64::MAX))
}

fn statistics(inner: Inner) -> Inner {
    Box::new(StatisticsResource::new(inner))
}

fn tracking(inner: Inner) -> Inner {
    Box::new(TrackingResource::new(inner))
}

fn callback(inner: Inner) -> Inner {
    Box::new(FailureCallbackResource::new(inner, Box::new(|_| false)))
}

fn faults(inner: Inner) -> Inner {
    Box::new(FaultInjectionResource::new(inner, FaultPlan::default()))
}

fn faults_in_uses(inner: Inner) -> Inner {
    Box::new(FaultInjectionResource::new(inner, far_away()))
}

fn all(inner: Inner) -> Inner {
    callback(tracking(statistics(faults(inner))))
}

fn all_with_uses(inner: Inner) -> Inner {
    statistics(callback(faults_in_uses(tracking(inner))))
}

type Decorate = fn(Inner) -> Inner;

/// Those that do not look at uses.
const BLIND: [(&str, Decorate); 5] = [
    ("statistics", statistics),
    ("tracking", tracking),
    ("callback", callback),
    ("faults", faults),
    ("all", all),
];

/// Those that do.
const SEEING: [(&str, Decorate); 2] =
    [("faults in uses", faults_in_uses), ("all with uses", all_with_uses)];

fn for_each(device: TestDevice, test: impl Fn(&Rig, &str)) {
    for (name, decorate) in BLIND.into_iter().chain(SEEING) {
        test(&Rig::decorated(device, |resource| decorate(Box::new(resource))), name);
    }
}

pub(super) fn adaptors_pass_on_every_method(device: TestDevice) {
    for_each(device, |rig, name| {
        let [a, b] = rig.streams();
        let stack = rig.runtime.resource();
        assert_eq!((stack.device_ordinal(), stack.bytes_outstanding()), (0, 0), "{name}");
        assert!(stack.supports_block_use_tracking(), "{name}");
        let block = stack.allocate(1024, a, AllocTag("kept")).unwrap_or_else(fail);
        assert_eq!((block.tag, block.alloc_stream), (AllocTag("kept"), a), "{name}");
        let (id, count) = (BlockId::from_block(&block), || {
            rig.resource.pending_use_event_count(block.ptr).expect("a live block")
        });
        stack.prepare_block_use(id, b, Access::Read).unwrap_or_else(fail);
        assert_eq!(count(), 1, "{name}");
        stack.finish_block_use(id, b, Access::Read).unwrap_or_else(fail);
        assert_eq!(count(), 2, "{name}");
        stack.prepare_uses(&[BlockUse::new(id, Access::Write)], b).unwrap_or_else(fail);
        stack.finish_uses(&[BlockUse::new(id, Access::Write)], b).unwrap_or_else(fail);
        assert_eq!(count(), 1, "{name}: a write forgets the reads it waited for");
        stack.record_block_use(&block, a).unwrap_or_else(fail);
        assert_eq!(count(), 2, "{name}");
        assert_eq!(stack.bytes_outstanding(), block.bytes, "{name}");

        let (bytes, second) = (block.bytes, rig.block(512, a));
        stack.deallocate(block).unwrap_or_else(fail);
        let books = rig.books();
        assert_eq!((books.live_bytes, books.pending_free_bytes), (second.bytes, bytes), "{name}");
        stack.reap_pending().unwrap_or_else(fail);
        assert_eq!(stack.bytes_outstanding(), second.bytes, "{name}");
        stack.try_deallocate(second).map_err(|(_, error)| error).unwrap_or_else(fail);
        rig.device.synchronize().unwrap_or_else(fail);
        stack.try_reap().unwrap_or_else(fail);
        assert_eq!(rig.books().bytes_outstanding, 0, "{name}");
    });
}

/// Every refusal is the one the resource below gives, and changes nothing.
pub(super) fn adaptors_pass_refusals_on_unchanged(device: TestDevice) {
    for_each(device, |rig, name| {
        let [stream] = rig.streams();
        let stack = rig.runtime.resource();
        let block = rig.block(4096, stream);
        let before = rig.books();
        for (bytes, stream) in [(0, stream), (64, StreamId(999))] {
            let ours = stack.allocate(bytes, stream, AllocTag("refused")).map(drop);
            let below = rig.resource.allocate(bytes, stream, AllocTag("refused")).map(drop);
            assert_eq!(ours, below, "{name}");
            assert!(ours.is_err(), "{name}");
        }
        let wrong = [
            DeviceBlock { device_ordinal: 7, ..handle_of(&block) },
            DeviceBlock { alloc_stream: StreamId(999), ..handle_of(&block) },
            DeviceBlock { generation: Generation::next(), ..handle_of(&block) },
            DeviceBlock { ptr: 0x10, ..handle_of(&block) },
        ];
        for wrong in wrong {
            let expected: ResourceResult<()> = rig.resource.deallocate(handle_of(&wrong));
            assert!(expected.is_err(), "{wrong:?}");
            assert_eq!(stack.deallocate(handle_of(&wrong)), expected, "{name}");
            let (returned, error) =
                stack.try_deallocate(handle_of(&wrong)).expect_err("a wrong handle");
            assert_eq!((format!("{returned:?}"), Err(error)), (format!("{wrong:?}"), expected));
            assert_eq!(rig.books(), before, "{name}: {wrong:?}");
        }
        // None of them is tried again, and the block is the caller's as before.
        let frees = rig.driver.count_during(DriverCall::FreeOn, || {
            stack.reap_pending().unwrap_or_else(fail);
        });
        assert_eq!((frees, rig.books().live_bytes), (0, block.bytes), "{name}");
        stack.deallocate(block).unwrap_or_else(fail);
    });
}

pub(super) fn adaptors_keep_a_block_whose_free_failed_until_a_reap(device: TestDevice) {
    for_each(device, |rig, name| {
        let [stream] = rig.streams();
        let block = rig.block(4096, stream);
        let (bytes, second) = (block.bytes, handle_of(&block));
        rig.driver.fail_after(DriverCall::FreeOn, 0, 2);
        let error = rig.runtime.deallocate(block).expect_err("the driver failed");
        assert!(is_injected(&error), "{name}: {error:?}");
        let stale = Err(ResourceError::UseAfterFree { generation: second.generation });
        assert_eq!(rig.runtime.deallocate(second), stale, "{name}");
        assert_eq!((rig.resource.live_bytes(), rig.runtime.bytes_outstanding()), (bytes, bytes));
        let error = rig.runtime.reap_pending().expect_err("the driver failed again");
        assert!(is_injected(&error), "{name}: {error:?}");
        assert_eq!((rig.resource.live_bytes(), rig.runtime.bytes_outstanding()), (bytes, bytes));
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!(rig.runtime.bytes_outstanding(), 0, "{name}");
    });
}

pub(super) fn adaptors_give_a_block_back_whose_free_failed(device: TestDevice) {
    for_each(device, |rig, name| {
        let [a, b] = rig.streams();
        let block = rig.block(4096, a);
        let (id, bytes) = (BlockId::from_block(&block), block.bytes);
        rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
        let (block, error) = rig.runtime.try_deallocate(block).expect_err("the driver failed");
        assert!(is_injected(&error), "{name}: {error:?}");
        assert_eq!((BlockId::from_block(&block), block.bytes), (id, bytes), "{name}");
        // It is the caller's: no reap takes it, and it can be used and freed.
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!(rig.resource.live_bytes(), bytes, "{name}");
        rig.touch(&block, b, Access::Write);
        rig.runtime.deallocate(block).unwrap_or_else(fail);
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!(rig.runtime.bytes_outstanding(), 0, "{name}");
    });
}

pub(super) fn adaptors_that_do_not_look_at_uses_hand_on_the_tracker(device: TestDevice) {
    for (decorators, direct) in [(&BLIND[..], true), (&SEEING[..], false)] {
        for (name, decorate) in decorators {
            let rig = Rig::decorated(device, |resource| decorate(Box::new(resource)));
            assert_eq!(rig.runtime.resource().direct_tracker().is_some(), direct, "{name}");
            // There is none to hand on here.
            let plain = DirectCudaResource::new(Arc::clone(&rig.device), 0);
            let plain = decorate(Box::new(plain));
            assert!(plain.direct_tracker().is_none(), "{name}");
            assert!(!plain.supports_block_use_tracking(), "{name}");
        }
    }
}

/// A read on another stream waits for a write that is held back, and the free for both.
pub(super) fn launches_keep_their_order_through_adaptors(device: TestDevice) {
    for_each(device, |rig, name| {
        let [a, b] = rig.streams();
        warm_up(rig, 64, &[a, b]);
        let (data, seen) = (rig.filled(256, 1, a), rig.filled(256, 2, b));
        rig.device.synchronize().unwrap_or_else(fail);
        let gate = Gate::new(rig);
        gate.hold(rig, a);
        rig.fill(&data, 7, a).unwrap_or_else(fail);
        rig.copy(&data, &seen, b).unwrap_or_else(fail);
        drop(data);
        let early = comes_true(|| rig.is_idle(b));
        gate.open();
        assert!(!early, "{name}: the read did not wait");
        assert_eq!(seen.download().unwrap_or_else(fail), [7; 256], "{name}");
        drop(seen);
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!(rig.runtime.bytes_outstanding(), 0, "{name}");
    });
}

pub(super) fn a_lost_device_freezes_the_books_of_adaptors(device: TestDevice) {
    for_each(device, |rig, name| {
        let [stream] = rig.streams();
        let (block, other) = (rig.block(4096, stream), rig.block(512, stream));
        let bytes = block.bytes + other.bytes;
        rig.driver.lose_device_at(DriverCall::FreeOn);
        rig.runtime.resource().deallocate(block).expect_err("the device is lost");
        let stack = rig.runtime.resource();
        assert_eq!(stack.deallocate(other), Err(ResourceError::DeviceLost), "{name}");
        assert_eq!(stack.reap_pending(), Err(ResourceError::DeviceLost), "{name}");
        assert_eq!(stack.try_reap(), Err(ResourceError::DeviceLost), "{name}");
        assert_eq!(stack.bytes_outstanding(), bytes, "{name}");
    });
}
