//! Who hands memory out, within which budget, and how it goes back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use xlog_core::MemoryBudget;
use xlog_cuda::{
    CudaDevice, GpuMemoryManager,
    device_runtime::{AllocTag, BlockState, ResourceError, StreamId},
    memory::{CudaColumn, Download, TrackedCudaSlice},
};
use xlog_driver::DeviceKind;

use super::super::support::{
    assert_says, block_of, comes_true, eventually, fill_raw, is_injected, untracked,
};
use crate::{DriverCall, Gate, Rig, TestDevice, fail};

pub(super) fn a_device_that_is_not_there_is_an_error_that_says_so(_: TestDevice) {
    for ordinal in [9999, usize::MAX] {
        let error = CudaDevice::new(ordinal).expect_err("no such device").to_string();
        let missing = ["CUDA driver", &format!("no CUDA device {ordinal}")];
        assert!(missing.iter().any(|what| error.contains(what)), "{error}");
    }
}

pub(super) fn the_device_that_is_there_is_found(device: TestDevice) {
    let expected = match device {
        TestDevice::Host => DeviceKind::Host,
        TestDevice::Cuda => DeviceKind::Cuda,
    };
    let rig = Rig::new(device);
    assert_eq!(rig.device.info().kind, expected);
    let memory = rig.device.memory().unwrap_or_else(fail);
    assert!(memory.free <= memory.total && memory.total > 0);
    assert_eq!(CudaDevice::host().info().kind, DeviceKind::Host);
    if device == TestDevice::Cuda {
        assert_eq!(CudaDevice::auto().info().kind, DeviceKind::Cuda);
    }
    assert!(CudaDevice::auto().lost_reason().is_none());
}

pub(super) fn slices_without_a_runtime_have_no_block(device: TestDevice) {
    let rig = Rig::new(device);
    let budget = MemoryBudget::with_limit(1 << 20);
    let manager = GpuMemoryManager::new(Arc::clone(&rig.device), budget);
    assert!(manager.runtime().is_none());
    assert_eq!(manager.budget(), budget);
    let mut slice = manager.alloc::<u32>(100).unwrap_or_else(fail);
    assert!(slice.runtime_block().is_none() && !slice.is_empty());
    assert_eq!((slice.len(), manager.held_bytes()), (100, 400));
    assert!(slice.ptr() != 0 && slice.ptr().is_multiple_of(256));
    assert_eq!(rig.resource.live_bytes(), 0, "not the runtime's");
    let values: Vec<u32> = (0..100).collect();
    slice.upload(&values).unwrap_or_else(fail);
    assert_eq!(slice.download().unwrap_or_else(fail), values);
    let frees = rig.driver.count(DriverCall::Free);
    drop(slice);
    assert_eq!((rig.driver.count(DriverCall::Free), manager.held_bytes()), (frees + 1, 0));
}

pub(super) fn slices_with_a_runtime_have_a_block(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    assert!(rig.manager.runtime().is_some_and(|runtime| Arc::ptr_eq(runtime, &rig.runtime)));
    let slice = rig.manager.alloc::<u64>(10).unwrap_or_else(fail);
    let block = block_of(&slice);
    assert_eq!((block.alloc_stream, block.tag), (StreamId::DEFAULT, AllocTag::UNTAGGED));
    assert_eq!((block.ptr, block.device_ordinal), (slice.ptr(), 0));
    assert_eq!(block.state, BlockState::Live);
    assert!(block.bytes >= 80 && block.ptr.is_multiple_of(block.align as u64));
    let tagged = rig.manager.alloc_on::<u8>(3, stream, AllocTag("three")).unwrap_or_else(fail);
    let block = block_of(&tagged);
    assert_eq!((block.alloc_stream, block.tag), (stream, AllocTag("three")));
    assert_eq!(rig.manager.held_bytes(), 83);
}

pub(super) fn dropping_a_runtime_less_slice_waits_for_the_device(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let slice = untracked(&rig, 64);
    fill_raw(&rig, &slice, 0, stream);
    let gate = Gate::new(&rig);
    gate.hold(&rig, stream);
    fill_raw(&rig, &slice, 1, stream);
    let (syncs, frees) =
        (rig.driver.count(DriverCall::SynchronizeDevice), rig.driver.count(DriverCall::Free));
    thread::scope(|scope| {
        let dropping = scope.spawn(move || drop(slice));
        eventually("the drop waits for the device", || {
            rig.driver.count(DriverCall::SynchronizeDevice) > syncs
        });
        let freed = || rig.driver.count(DriverCall::Free) > frees || dropping.is_finished();
        assert!(!comes_true(freed), "freed under a running kernel");
        gate.open();
    });
    assert_eq!(rig.driver.count(DriverCall::Free), frees + 1);
}

pub(super) fn dropping_a_slice_frees_through_the_runtime_without_waiting(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let slice = rig.zeros(64, stream);
    rig.fill(&slice, 0, stream).unwrap_or_else(fail);
    let bytes = block_of(&slice).bytes;
    let gate = Gate::new(&rig);
    gate.hold(&rig, stream);
    rig.fill(&slice, 1, stream).unwrap_or_else(fail);
    let calls = [DriverCall::SynchronizeDevice, DriverCall::SynchronizeStream, DriverCall::Free];
    let before = calls.map(|call| rig.driver.count(call));
    drop(slice);
    assert_eq!(calls.map(|call| rig.driver.count(call)), before, "nobody waits");
    assert_eq!((rig.resource.live_bytes(), rig.resource.pending_free_bytes()), (0, bytes));
    assert_eq!((rig.manager.held_bytes(), rig.runtime.bytes_outstanding()), (0, bytes));
    gate.open();
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn refusal<T>(answer: Result<TrackedCudaSlice<T>, ResourceError>) -> (usize, usize, String) {
    match answer {
        Err(error @ ResourceError::OutOfBudget { requested, remaining }) => {
            (requested, remaining, error.to_string())
        }
        other => panic!("out of budget was expected, not {other:?}"),
    }
}

fn assert_budget(rig: &Rig, manager: &GpuMemoryManager) {
    let half = manager.alloc::<u32>(100).unwrap_or_else(fail);
    let before = rig.books();
    let (requested, remaining, text) = refusal(manager.alloc::<u32>(151));
    assert_eq!((requested, remaining), (604, 600));
    assert_eq!(text, "out of budget: requested 604 bytes, remaining 600 bytes");
    assert_eq!(rig.books(), before, "a refusal changes nothing");
    // A clone is the same manager, with the same account.
    let shared = manager.clone();
    let rest = shared.alloc::<u32>(150).unwrap_or_else(fail);
    assert_eq!(manager.held_bytes(), 1000);
    assert_eq!(refusal(manager.alloc::<u8>(1)).1, 0);
    drop(half);
    assert_eq!(refusal(manager.alloc::<u8>(401)).1, 400);
    drop(manager.alloc::<u8>(400).unwrap_or_else(fail));
    drop(rest);
    assert_eq!(manager.held_bytes(), 0);
    drop(manager.alloc::<u8>(1000).unwrap_or_else(fail));
}

pub(super) fn a_budget_refuses_with_exact_numbers_and_recovers(device: TestDevice) {
    let rig = Rig::new(device);
    let budget = MemoryBudget::with_limit(1000);
    let (device, runtime) = (Arc::clone(&rig.device), Arc::clone(&rig.runtime));
    assert_budget(&rig, &GpuMemoryManager::with_runtime(device, budget, runtime));
}

pub(super) fn a_budget_without_a_runtime_refuses_the_same_way(device: TestDevice) {
    let rig = Rig::new(device);
    let budget = MemoryBudget::with_limit(1000);
    assert_budget(&rig, &GpuMemoryManager::new(Arc::clone(&rig.device), budget));
}

pub(super) fn a_budget_holds_for_many_threads(device: TestDevice) {
    let rig = Rig::new(device);
    let manager = GpuMemoryManager::with_runtime(
        Arc::clone(&rig.device),
        MemoryBudget::with_limit(4096),
        Arc::clone(&rig.runtime),
    );
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let taken: Vec<_> = (0..3).map(|_| manager.alloc::<u8>(512)).collect();
                    assert!(manager.held_bytes() <= 4096, "past the limit");
                    let no = taken.iter().filter(|slice| slice.is_err()).count();
                    refused.fetch_add(no, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(manager.held_bytes(), 0);
    let all: Vec<_> = (0..8).map(|_| manager.alloc::<u8>(512).unwrap_or_else(fail)).collect();
    assert_eq!(refusal(manager.alloc::<u8>(1)).1, 0);
    drop(all);
}

pub(super) fn a_failed_allocation_gives_its_budget_back(device: TestDevice) {
    let rig = Rig::new(device);
    let budget = MemoryBudget::with_limit(1024);
    let plain = GpuMemoryManager::new(Arc::clone(&rig.device), budget);
    let (device, runtime) = (Arc::clone(&rig.device), Arc::clone(&rig.runtime));
    let tracked = GpuMemoryManager::with_runtime(device, budget, runtime);
    for (manager, call) in [(&plain, DriverCall::Allocate), (&tracked, DriverCall::AllocateOn)] {
        let before = rig.books();
        rig.driver.fail_after(call, 0, 1);
        let failed = manager.alloc::<u8>(1024);
        assert!(failed.as_ref().is_err_and(is_injected), "{failed:?}");
        assert_eq!((rig.books(), manager.held_bytes()), (before, 0));
        drop(manager.alloc::<u8>(1024).unwrap_or_else(fail));
    }
    // A stream that is not there costs nothing either.
    let unknown = tracked.alloc_on::<u8>(8, StreamId(4711), AllocTag("nowhere"));
    assert!(matches!(unknown, Err(ResourceError::StreamMisuse(_))));
    assert_eq!(tracked.held_bytes(), 0);
}

pub(super) fn zero_values_and_too_many_values_are_refused(device: TestDevice) {
    let rig = Rig::new(device);
    let plain = GpuMemoryManager::new(Arc::clone(&rig.device), MemoryBudget::unlimited());
    for manager in [&plain, &rig.manager] {
        let before = rig.books();
        let zero = manager.alloc::<u32>(0).expect_err("zero bytes");
        assert!(matches!(zero, ResourceError::Driver(_)));
        assert_says(&zero.to_string(), &["zero bytes"]);
        // More bytes than there are numbers for, and more than any device has.
        assert_eq!(refusal(manager.alloc::<u64>(usize::MAX)).0, usize::MAX);
        let too_large = manager.alloc::<u8>(1 << 60).expect_err("no device has that");
        assert!(matches!(&too_large, ResourceError::Driver(e) if e.is_out_of_memory()));
        assert_eq!((rig.books(), manager.held_bytes()), (before, 0));
        drop(manager.alloc::<u32>(8).unwrap_or_else(fail));
        rig.runtime.reap_pending().unwrap_or_else(fail);
    }
}

pub(super) fn a_manager_over_two_devices_is_refused(device: TestDevice) {
    let (rig, other) = (Rig::new(device), Rig::new(device));
    let manager = GpuMemoryManager::with_runtime(
        Arc::clone(&other.device),
        MemoryBudget::unlimited(),
        Arc::clone(&rig.runtime),
    );
    let refused = manager.alloc::<u32>(8).expect_err("two devices").to_string();
    assert_says(&refused, &["not its runtime's"]);
    assert_eq!((manager.held_bytes(), rig.resource.live_bytes()), (0, 0));
}

pub(super) fn what_every_thread_holds_is_counted_without_a_limit_too(device: TestDevice) {
    let rig = Rig::new(device);
    assert_eq!(rig.manager.budget().limit(), None);
    let (before, ready) = (rig.manager.held_bytes(), std::sync::Barrier::new(4));
    let take = &|len: usize| {
        // All at once, so that each is a thread of its own to the runtime.
        ready.wait();
        rig.manager.alloc::<u32>(len).unwrap_or_else(fail)
    };
    let slices: Vec<_> = thread::scope(|scope| {
        let takers = [100, 200, 300, 400].map(|len| scope.spawn(move || take(len)));
        takers.into_iter().map(|taker| taker.join().expect("a slice")).collect()
    });
    assert_eq!(rig.manager.held_bytes() - before, 4 * (100 + 200 + 300 + 400));
    drop(slices);
    assert_eq!(rig.manager.held_bytes(), before, "given back by another thread");
}

pub(super) fn slices_are_shared_between_threads(device: TestDevice) {
    fn shared<T: Send + Sync>() {}
    shared::<TrackedCudaSlice<u32>>();
    shared::<TrackedCudaSlice<f64>>();
    shared::<GpuMemoryManager>();
    shared::<CudaColumn>();
    shared::<Download<u8>>();
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let slice = rig.zeros(8, stream);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| rig.increment(&slice, 1, stream).unwrap_or_else(fail));
        }
    });
    assert_eq!(slice.download().unwrap_or_else(fail), [4; 8]);
    // And freed on any of them.
    thread::scope(|scope| scope.spawn(move || drop(slice)).join().expect("no panic"));
    assert_eq!(rig.resource.live_bytes(), 0);
}
