//! Writes Arrow IPC files.

use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};

use crate::{output::Output, plain_writer::Encoder};

/// An Arrow file.
pub(crate) struct IpcEncoder(FileWriter<Output>);

impl Encoder for IpcEncoder {
    type Error = ArrowError;

    fn start(output: Output, schema: &SchemaRef) -> Result<Self, ArrowError> {
        FileWriter::try_new(output, schema).map(Self)
    }

    fn encode(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        self.0.write(batch)
    }

    fn end(self) -> Result<Output, ArrowError> {
        self.0.into_inner()
    }
}
