//! The values of a batch, one at a time, for formats that are text.

use std::fmt;

use arrow_array::{
    Array, ArrayRef, BooleanArray, LargeStringArray, PrimitiveArray, StringArray, StringViewArray,
    cast::AsArray,
    types::{
        Date32Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
        UInt32Type, UInt64Type,
    },
};
use arrow_schema::{DataType, SchemaRef, TimeUnit};
use xlog_core::calendar::civil_from_days;

use crate::{
    column_type::ColumnType,
    error::{FileError, FileResult},
};

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'c> {
    Missing,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    F32(f32),
    F64(f64),
    /// Days from 1970-01-01.
    Date(i32),
    /// Microseconds from the start of 1970.
    Timestamp(i64),
    Text(&'c str),
}

/// A column whose values are asked for one at a time.
pub(crate) enum Cells<'c> {
    Bool(&'c BooleanArray),
    U32(&'c PrimitiveArray<UInt32Type>),
    U64(&'c PrimitiveArray<UInt64Type>),
    I32(&'c PrimitiveArray<Int32Type>),
    I64(&'c PrimitiveArray<Int64Type>),
    F32(&'c PrimitiveArray<Float32Type>),
    F64(&'c PrimitiveArray<Float64Type>),
    Date(&'c PrimitiveArray<Date32Type>),
    Timestamp(&'c PrimitiveArray<TimestampMicrosecondType>),
    Text(&'c StringArray),
    LargeText(&'c LargeStringArray),
    TextView(&'c StringViewArray),
    Dictionary { keys: Vec<usize>, array: &'c dyn Array, values: Box<Cells<'c>> },
}

impl<'c> Cells<'c> {
    /// The values of an array, if it is of a type that [`check_schema`] lets through.
    pub(crate) fn new(array: &'c ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Boolean => Self::Bool(array.as_boolean()),
            DataType::UInt32 => Self::U32(array.as_primitive()),
            DataType::UInt64 => Self::U64(array.as_primitive()),
            DataType::Int32 => Self::I32(array.as_primitive()),
            DataType::Int64 => Self::I64(array.as_primitive()),
            DataType::Float32 => Self::F32(array.as_primitive()),
            DataType::Float64 => Self::F64(array.as_primitive()),
            DataType::Date32 => Self::Date(array.as_primitive()),
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                Self::Timestamp(array.as_primitive())
            }
            DataType::Utf8 => Self::Text(array.as_string()),
            DataType::LargeUtf8 => Self::LargeText(array.as_string()),
            DataType::Utf8View => Self::TextView(array.as_string_view()),
            DataType::Dictionary(_, _) => {
                let dictionary = array.as_any_dictionary_opt()?;
                let values = Box::new(Self::new(dictionary.values())?);
                // An empty dictionary has no keys to normalise, and no row has a value.
                let keys = match dictionary.values().is_empty() {
                    true => Vec::new(),
                    false => dictionary.normalized_keys(),
                };
                Self::Dictionary { keys, array, values }
            }
            _ => return None,
        })
    }

    /// The value of a row.
    pub(crate) fn get(&self, row: usize) -> Cell<'c> {
        macro_rules! cell {
            ($array:expr, $kind:ident) => {
                match $array.is_null(row) {
                    true => Cell::Missing,
                    false => Cell::$kind($array.value(row).into()),
                }
            };
        }
        match self {
            Self::Bool(array) => cell!(array, Bool),
            Self::U32(array) => cell!(array, Unsigned),
            Self::U64(array) => cell!(array, Unsigned),
            Self::I32(array) => cell!(array, Signed),
            Self::I64(array) => cell!(array, Signed),
            Self::F32(array) => cell!(array, F32),
            Self::F64(array) => cell!(array, F64),
            Self::Date(array) => cell!(array, Date),
            Self::Timestamp(array) => cell!(array, Timestamp),
            Self::Text(array) => cell!(array, Text),
            Self::LargeText(array) => cell!(array, Text),
            Self::TextView(array) => cell!(array, Text),
            Self::Dictionary { keys, array, values } => match keys.get(row) {
                Some(key) if !array.is_null(row) => values.get(*key),
                _ => Cell::Missing,
            },
        }
    }
}

/// Refuses columns of types that no format here writes.
pub(crate) fn check_schema(file: &str, schema: &SchemaRef) -> FileResult<()> {
    for field in schema.fields() {
        if ColumnType::of_arrow(field.data_type()).is_none() {
            let message =
                format!("its type {} cannot be written; leave the column out", field.data_type());
            return Err(FileError::new(file, message).in_column(field.name()));
        }
    }
    Ok(())
}

/// A day as ISO 8601 writes it.
pub(crate) struct Day(pub(crate) i64);

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0);
        match year {
            0..=9999 => write!(f, "{year:04}-{month:02}-{day:02}"),
            _ => write!(f, "{year:+07}-{month:02}-{day:02}"),
        }
    }
}

/// A moment as ISO 8601 writes it, with a fraction only if it has one.
pub(crate) struct Moment(pub(crate) i64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: i64 = 1_000_000;
        let seconds = self.0.div_euclid(SECOND);
        let of_day = seconds.rem_euclid(86_400);
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        write!(f, "{}T{hour:02}:{minute:02}:{second:02}", Day(seconds.div_euclid(86_400)))?;
        match self.0.rem_euclid(SECOND) {
            0 => Ok(()),
            fraction => write!(f, ".{fraction:06}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{parse_date, parse_timestamp};

    #[test]
    fn days_and_moments_are_read_back() {
        for days in [0, -1, 11_016, i32::MIN, i32::MAX, -719_528, -719_529, 2_932_897] {
            let text = Day(days.into()).to_string();
            assert_eq!(parse_date(text.as_bytes()), Some(days), "{text}");
        }
        for moment in [0, -1, 1, i64::MIN, i64::MAX, 1_700_000_000_000_000, 253_402_300_800_000_000]
        {
            let text = Moment(moment).to_string();
            assert_eq!(parse_timestamp(text.as_bytes()), Some(moment), "{text}");
        }
        assert_eq!(Moment(1_500_000).to_string(), "1970-01-01T00:00:01.500000");
    }
}
