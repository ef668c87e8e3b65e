//! Writes Arrow IPC files.

use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use arrow_schema::SchemaRef;

use crate::{
    cells::check_schema,
    error::FileResult,
    output::{Failure, Output},
    plain::{plain_schema, plain_slices},
    traits::BatchWriter,
};

/// An Arrow file under way. Its text is plain: a file holds one dictionary for a column, and
/// batches come with one each.
pub(crate) struct IpcWriter {
    writer: FileWriter<Output>,
    schema: SchemaRef,
    failure: Failure,
    name: String,
}

impl IpcWriter {
    /// Starts a file.
    pub(crate) fn create(output: Output, schema: &SchemaRef) -> FileResult<Self> {
        check_schema(&output.name, schema)?;
        let (name, failure) = (output.name.clone(), output.failure());
        let schema = plain_schema(schema);
        let writer = FileWriter::try_new(output, &schema);
        let writer = writer.map_err(|error| failure.error(&name, error))?;
        Ok(Self { writer, schema, failure, name })
    }
}

impl BatchWriter for IpcWriter {
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
