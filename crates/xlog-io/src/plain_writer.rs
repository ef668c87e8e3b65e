//! A writer for formats that keep whole batches, by the crates that know them.

use std::fmt::Display;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::{
    cells::check_schema,
    error::FileResult,
    output::{CompleteFile, Failure, Output},
    plain::{plain_schema, plain_slices},
    traits::BatchWriter,
};

/// What a format's own writer does.
pub(crate) trait Encoder: Send + Sized {
    type Error: Display;

    /// Starts a file.
    fn start(output: Output, schema: &SchemaRef) -> Result<Self, Self::Error>;

    /// Writes rows.
    fn encode(&mut self, batch: &RecordBatch) -> Result<(), Self::Error>;

    /// Writes what is left.
    fn end(self) -> Result<Output, Self::Error>;
}

/// A file under way. Its text is plain: an Arrow file holds one dictionary for a column, and
/// batches come with one each.
pub(crate) struct PlainWriter<E> {
    encoder: E,
    schema: SchemaRef,
    failure: Failure,
    name: String,
}

impl<E: Encoder> PlainWriter<E> {
    /// Starts a file.
    pub(crate) fn create(output: Output, schema: &SchemaRef) -> FileResult<Self> {
        check_schema(&output.name, schema)?;
        let (name, failure) = (output.name.clone(), output.failure());
        let schema = plain_schema(schema);
        let encoder = E::start(output, &schema).map_err(|error| failure.error(&name, error))?;
        Ok(Self { encoder, schema, failure, name })
    }
}

impl<E: Encoder> BatchWriter for PlainWriter<E> {
    fn write(&mut self, batch: &RecordBatch) -> FileResult<()> {
        for slice in plain_slices(batch, &self.schema) {
            let slice = slice.map_err(|error| self.failure.error(&self.name, error))?;
            let written = self.encoder.encode(&slice);
            written.map_err(|error| self.failure.error(&self.name, error))?;
        }
        Ok(())
    }

    fn complete(self: Box<Self>) -> FileResult<CompleteFile> {
        let Self { encoder, failure, name, .. } = *self;
        encoder.end().map_err(|error| failure.error(&name, error))?.complete()
    }
}
