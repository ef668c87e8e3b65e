//! Apache Parquet.

mod reader;
mod writer;

pub(crate) use self::{reader::ParquetReader, writer::ParquetEncoder};
