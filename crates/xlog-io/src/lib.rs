//! Tables in files: read in batches of rows, written whole or not at all.
//!
//! A [`BatchReader`] hands out a file, or several with the same columns, batch by batch, so that a
//! file may be larger than memory. A [`BatchWriter`] takes batches; what it wrote appears under its
//! name once it is finished, and not at all if it is dropped before. A [`FileError`] says which
//! file, and which line and column of it, was at fault.
//!
//! ```
//! use xlog_io::{InputSpec, OutputSpec, create, open};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
//! # std::fs::write(file("sales.csv"), "id,amount\n1,2.50\n2,10\n").unwrap();
//! let mut reader = open(&InputSpec::new([file("sales.csv")]))?;
//! let mut writer = create(&OutputSpec::new(file("sales.parquet")), reader.schema())?;
//! while let Some(batch) = reader.next_batch()? {
//!     writer.write(&batch)?;
//! }
//! writer.finish()?;
//! assert_eq!(xlog_io::schema(&InputSpec::new([file("sales.parquet")]))?.rows, Some(2));
//! # Ok::<(), xlog_io::FileError>(())
//! ```
//!
//! | format | name ends in | columns |
//! |---|---|---|
//! | CSV, TSV | `.csv`, `.tsv`, `.tab` | inferred from a sample, or given |
//! | JSON lines | `.jsonl`, `.ndjson` | the same; one object on each line |
//! | Parquet | `.parquet`, `.pq` | as in the file |
//! | Arrow IPC | `.arrow`, `.arrows`, `.ipc`, `.feather` | as in the file, which may be a stream |
//!
//! Each may end in `.gz` or `.zst` as well. Files are read on several threads: CSV and JSON lines
//! in pieces of text, Parquet by row groups. Text whose values repeat comes as dictionaries, which
//! the engine takes over without hashing every row.
//!
//! # What CSV means here
//!
//! - A field that is empty and has no quotes has no value; `""` is the empty string. In a table of
//!   one column an empty line is a row without a value; otherwise empty lines do not count.
//! - A quote opens at the start of a field and closes before a separator; within, two stand for
//!   one. A quote elsewhere is an error: taken as a character it could hide where a row ends.
//! - Space around numbers, dates and `true` or `false` does not count; in text it does.
//! - Types are inferred from the first 256 KiB of a file and from eight places behind them: `bool`,
//!   `i64` (`u64` where only that has room), `f64`, `date`, `timestamp`, else `utf8`. Digits with a
//!   zero or plus in front are text, since a number would lose it. A value that contradicts what
//!   was inferred is an error with its line, never another value.

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
mod plain_writer;
mod source;
mod spec;
mod text;
mod traits;
mod values;

pub use column_type::ColumnType;
pub use error::{FileError, FileResult};
pub use format::{Compression, Format};
pub use guard::takes_panics_as_errors;
pub use open::{TableSchema, create, open, schema};
pub use output::CompleteFile;
pub use spec::{CsvOptions, InputSpec, OutputSpec};
pub use traits::{BatchReader, BatchWriter, ReadProgress};
