//! The batches of files that are text.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parking_lot::Mutex;

use super::{
    line_of,
    split::{Opened, Piece, Spare, Splitter, StartOf},
};
use crate::{
    error::{FileError, FileResult},
    ordered::Ordered,
    spec::InputSpec,
    traits::{BatchReader, ReadProgress},
};

/// Reads a piece of a file into a batch. Lines in its errors are counted from the piece's first.
pub(crate) trait PieceWork: Send + 'static {
    /// Reads one piece, which starts at the start of a row.
    fn read(&mut self, file: &str, text: &[u8]) -> FileResult<RecordBatch>;
}

/// The batches of one or more files of text.
#[derive(Debug)]
pub(crate) struct TextReader {
    schema: SchemaRef,
    pieces: Ordered<PieceResult>,
    progress: ReadProgress,
    /// Lines of the current file before the next piece.
    lines: u64,
}

/// A piece that was read, well or not.
struct PieceResult {
    first_after: Option<u64>,
    lines: u64,
    consumed: u64,
    batch: FileResult<RecordBatch>,
}

const TOO_LONG: &str = "a row that starts here is longer than 64 MiB; if a quote in it is not \
    closed, close it, or switch quotes off with --quote none";

impl TextReader {
    /// Starts reading, with one `worker` for each thread.
    pub(crate) fn start<W: PieceWork>(
        spec: &InputSpec,
        schema: SchemaRef,
        inputs: Vec<Opened>,
        start_of: StartOf,
        quote: Option<u8>,
        worker: impl Fn() -> W,
    ) -> FileResult<Self> {
        let bytes_total = inputs.iter().map(|opened| opened.input.size).sum();
        let spare: Spare = Arc::new(Mutex::new(Vec::new()));
        let block_bytes = spec.block_bytes;
        let source = Splitter::new(inputs, start_of, quote, block_bytes, Arc::clone(&spare));
        let pieces = Ordered::new(spec.threads(), source, || {
            let mut worker = worker();
            let spare = Arc::clone(&spare);
            move |piece: Piece| {
                let batch = match piece.too_long {
                    false => worker.read(&piece.file, &piece.text),
                    true => Err(FileError::new(&*piece.file, TOO_LONG).at_line(1)),
                };
                let lines = line_of(&piece.text, piece.text.len()) - 1;
                let Piece { first_after, consumed, text, .. } = piece;
                spare.lock().push(text);
                Ok(PieceResult { first_after, lines, consumed, batch })
            }
        });
        let progress = ReadProgress { bytes_read: 0, bytes_total };
        Ok(Self { schema, pieces, progress, lines: 0 })
    }
}

impl BatchReader for TextReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn next_batch(&mut self) -> FileResult<Option<RecordBatch>> {
        while let Some(read) = self.pieces.next()? {
            self.lines = read.first_after.unwrap_or(self.lines);
            self.progress.bytes_read = read.consumed;
            let batch = read.batch.map_err(|mut error| {
                self.pieces.stop();
                error.line = error.line.map(|line| line + self.lines);
                error
            })?;
            self.lines += read.lines;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn progress(&self) -> ReadProgress {
        self.progress
    }
}
