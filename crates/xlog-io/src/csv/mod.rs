//! CSV: fields with a delimiter between them, rows with a newline after them.
//!
//! In a piece of text the ends of fields are found ([`index`]) and the fields read, one column
//! after the other ([`fields`], [`piece`]), as the types that a look at the files suggests
//! ([`reader`], [`infer`]).

mod fields;
mod index;
mod infer;
mod piece;
mod preamble;
mod reader;
mod writer;

pub(crate) use self::{reader::open_csv, writer::CsvWriter};
