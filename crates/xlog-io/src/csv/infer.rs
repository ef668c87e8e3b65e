//! What a sample of a CSV file looks like.

use super::{
    fields::{Fields, Reading, bare},
    index::{Dialect, Index},
};
use crate::columns::Seen;

/// What the columns of a table looked like.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) columns: Vec<Seen>,
}

impl Sample {
    /// Nothing seen yet.
    pub(super) fn new(columns: usize) -> Self {
        Self { columns: vec![Seen::default(); columns] }
    }

    /// Looks at the rows of a text that starts at the start of one and ends at the end of one, up
    /// to the first fault; the answer is whether there was none.
    pub(super) fn look(&mut self, text: &[u8], dialect: Dialect, nulls: &[String]) -> bool {
        let count = self.columns.len();
        let reading = Reading { quote: dialect.quote, nulls, checked: false };
        let mut index = Index::new(text, dialect, count, Vec::new());
        loop {
            let fault = index.advance(1024);
            for (column, seen) in self.columns.iter_mut().enumerate() {
                let fields = Fields::new(text, &index, count, column, reading);
                for row in 0..index.rows() {
                    let field = fields.get(row);
                    if !reading.is_quoted(field) && reading.is_null(field) {
                        continue;
                    }
                    seen.count(field);
                    // Space, or nothing in quotes, is text if anything in the column is.
                    if let Some(text) = bare(reading, field) {
                        seen.look_at_field(&text);
                    }
                }
            }
            if fault.is_some() || index.rows() == 0 {
                return fault.is_none();
            }
        }
    }

    /// Looks at a text from somewhere within a file, which may start in the middle of a row. Rows
    /// are taken only if all of them are well formed.
    pub(super) fn look_within(&mut self, text: &[u8], dialect: Dialect, nulls: &[String]) {
        let newlines = memchr::memchr_iter(b'\n', text);
        let Some(last) = memchr::memrchr(b'\n', text) else { return };
        // A newline may stand within quotes, so a few are tried as the end of a row.
        for first in newlines.take(8) {
            let Some(rows) = text.get(first + 1..=last) else { return };
            let mut within = Self::new(self.columns.len());
            if within.look(rows, dialect, nulls) {
                for (seen, other) in self.columns.iter_mut().zip(&within.columns) {
                    seen.merge(other);
                }
                return;
            }
        }
    }
}
