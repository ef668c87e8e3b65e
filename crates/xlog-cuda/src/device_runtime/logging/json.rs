//! Everything there is to know, one JSON object a line.

use std::io::Write;

use super::{
    LogRecord, LogSink,
    record::access_name,
    text::{DEFAULT_CAPACITY, TextWriter},
};

/// Writes every record as one JSON object on a line of its own.
///
/// The members are named as the fields of [`LogRecord`]; those that are `None` are left out, and
/// addresses are text in hexadecimal, since many readers of JSON round large numbers. The result
/// is `"ok":true`, or `"ok":false` with an `error`. A thread of the sink's own writes, so a slow
/// writer slows nobody down; dropping the sink writes the rest.
///
/// ```
/// # use std::sync::Arc;
/// # use xlog_cuda::{CudaDevice, device_runtime::*};
/// let sink = Arc::new(JsonLinesSink::new(Vec::new()));
/// let plain = Box::new(DirectCudaResource::new(Arc::new(CudaDevice::host()), 0));
/// let memory = LoggingResource::new(plain, Arc::clone(&sink));
/// memory.reap_pending()?;
/// drop(memory);
///
/// let sink = Arc::into_inner(sink).expect("nobody else has the sink now");
/// let text = String::from_utf8(sink.into_inner().expect("a vector takes everything"));
/// assert!(text.expect("a log is text").contains(r#""action":"reap","ok":true"#));
/// # Ok::<(), ResourceError>(())
/// ```
#[derive(Debug)]
pub struct JsonLinesSink<W> {
    text: TextWriter<W>,
}

impl<W: Write + Send + 'static> JsonLinesSink<W> {
    /// Writes to `writer`; up to 65,536 records wait for it.
    #[must_use]
    pub fn new(writer: W) -> Self {
        Self::with_capacity(writer, DEFAULT_CAPACITY)
    }

    /// Writes to `writer`; up to `capacity` records wait for it, and what comes then is dropped.
    #[must_use]
    pub fn with_capacity(writer: W, capacity: usize) -> Self {
        Self { text: TextWriter::new(writer, capacity, b"", Box::new(write_line)) }
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

impl<W: Write + Send + 'static> LogSink for JsonLinesSink<W> {
    fn record(&self, record: LogRecord) {
        self.text.push(record);
    }

    fn flush(&self) {
        self.text.flush();
    }
}

pub(super) fn write_line(record: &LogRecord, line: &mut Vec<u8>) {
    let mut object = Object { line, any: false };
    object.number("sequence", record.sequence);
    object.number("time_ns", record.time_ns);
    object.number("thread", u64::from(record.thread));
    object.text("action", record.action.name());
    if let Some(stream) = record.stream {
        object.number("stream", u64::from(stream.0));
    }
    if let Some(tag) = record.tag {
        object.text("tag", tag.0);
    }
    if let Some(bytes) = record.bytes {
        object.number("bytes", bytes as u64);
    }
    if let Some(asked) = record.asked {
        object.number("asked", asked as u64);
    }
    if let Some(address) = record.address {
        object.text("address", &format!("{address:#x}"));
    }
    if let Some(generation) = record.generation {
        object.number("generation", generation.0);
    }
    if let Some(access) = record.access {
        object.text("access", access_name(access));
    }
    match &record.result {
        Ok(()) => object.raw("ok", "true"),
        Err(error) => {
            object.raw("ok", "false");
            object.text("error", &error.to_string());
        }
    }
    line.extend_from_slice(b"}\n");
}

/// An object being written; its names need no escaping.
struct Object<'a> {
    line: &'a mut Vec<u8>,
    any: bool,
}

impl Object<'_> {
    fn raw(&mut self, name: &str, value: &str) {
        self.line.push(if self.any { b',' } else { b'{' });
        self.any = true;
        self.line.push(b'"');
        self.line.extend_from_slice(name.as_bytes());
        self.line.extend_from_slice(b"\":");
        self.line.extend_from_slice(value.as_bytes());
    }

    fn number(&mut self, name: &str, value: u64) {
        self.raw(name, &value.to_string());
    }

    fn text(&mut self, name: &str, value: &str) {
        self.raw(name, &quoted(value));
    }
}

/// A text as JSON writes it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_runtime::{Access, AllocTag, BlockId, Generation, LogAction, StreamId};

    fn line(record: &LogRecord) -> String {
        let mut text = Vec::new();
        write_line(record, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_field_is_there_under_its_name() {
        let block = BlockId {
            ptr: u64::MAX,
            generation: Generation(7),
            alloc_stream: StreamId(1),
            device_ordinal: 0,
        };
        let mut record = LogRecord::of(LogAction::Prepare, Err("no \"luck\"\n\u{1}é".into()))
            .with_use(block, StreamId(2), Access::ReadWrite);
        (record.sequence, record.time_ns, record.thread) = (5, 6, 0);
        assert_eq!(
            line(&record),
            concat!(
                r#"{"sequence":5,"time_ns":6,"thread":0,"action":"prepare","stream":2,"#,
                r#""address":"0xffffffffffffffff","generation":7,"access":"read_write","#,
                r#""ok":false,"error":"driver error: no \"luck\"\n\u0001é"}"#,
                "\n"
            )
        );
        let mut record = LogRecord::of(LogAction::Allocate, Ok(()));
        record.thread = 1;
        (record.tag, record.bytes, record.asked) = (Some(AllocTag("a\\b")), Some(512), Some(500));
        assert_eq!(
            line(&record),
            concat!(
                r#"{"sequence":0,"time_ns":0,"thread":1,"action":"allocate","tag":"a\\b","#,
                r#""bytes":512,"asked":500,"ok":true}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_line_is_one_line_and_one_object_whatever_is_in_it() {
        for hostile in ["\n", "\r\n", "\0", "\"", "\\", "\u{2028}", "},{", "\u{7f}\u{1b}[0m", "😀"]
        {
            let written = line(&LogRecord::of(LogAction::Reap, Err(hostile.into())));
            assert_eq!(written.matches('\n').count(), 1, "{written:?}");
            let value: serde_json::Value = serde_json::from_str(&written).unwrap();
            assert!(value["error"].as_str().unwrap().contains(hostile), "{written:?}");
        }
    }
}
