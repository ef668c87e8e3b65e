//! The resource that fails on purpose.

use std::sync::Arc;

use xlog_cuda::device_runtime::{
    Access, AllocTag, BlockId, BlockUse, Counter, DeviceMemoryResource, DriverError,
    FaultInjectionResource, FaultPlan, Operation, ResourceError, StatisticsResource, StreamId,
    TrackingResource,
};

use super::{super::super::support::*, over};
use crate::{DriverCall, Gate, Rig, TestDevice, fail};

const TAG: AllocTag = AllocTag("faulty");

fn faulty(device: TestDevice, plan: FaultPlan) -> (Rig, Arc<FaultInjectionResource>) {
    over(device, |inner| FaultInjectionResource::new(inner, plan))
}

/// Ends the test unless `error` is the fault injected into call number `count`.
#[track_caller]
fn assert_fault(error: &ResourceError, operation: Operation, count: u64) {
    assert!(matches!(error, ResourceError::Driver(_)), "{error:?}");
    assert_says(&error.to_string(), &[&format!("injected fault: {operation} number {count}")]);
}

pub(super) fn faults_come_as_planned_and_never_reach_the_resource_below(device: TestDevice) {
    let plan = FaultPlan::nth(Operation::Allocate, 2)
        .and(FaultPlan::every(Operation::Allocate, 3))
        .and(FaultPlan::nth(Operation::Reap, 2))
        .with_code(DriverError::OUT_OF_MEMORY);
    let (rig, faults) = faulty(device, plan);
    let [stream] = rig.streams();
    for count in 1..=6 {
        let failing = [2, 3, 6].contains(&count);
        let before = faults.injected();
        let asked = rig.driver.count_during(DriverCall::AllocateOn, || {
            match rig.runtime.allocate(64, stream, TAG) {
                Ok(block) => rig.runtime.deallocate(block).unwrap_or_else(fail),
                Err(error) => {
                    assert_fault(&error, Operation::Allocate, count);
                    assert!(error.is_out_of_memory(), "{error:?}");
                }
            }
        });
        assert_eq!((asked, faults.injected()), (u64::from(!failing), before + u64::from(failing)));
    }
    rig.runtime.try_reap().unwrap_or_else(fail);
    let synchronised = rig.driver.count_during(DriverCall::SynchronizeStream, || {
        assert_fault(&rig.runtime.reap_pending().unwrap_err(), Operation::Reap, 2);
    });
    assert_eq!((synchronised, faults.injected()), (0, 4));
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
    assert_says(&format!("{faults:?}"), &["FaultInjectionResource", "injected: 4"]);
}

pub(super) fn a_free_that_was_failed_is_kept_and_handed_on_by_the_next_reap(device: TestDevice) {
    let plan = FaultPlan::nth(Operation::Deallocate, 1)
        .and(FaultPlan::nth(Operation::Deallocate, 2))
        .and(FaultPlan::nth(Operation::Deallocate, 4))
        .and(FaultPlan::nth(Operation::Reap, 1));
    let (rig, faults) = faulty(device, plan);
    let [stream] = rig.streams();
    let block = rig.block(4096, stream);
    let (id, bytes) = (BlockId::from_block(&block), block.bytes);

    let (block, error) = rig.runtime.try_deallocate(block).expect_err("a fault");
    assert_fault(&error, Operation::Deallocate, 1);
    assert_eq!(BlockId::from_block(&block), id);
    rig.touch(&block, stream, Access::Write);

    let (second, third) = (handle_of(&block), handle_of(&block));
    assert_fault(&rig.runtime.deallocate(block).unwrap_err(), Operation::Deallocate, 2);
    let kept = (bytes, 0, bytes);
    let books = |rig: &Rig| {
        let books = rig.books();
        (books.live_bytes, books.pending_free_bytes, books.bytes_outstanding)
    };
    assert_eq!(books(&rig), kept);
    // It is no longer the caller's.
    let stale = ResourceError::UseAfterFree { generation: id.generation };
    assert_eq!(rig.runtime.deallocate(second), Err(stale.clone()));
    let (_, error) = rig.runtime.try_deallocate(third).expect_err("handed back already");
    assert_eq!((error, books(&rig)), (stale, kept));
    assert_fault(&rig.runtime.reap_pending().unwrap_err(), Operation::Reap, 1);
    assert_eq!(books(&rig), kept);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(books(&rig), (0, 0, 0));

    // Refused ones are no calls of the plan's, and a reap without waiting hands on too.
    let other = rig.block(512, stream);
    rig.runtime.deallocate(other).unwrap_or_else(fail);
    let other = rig.block(512, stream);
    let mut foreign = handle_of(&other);
    foreign.device_ordinal = 7;
    let error = rig.runtime.deallocate(foreign).expect_err("another device's");
    assert!(!error.to_string().contains("injected"), "{error}");
    assert_fault(&rig.runtime.deallocate(other).unwrap_err(), Operation::Deallocate, 4);
    assert_eq!(rig.resource.live_bytes(), 512);
    rig.runtime.try_reap().unwrap_or_else(fail);
    assert_eq!(rig.resource.live_bytes(), 0);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!((rig.runtime.bytes_outstanding(), faults.injected()), (0, 4));
}

pub(super) fn a_free_that_was_failed_and_then_fails_below_is_not_lost(device: TestDevice) {
    let (rig, _) = faulty(device, FaultPlan::nth(Operation::Deallocate, 1));
    let [stream] = rig.streams();
    let block = rig.block(4096, stream);
    let bytes = block.bytes;
    assert_fault(&rig.runtime.deallocate(block).unwrap_err(), Operation::Deallocate, 1);
    // Handing it on fails, and so does the retry of the same reap below.
    rig.driver.fail_after(DriverCall::FreeOn, 0, 2);
    let error = rig.runtime.reap_pending().expect_err("the driver failed");
    assert!(is_injected(&error), "{error:?}");
    assert_eq!((rig.resource.live_bytes(), rig.runtime.bytes_outstanding()), (bytes, bytes));
    let frees = rig.driver.count_during(DriverCall::FreeOn, || {
        rig.runtime.reap_pending().unwrap_or_else(fail);
    });
    assert_eq!((frees, rig.runtime.bytes_outstanding()), (1, 0));
}

pub(super) fn a_resource_that_fails_frees_hands_them_on_when_dropped(device: TestDevice) {
    let rig = Rig::new(device);
    let plan = FaultPlan::every(Operation::Deallocate, 1);
    let faults = FaultInjectionResource::new(Box::new(Arc::clone(&rig.resource)), plan);
    let block = faults.allocate(4096, StreamId::DEFAULT, TAG).unwrap_or_else(fail);
    let bytes = block.bytes;
    assert_fault(&faults.deallocate(block).unwrap_err(), Operation::Deallocate, 1);
    assert_eq!((rig.resource.live_bytes(), rig.resource.pending_free_bytes()), (bytes, 0));
    drop(faults);
    assert_eq!((rig.resource.live_bytes(), rig.resource.pending_free_bytes()), (0, bytes));
}

/// A fault before the work keeps it from being enqueued; one after it is made good by waiting.
pub(super) fn faults_in_uses_are_seen_by_launches_and_leave_nothing_unprotected(
    device: TestDevice,
) {
    // What comes before the launch under test: counted first, to know the launch's number.
    let warm = |rig: &Rig, a, b| {
        warm_up(rig, 64, &[a, b]);
        (rig.filled(256, 7, a), rig.filled(256, 2, a))
    };
    let (prepared, finished) = {
        let (rig, faults) = faulty(device, FaultPlan::nth(Operation::PrepareUse, u64::MAX));
        let [a, b] = rig.streams();
        let _kept = warm(&rig, a, b);
        assert!(faults.direct_tracker().is_none());
        (faults.count(Operation::PrepareUse), faults.count(Operation::FinishUse))
    };

    let (rig, faults) = faulty(device, FaultPlan::nth(Operation::PrepareUse, prepared + 1));
    let [a, b] = rig.streams();
    let (data, seen) = warm(&rig, a, b);
    let launches = rig.driver.count_during(DriverCall::Launch, || {
        let error = rig.copy(&data, &seen, b).expect_err("a fault");
        assert_says(&error.to_string(), &["injected fault: prepare use"]);
    });
    assert_eq!((launches, faults.injected()), (0, 1));
    assert_eq!(rig.resource.pending_use_event_count(data.ptr()), Some(1), "nothing is published");
    assert_unclaimed(&rig, &data, a);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    assert_eq!(seen.download().unwrap_or_else(fail), [7; 256]);

    let (rig, faults) = faulty(device, FaultPlan::nth(Operation::FinishUse, finished + 1));
    let [a, b] = rig.streams();
    let (data, seen) = warm(&rig, a, b);
    rig.device.synchronize().unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, b);
    let error = rig.copy(&data, &seen, b).expect_err("a fault");
    assert_fault(&error, Operation::FinishUse, finished + 1);
    assert_eq!(faults.injected(), 1);
    rig.fill(&data, 9, a).unwrap_or_else(fail);
    let early = comes_true(|| rig.is_idle(a));
    gate.open();
    assert!(!early, "work in flight was left without protection");
    assert_eq!(seen.download().unwrap_or_else(fail), [7; 256]);
}

pub(super) fn faults_in_single_uses_come_as_planned(device: TestDevice) {
    let plan =
        FaultPlan::every(Operation::PrepareUse, 2).and(FaultPlan::every(Operation::FinishUse, 3));
    let (rig, faults) = faulty(device, plan);
    let [a, b] = rig.streams();
    let block = rig.block(64, a);
    let (id, uses) =
        (BlockId::from_block(&block), [BlockUse::new(BlockId::from_block(&block), Access::Read)]);
    let stack = rig.runtime.resource();
    stack.prepare_block_use(id, b, Access::Read).unwrap_or_else(fail);
    let waits = rig.waits(|| {
        assert_fault(&stack.prepare_uses(&uses, b).unwrap_err(), Operation::PrepareUse, 2);
    });
    assert_eq!(waits, 0);
    stack.prepare_uses(&uses, b).unwrap_or_else(fail);
    let error = stack.prepare_block_use(id, b, Access::Read).unwrap_err();
    assert_fault(&error, Operation::PrepareUse, 4);
    // The three ways to finish a use are counted as one kind.
    let count = || rig.resource.pending_use_event_count(block.ptr);
    for (round, expected) in [(0, Some(1)), (1, Some(2)), (2, Some(2))] {
        let third = 3 * (round + 1);
        if round == 0 {
            stack.finish_block_use(id, a, Access::Write).unwrap_or_else(fail);
            stack.finish_block_use(id, a, Access::Write).unwrap_or_else(fail);
            let error = stack.finish_block_use(id, b, Access::Read).unwrap_err();
            assert_fault(&error, Operation::FinishUse, third);
        } else if round == 1 {
            stack.record_block_use(&block, b).unwrap_or_else(fail);
            stack.finish_uses(&uses, b).unwrap_or_else(fail);
            let error = stack.record_block_use(&block, a).unwrap_err();
            assert_fault(&error, Operation::FinishUse, third);
        } else {
            stack.finish_uses(&uses, b).unwrap_or_else(fail);
            stack.finish_uses(&uses, b).unwrap_or_else(fail);
            let error = stack.finish_uses(&uses, a).unwrap_err();
            assert_fault(&error, Operation::FinishUse, third);
        }
        assert_eq!(count(), expected);
    }
    let counts = [Operation::PrepareUse, Operation::FinishUse].map(|kind| faults.count(kind));
    assert_eq!((faults.injected(), counts), (5, [4, 9]));
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

/// Allocates and frees under random faults; answers which calls failed.
fn storm(device: TestDevice, seed: u64) -> (Vec<bool>, u64) {
    let (rig, faults) = faulty(device, FaultPlan::seeded(seed, 0.3));
    let [stream] = rig.streams();
    let (mut failed, mut blocks) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        match rig.runtime.allocate(256, stream, TAG) {
            Ok(block) => blocks.push(block),
            Err(error) => assert_says(&error.to_string(), &["injected fault: allocate"]),
        }
        failed.push(blocks.len());
    }
    let (live, half) = (256 * blocks.len(), blocks.len() / 2);
    assert_eq!(rig.resource.live_bytes(), live);
    let mut left = Vec::new();
    for block in blocks.split_off(half) {
        if let Err((block, error)) = rig.runtime.try_deallocate(block) {
            assert_says(&error.to_string(), &["injected fault: deallocate"]);
            left.push(block);
        }
        failed.push(left.len());
    }
    assert_eq!(rig.resource.live_bytes(), 256 * (half + left.len()));
    let mut kept = 0;
    for block in blocks.into_iter().chain(left) {
        kept += usize::from(rig.runtime.deallocate(block).is_err());
        failed.push(kept);
    }
    assert_eq!(rig.resource.live_bytes(), 256 * kept, "what failed is still counted");
    let reaps = (1..).take_while(|_| rig.runtime.reap_pending().is_err()).take(100).count();
    assert!(reaps < 100, "a reap never went through");
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
    let steps = failed.windows(2).map(|pair| pair[0] != pair[1]).collect();
    (steps, faults.injected())
}

pub(super) fn a_seed_gives_the_same_faults_again_and_loses_nothing(device: TestDevice) {
    let (first, injected) = storm(device, 42);
    assert!(injected > 20, "{injected}");
    assert_eq!(storm(device, 42), (first.clone(), injected));
    assert_ne!(storm(device, 43).0, first);
}

pub(super) fn statistics_and_tracking_stay_exact_over_faults(device: TestDevice) {
    for plan in [
        FaultPlan::nth(Operation::Deallocate, 1),
        // The same without a tracker to ask.
        FaultPlan::nth(Operation::Deallocate, 1).and(FaultPlan::nth(Operation::FinishUse, 99)),
    ] {
        let mut tracked = None;
        let (rig, counted) = over(device, |inner| {
            let faults = FaultInjectionResource::new(inner, plan);
            let tracking = Arc::new(TrackingResource::new(Box::new(faults)));
            tracked = Some(Arc::clone(&tracking));
            StatisticsResource::new(Box::new(tracking))
        });
        let tracked = tracked.expect("the rig decorates its resource");
        let [stream] = rig.streams();
        let (first, second) = (rig.block(100, stream), rig.block(200, stream));
        assert_fault(&rig.runtime.deallocate(first).unwrap_err(), Operation::Deallocate, 1);
        let bytes = |current| Counter { current, peak: 300, total: 300 };
        assert_eq!((counted.statistics().bytes, tracked.holders().len()), (bytes(300), 2));
        rig.runtime.deallocate(second).unwrap_or_else(fail);
        assert_eq!((counted.statistics().bytes, tracked.holders().len()), (bytes(100), 1));
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!((counted.statistics().bytes, tracked.holders().len()), (bytes(0), 0));
        assert_eq!(rig.runtime.bytes_outstanding(), 0);
    }
}
