//! The text sinks over writers that are slow, fail, or panic.

use std::sync::Arc;

use super::{
    super::{CsvSink, JsonLinesSink, LogAction, LogRecord, LogSink, read_log},
    Paper,
};

fn record(address: u64) -> LogRecord {
    LogRecord {
        address: Some(address),
        bytes: Some(64),
        stream: Some(crate::device_runtime::StreamId(1)),
        ..LogRecord::of(LogAction::Allocate, Ok(()))
    }
}

fn pointers(text: &str) -> Vec<u64> {
    read_log(text.as_bytes()).unwrap().iter().map(|call| call.pointer).collect()
}

#[test]
fn a_flush_returns_when_everything_is_written() {
    let paper = Paper::default();
    let sink = CsvSink::new(paper.clone());
    for round in 0..20 {
        sink.record(record(round));
        sink.flush();
        assert_eq!(paper.text().lines().count() as u64, round + 2);
    }
    assert_eq!((sink.dropped(), sink.last_error()), (0, None));
}

#[test]
fn an_empty_log_has_its_header() {
    let paper = Paper::default();
    drop(CsvSink::new(paper.clone()));
    assert_eq!(paper.text(), "Thread,Time,Action,Pointer,Size,Stream\n");
}

#[test]
fn dropping_a_sink_writes_the_rest() {
    let paper = Paper::default();
    let sink = JsonLinesSink::new(paper.clone());
    (0..1000).for_each(|address| sink.record(record(address)));
    drop(sink);
    assert!(pointers(&paper.text()).into_iter().eq(0..1000));
}

#[test]
fn a_writer_that_fails_costs_records_and_never_half_a_line() {
    let whole = {
        let paper = Paper::default();
        let sink = CsvSink::new(paper.clone());
        sink.record(record(0x1000));
        drop(sink);
        paper.text().len()
    };
    for room in 0..whole + 5 {
        let paper = Paper::default();
        paper.set_room(Some(room));
        let sink = CsvSink::new(paper.clone());
        sink.record(record(0x1000));
        sink.record(record(0x1001));
        sink.flush();
        assert!(sink.last_error().unwrap().contains("no room"), "{room}");
        paper.set_room(None);
        sink.record(record(0x1002));
        sink.flush();
        let found = pointers(&paper.text());
        assert_eq!(found.last(), Some(&0x1002), "{room}: {}", paper.text());
        assert_eq!(found.len() as u64 + sink.dropped(), 3, "{room}: {}", paper.text());
    }
}

#[test]
fn a_writer_that_always_fails_loses_every_record_and_nothing_else() {
    let paper = Paper::default();
    paper.set_room(Some(0));
    let sink = JsonLinesSink::new(paper.clone());
    for address in 0..100 {
        sink.record(record(address));
    }
    sink.flush();
    assert_eq!((sink.dropped(), paper.text().len()), (100, 0));
    assert!(sink.into_inner().is_some());
}

#[test]
fn a_slow_writer_holds_nobody_up_and_what_finds_no_room_is_counted() {
    let paper = Paper::default();
    let sink = CsvSink::with_capacity(paper.clone(), 8);
    {
        let stuck = paper.0.lock();
        for address in 0..1000 {
            sink.record(record(address));
        }
        assert!(sink.dropped() >= 1000 - 16, "the queue, and what the thread has taken");
        drop(stuck);
    }
    sink.flush();
    let found = pointers(&paper.text());
    assert!(found.is_sorted() && found.len() as u64 == 1000 - sink.dropped());
}

#[test]
fn a_writer_that_panics_ends_the_log_and_not_the_program() {
    let paper = Paper::default();
    paper.0.lock().panics = true;
    let sink = CsvSink::new(paper);
    sink.record(record(1));
    sink.flush();
    assert!(sink.last_error().unwrap().contains("panicked"));
    sink.record(record(2));
    sink.flush();
    assert!(sink.dropped() >= 1);
    assert!(sink.into_inner().is_none());
}

#[test]
fn threads_that_write_at_once_lose_nothing() {
    let paper = Paper::default();
    let sink = Arc::new(JsonLinesSink::new(paper.clone()));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let sink = &sink;
            scope.spawn(move || {
                (0..500).for_each(|address| sink.record(record(thread * 1000 + address)));
            });
        }
    });
    sink.flush();
    let mut found = pointers(&paper.text());
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 2000);
}
