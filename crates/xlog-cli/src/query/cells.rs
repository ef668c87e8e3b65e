//! Single values of a batch, for people.

use arrow_array::{
    Array,
    cast::AsArray,
    types::{
        Date32Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
        UInt32Type, UInt64Type,
    },
};
use arrow_schema::{DataType, TimeUnit};
use xlog_relational::calendar::{DateText, TimestampText};

/// The value of a row as text, on one line; `None` if it is missing.
pub(super) fn cell(array: &dyn Array, row: usize) -> Option<String> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float32 => array.as_primitive::<Float32Type>().value(row).to_string(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Date32 => DateText(array.as_primitive::<Date32Type>().value(row)).to_string(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            TimestampText(array.as_primitive::<TimestampMicrosecondType>().value(row)).to_string()
        }
        DataType::Utf8 => plain(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => plain(array.as_string::<i64>().value(row)),
        DataType::Utf8View => plain(array.as_string_view().value(row)),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary_opt()?;
            let key = dictionary.normalized_keys_at(row)?;
            return cell(dictionary.values().as_ref(), key);
        }
        other => format!("({other})"),
    })
}

/// The key of one row of a dictionary.
trait KeyAt {
    fn normalized_keys_at(&self, row: usize) -> Option<usize>;
}

impl KeyAt for dyn arrow_array::array::AnyDictionaryArray + '_ {
    fn normalized_keys_at(&self, row: usize) -> Option<usize> {
        let keys = self.keys();
        match keys.data_type() {
            DataType::UInt32 => Some(keys.as_primitive::<UInt32Type>().value(row) as usize),
            DataType::Int32 => usize::try_from(keys.as_primitive::<Int32Type>().value(row)).ok(),
            _ => self.normalized_keys().get(row).copied(),
        }
    }
}

/// A text with nothing in it that moves the cursor or changes colours.
pub(super) fn plain(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    let shown = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(shown).collect()
}

/// What a type is called, and whether its values stand at the right.
pub(super) fn type_name(data_type: &DataType) -> (&'static str, bool) {
    match data_type {
        DataType::UInt32 => ("u32", true),
        DataType::UInt64 => ("u64", true),
        DataType::Int32 => ("i32", true),
        DataType::Int64 => ("i64", true),
        DataType::Float32 => ("f32", true),
        DataType::Float64 => ("f64", true),
        DataType::Boolean => ("bool", false),
        DataType::Date32 => ("date", false),
        DataType::Timestamp(_, _) => ("timestamp", false),
        _ => ("utf8", false),
    }
}
