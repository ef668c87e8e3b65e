//! Writes JSON lines.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::{
    cells::{Cell, Cells, Day, Moment, check_schema},
    error::FileResult,
    output::{CompleteFile, Output},
    traits::BatchWriter,
};

/// Bytes that are gathered before they are written.
const GATHERED: usize = 1 << 18;

/// A file of JSON lines under way. What JSON has no number for, as infinity, is written as `null`.
pub(crate) struct JsonLinesWriter {
    output: Output,
    /// Each column's name, with what stands before and after it.
    keys: Vec<Vec<u8>>,
    lines: Vec<u8>,
}

impl JsonLinesWriter {
    /// Starts a file.
    pub(crate) fn create(output: Output, schema: &SchemaRef) -> FileResult<Self> {
        check_schema(&output.name, schema)?;
        let mut keys = Vec::new();
        for (number, field) in schema.fields().iter().enumerate() {
            let mut key = if number == 0 { b"{".to_vec() } else { b",".to_vec() };
            serde_json::to_writer(&mut key, field.name()).map_err(|error| output.failed(error))?;
            key.push(b':');
            keys.push(key);
        }
        Ok(Self { output, keys, lines: Vec::new() })
    }

    fn row(&mut self, columns: &[Cells<'_>], row: usize) -> io::Result<()> {
        let lines = &mut self.lines;
        for (key, column) in self.keys.iter().zip(columns) {
            lines.extend_from_slice(key);
            match column.get(row) {
                Cell::Missing => lines.extend_from_slice(b"null"),
                Cell::Bool(value) => write!(lines, "{value}")?,
                Cell::Signed(value) => write!(lines, "{value}")?,
                Cell::Unsigned(value) => write!(lines, "{value}")?,
                Cell::F32(value) if value.is_finite() => write!(lines, "{value:?}")?,
                Cell::F64(value) if value.is_finite() => write!(lines, "{value:?}")?,
                Cell::F32(_) | Cell::F64(_) => lines.extend_from_slice(b"null"),
                Cell::Date(days) => write!(lines, "\"{}\"", Day(days.into()))?,
                Cell::Timestamp(moment) => write!(lines, "\"{}\"", Moment(moment))?,
                Cell::Text(text) => serde_json::to_writer(&mut *lines, text)?,
            }
        }
        lines.extend_from_slice(if self.keys.is_empty() { b"{}\n" } else { b"}\n" });
        if self.lines.len() >= GATHERED { self.pass_on() } else { Ok(()) }
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.output.write_all(&self.lines)?;
        self.lines.clear();
        Ok(())
    }
}

impl BatchWriter for JsonLinesWriter {
    fn write(&mut self, batch: &RecordBatch) -> FileResult<()> {
        let columns: Option<Vec<Cells<'_>>> = batch.columns().iter().map(Cells::new).collect();
        let columns = columns.ok_or_else(|| self.output.failed("a column of another type"))?;
        (0..batch.num_rows())
            .try_for_each(|row| self.row(&columns, row))
            .map_err(|error| self.output.failed(error))
    }

    fn complete(mut self: Box<Self>) -> FileResult<CompleteFile> {
        self.pass_on().map_err(|error| self.output.failed(error))?;
        self.output.complete()
    }
}
