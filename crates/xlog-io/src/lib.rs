//! Tables in files: read in batches of rows, written whole or not at all.
//!
//! A [`BatchReader`] hands out a file, or several with the same columns, batch by batch, so that a
//! file may be larger than memory. A [`BatchWriter`] takes batches; what it wrote appears under its
//! name once it is finished, and not at all if it is dropped before. A [`FileError`] says which
//! file, and which line and column of it, was at fault.

#![forbid(unsafe_code)]

mod error;
mod traits;

pub use error::{FileError, FileResult};
pub use traits::{BatchReader, BatchWriter, ReadProgress};
