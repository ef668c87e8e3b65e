//! Tables in files: read in batches of rows, written whole or not at all.
//!
//! A [`BatchReader`] hands out a file, or several with the same columns, batch by batch, so that a
//! file may be larger than memory. A [`BatchWriter`] takes batches; what it wrote appears under its
//! name once it is finished, and not at all if it is dropped before. A [`FileError`] says which
//! file, and which line and column of it, was at fault.

#![forbid(unsafe_code)]

mod admit;
mod cells;
mod choice;
mod column_type;
mod columns;
mod csv;
mod error;
mod format;
mod guard;
mod ipc;
mod json;
mod open;
mod ordered;
mod output;
mod parquet;
mod plain;
mod source;
mod spec;
mod text;
mod traits;
mod values;

pub use column_type::ColumnType;
pub use error::{FileError, FileResult};
pub use format::{Compression, Format};
pub use open::{TableSchema, create, open, schema};
pub use spec::{CsvOptions, InputSpec, OutputSpec};
pub use traits::{BatchReader, BatchWriter, ReadProgress};
