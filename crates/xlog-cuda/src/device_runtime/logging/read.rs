//! Logs read back.

use std::{
    fmt,
    io::{BufRead, Read},
};

use xlog_core::Access;

use super::{LogAction, read_csv, read_json};

/// No line of a log is nearly as long; a file that is not a log may be one line.
const LONGEST_LINE: usize = 1 << 20;

/// One call of a log. What the log does not say is zero, or `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedCall {
    /// The line of the log, from 1.
    pub line: usize,
    /// The calling thread.
    pub thread: u64,
    /// When: nanoseconds since midnight in RMM's CSV, and since the log began in ours.
    pub time_ns: Option<u64>,
    /// What was asked.
    pub action: LogAction,
    /// Whether it worked.
    pub ok: bool,
    /// The block's address.
    pub pointer: u64,
    /// The block's size: what was asked for, if the log says, else what was granted.
    pub bytes: u64,
    /// The stream.
    pub stream: u64,
    /// How a use touches the block.
    pub access: Option<Access>,
}

/// Why a log could not be read: where, and what was expected there.
///
/// ```
/// use xlog_cuda::device_runtime::read_log;
///
/// let log = "Thread,Time,Action,Pointer,Size,Stream\n1,10:43:21.123456,alocate,0x100,64,0\n";
/// let error = read_log(log.as_bytes()).expect_err("a misspelt action");
/// assert_eq!((error.line(), error.column()), (2, 19));
/// assert!(error.to_string().contains("allocate failure"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogReadError {
    line: usize,
    column: usize,
    message: String,
}

impl LogReadError {
    pub(super) fn new(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self { line, column, message: message.into() }
    }

    /// The line, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column, from 1: characters, not bytes.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }
}

impl fmt::Display for LogReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for LogReadError {}

#[derive(Clone, Copy)]
enum Format {
    Csv,
    Json,
}

/// Reads a log: the CSV of RMM or of [`CsvSink`](super::CsvSink), or the lines of
/// [`JsonLinesSink`](super::JsonLinesSink). The first line tells which.
///
/// ```
/// use xlog_cuda::device_runtime::{LogAction, read_log};
///
/// let log = "Thread,Time,Action,Pointer,Size,Stream\n\
///            1,10:43:21.123456,allocate,0x7f00,1024,0x2\n";
/// let calls = read_log(log.as_bytes())?;
/// assert_eq!(calls[0].action, LogAction::Allocate);
/// assert_eq!((calls[0].pointer, calls[0].bytes, calls[0].stream), (0x7f00, 1024, 2));
/// # Ok::<(), xlog_cuda::device_runtime::LogReadError>(())
/// ```
pub fn read_log(mut text: impl BufRead) -> Result<Vec<LoggedCall>, LogReadError> {
    let mut calls = Vec::new();
    let mut format = None;
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let limit = LONGEST_LINE as u64 + 1;
        let read = text.by_ref().take(limit).read_until(b'\n', &mut bytes);
        let read = read.map_err(|error| {
            LogReadError::new(number, 1, format!("the log could not be read: {error}"))
        })?;
        if read == 0 {
            break;
        }
        if bytes.len() > LONGEST_LINE {
            let message = format!("the line is longer than {LONGEST_LINE} bytes; is this a log?");
            return Err(LogReadError::new(number, 1, message));
        }
        let line = line_of(&bytes, number)?;
        if line.trim().is_empty() {
            continue;
        }
        match format {
            Some(Format::Csv) => calls.push(read_csv::call(line, number)?),
            Some(Format::Json) => calls.push(read_json::call(line, number)?),
            None if line.trim_start().starts_with('{') => {
                format = Some(Format::Json);
                calls.push(read_json::call(line, number)?);
            }
            None => {
                read_csv::header(line, number)?;
                format = Some(Format::Csv);
            }
        }
    }
    match format {
        Some(_) => Ok(calls),
        None => Err(LogReadError::new(1, 1, format!("the log is empty; expected {EXPECTED}"))),
    }
}

/// What a log starts with.
pub(super) const EXPECTED: &str =
    "the line `Thread,Time,Action,Pointer,Size,Stream`, or a JSON object a line";

/// The text of a line, without its end and without a byte order mark.
fn line_of(bytes: &[u8], number: usize) -> Result<&str, LogReadError> {
    let line = std::str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let column = before.chars().count() + 1;
        LogReadError::new(number, column, "expected text in UTF-8; is this a log?")
    })?;
    let line = if number == 1 { line.strip_prefix('\u{feff}').unwrap_or(line) } else { line };
    let line = line.strip_suffix('\n').unwrap_or(line);
    Ok(line.strip_suffix('\r').unwrap_or(line))
}

/// A part of a line as an error shows it: not all of a megabyte.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 40;
    let mut shown: String = text.chars().take(MOST).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
