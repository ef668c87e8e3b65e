//! The CSV that RMM writes, and its tools read.

use std::{
    fmt,
    io::{self, Write},
    time::Duration,
};

use super::{
    LogAction, LogRecord, LogSink,
    record::start_of_log,
    text::{DEFAULT_CAPACITY, TextWriter},
};

/// The first line of RMM's CSV.
pub(super) const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// Writes allocations and frees as RMM's `logging_resource_adaptor` does.
///
/// Each line has a thread, the time of day (UTC), `allocate`, `allocate failure` or `free`, an
/// address, a size in bytes and a stream. RMM has no words for anything else: reaps, uses and
/// frees that failed are left out. A thread of the sink's own writes, so a slow writer slows
/// nobody down; dropping the sink writes the rest.
///
/// ```
/// # use std::sync::Arc;
/// # use xlog_cuda::{CudaDevice, device_runtime::*};
/// let sink = Arc::new(CsvSink::new(Vec::new()));
/// let plain = Box::new(DirectCudaResource::new(Arc::new(CudaDevice::host()), 0));
/// let memory = LoggingResource::new(plain, Arc::clone(&sink));
/// let block = memory.allocate(1024, StreamId::DEFAULT, AllocTag("example"))?;
/// memory.deallocate(block)?;
/// drop(memory);
///
/// let sink = Arc::into_inner(sink).expect("nobody else has the sink now");
/// let text = String::from_utf8(sink.into_inner().expect("a vector takes everything"));
/// let text = text.expect("a log is text");
/// assert!(text.starts_with("Thread,Time,Action,Pointer,Size,Stream\n"));
/// assert_eq!(read_log(text.as_bytes()).expect("a good log").len(), 2);
/// # Ok::<(), ResourceError>(())
/// ```
#[derive(Debug)]
pub struct CsvSink<W> {
    text: TextWriter<W>,
}

impl<W: Write + Send + 'static> CsvSink<W> {
    /// Writes to `writer`; up to 65,536 records wait for it.
    #[must_use]
    pub fn new(writer: W) -> Self {
        Self::with_capacity(writer, DEFAULT_CAPACITY)
    }

    /// Writes to `writer`; up to `capacity` records wait for it, and what comes then is dropped.
    #[must_use]
    pub fn with_capacity(writer: W, capacity: usize) -> Self {
        let start = start_of_log();
        let format = move |record: &LogRecord, text: &mut Vec<u8>| {
            // A vector takes everything.
            let _ = write_line(record, start, text);
        };
        let header = format!("{HEADER}\n");
        Self { text: TextWriter::new(writer, capacity, header.as_bytes(), Box::new(format)) }
    }

    /// How many records the writer did not take, or not in time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.text.dropped()
    }

    /// What the writer last failed with.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.text.last_error()
    }

    /// Waits until everything recorded so far is written, or dropped.
    pub fn flush(&self) {
        self.text.flush();
    }

    /// Writes the rest and gives the writer back; `None` if the writer panicked.
    #[must_use]
    pub fn into_inner(mut self) -> Option<W> {
        self.text.close()
    }
}

impl<W: Write + Send + 'static> LogSink for CsvSink<W> {
    fn record(&self, record: LogRecord) {
        if action_name(&record).is_some() {
            self.text.push(record);
        }
    }

    fn flush(&self) {
        self.text.flush();
    }
}

/// RMM's word for what happened.
fn action_name(record: &LogRecord) -> Option<&'static str> {
    match (record.action, record.result.is_ok()) {
        (LogAction::Allocate, true) => Some("allocate"),
        (LogAction::Allocate, false) => Some("allocate failure"),
        (LogAction::Free, true) => Some("free"),
        _ => None,
    }
}

fn write_line(record: &LogRecord, start: Duration, line: &mut Vec<u8>) -> io::Result<()> {
    let Some(action) = action_name(record) else {
        return Ok(());
    };
    writeln!(
        line,
        "{},{},{action},{:#x},{},{}",
        record.thread,
        TimeOfDay(start + Duration::from_nanos(record.time_ns)),
        record.address.unwrap_or_default(),
        record.bytes.unwrap_or_default(),
        StreamNumber(record.stream.map_or(0, |stream| stream.0)),
    )
}

/// `10:43:21.123456`, starting again at midnight.
struct TimeOfDay(Duration);

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02}.{:06}", seconds % 60, self.0.subsec_micros())
    }
}

/// Streams are handles to RMM: `0` for none, else hexadecimal.
struct StreamNumber(u32);

impl fmt::Display for StreamNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("0") } else { write!(f, "{:#x}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_runtime::{ResourceError, StreamId};

    fn line(record: &LogRecord, start: Duration) -> String {
        let mut text = Vec::new();
        write_line(record, start, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_are_rmms_to_the_letter() {
        let start = Duration::from_secs(10 * 3600 + 43 * 60 + 21);
        let mut record = LogRecord::of(LogAction::Allocate, Ok(()));
        (record.thread, record.time_ns) = (3, 123_456_789);
        record.address = Some(0x7f00_0000_1000);
        (record.bytes, record.stream) = (Some(4096), Some(StreamId(18)));
        assert_eq!(line(&record, start), "3,10:43:21.123456,allocate,0x7f0000001000,4096,0x12\n");

        (record.action, record.stream) = (LogAction::Free, Some(StreamId::DEFAULT));
        assert_eq!(line(&record, start), "3,10:43:21.123456,free,0x7f0000001000,4096,0\n");

        (record.action, record.address) = (LogAction::Allocate, None);
        record.result = Err(ResourceError::DeviceLost);
        assert_eq!(line(&record, start), "3,10:43:21.123456,allocate failure,0x0,4096,0\n");
    }

    #[test]
    fn what_rmm_has_no_word_for_is_left_out() {
        for action in LogAction::ALL {
            let said = line(&LogRecord::of(action, Err(ResourceError::DeviceLost)), Duration::ZERO);
            assert_eq!(said.is_empty(), action != LogAction::Allocate, "{action}");
        }
        for action in [LogAction::Reap, LogAction::TryReap, LogAction::Prepare, LogAction::Finish] {
            assert_eq!(line(&LogRecord::of(action, Ok(())), Duration::ZERO), "");
        }
    }

    #[test]
    fn the_time_of_day_starts_again_at_midnight() {
        let just_before = Duration::new(86_399, 999_999_999);
        assert_eq!(TimeOfDay(just_before).to_string(), "23:59:59.999999");
        assert_eq!(TimeOfDay(just_before + Duration::from_nanos(1)).to_string(), "00:00:00.000000");
    }
}
