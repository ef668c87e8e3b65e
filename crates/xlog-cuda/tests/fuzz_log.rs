//! The reader of logs is fed what nobody would write: it never panics, takes no more memory than
//! its input explains, names the line of what is wrong, and reads back what it made of the rest.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use xlog_cuda::{
    CudaDevice,
    device_runtime::{
        AllocTag, CsvSink, DeviceMemoryResource, DirectCudaResource, JsonLinesSink, LogAction,
        LogRecord, LogSink, LoggedCall, LoggingResource, MemorySink, StreamId, read_log,
    },
};
use xlog_testkit::fuzz::{Fuzz, Verdict};

/// Counts what each thread has, and the most it had.
struct Counting;

thread_local! {
    static BYTES: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // A thread that ends may free when this is gone; nobody asks any more.
    let _ = BYTES.try_with(|counted| {
        let (now, most) = counted.get();
        counted.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: the system's allocator does everything; this only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most memory a thread has at one time while `work` runs, beyond what it had before.
fn peak<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = BYTES.get().0;
    BYTES.set((before, before));
    let answer = work();
    (answer, usize::try_from(BYTES.get().1 - before).unwrap_or(0))
}

/// A record that a test may fill as it likes.
fn template() -> LogRecord {
    let sink = std::sync::Arc::new(MemorySink::new(1));
    let plain = Box::new(DirectCudaResource::new(std::sync::Arc::new(CudaDevice::host()), 0));
    let memory = LoggingResource::new(plain, std::sync::Arc::clone(&sink));
    memory.reap_pending().expect("nothing to reap");
    sink.records().remove(0)
}

/// The record that a call was read from, if our own writers have room for its numbers.
fn record(template: &LogRecord, call: &LoggedCall) -> Option<LogRecord> {
    let is_use = matches!(call.action, LogAction::Prepare | LogAction::Finish);
    let is_memory = matches!(call.action, LogAction::Allocate | LogAction::Free);
    let mut record = template.clone();
    record.time_ns = call.time_ns.unwrap_or_default();
    record.thread = u32::try_from(call.thread).ok()?;
    record.action = call.action;
    record.stream = Some(StreamId(u32::try_from(call.stream).ok()?));
    record.tag = is_memory.then_some(AllocTag("fuzz"));
    record.bytes = Some(usize::try_from(call.bytes).ok()?);
    record.address = Some(call.pointer);
    record.access = call.access.filter(|_| is_use);
    record.result = if call.ok { Ok(()) } else { Err("fuzz".into()) };
    Some(record)
}

/// What was read, written by our own writers and read again.
fn round_trip(template: &LogRecord, calls: &[LoggedCall]) -> Verdict {
    let records: Option<Vec<_>> = calls.iter().map(|call| record(template, call)).collect();
    match records.filter(|records| !records.is_empty()) {
        Some(records) => written_and_read(&records, calls),
        None => Ok(()),
    }
}

fn written_and_read(records: &[LogRecord], calls: &[LoggedCall]) -> Verdict {
    let (json, csv) = (JsonLinesSink::new(Vec::new()), CsvSink::new(Vec::new()));
    records.iter().for_each(|record| json.record(record.clone()));
    records.iter().for_each(|record| csv.record(record.clone()));
    let same = |text: Option<Vec<u8>>, first: usize, expected: Vec<LoggedCall>, timed: bool| {
        let text = text.unwrap_or_default();
        let mut again = read_log(&text[..]).map_err(|error| format!("written, then: {error}"))?;
        let lines = first..;
        let mut expected = expected;
        for (call, line) in expected.iter_mut().zip(lines) {
            call.line = line;
            call.time_ns = Some(call.time_ns.unwrap_or_default());
        }
        if !timed {
            again.iter_mut().chain(&mut expected).for_each(|call| call.time_ns = None);
        }
        if again == expected {
            return Ok(());
        }
        Err(format!("written and read again, {expected:?} is {again:?}"))
    };
    same(json.into_inner(), 1, calls.to_vec(), true)?;
    // RMM has words for these alone, and the time of day for when.
    let in_csv = |call: &&LoggedCall| match call.action {
        LogAction::Allocate => true,
        LogAction::Free => call.ok,
        _ => false,
    };
    same(csv.into_inner(), 2, calls.iter().filter(in_csv).cloned().collect(), false)
}

/// Everything that can be asked of an answer.
fn verdict(template: &LogRecord, input: &[u8]) -> Verdict {
    let (answer, bytes) = peak(|| read_log(input));
    // A call is a hundred bytes, and can stand on a line of twenty; JSON has a tree besides.
    let bound = (64 << 10) + 64 * input.len();
    if bytes > bound {
        return Err(format!("{bytes} bytes of memory for {} of input", input.len()));
    }
    match answer {
        Ok(calls) => {
            let rising = calls.windows(2).all(|pair| pair[0].line < pair[1].line);
            let lines = input.iter().filter(|byte| **byte == b'\n').count() + 1;
            if !rising || calls.iter().any(|call| call.line == 0 || call.line > lines) {
                return Err("a call is from a line that is not there".into());
            }
            round_trip(template, &calls)
        }
        Err(error) => {
            let lines = input.iter().filter(|byte| **byte == b'\n').count() + 1;
            let text = error.to_string();
            let names =
                text.starts_with(&format!("line {}, column {}", error.line(), error.column()));
            let line = input.split(|byte| *byte == b'\n').nth(error.line().wrapping_sub(1));
            let there = line.is_some_and(|line| error.column() <= line.len() + 2);
            if !names || error.line() > lines || error.column() == 0 || !there {
                return Err(format!("an error at a place that is not there: {text}"));
            }
            if text.len() > 2_000 {
                return Err(format!("an error of {} bytes", text.len()));
            }
            Ok(())
        }
    }
}

/// Cases; `XLOG_FUZZ_SECONDS` makes it more.
const CASES: u64 = if cfg!(debug_assertions) { 30_000 } else { 200_000 };

const CSV: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
    1,10:43:21.123456,allocate,0x7f0000001000,1024,0x2\n\
    2,10:43:22,allocate failure,(nil),18446744073709551615,0\n\
    \"1\",\"23:59:60.5\",\"free\",\"0x7f0000001000\",\"1024\",\"0x2\"\n";

const JSON: &str = concat!(
    r#"{"sequence":0,"time_ns":5,"thread":0,"action":"allocate","stream":1,"tag":"t","#,
    r#""bytes":512,"asked":500,"address":"0x7f00","generation":1,"ok":true}"#,
    "\n",
    r#"{"sequence":1,"time_ns":6,"thread":0,"action":"prepare","stream":2,"address":"0x7f00","#,
    r#""generation":1,"access":"read_write","ok":true}"#,
    "\n",
    r#"{"sequence":2,"time_ns":7,"thread":1,"action":"finish","stream":2,"address":"0x7f00","#,
    r#""generation":1,"access":"read","ok":false,"error":"no \"luck\"\n"}"#,
    "\n",
    r#"{"sequence":3,"time_ns":8,"thread":1,"action":"free","stream":1,"bytes":512,"#,
    r#""address":"0x7f00","ok":true}"#,
    "\n",
    r#"{"sequence":4,"time_ns":9,"thread":1,"action":"reap","ok":true}"#,
    "\n",
    r#"{"sequence":5,"thread":1,"action":"try_reap","ok":true}"#,
    "\n",
);

#[test]
fn logs_that_nobody_would_write() {
    let template = template();
    let crlf = CSV.replace('\n', "\r\n");
    let marked = format!("\u{feff}{CSV}");
    let colon = CSV.replace("21.1", "21:1");
    let corpus = [CSV, JSON, &crlf, &marked, &colon, "Thread,Time,Action,Pointer,Size,Stream\n"];
    let words = [
        "allocate",
        "allocate failure",
        "free",
        "reap",
        "try_reap",
        "prepare",
        "finish",
        "(nil)",
        "read",
        "write",
        "read_write",
        "true",
        "false",
        "null",
        "\"ok\":true",
        "\"bytes\":1",
        "\"asked\":18446744073709551615",
        "\"address\":\"0x1\"",
        "\"thread\":1.5",
        "24:00:00",
        "10:43:61",
        "10:43:21.1234567890",
        "1,,free,0x1,1,0\n",
        "Thread,Time,Action,Pointer,Size,Stream\n",
    ];
    let fuzz = Fuzz::new("logs", &corpus).with_words(&words);
    fuzz.assert_copes(CASES, &|input| verdict(&template, input));
}

#[test]
fn lines_longer_than_any_log_has() {
    let template = template();
    for byte in [b'1', b'{', b'"', b',', b' ', b'\n', 0xff] {
        for start in ["", "{\"a\":", "Thread,Time,Action,Pointer,Size,Stream\n"] {
            let input = [start.as_bytes(), &vec![byte; 3 << 20]].concat();
            let verdict = verdict(&template, &input);
            assert_eq!(verdict, Ok(()), "{start} and many {byte:#x}");
        }
    }
}
