//! What stands before the first row: a byte order mark, and the names of the columns.

use super::index::{Dialect, skip_empty_lines};
use crate::{
    error::{FileError, FileResult},
    spec::CsvOptions,
    text::check_encoding,
};

/// The start of a file, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Preamble {
    /// Bytes before the first row.
    pub(super) bytes: usize,
    /// Lines before the first row.
    pub(super) lines: u64,
    /// The names of the columns.
    pub(super) names: Vec<String>,
}

impl Preamble {
    /// Reads the start of a file. `whole` says that `head` is all of it.
    pub(super) fn read(
        file: &str,
        head: &[u8],
        whole: bool,
        dialect: Dialect,
        options: &CsvOptions,
    ) -> FileResult<Self> {
        let refuse = |message: &str| FileError::new(file, message);
        let start = check_encoding(file, head)?;
        let text = &head[start..];
        if memchr::memchr(b'\n', text).is_none()
            && memchr::memchr(b'\r', text).is_some()
            && whole
            && text.trim_ascii_end().contains(&b'\r')
        {
            return Err(refuse("its lines end in carriage returns alone; end them in newlines"));
        }
        let mut at = skip_empty_lines(text, 0, usize::MAX);
        if at == text.len() && !options.header {
            // Rows of one column, all of them missing.
            at = 0;
        }
        let lines_before = memchr::memchr_iter(b'\n', &text[..at]).count() as u64;
        if at == text.len() || (whole && text[at..] == *b"\r") {
            return Err(refuse(match options.header {
                true => "it is empty; its first line must name the columns",
                false => "it is empty; without a line its columns are not known",
            }));
        }
        let (fields, end) = match first_record(&text[at..], dialect, whole) {
            Ok(record) => record,
            Err(fault) => return Err(refuse(fault).at_line(lines_before + 1)),
        };
        let end = at + end;
        let names = match options.header {
            false => (1..=fields.len()).map(|number| format!("column{number}")).collect(),
            true => names(&fields).map_err(|message| refuse(&message).at_line(lines_before + 1))?,
        };
        let end = if options.header { end } else { 0 };
        let lines = memchr::memchr_iter(b'\n', &text[..end]).count() as u64;
        Ok(Self { bytes: start + end, lines, names })
    }
}

/// The names in a header. One without a name is called by its number.
fn names(fields: &[Vec<u8>]) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::with_capacity(fields.len());
    for (number, field) in (1..).zip(fields) {
        let name = std::str::from_utf8(field.trim_ascii())
            .map_err(|_| format!("the name of column {number} is not UTF-8; convert the file"))?;
        let name = if name.is_empty() { format!("column{number}") } else { name.to_owned() };
        if names.contains(&name) {
            return Err(format!("two columns are called {name:?}; rename one of them"));
        }
        names.push(name);
    }
    Ok(names)
}

/// The fields of the first record, and where the next one starts.
fn first_record(
    text: &[u8],
    dialect: Dialect,
    whole: bool,
) -> Result<(Vec<Vec<u8>>, usize), &'static str> {
    let mut fields = vec![Vec::new()];
    let mut within = false;
    let mut quoted = false;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let field = fields.last_mut().ok_or("a record without fields")?;
        let is_quote = dialect.quote == Some(*byte);
        if within {
            if !is_quote {
                field.push(*byte);
            } else if text.get(at + 1) == Some(byte) {
                field.push(*byte);
                at += 1;
            } else {
                within = false;
            }
        } else if *byte == b'\n' || (*byte == b'\r' && text.get(at + 1) == Some(&b'\n')) {
            return Ok((fields, at + if *byte == b'\n' { 1 } else { 2 }));
        } else if *byte == dialect.delimiter {
            fields.push(Vec::new());
            quoted = false;
        } else if is_quote && field.is_empty() && !quoted {
            within = true;
            quoted = true;
        } else if is_quote || quoted {
            return Err(STRAY_QUOTE);
        } else {
            field.push(*byte);
        }
        at += 1;
    }
    match (within, whole) {
        (true, true) => Err(OPEN_QUOTE),
        (_, false) => Err("the first line is longer than 256 KiB; is this CSV?"),
        (false, true) => Ok((fields, at)),
    }
}

/// What to say of a quote where none may be.
pub(super) const STRAY_QUOTE: &str = "a quote stands within a field, or text after a closing one; \
    put the whole field in quotes and write those in it twice, or switch quotes off with \
    --quote none";

/// What to say of a quote that is not closed.
pub(super) const OPEN_QUOTE: &str =
    "a quote opens here and is never closed; close it, or switch quotes off with --quote none";

/// The delimiter of a text that nobody gave one for.
pub(super) fn guess_delimiter(head: &[u8], quote: Option<u8>) -> u8 {
    let start = if head.starts_with(&[0xef, 0xbb, 0xbf]) { 3 } else { 0 };
    let mut within = false;
    let mut found = Vec::new();
    for byte in &head[skip_empty_lines(head, start, usize::MAX)..] {
        within ^= quote == Some(*byte);
        match byte {
            b'\n' if !within => break,
            b',' | b';' | b'\t' | b'|' if !within => found.push(*byte),
            _ => {}
        }
    }
    let candidates = [b',', b';', b'\t', b'|'];
    candidates.into_iter().find(|candidate| found.contains(candidate)).unwrap_or(b',')
}
