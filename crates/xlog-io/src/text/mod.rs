//! Formats that are text: cut into pieces at the ends of rows, which are read side by side.

mod reader;
mod scan;
mod split;
mod survey;

pub(crate) use self::{
    reader::{PieceWork, TextReader},
    scan::{Block, WIDTH, running_parity},
    split::{HEAD_BYTES, Opened, last_row_end},
    survey::samples_within,
};

/// The line, counted from 1, of a place in a text.
pub(crate) fn line_of(text: &[u8], at: usize) -> u64 {
    memchr::memchr_iter(b'\n', &text[..at.min(text.len())]).count() as u64 + 1
}

/// A piece of a text for a message: its start, and nothing that a terminal would obey.
pub(crate) fn shown(text: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(text);
    let short: String = text.chars().take(MOST).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{dots}")
}

/// Refuses what is text of another kind than UTF-8. The answer is how many bytes of a byte order
/// mark there are.
pub(crate) fn check_encoding(file: &str, head: &[u8]) -> crate::FileResult<usize> {
    if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
        let message = "it is UTF-16; convert it to UTF-8, as with iconv -f UTF-16";
        return Err(crate::FileError::new(file, message));
    }
    Ok(if head.starts_with(&[0xef, 0xbb, 0xbf]) { 3 } else { 0 })
}
