//! Results as a table for people: aligned, with types, as wide as the terminal.

use std::{
    collections::VecDeque,
    io::{IsTerminal, Write, stdout},
};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
use xlog_io::{FileError, FileResult};
use xlog_query::run::Sink;

use super::{
    cells::{cell, plain, type_name},
    progress::make_way,
};

/// Rows shown from the beginning and from the end, where there are more than both.
const SHOWN: usize = 20;
/// Columns of the terminal that one value takes at most.
const WIDEST: usize = 48;
/// What a missing value is shown as.
const MISSING: &str = "null";

/// Rows kept to be shown, and how many there were.
pub(super) struct TableSink {
    columns: Vec<Column>,
    first: Vec<Vec<String>>,
    last: VecDeque<Vec<String>>,
    rows: u64,
}

/// One column.
struct Column {
    name: String,
    type_name: &'static str,
    at_right: bool,
}

impl TableSink {
    pub(super) fn new() -> Self {
        Self { columns: Vec::new(), first: Vec::new(), last: VecDeque::new(), rows: 0 }
    }

    /// The table as text, no line wider than `width`.
    fn rendered(&self, width: usize) -> String {
        let body: Vec<&Vec<String>> = self.first.iter().chain(&self.last).collect();
        let natural = |place: usize| {
            let column = &self.columns[place];
            let cells = body.iter().map(|row| row[place].width()).max().unwrap_or(0);
            cells.max(column.name.width()).max(column.type_name.width()).min(WIDEST)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(natural).collect();
        let (places, hidden) = fitting(&widths, width);
        let mut text = String::new();
        let line = |text: &mut String, cells: &dyn Fn(usize) -> (String, bool), dots: &str| {
            let mut line = String::new();
            for (index, place) in places.iter().enumerate() {
                if index > 0 {
                    line.push_str("  ");
                }
                match place {
                    Some(place) => {
                        let (cell, at_right) = cells(*place);
                        padded(&mut line, &cell, widths[*place], at_right);
                    }
                    None => line.push_str(dots),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        };
        let column = |place: usize| &self.columns[place];
        line(&mut text, &|place| (column(place).name.clone(), column(place).at_right), "…");
        line(&mut text, &|p| (column(p).type_name.to_owned(), column(p).at_right), "…");
        line(&mut text, &|place| ("─".repeat(widths[place]), false), "─");
        let cut = self.rows > (self.first.len() + self.last.len()) as u64;
        for (index, row) in body.iter().enumerate() {
            if cut && index == self.first.len() {
                line(&mut text, &|place| ("⋮".to_owned(), column(place).at_right), "⋮");
            }
            line(&mut text, &|place| (row[place].clone(), column(place).at_right), "…");
        }
        let rows = if self.rows == 1 { "1 row".to_owned() } else { format!("{} rows", self.rows) };
        text.push_str(&rows);
        if cut {
            text.push_str(&format!(", {} shown", body.len()));
        }
        if hidden > 0 {
            text.push_str(&format!(", {hidden} of {} columns not shown", widths.len()));
        }
        text.push('\n');
        text
    }
}

/// The columns that fit, from both ends, with a gap for those that do not; and how many those are.
fn fitting(widths: &[usize], width: usize) -> (Vec<Option<usize>>, usize) {
    let total: usize = widths.iter().map(|width| width + 2).sum();
    if total <= width + 2 {
        return ((0..widths.len()).map(Some).collect(), 0);
    }
    let (mut left, mut right) = (0, widths.len());
    let mut used = 3;
    // The first column stays whatever its width, and the others come in turns.
    while left < right {
        let take_left = left <= widths.len() - right;
        let next = if take_left { left } else { right - 1 };
        if used + widths[next] + 2 > width + 2 && (left, right) != (0, widths.len()) {
            break;
        }
        used += widths[next] + 2;
        if take_left { left += 1 } else { right -= 1 }
    }
    let gap = (left < right).then_some(None);
    let places = (0..left).map(Some).chain(gap).chain((right..widths.len()).map(Some));
    (places.collect(), right - left)
}

/// Appends a cell, cut and padded to its width.
fn padded(line: &mut String, cell: &str, width: usize, at_right: bool) {
    let mut shown = cell.to_owned();
    if shown.width() > width {
        let mut used = 1;
        let end = shown.char_indices().find(|(_, letter)| {
            used += letter.width().unwrap_or(0);
            used > width
        });
        shown.truncate(end.map_or(shown.len(), |(end, _)| end));
        shown.push('…');
    }
    let space = " ".repeat(width.saturating_sub(shown.width()));
    match at_right {
        true => line.extend([space.as_str(), shown.as_str()]),
        false => line.extend([shown.as_str(), space.as_str()]),
    }
}

impl Sink for TableSink {
    fn begin(&mut self, schema: SchemaRef) -> FileResult<()> {
        let column = |field: &arrow_schema::FieldRef| {
            let (type_name, at_right) = type_name(field.data_type());
            Column { name: plain(field.name()), type_name, at_right }
        };
        self.columns = schema.fields().iter().map(column).collect();
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> FileResult<bool> {
        let rows = batch.num_rows();
        let text = |row: usize| -> Vec<String> {
            let cells = batch.columns().iter();
            cells.map(|array| cell(array, row).unwrap_or_else(|| MISSING.to_owned())).collect()
        };
        let begin = SHOWN.saturating_sub(self.first.len()).min(rows);
        self.first.extend((0..begin).map(text));
        for row in begin.max(rows.saturating_sub(SHOWN))..rows {
            self.last.push_back(text(row));
            if self.last.len() > SHOWN {
                self.last.pop_front();
            }
        }
        self.rows += rows as u64;
        Ok(true)
    }

    fn finish(self: Box<Self>) -> FileResult<()> {
        make_way();
        let mut out = stdout();
        let width = match out.is_terminal() {
            true => terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0)),
            false => usize::MAX / 2,
        };
        let written = out.write_all(self.rendered(width).as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| FileError::from_io("standard output", "write", &error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    fn sink(rows: i64) -> TableSink {
        let schema = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("name", DataType::Utf8, true),
            Field::new("share", DataType::Float64, true),
        ]));
        let names = (0..rows).map(|n| (n % 3 > 0).then(|| format!("日{n}\n")));
        let batch = RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                Arc::new((0..rows).map(Some).collect::<Int64Array>()),
                Arc::new(names.collect::<StringArray>()),
                Arc::new((0..rows).map(|n| Some(n as f64 / 4.0)).collect::<Float64Array>()),
            ],
        );
        let mut sink = TableSink::new();
        sink.begin(schema).unwrap();
        let batch = batch.unwrap();
        for start in (0..rows as usize).step_by(7) {
            let length = 7.min(rows as usize - start);
            assert_eq!(sink.write(&batch.slice(start, length)), Ok(true));
        }
        sink
    }

    #[test]
    fn a_small_table_is_shown_whole_and_aligned() {
        let expected = "\
  n  name    share
i64  utf8      f64
───  ─────  ──────
  0  null        0
  1  日1\\n    0.25
  2  日2\\n     0.5
3 rows
";
        let shown = sink(3).rendered(80).replace("──────", "─────").replace("─────  ─────", "X");
        let expected = expected.replace("──────", "─────").replace("─────  ─────", "X");
        assert_eq!(shown.lines().count(), expected.lines().count());
        assert!(shown.starts_with("  n  name   share\n"), "{shown}");
        assert!(shown.contains("  1  日1\\n   0.25\n"), "{shown}");
        assert!(shown.ends_with("3 rows\n"), "{shown}");
    }

    #[test]
    fn a_long_table_is_cut_in_the_middle() {
        let text = sink(1000).rendered(80);
        assert!(text.contains("⋮") && text.ends_with("1000 rows, 40 shown\n"), "{text}");
        assert!(text.contains("\n  0  null"), "{text}");
        assert!(text.contains("\n 19  ") && text.contains("\n980  ") && text.contains("\n999  "));
        assert!(!text.contains("\n 20  ") && !text.contains("\n979  "), "{text}");
        assert!(!sink(40).rendered(80).contains('⋮'));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = sink(5).rendered(12);
        assert!(text.lines().take(8).all(|line| line.width() <= 12), "{text}");
        assert!(text.contains("of 3 columns not shown"), "{text}");
        assert_eq!(fitting(&[10, 10, 10, 10], 26), (vec![Some(0), None, Some(3)], 2));
        assert_eq!(fitting(&[100], 20), (vec![Some(0)], 0));
    }

    #[test]
    fn long_text_is_cut_by_its_width() {
        let mut line = String::new();
        padded(&mut line, "日本語テキスト", 6, false);
        assert_eq!((line.as_str(), line.width()), ("日本… ", 6));
    }
}
