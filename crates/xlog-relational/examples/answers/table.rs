//! Tables and values as the folder keeps them: floating-point numbers as their bits.

use serde_json::Value;
use xlog_relational::{
    DataType, Field, Scalar,
    reference::{HostColumn, Relation},
};

use crate::{Failure, list_of, text_of};

/// A table of the columns that `columns` lists.
pub(crate) fn relation(columns: &Value) -> Result<Relation, Failure> {
    let columns: Result<Vec<HostColumn>, Failure> = list_of(columns)?
        .iter()
        .map(|column| {
            let data_type = data_type(&column["type"])?;
            let values: Result<Vec<_>, _> =
                list_of(&column["values"])?.iter().map(|value| scalar(data_type, value)).collect();
            Ok(HostColumn::new(Field::new(text_of(&column["name"])?, data_type), values?))
        })
        .collect();
    Ok(Relation::new(columns?)?)
}

/// The type called so.
pub(crate) fn data_type(name: &Value) -> Result<DataType, Failure> {
    let name = text_of(name)?;
    let found = DataType::ALL.into_iter().find(|data_type| data_type.name() == name);
    found.ok_or_else(|| format!("there is no type {name}").into())
}

/// A value of a type; `None` for one that is missing.
pub(crate) fn scalar(data_type: DataType, value: &Value) -> Result<Option<Scalar>, Failure> {
    if value.is_null() {
        return Ok(None);
    }
    let (unsigned, signed) = (value.as_u64(), value.as_i64());
    let narrow = unsigned.and_then(|number| u32::try_from(number).ok());
    let narrow_signed = signed.and_then(|number| i32::try_from(number).ok());
    let found = match data_type {
        DataType::U32 => narrow.map(Scalar::U32),
        DataType::U64 => unsigned.map(Scalar::U64),
        DataType::I32 => narrow_signed.map(Scalar::I32),
        DataType::I64 => signed.map(Scalar::I64),
        DataType::F32 => narrow.map(f32::from_bits).map(Scalar::F32),
        DataType::F64 => unsigned.map(f64::from_bits).map(Scalar::F64),
        DataType::Bool => value.as_bool().map(Scalar::Bool),
        DataType::Date32 => narrow_signed.map(Scalar::Date32),
        DataType::Timestamp => signed.map(Scalar::Timestamp),
        DataType::Utf8 => value.as_str().map(Scalar::from),
        _ => None,
    };
    found.map(Some).ok_or_else(|| format!("{value} is no {data_type}").into())
}
