//! What every format's reader and writer does.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::{error::FileResult, output::CompleteFile};

/// How much of an input has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadProgress {
    /// Bytes of the files, as they lie on disk, that were consumed.
    pub bytes_read: u64,
    /// Bytes there are in all; `None` where nobody knows (standard input).
    pub bytes_total: Option<u64>,
}

/// Hands out a table in batches of rows, first to last.
pub trait BatchReader: Send {
    /// The columns of every batch.
    fn schema(&self) -> SchemaRef;

    /// The next batch, in the order of the input, or `None` after the last one.
    fn next_batch(&mut self) -> FileResult<Option<RecordBatch>>;

    /// How far the reader is.
    fn progress(&self) -> ReadProgress;
}

/// Takes a table in batches of rows.
///
/// Dropping a writer that was not finished leaves nothing behind: a file of that name stays what it
/// was.
pub trait BatchWriter: Send {
    /// Writes the rows of one batch after those before it.
    fn write(&mut self, batch: &RecordBatch) -> FileResult<()>;

    /// Writes what is left. The file has yet to get its name: of several that belong together, none
    /// should appear before all are complete.
    fn complete(self: Box<Self>) -> FileResult<CompleteFile>;

    /// Writes what is left and makes the output appear under its name.
    fn finish(self: Box<Self>) -> FileResult<()> {
        self.complete()?.publish()
    }
}
