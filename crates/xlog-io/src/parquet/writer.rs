//! Writes Parquet, compressed with Snappy.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::{
    arrow::ArrowWriter, basic::Compression, errors::ParquetError,
    file::properties::WriterProperties,
};

use crate::{output::Output, plain_writer::Encoder};

/// A Parquet file.
pub(crate) struct ParquetEncoder(ArrowWriter<Output>);

impl Encoder for ParquetEncoder {
    type Error = ParquetError;

    fn start(output: Output, schema: &SchemaRef) -> Result<Self, ParquetError> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        ArrowWriter::try_new(output, Arc::clone(schema), Some(properties)).map(Self)
    }

    fn encode(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        self.0.write(batch)
    }

    fn end(self) -> Result<Output, ParquetError> {
        self.0.into_inner()
    }
}
