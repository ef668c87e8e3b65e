//! Writes Parquet, compressed with Snappy.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::{arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties};

use crate::{
    cells::check_schema,
    error::FileResult,
    output::{Failure, Output},
    plain::{plain_schema, plain_slices},
    traits::BatchWriter,
};

/// A Parquet file under way.
pub(crate) struct ParquetWriter {
    writer: ArrowWriter<Output>,
    schema: SchemaRef,
    failure: Failure,
    name: String,
}

impl ParquetWriter {
    /// Starts a file.
    pub(crate) fn create(output: Output, schema: &SchemaRef) -> FileResult<Self> {
        check_schema(&output.name, schema)?;
        let (name, failure) = (output.name.clone(), output.failure());
        let schema = plain_schema(schema);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(output, Arc::clone(&schema), Some(properties));
        let writer = writer.map_err(|error| failure.error(&name, error))?;
        Ok(Self { writer, schema, failure, name })
    }
}

impl BatchWriter for ParquetWriter {
    fn write(&mut self, batch: &RecordBatch) -> FileResult<()> {
        for slice in plain_slices(batch, &self.schema) {
            let slice = slice.map_err(|error| self.failure.error(&self.name, error))?;
            let written = self.writer.write(&slice);
            written.map_err(|error| self.failure.error(&self.name, error))?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> FileResult<()> {
        let Self { writer, failure, name, .. } = *self;
        let output = writer.into_inner().map_err(|error| failure.error(&name, error))?;
        output.finish()
    }
}
