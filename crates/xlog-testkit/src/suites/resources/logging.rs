//! The logging resource: what it writes down, in which order, and that nobody else notices.

use std::{
    io::{self, Write},
    sync::Arc,
};

use xlog_cuda::device_runtime::{
    Access, AllocTag, BlockId, BlockUse, CsvSink, DeviceMemoryResource, JsonLinesSink, LogAction,
    LogRecord, LoggingResource, MemorySink, ResourceError, StreamId, read_log,
};

use super::super::support::{assert_works, block_of, handle_of, is_injected};
use crate::{DriverCall, Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    every_call_is_logged_in_order_with_all_its_fields,
    failures_are_logged_with_their_error_and_change_nothing,
    a_free_that_gives_its_block_back_is_logged_as_failed,
    the_uses_of_a_launch_are_logged_one_by_one,
    the_per_block_forms_are_logged_too,
    without_uses_launches_go_to_the_tracker_directly,
    while_it_is_off_nothing_is_logged,
    a_full_memory_sink_keeps_the_latest_and_counts_the_rest,
    a_writer_that_fails_fails_no_call,
    logs_of_both_kinds_are_read_back_as_the_calls_that_were_made,
    a_runtime_works_over_it_as_without_it,
];

/// A rig whose calls are all logged.
pub(super) fn logged(device: TestDevice) -> (Rig, Arc<MemorySink>, Arc<LoggingResource>) {
    let sink = Arc::new(MemorySink::new(1_000_000));
    let (rig, logging) = over(device, |resource| LoggingResource::new(resource, Arc::clone(&sink)));
    (rig, sink, logging)
}

type Boxed = Box<dyn DeviceMemoryResource + Send + Sync>;

fn over(
    device: TestDevice,
    make: impl FnOnce(Boxed) -> LoggingResource,
) -> (Rig, Arc<LoggingResource>) {
    let mut kept = None;
    let rig = Rig::decorated(device, |resource| {
        let logging = Arc::new(make(Box::new(resource)));
        kept = Some(Arc::clone(&logging));
        Box::new(logging)
    });
    (rig, kept.expect("the rig was decorated"))
}

fn actions(records: &[LogRecord]) -> Vec<LogAction> {
    records.iter().map(|record| record.action).collect()
}

fn every_call_is_logged_in_order_with_all_its_fields(device: TestDevice) {
    let (rig, sink, _) = logged(device);
    let [stream] = rig.streams();
    let block = rig.runtime.allocate(1000, stream, AllocTag("mine")).unwrap_or_else(fail);
    let (id, bytes) = (BlockId::from_block(&block), block.bytes);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.runtime.try_reap().unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);

    let records = sink.records();
    let (allocated, freed) = (&records[0], &records[1]);
    assert_eq!(
        actions(&records),
        [LogAction::Allocate, LogAction::Free, LogAction::TryReap, LogAction::Reap]
    );
    assert!(records.iter().map(|record| record.sequence).eq(0..4));
    assert!(records.is_sorted_by_key(|record| record.time_ns));
    for record in &records {
        assert_eq!((record.thread, record.access), (allocated.thread, None));
        assert_eq!(record.result, Ok(()));
    }
    for record in [allocated, freed] {
        assert_eq!((record.stream, record.tag), (Some(stream), Some(AllocTag("mine"))));
        assert_eq!((record.address, record.generation), (Some(id.ptr), Some(id.generation)));
        assert_eq!(record.bytes, Some(bytes));
    }
    assert_eq!((allocated.asked, freed.asked), (Some(1000), None));
    for record in &records[2..] {
        assert_eq!((record.stream, record.address, record.bytes), (None, None, None));
    }
}

fn failures_are_logged_with_their_error_and_change_nothing(device: TestDevice) {
    let (rig, sink, _) = logged(device);
    let [stream] = rig.streams();
    let block = rig.block(512, stream);
    let before = rig.books();
    rig.driver.fail_after(DriverCall::AllocateOn, 0, 1);
    let error = rig.runtime.allocate(64, stream, AllocTag("no")).expect_err("the driver failed");
    assert!(is_injected(&error));
    let failed = &sink.records()[1];
    assert_eq!(failed.result, Err(error));
    assert_eq!((failed.action, failed.stream), (LogAction::Allocate, Some(stream)));
    assert_eq!((failed.asked, failed.bytes), (Some(64), Some(64)));
    assert_eq!((failed.tag, failed.address), (Some(AllocTag("no")), None));

    let stale = handle_of(&block);
    let id = BlockId::from_block(&block);
    assert_eq!(rig.books().ignoring_frees(), before.ignoring_frees());
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.runtime.deallocate(stale).expect_err("freed already");
    rig.runtime.prepare_block_use(id, stream, Access::Read).expect_err("freed already");
    rig.driver.fail_after(DriverCall::SynchronizeStream, 0, 1);
    rig.runtime.reap_pending().expect_err("the driver failed");
    rig.driver.heal();
    rig.runtime.reap_pending().unwrap_or_else(fail);

    let records = sink.records();
    let gone = ResourceError::UseAfterFree { generation: id.generation };
    let results: Vec<_> = records[2..].iter().map(|r| (r.action, r.result.clone())).collect();
    assert_eq!(results[0], (LogAction::Free, Ok(())));
    assert_eq!(results[1], (LogAction::Free, Err(gone.clone())));
    assert_eq!(results[2], (LogAction::Prepare, Err(gone)));
    assert!(matches!(&results[3], (LogAction::Reap, Err(error)) if is_injected(error)));
    assert_eq!(results[4], (LogAction::Reap, Ok(())));
}

fn a_free_that_gives_its_block_back_is_logged_as_failed(device: TestDevice) {
    let (rig, sink, _) = logged(device);
    let [stream] = rig.streams();
    let block = rig.block(256, stream);
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    let (block, error) = rig.runtime.try_deallocate(block).expect_err("the driver failed");
    rig.runtime.try_deallocate(block).map_err(|(_, error)| error).unwrap_or_else(fail);
    let results: Vec<_> = sink.records()[1..].iter().map(|r| r.result.clone()).collect();
    assert_eq!(results, [Err(error), Ok(())]);
}

fn the_uses_of_a_launch_are_logged_one_by_one(device: TestDevice) {
    let (rig, sink, _) = logged(device);
    let [a, b] = rig.streams();
    let (from, to) = (rig.zeros(64, a), rig.zeros(64, a));
    let (from_id, to_id) =
        (BlockId::from_block(block_of(&from)), BlockId::from_block(block_of(&to)));
    assert!(rig.runtime.resource().direct_tracker().is_none());
    let _ = sink.take();
    rig.copy(&from, &to, b).unwrap_or_else(fail);

    let records = sink.take();
    let (prepare, finish) = (LogAction::Prepare, LogAction::Finish);
    assert_eq!(actions(&records), [prepare, prepare, finish, finish]);
    for half in records.chunks(2) {
        for (id, access) in [(from_id, Access::Read), (to_id, Access::Write)] {
            let record = half.iter().find(|record| record.address == Some(id.ptr));
            let record = record.expect("every block of the launch is there");
            assert_eq!((record.generation, record.access), (Some(id.generation), Some(access)));
            assert_eq!((record.stream, &record.result), (Some(b), &Ok(())));
        }
    }
}

fn the_per_block_forms_are_logged_too(device: TestDevice) {
    let (rig, sink, _) = logged(device);
    let [a, b] = rig.streams();
    let block = rig.block(64, a);
    let id = BlockId::from_block(&block);
    let _ = sink.take();
    rig.touch(&block, b, Access::ReadWrite);
    rig.runtime.record_block_use(&block, b).unwrap_or_else(fail);
    rig.runtime.prepare_uses(&[], b).unwrap_or_else(fail);
    rig.runtime.finish_uses(&[BlockUse::new(id, Access::Read)], a).unwrap_or_else(fail);
    let seen: Vec<_> = sink.take().iter().map(|r| (r.action, r.stream, r.access)).collect();
    assert_eq!(
        seen,
        [
            (LogAction::Prepare, Some(b), Some(Access::ReadWrite)),
            (LogAction::Finish, Some(b), Some(Access::ReadWrite)),
            (LogAction::Finish, Some(b), Some(Access::Read)),
            (LogAction::Finish, Some(a), Some(Access::Read)),
        ]
    );
}

fn without_uses_launches_go_to_the_tracker_directly(device: TestDevice) {
    let sink = Arc::new(MemorySink::new(1000));
    let (rig, logging) =
        over(device, |resource| LoggingResource::without_uses(resource, Arc::clone(&sink)));
    let [a, b] = rig.streams();
    let tracker = rig.resource.direct_tracker().expect("a tracker at the bottom");
    assert!(logging.direct_tracker().is_some_and(|direct| std::ptr::eq(direct, tracker)));
    let slice = rig.zeros(64, a);
    rig.fill(&slice, 3, b).unwrap_or_else(fail);
    rig.touch(block_of(&slice), a, Access::Read);
    assert_eq!(slice.download().unwrap_or_else(fail), [3; 64]);
    drop(slice);
    let records = sink.records();
    assert_eq!(actions(&records), [LogAction::Allocate, LogAction::Free]);
}

fn while_it_is_off_nothing_is_logged(device: TestDevice) {
    let (rig, sink, logging) = logged(device);
    let [stream] = rig.streams();
    logging.set_enabled(false);
    assert!(!logging.is_enabled());
    assert_works(&rig, stream);
    let block = rig.block(128, stream);
    rig.touch(&block, stream, Access::Write);
    rig.runtime.record_block_use(&block, stream).unwrap_or_else(fail);
    rig.runtime.try_deallocate(block).map_err(|(_, error)| error).unwrap_or_else(fail);
    rig.runtime.try_reap().unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    rig.runtime.allocate(0, stream, AllocTag::UNTAGGED).expect_err("zero bytes");
    assert!(sink.records().is_empty() && sink.dropped() == 0);
    // The runtime was made over a resource that sees uses, and it still does.
    assert!(logging.direct_tracker().is_none());
    logging.set_enabled(true);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(sink.records()[0].sequence, 0);
}

fn a_full_memory_sink_keeps_the_latest_and_counts_the_rest(device: TestDevice) {
    for (capacity, kept) in [(0, 0), (1, 1), (7, 7), (40, 20)] {
        let sink = Arc::new(MemorySink::new(capacity));
        let (rig, _) = over(device, |resource| LoggingResource::new(resource, Arc::clone(&sink)));
        for _ in 0..10 {
            let block = rig.block(64, StreamId::DEFAULT);
            rig.runtime.deallocate(block).unwrap_or_else(fail);
        }
        let numbers: Vec<_> = sink.records().iter().map(|record| record.sequence).collect();
        assert!(numbers.iter().copied().eq(20 - kept..20), "{capacity}: {numbers:?}");
        assert_eq!(sink.dropped(), 20 - kept);
    }
}

/// Takes nothing.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is full"))
    }
    fn flush(&mut self) -> io::Result<()> {
        Err(io::Error::other("the disk is full"))
    }
}

fn a_writer_that_fails_fails_no_call(device: TestDevice) {
    let sink = Arc::new(JsonLinesSink::with_capacity(Full, 4));
    let (rig, logging) = over(device, |resource| LoggingResource::new(resource, Arc::clone(&sink)));
    let [stream] = rig.streams();
    for _ in 0..10 {
        assert_works(&rig, stream);
    }
    logging.flush();
    assert!(sink.dropped() >= 20, "{}", sink.dropped());
    assert_eq!(sink.last_error().as_deref(), Some("the disk is full"));
}

fn logs_of_both_kinds_are_read_back_as_the_calls_that_were_made(device: TestDevice) {
    let (csv, json) =
        (Arc::new(CsvSink::new(Vec::new())), Arc::new(JsonLinesSink::new(Vec::new())));
    let seen = Arc::new(MemorySink::new(1000));
    let (rig, logging) = over(device, |resource| {
        let below = LoggingResource::new(resource, Arc::clone(&csv));
        let middle = LoggingResource::new(Box::new(below), Arc::clone(&json));
        LoggingResource::new(Box::new(middle), Arc::clone(&seen))
    });
    let [a, b] = rig.streams();
    let blocks = [rig.block(100, a), rig.block(200, b), rig.block(300, StreamId::DEFAULT)];
    rig.touch(&blocks[0], b, Access::Read);
    rig.driver.fail_after(DriverCall::AllocateOn, 0, 1);
    rig.runtime.allocate(400, b, AllocTag("a,\"b\"\n")).expect_err("the driver failed");
    for block in blocks {
        rig.runtime.deallocate(block).unwrap_or_else(fail);
    }
    rig.runtime.reap_pending().unwrap_or_else(fail);
    drop((rig, logging));

    let text = Arc::into_inner(json).and_then(JsonLinesSink::into_inner).expect("all is written");
    let calls = read_log(&text[..]).unwrap_or_else(fail);
    let records = seen.records();
    assert_eq!(calls.len(), records.len());
    for (call, record) in calls.iter().zip(&records) {
        assert_eq!((call.action, call.ok), (record.action, record.result.is_ok()));
        assert_eq!((call.pointer, call.access), (record.address.unwrap_or(0), record.access));
        assert_eq!(call.stream, record.stream.map_or(0, |stream| u64::from(stream.0)));
    }
    let text = Arc::into_inner(csv).and_then(CsvSink::into_inner).expect("all is written");
    let lines = read_log(&text[..]).unwrap_or_else(fail);
    let memory = |action| matches!(action, LogAction::Allocate | LogAction::Free);
    let expected = calls.iter().filter(|call| memory(call.action));
    assert!(
        lines
            .iter()
            .map(|call| (call.action, call.ok, call.pointer, call.bytes, call.stream))
            .eq(expected.map(|call| (call.action, call.ok, call.pointer, call.bytes, call.stream)))
    );
    assert_eq!(lines.len(), 7);
}

fn a_runtime_works_over_it_as_without_it(device: TestDevice) {
    let (rig, sink, logging) = logged(device);
    let [a, b] = rig.streams();
    for stream in [a, b, StreamId::DEFAULT] {
        assert_works(&rig, stream);
    }
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(logging.bytes_outstanding(), rig.resource.bytes_outstanding());
    assert_eq!((logging.device_ordinal(), logging.supports_block_use_tracking()), (0, true));
    let records = sink.records();
    let count = |action| records.iter().filter(|record| record.action == action).count();
    assert_eq!(count(LogAction::Prepare), count(LogAction::Finish));
    assert_eq!(count(LogAction::Allocate), count(LogAction::Free));
    assert!(records.iter().all(|record| record.result.is_ok()));
}
