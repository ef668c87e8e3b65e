//! From a piece of text to a batch of rows.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::{
    fields::{Fields, Reading, bare},
    index::{Dialect, Fault, Index},
    preamble::{OPEN_QUOTE, STRAY_QUOTE},
};
use crate::{
    column_type::ColumnType,
    columns::Builder,
    error::{FileError, FileResult},
    text::{PieceWork, line_of, shown},
    values::{is_code, parse_f64},
};

/// Rows that are cut into fields before their columns are read: few enough that their text is still
/// in the processor's cache.
const ROWS_AT_ONCE: usize = 2048;

/// A column that is read.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Its place among all columns of the file.
    pub(super) place: usize,
    pub(super) name: String,
    pub(super) column_type: ColumnType,
    /// The type is what a sample looked like, rather than what the user said.
    pub(super) inferred: bool,
    pub(super) dictionary: bool,
}

/// How every piece is read.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) dialect: Dialect,
    pub(super) nulls: Vec<String>,
    /// Columns of the file, wanted or not.
    pub(super) columns: usize,
    pub(super) wanted: Vec<Wanted>,
    pub(super) schema: SchemaRef,
}

/// Reads pieces, one after the other, with memory that it keeps.
pub(super) struct PieceReader {
    plan: Arc<Plan>,
    ends: Vec<u32>,
}

impl PieceReader {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self { plan, ends: Vec::new() }
    }
}

impl PieceWork for PieceReader {
    fn read(&mut self, file: &str, text: &[u8]) -> FileResult<RecordBatch> {
        let plan = Arc::clone(&self.plan);
        let Plan { dialect, columns, .. } = *plan;
        let checked = std::str::from_utf8(text).is_ok();
        let reading = Reading { quote: dialect.quote, nulls: &plan.nulls, checked };
        let mut builders: Vec<Builder> =
            plan.wanted.iter().map(|w| Builder::new(w.column_type, w.dictionary)).collect();
        let mut index = Index::new(text, dialect, columns, std::mem::take(&mut self.ends));
        let mut rows = 0;
        loop {
            let fault = index.advance(ROWS_AT_ONCE);
            if rows == 0 && index.rows() > 0 {
                // About as many rows as there will be, if they are all as long as these.
                let end = index.field(index.rows() - 1, columns - 1).1 + 1;
                let expected = text.len() / end * index.rows() + 2 * index.rows();
                builders.iter_mut().for_each(|builder| builder.reserve(expected));
            }
            // Without a quote anywhere there is no need to look for one in every field.
            let quote = reading.quote.filter(|_| index.has_quotes());
            let reading = Reading { quote, ..reading };
            let mut bad: Option<(usize, usize)> = None;
            for (number, (wanted, builder)) in plan.wanted.iter().zip(&mut builders).enumerate() {
                let fields = Fields::new(text, &index, columns, wanted.place, reading);
                if let Some(row) = fields.read_into(builder, wanted.inferred) {
                    bad = bad.min(Some((row, number))).or(Some((row, number)));
                }
            }
            if let Some((row, number)) = bad {
                let wanted = &plan.wanted[number];
                let field = Fields::new(text, &index, columns, wanted.place, reading).get(row);
                let at = index.field(row, wanted.place).0;
                let line = line_of(text, super::index::skip_empty_lines(text, at, columns));
                let message = bad_value(wanted, reading, field);
                return Err(FileError::new(file, message).at_line(line).in_column(&wanted.name));
            }
            if let Some(fault) = fault {
                return Err(plan.fault(file, text, fault));
            }
            rows += index.rows();
            if index.rows() == 0 {
                break;
            }
        }
        self.ends = index.into_memory();
        let columns = builders.into_iter().map(Builder::finish).collect::<Result<_, _>>();
        let columns = columns.map_err(|message| FileError::new(file, message))?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&plan.schema), columns, &options)
            .map_err(|error| FileError::new(file, error.to_string()))
    }
}

impl Plan {
    fn fault(&self, file: &str, text: &[u8], fault: Fault) -> FileError {
        let message = match fault {
            Fault::StrayQuote { .. } => STRAY_QUOTE.to_owned(),
            Fault::OpenQuote { .. } => OPEN_QUOTE.to_owned(),
            Fault::Ragged { found, .. } => format!(
                "{} expected, {found} found; mend the line, or put fields that contain the \
                 delimiter in quotes",
                count(self.columns, "field"),
            ),
        };
        FileError::new(file, message).at_line(line_of(text, fault.at()))
    }
}

/// So many of something.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// What to say of a field that is not of its column's type.
fn bad_value(wanted: &Wanted, reading: Reading<'_>, field: &[u8]) -> String {
    let Wanted { name, column_type, inferred, .. } = wanted;
    let shown = shown(field);
    if *column_type == ColumnType::Utf8 || std::str::from_utf8(field).is_err() {
        return format!("{shown} is not UTF-8; convert the file, as with iconv -t UTF-8");
    }
    let text = bare(reading, field).unwrap_or_default();
    let better = match column_type {
        ColumnType::Date | ColumnType::Timestamp | ColumnType::Bool => ColumnType::Utf8,
        _ if is_code(&text) || parse_f64(&text).is_none() => ColumnType::Utf8,
        ColumnType::F32 | ColumnType::F64 => ColumnType::Utf8,
        _ => ColumnType::F64,
    };
    let what = match (is_code(&text) && *inferred, inferred) {
        (true, _) => format!("{shown} would change as {column_type}"),
        _ => format!("{shown} is no {column_type}"),
    };
    let from = match inferred {
        true => "which was inferred from a sample of the file",
        false => "which was given as the column's type",
    };
    let name = if name.contains(' ') {
        format!("\"{name}={better}\"")
    } else {
        format!("{name}={better}")
    };
    format!("{what}, {from}; give another type with --type {name}")
}
