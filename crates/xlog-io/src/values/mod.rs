//! From the text of a field to a value, and nothing else.
//!
//! Every function takes a field without quotes and without space around it, and answers `None` for
//! whatever is not wholly a value of its type.

mod decimal;
mod float;
mod time;
mod word;

pub(crate) use self::{
    decimal::{parse_i32, parse_i64, parse_u32, parse_u64},
    float::{parse_f32, parse_f64},
    time::{parse_date, parse_timestamp},
};

/// `true` or `false`, as programs and spreadsheets write them.
pub(crate) fn parse_bool(text: &[u8]) -> Option<bool> {
    match text {
        b"true" | b"True" | b"TRUE" => Some(true),
        b"false" | b"False" | b"FALSE" => Some(false),
        _ => None,
    }
}

/// Whether digits are a code rather than a number: as a number they would lose a zero or a plus in
/// front.
#[inline]
pub(crate) fn is_code(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0', next, ..] => next.is_ascii_digit(),
        [b'+', ..] => true,
        _ => false,
    }
}
