//! A limit on bytes: exact, never passed, and never a refusal while free memory would do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use xlog_cuda::device_runtime::{
    AllocTag, AsyncCudaResource, DeviceBlock, DeviceMemoryResource, GlobalDeviceBudget,
    PoolOptions, PoolResource, ResourceError, StreamId,
};

use super::super::support::{Random, eventually};
use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    pending_frees_are_no_reason_to_refuse,
    a_refusal_has_exact_numbers_and_changes_nothing,
    a_request_that_waits_for_a_reap_lets_others_allocate,
    what_a_pool_keeps_is_given_back_before_a_refusal,
    the_program_is_asked_last_and_as_long_as_it_helps,
    a_reservation_has_all_its_memory_or_none,
    stacks_of_one_device_share_an_account,
    memory_the_device_lacks_is_reaped_and_trimmed_for_too,
    a_failed_allocation_is_not_counted,
    a_lower_limit_refuses_until_enough_is_freed,
    a_resource_that_rounds_up_does_not_pass_the_limit,
    sixteen_threads_at_the_limit_never_pass_it,
];

const MIB: usize = 1 << 20;

fn limited(device: TestDevice, limit: usize) -> (Rig, Arc<GlobalDeviceBudget>) {
    let mut budget = None;
    let rig = Rig::decorated(device, |resource| {
        let made = Arc::new(GlobalDeviceBudget::new(Box::new(resource), limit));
        budget = Some(Arc::clone(&made));
        Box::new(made)
    });
    (rig, budget.expect("made above"))
}

fn block(budget: &GlobalDeviceBudget, bytes: usize, stream: StreamId) -> DeviceBlock {
    budget.allocate(bytes, stream, AllocTag("budget")).unwrap_or_else(fail)
}

fn refusal(budget: &GlobalDeviceBudget, bytes: usize, stream: StreamId) -> (usize, usize) {
    match budget.allocate(bytes, stream, AllocTag("too much")) {
        Err(ResourceError::OutOfBudget { requested, remaining }) => (requested, remaining),
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

/// Defect 11.
fn pending_frees_are_no_reason_to_refuse(device: TestDevice) {
    let (rig, budget) = limited(device, MIB);
    let [a, b] = rig.streams();
    for round in 0..20 {
        let stream = if round % 2 == 0 { a } else { b };
        let full = block(&budget, MIB, stream);
        budget.deallocate(full).unwrap_or_else(fail);
        assert_eq!((rig.resource.pending_free_bytes(), budget.used()), (MIB, MIB), "{round}");
    }
}

fn a_refusal_has_exact_numbers_and_changes_nothing(device: TestDevice) {
    let (rig, budget) = limited(device, MIB);
    let [a] = rig.streams();
    let half = block(&budget, MIB / 2, a);
    for bytes in [MIB / 2 + 1, MIB, usize::MAX] {
        assert_eq!(refusal(&budget, bytes, a), (bytes, MIB / 2));
        assert_eq!((budget.used(), budget.bytes_outstanding()), (MIB / 2, MIB / 2));
    }
    let rest = block(&budget, MIB / 2, a);
    assert_eq!(refusal(&budget, 1, a), (1, 0));
    rig.touch(&rest, a, xlog_cuda::device_runtime::Access::Write);
    for block in [half, rest] {
        budget.deallocate(block).unwrap_or_else(fail);
    }
    budget.reap_pending().unwrap_or_else(fail);
    assert_eq!(budget.used(), 0);
}

fn a_request_that_waits_for_a_reap_lets_others_allocate(device: TestDevice) {
    let (rig, budget) = limited(device, MIB);
    let [a, b] = rig.streams();
    let most = block(&budget, MIB - 4096, a);
    let warm = block(&budget, 1024, b);
    budget.deallocate(warm).unwrap_or_else(fail);
    budget.reap_pending().unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    budget.deallocate(most).unwrap_or_else(fail);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let synchronized = rig.driver.count(DriverCall::SynchronizeStream);
        let (budget, done) = (&budget, &done);
        let waiter = scope.spawn(move || {
            let block = block(budget, MIB / 2, b);
            done.store(true, Ordering::SeqCst);
            block
        });
        eventually("it waits for the stream", || {
            rig.driver.count(DriverCall::SynchronizeStream) > synchronized
        });
        // It waits for a, which is held; this thread does not.
        let small = block(budget, 1024, b);
        assert!(!done.load(Ordering::SeqCst), "it got its memory before it was free");
        gate.open();
        let large = waiter.join().expect("the waiter");
        for block in [small, large] {
            budget.deallocate(block).unwrap_or_else(fail);
        }
    });
}

/// A pool over a budget over the driver, as the default stack has it.
fn pool_over(budget: &Arc<GlobalDeviceBudget>, rig: &Rig) -> Arc<PoolResource> {
    let options = PoolOptions::default().with_first_slab(2 * MIB);
    let streams = Arc::clone(&rig.pool);
    let pool = Arc::new(PoolResource::new(Box::new(Arc::clone(budget)), streams, options));
    let weak = Arc::downgrade(&pool);
    budget.trim_with(move || weak.upgrade().map_or(Ok(()), |pool| pool.trim()));
    pool
}

fn what_a_pool_keeps_is_given_back_before_a_refusal(device: TestDevice) {
    let (rig, budget) = limited(device, 8 * MIB);
    let [a, b] = rig.streams();
    let pool = pool_over(&budget, &rig);
    let kept = pool.allocate(6 * MIB, a, AllocTag("kept")).unwrap_or_else(fail);
    pool.deallocate(kept).unwrap_or_else(fail);
    assert_eq!(pool.report().slab_bytes, 6 * MIB, "a pool keeps its slabs");
    // Past the pool, from the same budget: what it keeps has to go.
    let direct = block(&budget, 8 * MIB, b);
    assert_eq!((pool.report().slab_bytes, budget.used()), (0, 8 * MIB));
    budget.deallocate(direct).unwrap_or_else(fail);
}

fn the_program_is_asked_last_and_as_long_as_it_helps(device: TestDevice) {
    let (rig, budget) = limited(device, 4 * MIB);
    let [a] = rig.streams();
    let cache: Arc<Mutex<Vec<DeviceBlock>>> = Arc::default();
    cache.lock().extend((0..4).map(|_| block(&budget, MIB, a)));
    let asked = Arc::new(AtomicUsize::new(0));
    budget.on_shortage({
        let (cache, asked) = (Arc::clone(&cache), Arc::clone(&asked));
        let budget = Arc::downgrade(&budget);
        move |shortage| {
            asked.fetch_add(1, Ordering::SeqCst);
            assert!(shortage.requested > shortage.remaining);
            let (Some(block), Some(budget)) = (cache.lock().pop(), budget.upgrade()) else {
                return false;
            };
            budget.deallocate(block).is_ok()
        }
    });
    let large = block(&budget, 3 * MIB, a);
    assert_eq!((asked.load(Ordering::SeqCst), cache.lock().len()), (3, 1), "no more than needed");
    assert_eq!(refusal(&budget, 2 * MIB, a), (2 * MIB, MIB), "the cache was not enough");
    assert_eq!(cache.lock().len(), 0);
    budget.deallocate(large).unwrap_or_else(fail);
}

fn a_reservation_has_all_its_memory_or_none(device: TestDevice) {
    let (rig, budget) = limited(device, 4 * MIB);
    let [a] = rig.streams();
    let reserved = budget.reserve(3 * MIB).unwrap_or_else(fail);
    assert_eq!(refusal(&budget, 2 * MIB, a), (2 * MIB, MIB), "what is reserved is taken");
    assert!(matches!(
        budget.reserve(2 * MIB).map(|_| ()),
        Err(ResourceError::OutOfBudget { requested, remaining: MIB }) if requested == 2 * MIB
    ));
    let first = reserved.allocate(2 * MIB, a, AllocTag("first")).unwrap_or_else(fail);
    assert_eq!((reserved.left(), budget.used(), budget.reserved()), (MIB, 4 * MIB - MIB, MIB));
    let too_much = reserved.allocate(2 * MIB, a, AllocTag("too much"));
    assert!(matches!(too_much, Err(ResourceError::OutOfBudget { remaining: MIB, .. })));
    // One that the driver fails goes back into the reservation.
    rig.driver.fail_after(DriverCall::AllocateOn, 0, 1);
    assert!(reserved.allocate(MIB, a, AllocTag("fails")).is_err());
    assert_eq!((reserved.left(), budget.used()), (MIB, 3 * MIB));
    drop(reserved);
    assert_eq!((budget.reserved(), budget.used()), (0, 2 * MIB));
    budget.deallocate(first).unwrap_or_else(fail);
}

fn stacks_of_one_device_share_an_account(device: TestDevice) {
    let (one, two) = (Rig::new(device), Rig::new(device));
    let of = |rig: &Rig| {
        let resource = Box::new(Arc::clone(&rig.resource));
        GlobalDeviceBudget::for_device(resource, 4 * MIB)
    };
    let (first, second) = (of(&one), of(&two));
    let block = block(&first, 3 * MIB, StreamId::DEFAULT);
    assert_eq!(refusal(&second, 2 * MIB, StreamId::DEFAULT), (2 * MIB, MIB));
    assert_eq!((second.used(), second.bytes_outstanding()), (3 * MIB, 0));
    first.deallocate(block).unwrap_or_else(fail);
    // Pending in the other stack: reaped there.
    let other = second.allocate(4 * MIB, StreamId::DEFAULT, AllocTag("all")).unwrap_or_else(fail);
    assert_eq!((first.used(), one.resource.pending_free_bytes()), (4 * MIB, 0));
    second.deallocate(other).unwrap_or_else(fail);
}

fn memory_the_device_lacks_is_reaped_and_trimmed_for_too(device: TestDevice) {
    let (rig, budget) = limited(device, usize::MAX);
    let [a] = rig.streams();
    let pool = pool_over(&budget, &rig);
    let kept = pool.allocate(MIB, a, AllocTag("kept")).unwrap_or_else(fail);
    pool.deallocate(kept).unwrap_or_else(fail);
    // More than any device has: everything is tried, and the driver's own error is the answer.
    let error = budget.allocate(1 << 45, a, AllocTag("too much")).expect_err("too much");
    assert!(matches!(&error, ResourceError::Driver(e) if e.is_out_of_memory()), "{error}");
    assert_eq!(pool.report().slab_bytes, 0, "the pool was trimmed for it");
    let small = block(&budget, MIB, a);
    budget.deallocate(small).unwrap_or_else(fail);
}

fn a_failed_allocation_is_not_counted(device: TestDevice) {
    let (rig, budget) = limited(device, MIB);
    let [a] = rig.streams();
    rig.driver.fail_after(DriverCall::AllocateOn, 0, 1);
    assert!(budget.allocate(MIB, a, AllocTag("fails")).is_err());
    assert!(budget.allocate(0, a, AllocTag("nothing")).is_err());
    assert!(budget.allocate(1, StreamId(99), AllocTag("nowhere")).is_err());
    assert_eq!(budget.used(), 0);
    let full = block(&budget, MIB, a);
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    assert!(budget.deallocate(full).is_err());
    assert_eq!(budget.used(), MIB, "a failed free frees nothing");
    budget.reap_pending().unwrap_or_else(fail);
    assert_eq!(budget.used(), 0);
}

fn a_lower_limit_refuses_until_enough_is_freed(device: TestDevice) {
    let (rig, budget) = limited(device, 4 * MIB);
    let [a] = rig.streams();
    let full = block(&budget, 3 * MIB, a);
    budget.set_limit(2 * MIB);
    assert_eq!((budget.limit(), refusal(&budget, 1, a)), (2 * MIB, (1, 0)));
    budget.deallocate(full).unwrap_or_else(fail);
    let fits = block(&budget, 2 * MIB, a);
    budget.deallocate(fits).unwrap_or_else(fail);
}

fn a_resource_that_rounds_up_does_not_pass_the_limit(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let inner: Arc<AsyncCudaResource> = Arc::clone(&rig.resource);
    let pool = PoolResource::new(Box::new(inner), Arc::clone(&rig.pool), PoolOptions::default());
    let budget = GlobalDeviceBudget::new(Box::new(pool), 1000);
    assert_eq!(refusal(&budget, 1000, a), (1024, 1000));
    assert_eq!(budget.used(), 0);
    let fits = block(&budget, 700, a);
    assert_eq!(budget.used(), 768);
    budget.deallocate(fits).unwrap_or_else(fail);
}

/// Thirty seconds of threads that together want three times what there is.
fn sixteen_threads_at_the_limit_never_pass_it(device: TestDevice) {
    const THREADS: usize = 16;
    const LIMIT: usize = 16 * MIB;
    let (rig, budget) = limited(device, LIMIT);
    let streams: [StreamId; 4] = rig.streams();
    let granted = AtomicUsize::new(0);
    let (served, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let end = Instant::now() + Duration::from_secs(30);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (budget, granted, served, refused) = (&budget, &granted, &served, &refused);
            scope.spawn(move || {
                let mut random = Random::from_seed(thread as u64 + 1);
                while Instant::now() < end {
                    let bytes = 1 + random.below(3 * LIMIT / THREADS * 2);
                    let stream = streams[random.below(4)];
                    match budget.allocate(bytes, stream, AllocTag("crowd")) {
                        Ok(block) => {
                            let now = granted.fetch_add(bytes, Ordering::SeqCst) + bytes;
                            assert!(now <= LIMIT, "{now} bytes were granted at once");
                            assert!(budget.bytes_outstanding() <= LIMIT);
                            served.fetch_add(1, Ordering::Relaxed);
                            granted.fetch_sub(bytes, Ordering::SeqCst);
                            budget.deallocate(block).unwrap_or_else(fail);
                        }
                        Err(ResourceError::OutOfBudget { requested, remaining }) => {
                            assert_eq!(requested, bytes);
                            assert!(remaining < bytes, "{remaining} would have been enough");
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    budget.reap_pending().unwrap_or_else(fail);
    assert_eq!((budget.used(), rig.resource.live_bytes()), (0, 0), "nothing was lost");
    let (served, refused) = (served.into_inner(), refused.into_inner());
    assert!(served > 1_000, "{served} served, {refused} refused");
}
