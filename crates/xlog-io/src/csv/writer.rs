//! Writes CSV: quotes only where they are needed, and numbers that are read back as they were.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::{
    cells::{Cell, Cells, Day, Moment, check_schema},
    error::{FileError, FileResult},
    output::{CompleteFile, Output},
    traits::BatchWriter,
};

/// Bytes that are gathered before they are written.
const GATHERED: usize = 1 << 18;

/// A CSV file under way.
pub(crate) struct CsvWriter {
    output: Output,
    delimiter: u8,
    lines: Vec<u8>,
}

impl CsvWriter {
    /// Starts a file with the names of the columns.
    pub(crate) fn create(output: Output, schema: &SchemaRef, delimiter: u8) -> FileResult<Self> {
        check_schema(&output.name, schema)?;
        if schema.fields().is_empty() {
            return Err(FileError::new(&output.name, "a table without columns has no CSV form"));
        }
        let mut writer = Self { output, delimiter, lines: Vec::new() };
        for (number, field) in schema.fields().iter().enumerate() {
            if number > 0 {
                writer.lines.push(delimiter);
            }
            writer.text(field.name());
        }
        writer.lines.push(b'\n');
        Ok(writer)
    }

    /// A text, in quotes if it would be read as something else without them.
    fn text(&mut self, text: &str) {
        let special = |byte: &u8| matches!(byte, b'"' | b'\n' | b'\r') || *byte == self.delimiter;
        let needs = text.is_empty()
            || text.as_bytes().iter().any(special)
            || (self.lines.is_empty() && text.starts_with('\u{feff}'));
        if !needs {
            self.lines.extend_from_slice(text.as_bytes());
            return;
        }
        self.lines.push(b'"');
        for byte in text.bytes() {
            if byte == b'"' {
                self.lines.push(b'"');
            }
            self.lines.push(byte);
        }
        self.lines.push(b'"');
    }

    fn cell(&mut self, cell: Cell<'_>) -> std::io::Result<()> {
        let lines = &mut self.lines;
        match cell {
            Cell::Missing => Ok(()),
            Cell::Bool(value) => write!(lines, "{value}"),
            Cell::Signed(value) => write!(lines, "{value}"),
            Cell::Unsigned(value) => write!(lines, "{value}"),
            // As Rust writes them for programmers: the shortest text that is read back as the same.
            Cell::F32(value) => write!(lines, "{value:?}"),
            Cell::F64(value) => write!(lines, "{value:?}"),
            Cell::Date(days) => write!(lines, "{}", Day(days.into())),
            Cell::Timestamp(moment) => write!(lines, "{}", Moment(moment)),
            Cell::Text(text) => {
                self.text(text);
                Ok(())
            }
        }
    }

    fn pass_on(&mut self) -> std::io::Result<()> {
        self.output.write_all(&self.lines)?;
        self.lines.clear();
        Ok(())
    }
}

impl BatchWriter for CsvWriter {
    fn write(&mut self, batch: &RecordBatch) -> FileResult<()> {
        let columns: Option<Vec<Cells<'_>>> = batch.columns().iter().map(Cells::new).collect();
        let columns = columns.ok_or_else(|| self.output.failed("a column of another type"))?;
        for row in 0..batch.num_rows() {
            for (number, column) in columns.iter().enumerate() {
                if number > 0 {
                    self.lines.push(self.delimiter);
                }
                self.cell(column.get(row)).map_err(|error| self.output.failed(error))?;
            }
            self.lines.push(b'\n');
            if self.lines.len() >= GATHERED {
                self.pass_on().map_err(|error| self.output.failed(error))?;
            }
        }
        Ok(())
    }

    fn complete(mut self: Box<Self>) -> FileResult<CompleteFile> {
        self.pass_on().map_err(|error| self.output.failed(error))?;
        self.output.complete()
    }
}
