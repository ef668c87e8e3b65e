//! The order of a log, call by call.

use std::sync::Arc;

use super::super::{LogAction, LogRecord, MemorySink, order::Order};
use crate::device_runtime::ResourceError;

fn record(address: u64) -> LogRecord {
    LogRecord { address: Some(address), ..LogRecord::of(LogAction::Free, Ok(())) }
}

fn order() -> (Order, Arc<MemorySink>) {
    let sink = Arc::new(MemorySink::new(1_000_000));
    (Order::new(Box::new(Arc::clone(&sink))), sink)
}

/// The addresses in the order of the log, after a look at numbers and times.
fn addresses(sink: &MemorySink) -> Vec<u64> {
    let records = sink.records();
    assert!(records.iter().map(|record| record.sequence).eq(0..records.len() as u64));
    records.iter().filter_map(|record| record.address).collect()
}

#[test]
fn a_free_stands_where_it_began_and_later_calls_wait_for_it() {
    let (order, sink) = order();
    order.append([record(1)]);
    let (first, second) = (order.reserve(), order.reserve());
    order.append([record(4), record(5)]);
    assert_eq!(addresses(&sink), [1]);
    order.settle(&second, record(3));
    assert_eq!(addresses(&sink), [1]);
    order.settle(&first, record(2));
    assert_eq!(addresses(&sink), [1, 2, 3, 4, 5]);
    assert!(sink.records().is_sorted_by_key(|record| record.time_ns));
    order.append([record(6)]);
    assert_eq!(addresses(&sink), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_free_that_failed_stands_where_it_returned() {
    let (order, sink) = order();
    let (first, second) = (order.reserve(), order.reserve());
    order.append([record(2)]);
    order.settle(&first, LogRecord { result: Err(ResourceError::DeviceLost), ..record(3) });
    assert!(addresses(&sink).is_empty());
    order.settle(&second, record(1));
    assert_eq!(addresses(&sink), [1, 2, 3]);
    assert!(sink.records().is_sorted_by_key(|record| record.time_ns));
}

#[test]
fn a_free_that_never_returns_holds_up_a_bounded_number_of_records() {
    let (order, sink) = order();
    let stuck = order.reserve();
    order.append((0..70_000).map(record));
    assert_eq!(addresses(&sink).len(), 70_000);
    let next = order.reserve();
    order.settle(&stuck, record(99_999));
    assert_eq!(addresses(&sink).len(), 70_000, "behind the free that is under way now");
    order.settle(&next, record(70_000));
    assert_eq!(addresses(&sink)[70_000..], [70_000, 99_999]);
}

#[test]
fn a_release_gives_up_the_places_of_calls_that_have_not_returned() {
    let (order, sink) = order();
    let (early, late) = (order.reserve(), order.reserve());
    order.append([record(1)]);
    order.flush();
    assert_eq!(addresses(&sink), [1]);
    order.settle(&late, record(2));
    order.settle(&early, LogRecord { result: Err(ResourceError::DeviceLost), ..record(3) });
    assert_eq!(addresses(&sink), [1, 2, 3]);
}
