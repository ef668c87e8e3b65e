//! Arrow's own format, as a file and as a stream.

mod reader;
mod writer;

pub(crate) use self::{reader::IpcReader, writer::IpcEncoder};
