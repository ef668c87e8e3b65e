//! What is wrong with a text, and where.

use std::fmt;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A text that cannot be read: what is wrong, and a mark under the place.
///
/// ```
/// let error = xlog_query::parse::expression("amount >> 100").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "expected a value after \">\", found \">\"\n  amount >> 100\n          ^"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What is wrong, and what to do.
    pub message: String,
    /// The text that was read.
    pub text: String,
    /// The byte of the text at which it went wrong; its length stands for the end.
    pub at: usize,
}

/// Columns of text shown before and after the place.
const SHOWN: usize = 60;

impl ParseError {
    pub(crate) fn new(message: impl Into<String>, text: &str, at: usize) -> Self {
        Self { message: message.into(), text: text.to_owned(), at }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.text.floor_char_boundary(self.at);
        let (before, after) = self.text.split_at(at);
        // A control character takes a column of its own, so that the mark stays under its place.
        let plain = |text: &str| -> String {
            text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
        };
        let (before, after) = (plain(before), plain(after));
        let start = tail_within(&before, SHOWN);
        let end = head_within(&after, SHOWN);
        let lead = if start > 0 { "…" } else { "" };
        let trail = if end < after.len() { "…" } else { "" };
        let shown = &before[start..];
        writeln!(f, "{}", self.message)?;
        writeln!(f, "  {lead}{shown}{}{trail}", &after[..end])?;
        write!(f, "  {}^", " ".repeat(lead.width() + shown.width()))
    }
}

impl std::error::Error for ParseError {}

/// Where the last `most` columns of a text begin.
fn tail_within(text: &str, most: usize) -> usize {
    let mut width = 0;
    for (index, letter) in text.char_indices().rev() {
        width += letter.width().unwrap_or(0);
        if width > most {
            return index + letter.len_utf8();
        }
    }
    0
}

/// Where the first `most` columns of a text end.
fn head_within(text: &str, most: usize) -> usize {
    let mut width = 0;
    for (index, letter) in text.char_indices() {
        width += letter.width().unwrap_or(0);
        if width > most {
            return index;
        }
    }
    text.len()
}
