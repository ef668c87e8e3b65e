//! From the text of a field to a value, and nothing else.
//!
//! Every function takes a field without quotes and without space around it, and answers `None` for
//! whatever is not wholly a value of its type.

mod decimal;
mod float;
mod time;

pub(crate) use self::{
    decimal::{parse_i32, parse_i64, parse_u32, parse_u64},
    float::{parse_f32, parse_f64},
    time::{civil_of_days, parse_date, parse_timestamp},
};

/// `true` or `false`, as programs and spreadsheets write them.
pub(crate) fn parse_bool(text: &[u8]) -> Option<bool> {
    match text {
        b"true" | b"True" | b"TRUE" => Some(true),
        b"false" | b"False" | b"FALSE" => Some(false),
        _ => None,
    }
}
