//! JSON lines: one object on each line, its keys the columns.

mod object;
mod reader;
mod writer;

pub(crate) use self::{reader::open_json_lines, writer::JsonLinesWriter};
