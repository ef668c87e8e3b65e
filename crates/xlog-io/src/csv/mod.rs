//! CSV: fields with a delimiter between them, rows with a newline after them.
//!
//! A text is cut into pieces at the ends of rows ([`split`]); in each piece the ends of fields are
//! found ([`index`]) and the fields read, one column after the other ([`fields`], [`piece`]).
//! Pieces are read side by side and leave in order ([`reader`]).

mod fields;
mod index;
mod infer;
mod piece;
mod preamble;
mod reader;
mod scan;
mod split;
mod writer;

pub(crate) use self::{reader::CsvReader, writer::CsvWriter};
