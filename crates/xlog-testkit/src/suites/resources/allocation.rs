//! Asking a stream-ordered resource for memory, and what it says of the memory it gave.

use xlog_cuda::device_runtime::{
    Access, AllocTag, BlockId, DeviceMemoryResource, ResourceError, StreamId,
};

use super::super::support::recycled;
use crate::{DriverCall, Gate, INJECTED, Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    an_allocation_of_zero_bytes_is_a_driver_error,
    an_allocation_on_an_unknown_stream_is_misuse,
    an_allocation_on_a_released_stream_is_misuse,
    an_allocation_larger_than_the_device_is_a_driver_error,
    an_allocation_the_driver_fails_changes_nothing,
    an_allocation_whose_birth_cannot_be_recorded_gives_its_memory_back,
    an_allocation_is_ordered_on_its_stream_and_does_not_wait_for_it,
    live_blocks_do_not_overlap,
    bytes_outstanding_is_live_plus_freed_but_not_reaped,
    the_default_stream_needs_no_acquire,
    the_resource_names_its_device_its_pool_and_its_ordinal,
    dependencies_of_a_fresh_block_are_its_allocation,
    dependencies_grow_by_one_for_each_reading_stream,
    dependencies_after_a_write_are_that_write,
    dependencies_of_no_live_block_are_none,
];

fn an_allocation_of_zero_bytes_is_a_driver_error(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let before = rig.books();
    let calls = rig.driver.count(DriverCall::AllocateOn);
    for answer in [
        rig.runtime.allocate(0, stream, AllocTag::UNTAGGED),
        rig.resource.allocate(0, stream, AllocTag::UNTAGGED),
    ] {
        assert!(matches!(answer, Err(ResourceError::Driver(_))), "{answer:?}");
    }
    assert_eq!(rig.books(), before);
    assert_eq!(rig.driver.count(DriverCall::AllocateOn), calls, "the driver was not asked");
}

fn an_allocation_on_an_unknown_stream_is_misuse(device: TestDevice) {
    let rig = Rig::new(device);
    let before = rig.books();
    for stream in [StreamId(1), StreamId(33), StreamId(u32::MAX)] {
        for answer in [
            rig.runtime.allocate(64, stream, AllocTag::UNTAGGED),
            rig.resource.allocate(64, stream, AllocTag::UNTAGGED),
        ] {
            assert!(matches!(answer, Err(ResourceError::StreamMisuse(_))), "{stream:?} {answer:?}");
        }
    }
    assert_eq!(rig.books(), before);
}

fn an_allocation_on_a_released_stream_is_misuse(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    rig.pool.release(stream).unwrap_or_else(fail);
    let answer = rig.resource.allocate(64, stream, AllocTag::UNTAGGED);
    assert!(matches!(answer, Err(ResourceError::StreamMisuse(_))), "{answer:?}");
    assert_eq!(rig.resource.live_bytes(), 0);
}

fn an_allocation_larger_than_the_device_is_a_driver_error(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let total = rig.device.memory().unwrap_or_else(fail).total;
    let before = rig.books();
    match rig.runtime.allocate(total as usize + 1, stream, AllocTag::UNTAGGED) {
        Err(ResourceError::Driver(error)) => assert!(error.is_out_of_memory(), "{error}"),
        other => panic!("more than there is: {other:?}"),
    }
    let answer = rig.runtime.allocate(usize::MAX, stream, AllocTag::UNTAGGED);
    assert!(matches!(answer, Err(ResourceError::Driver(_))), "{answer:?}");
    assert_eq!(rig.books(), before);
    let block = rig.block(64, stream);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn an_allocation_the_driver_fails_changes_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let before = rig.books();
    rig.driver.fail_after(DriverCall::AllocateOn, 0, 1);
    match rig.runtime.allocate(64, stream, AllocTag::UNTAGGED) {
        Err(ResourceError::Driver(error)) => assert_eq!(error.code(), INJECTED),
        other => panic!("the driver failed: {other:?}"),
    }
    assert_eq!(rig.books(), before);
    rig.pool.release(stream).unwrap_or_else(fail);
}

fn an_allocation_whose_birth_cannot_be_recorded_gives_its_memory_back(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    rig.driver.fail_after(DriverCall::RecordEvent, 0, 1);
    let freed = rig.driver.count_during(DriverCall::FreeOn, || {
        let answer = rig.runtime.allocate(64, stream, AllocTag::UNTAGGED);
        assert!(matches!(answer, Err(ResourceError::Driver(_))), "{answer:?}");
    });
    assert_eq!(freed, 1, "the driver's memory went back");
    assert_eq!(rig.books().bytes_outstanding, 0);
    assert_eq!(rig.books().tracker.blocks, 0);
    // Nothing is left that names the stream.
    rig.pool.release(stream).unwrap_or_else(fail);
}

fn an_allocation_is_ordered_on_its_stream_and_does_not_wait_for_it(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let old = rig.zeros(256, stream);
    let gate = Gate::new(&rig);
    gate.hold(&rig, stream);
    rig.fill(&old, 1, stream).unwrap_or_else(fail);
    let address = old.ptr();
    drop(old);
    // The held launch has not run, yet its own stream has the address again at once.
    assert!(recycled(&rig, 256, stream, address).is_some());
    assert!(!rig.is_idle(stream), "the allocation did not wait for the stream");
    gate.open();
}

fn live_blocks_do_not_overlap(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; 3] = rig.streams();
    let mut blocks: Vec<_> =
        (0..60).map(|index| rig.block(100 * (index + 1), streams[index % 3])).collect();
    blocks.sort_by_key(|block| block.ptr);
    for pair in blocks.windows(2) {
        assert!(pair[0].ptr + pair[0].bytes as u64 <= pair[1].ptr, "{pair:?}");
    }
    let granted: usize = blocks.iter().map(|block| block.bytes).sum();
    assert_eq!(rig.resource.live_bytes(), granted);
    blocks.into_iter().for_each(|block| rig.runtime.deallocate(block).unwrap_or_else(fail));
    assert_eq!(rig.resource.pending_free_bytes(), granted);
}

fn bytes_outstanding_is_live_plus_freed_but_not_reaped(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (kept, freed) = (rig.block(1000, a), rig.block(3000, b));
    let (kept_bytes, freed_bytes) = (kept.bytes, freed.bytes);
    assert_eq!(rig.runtime.bytes_outstanding(), kept_bytes + freed_bytes);
    rig.runtime.deallocate(freed).unwrap_or_else(fail);
    let books = rig.books();
    assert_eq!((books.live_bytes, books.pending_free_bytes), (kept_bytes, freed_bytes));
    assert_eq!(books.pending_per_stream_total, freed_bytes);
    assert_eq!(books.bytes_outstanding, kept_bytes + freed_bytes);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    let books = rig.books();
    assert_eq!((books.live_bytes, books.pending_free_bytes), (kept_bytes, 0));
    assert_eq!((books.pending_per_stream_total, books.bytes_outstanding), (0, kept_bytes));
    rig.runtime.deallocate(kept).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn the_default_stream_needs_no_acquire(device: TestDevice) {
    let rig = Rig::new(device);
    let block = rig.block(64, StreamId::DEFAULT);
    assert_eq!(block.alloc_stream, StreamId::DEFAULT);
    rig.touch(&block, StreamId::DEFAULT, Access::ReadWrite);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn the_resource_names_its_device_its_pool_and_its_ordinal(device: TestDevice) {
    let rig = Rig::new(device);
    assert!(std::sync::Arc::ptr_eq(rig.resource.device(), &rig.device));
    assert!(std::sync::Arc::ptr_eq(rig.resource.stream_pool(), &rig.pool));
    assert_eq!(rig.resource.device_ordinal(), 0);
    assert!(rig.resource.supports_block_use_tracking());
}

fn dependencies_of_a_fresh_block_are_its_allocation(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    for on in [stream, StreamId::DEFAULT] {
        let block = rig.block(64, on);
        assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(1));
        rig.runtime.deallocate(block).unwrap_or_else(fail);
    }
}

fn dependencies_grow_by_one_for_each_reading_stream(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let block = rig.block(64, a);
    let count = || rig.resource.pending_use_event_count(block.ptr);
    rig.touch(&block, b, Access::Read);
    assert_eq!(count(), Some(2));
    rig.touch(&block, b, Access::Read);
    assert_eq!(count(), Some(2), "a stream counts once, however often it reads");
    rig.runtime.record_block_use(&block, c).unwrap_or_else(fail);
    assert_eq!(count(), Some(3), "the older form is a read too");
    rig.touch(&block, a, Access::Read);
    assert_eq!(count(), Some(4), "the block's own stream reads like any other");
    rig.runtime.prepare_block_use(BlockId::from_block(&block), c, Access::Write).unwrap();
    assert_eq!(count(), Some(4), "preparing records nothing");
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn dependencies_after_a_write_are_that_write(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let block = rig.block(64, a);
    let count = || rig.resource.pending_use_event_count(block.ptr);
    for access in [Access::Write, Access::ReadWrite] {
        rig.touch(&block, a, Access::Read);
        rig.touch(&block, b, Access::Read);
        assert_eq!(count(), Some(3));
        rig.touch(&block, c, access);
        assert_eq!(count(), Some(1), "{access:?}");
    }
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn dependencies_of_no_live_block_are_none(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.block(1024, stream);
    let ptr = block.ptr;
    let count = |ptr| rig.resource.pending_use_event_count(ptr);
    assert_eq!((count(0), count(ptr + 256)), (None, None), "only the start of a block names it");
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    assert_eq!(count(ptr), None, "freed");
    let failing = rig.block(1024, stream);
    let ptr = failing.ptr;
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    rig.runtime.deallocate(failing).expect_err("the driver failed");
    assert_eq!(count(ptr), None, "handed back, though its free is still to come");
    rig.runtime.reap_pending().unwrap_or_else(fail);
}
