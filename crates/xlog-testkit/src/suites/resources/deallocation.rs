//! Handing memory back: what is refused, what failed frees leave behind, and who owns the block.

use xlog_cuda::device_runtime::{
    Access, AllocTag, BlockId, BlockState, DeviceBlock, DeviceMemoryResource, Generation,
    ResourceError, ResourceResult, StreamId,
};

use super::super::support::handle_of;
use crate::{DriverCall, INJECTED, Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    a_block_of_another_device_is_a_driver_error_and_changes_nothing,
    a_stale_block_is_use_after_free_and_changes_nothing,
    an_unknown_block_is_use_after_free_and_changes_nothing,
    a_block_of_another_pool_is_use_after_free_and_changes_nothing,
    a_block_is_handed_back_once,
    counters_count_what_was_granted_whatever_the_handle_says,
    freed_bytes_stay_pending_until_a_reap_even_if_the_device_passed_them,
    a_failed_free_keeps_the_block_counted_and_the_next_reap_frees_it,
    a_free_whose_wait_fails_keeps_the_block_counted_and_the_next_reap_frees_it,
    a_block_whose_free_failed_is_out_of_use,
    try_deallocate_gives_a_refused_block_back,
    try_deallocate_gives_the_block_back_usable_when_the_driver_fails,
    deallocating_on_a_captured_stream_loses_no_memory,
];

fn is_driver(answer: &ResourceResult<()>) -> bool {
    matches!(answer, Err(ResourceError::Driver(_)))
}

/// Hands `wrong` back in every way there is, and checks that each is refused as `expected` says
/// and changes no counter.
#[track_caller]
fn assert_refused(rig: &Rig, wrong: &DeviceBlock, expected: impl Fn(&ResourceResult<()>) -> bool) {
    let (before, frees) = (rig.books(), rig.driver.count(DriverCall::FreeOn));
    let answers = [
        rig.runtime.deallocate(handle_of(wrong)),
        rig.resource.deallocate(handle_of(wrong)),
        rig.runtime.try_deallocate(handle_of(wrong)).map_err(|(_, error)| error),
        rig.resource.try_deallocate(handle_of(wrong)).map_err(|(_, error)| error),
    ];
    for answer in answers {
        assert!(expected(&answer), "{answer:?}");
        assert_eq!(rig.books(), before, "{answer:?}");
    }
    assert_eq!(rig.driver.count(DriverCall::FreeOn), frees, "the driver was not asked");
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.driver.count(DriverCall::FreeOn), frees, "nor is it by the next reap");
}

fn a_block_of_another_device_is_a_driver_error_and_changes_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let block = rig.block(4096, a);
    rig.touch(&block, b, Access::Read);
    let foreign = DeviceBlock { device_ordinal: 7, ..handle_of(&block) };
    assert_refused(&rig, &foreign, is_driver);
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(2));
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn a_stale_block_is_use_after_free_and_changes_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let old = rig.block(4096, a);
    let stale = handle_of(&old);
    let expected = Err(ResourceError::UseAfterFree { generation: stale.generation });
    rig.runtime.deallocate(old).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    // First with nobody at the address, then with another block there.
    assert_refused(&rig, &stale, |answer| *answer == expected);
    // Which of its idle memory a driver hands out first is its own affair.
    let mut others = Vec::new();
    let new = loop {
        let block = rig.block(4096, a);
        if block.ptr == stale.ptr {
            break block;
        }
        others.push(block);
        assert!(others.len() < 1_000, "the address never came back");
    };
    rig.touch(&new, b, Access::Read);
    assert_refused(&rig, &stale, |answer| *answer == expected);
    assert_eq!(rig.resource.pending_use_event_count(new.ptr), Some(2));
    for block in others.into_iter().chain([new]) {
        rig.runtime.deallocate(block).unwrap_or_else(fail);
    }
}

fn an_unknown_block_is_use_after_free_and_changes_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.block(4096, stream);
    let inside = DeviceBlock { ptr: block.ptr + 256, ..handle_of(&block) };
    let never = DeviceBlock { generation: Generation::next(), ..handle_of(&block) };
    let nowhere = DeviceBlock { ptr: 0x10, ..handle_of(&block) };
    for unknown in [inside, never, nowhere] {
        let expected = Err(ResourceError::UseAfterFree { generation: unknown.generation });
        assert_refused(&rig, &unknown, |answer| *answer == expected);
    }
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn a_block_of_another_pool_is_use_after_free_and_changes_nothing(device: TestDevice) {
    let (rig, other) = (Rig::new(device), Rig::new(device));
    let theirs = other.block(4096, StreamId::DEFAULT);
    let expected = Err(ResourceError::UseAfterFree { generation: theirs.generation });
    assert_refused(&rig, &theirs, |answer| *answer == expected);
    other.runtime.deallocate(theirs).unwrap_or_else(fail);
}

fn a_block_is_handed_back_once(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.block(4096, stream);
    let second = handle_of(&block);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    let expected = Err(ResourceError::UseAfterFree { generation: second.generation });
    let books = rig.books();
    assert_eq!(rig.runtime.deallocate(second), expected);
    assert_eq!(rig.books(), books);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn counters_count_what_was_granted_whatever_the_handle_says(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (kept, block) = (rig.block(512, stream), rig.block(4096, stream));
    let granted = block.bytes;
    let edited = DeviceBlock { bytes: 1 << 30, state: BlockState::Freed, ..block };
    rig.runtime.deallocate(edited).unwrap_or_else(fail);
    let books = rig.books();
    assert_eq!((books.live_bytes, books.pending_free_bytes), (kept.bytes, granted));
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), kept.bytes);
    rig.runtime.deallocate(kept).unwrap_or_else(fail);
}

fn freed_bytes_stay_pending_until_a_reap_even_if_the_device_passed_them(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.block(4096, stream);
    let bytes = block.bytes;
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.device.synchronize().unwrap_or_else(fail);
    rig.runtime.synchronize(stream).unwrap_or_else(fail);
    assert_eq!(rig.resource.pending_free_bytes(), bytes);
    assert_eq!(rig.runtime.bytes_outstanding(), bytes);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn a_failed_free_keeps_the_block_counted_and_the_next_reap_frees_it(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.block(4096, stream);
    let bytes = block.bytes;
    rig.driver.fail_after(DriverCall::FreeOn, 0, 2);
    match rig.runtime.deallocate(block) {
        Err(ResourceError::Driver(error)) => assert_eq!(error.code(), INJECTED),
        other => panic!("the driver failed: {other:?}"),
    }
    let still_live = |rig: &Rig| {
        let books = rig.books();
        assert_eq!((books.live_bytes, books.pending_free_bytes), (bytes, 0));
        assert_eq!((books.pending_per_stream_total, books.bytes_outstanding), (0, bytes));
        rig.pool.release(stream).expect_err("the block still names its stream");
    };
    still_live(&rig);
    // The first reap fails at it again, and keeps it again.
    rig.runtime.reap_pending().expect_err("the driver failed");
    still_live(&rig);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.driver.count(DriverCall::FreeOn), 3);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
    rig.pool.release(stream).unwrap_or_else(fail);
}

fn a_free_whose_wait_fails_keeps_the_block_counted_and_the_next_reap_frees_it(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let block = rig.block(4096, a);
    let bytes = block.bytes;
    // Two readers, neither of which follows the other: the free needs a wait wherever it goes.
    rig.touch(&block, b, Access::Read);
    rig.touch(&block, c, Access::Read);
    rig.driver.fail_after(DriverCall::WaitEvent, 0, 1);
    let frees = rig.driver.count_during(DriverCall::FreeOn, || {
        let answer = rig.runtime.deallocate(block);
        assert!(is_driver(&answer), "{answer:?}");
    });
    assert_eq!(frees, 0, "memory is not handed over without its waits");
    assert_eq!((rig.resource.live_bytes(), rig.resource.pending_free_bytes()), (bytes, 0));
    let waits = rig.driver.count_during(DriverCall::WaitEvent, || {
        rig.runtime.reap_pending().unwrap_or_else(fail);
    });
    assert_eq!(waits, 2, "the retry queues the waits that are missing");
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn a_block_whose_free_failed_is_out_of_use(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.block(4096, stream);
    let (second, id) = (handle_of(&block), BlockId::from_block(&block));
    let stale = Err(ResourceError::UseAfterFree { generation: id.generation });
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    rig.runtime.deallocate(block).expect_err("the driver failed");
    assert_eq!(rig.runtime.prepare_block_use(id, stream, Access::Read), stale);
    assert_eq!(rig.runtime.finish_block_use(id, stream, Access::Read), stale);
    assert_eq!(rig.runtime.record_block_use(&second, stream), stale);
    assert_eq!(rig.runtime.deallocate(second), stale);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn try_deallocate_gives_a_refused_block_back(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.block(4096, stream);
    let foreign = DeviceBlock { device_ordinal: 7, ..handle_of(&block) };
    let (returned, error) = rig.runtime.try_deallocate(foreign).expect_err("another device's");
    assert!(matches!(error, ResourceError::Driver(_)), "{error:?}");
    assert_eq!(format!("{returned:?}"), {
        format!("{:?}", DeviceBlock { device_ordinal: 7, ..handle_of(&block) })
    });
    rig.runtime.try_deallocate(block).map_err(|(_, error)| error).unwrap_or_else(fail);
    assert_eq!((rig.resource.live_bytes(), rig.resource.pending_free_bytes()), (0, 4096));
}

fn try_deallocate_gives_the_block_back_usable_when_the_driver_fails(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let block = rig.runtime.allocate(4096, a, AllocTag("precious")).unwrap_or_else(fail);
    rig.touch(&block, b, Access::Read);
    let (id, before) = (BlockId::from_block(&block), rig.books().bytes_outstanding);
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    let (block, error) = rig.runtime.try_deallocate(block).expect_err("the driver failed");
    assert!(matches!(&error, ResourceError::Driver(error) if error.code() == INJECTED));
    assert_eq!((BlockId::from_block(&block), block.tag), (id, AllocTag("precious")));
    assert_eq!((rig.resource.live_bytes(), rig.resource.pending_free_bytes()), (before, 0));
    // It is the caller's again: usable, with its uses remembered, and no reap takes it away.
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.resource.live_bytes(), before);
    rig.touch(&block, b, Access::Read);
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(2));
    rig.runtime.try_deallocate(block).map_err(|(_, error)| error).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn deallocating_on_a_captured_stream_loses_no_memory(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.block(4096, stream);
    let bytes = block.bytes;
    assert!(rig.pool.resolve(stream).is_some(), "from here on somebody may capture it");
    rig.driver.set_capturing(true);
    let frees = rig.driver.count_during(DriverCall::FreeOn, || {
        let error = rig.runtime.deallocate(block).expect_err("the stream is being captured");
        assert!(error.to_string().contains("captured"), "{error}");
    });
    assert_eq!(frees, 0, "a free must not end up in somebody's graph");
    assert_eq!(rig.runtime.bytes_outstanding(), bytes);
    rig.driver.set_capturing(false);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0, "the owner is gone, so the reap must free it");
}
