//! A log of everything a stack of resources is asked for.
//!
//! [`LoggingResource`] sits over any resource and hands a [`LogRecord`] of every call to a
//! [`LogSink`]: [`MemorySink`] keeps the latest, [`CsvSink`] writes the CSV of RMM, and
//! [`JsonLinesSink`] everything there is to know. [`read_log`] reads both kinds of text back, and
//! `xlog replay` runs them again. The adaptor validates nothing and orders nothing on the device:
//! calls go down as they came, and their answers come back as they were.

mod csv;
mod json;
mod memory;
mod order;
mod read;
mod read_csv;
mod read_json;
mod record;
mod resource;
mod sink;
#[cfg(test)]
mod tests;
mod text;

pub use csv::CsvSink;
pub use json::JsonLinesSink;
pub use memory::MemorySink;
pub use read::{LogReadError, LoggedCall, read_log};
pub use record::{LogAction, LogRecord};
pub use resource::LoggingResource;
pub use sink::LogSink;
