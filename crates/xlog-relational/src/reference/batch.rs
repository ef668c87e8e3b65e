//! The oracle's tables from and to Arrow, value by value.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray,
    cast::AsArray,
    types::{
        ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int32Type, Int64Type,
        TimestampMicrosecondType, UInt32Type, UInt64Type,
    },
};
use arrow_schema::{DataType as ArrowType, Field as ArrowField, Schema as ArrowSchema, TimeUnit};

use super::{HostColumn, Relation};
use crate::{
    error::{RelationalError, RelationalResult},
    scalar::Scalar,
    types::{DataType, Field},
};

impl Relation {
    /// The rows of a record batch.
    pub fn from_batch(batch: &RecordBatch) -> RelationalResult<Self> {
        let schema = batch.schema();
        let columns: RelationalResult<Vec<_>> = schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, array)| {
                let (data_type, values) = values_of(field.name(), array)?;
                let nullable = field.is_nullable();
                let field = Field { name: field.name().clone(), data_type, nullable };
                Ok(HostColumn { field, values })
            })
            .collect();
        Self::new(columns?)
    }

    /// The rows as a record batch; text comes out as `Utf8`.
    pub fn to_batch(&self) -> RelationalResult<RecordBatch> {
        let columns = self.columns().iter();
        let (fields, arrays): (Vec<_>, Vec<_>) = columns
            .map(|column| {
                let array = array_of(column);
                let Field { name, nullable, .. } = &column.field;
                (ArrowField::new(name, array.data_type().clone(), *nullable), array)
            })
            .unzip();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows()));
        RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), arrays, &options)
            .map_err(|error| RelationalError::arrow("", error))
    }
}

type Values = (DataType, Vec<Option<Scalar>>);

fn values_of(name: &str, array: &dyn Array) -> RelationalResult<Values> {
    fn plain<T: ArrowPrimitiveType>(
        array: &dyn Array,
        scalar: fn(T::Native) -> Scalar,
    ) -> Vec<Option<Scalar>> {
        array.as_primitive::<T>().iter().map(|value| value.map(scalar)).collect()
    }
    let text = |value: Option<&str>| value.map(Scalar::from);
    Ok(match array.data_type() {
        ArrowType::UInt32 => (DataType::U32, plain::<UInt32Type>(array, Scalar::U32)),
        ArrowType::UInt64 => (DataType::U64, plain::<UInt64Type>(array, Scalar::U64)),
        ArrowType::Int32 => (DataType::I32, plain::<Int32Type>(array, Scalar::I32)),
        ArrowType::Int64 => (DataType::I64, plain::<Int64Type>(array, Scalar::I64)),
        ArrowType::Float32 => (DataType::F32, plain::<Float32Type>(array, Scalar::F32)),
        ArrowType::Float64 => (DataType::F64, plain::<Float64Type>(array, Scalar::F64)),
        ArrowType::Date32 => (DataType::Date32, plain::<Date32Type>(array, Scalar::Date32)),
        ArrowType::Timestamp(TimeUnit::Microsecond, None) => {
            let values = plain::<TimestampMicrosecondType>(array, Scalar::Timestamp);
            (DataType::Timestamp, values)
        }
        ArrowType::Boolean => {
            let values = array.as_boolean().iter().map(|value| value.map(Scalar::Bool));
            (DataType::Bool, values.collect())
        }
        ArrowType::Utf8 => (DataType::Utf8, array.as_string::<i32>().iter().map(text).collect()),
        ArrowType::LargeUtf8 => {
            (DataType::Utf8, array.as_string::<i64>().iter().map(text).collect())
        }
        ArrowType::Utf8View => (DataType::Utf8, array.as_string_view().iter().map(text).collect()),
        ArrowType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let (data_type, strings) = values_of(name, dictionary.values())?;
            let keys = match strings.is_empty() {
                true => vec![0; array.len()],
                false => dictionary.normalized_keys(),
            };
            let value = |(row, key): (usize, usize)| match dictionary.is_valid(row) {
                true => strings[key].clone(),
                false => None,
            };
            (data_type, keys.into_iter().enumerate().map(value).collect())
        }
        other => return Err(RelationalError::arrow(name, format!("type {other} is unknown here"))),
    })
}

fn array_of(column: &HostColumn) -> ArrayRef {
    macro_rules! plain {
        ($arrow:ty, $variant:ident) => {{
            let values = column.values.iter().map(|value| match value {
                Some(Scalar::$variant(value)) => Some(*value),
                _ => None,
            });
            Arc::new(values.collect::<PrimitiveArray<$arrow>>())
        }};
    }
    match column.field.data_type {
        DataType::U32 => plain!(UInt32Type, U32),
        DataType::U64 => plain!(UInt64Type, U64),
        DataType::I32 => plain!(Int32Type, I32),
        DataType::I64 => plain!(Int64Type, I64),
        DataType::F32 => plain!(Float32Type, F32),
        DataType::F64 => plain!(Float64Type, F64),
        DataType::Date32 => plain!(Date32Type, Date32),
        DataType::Timestamp => plain!(TimestampMicrosecondType, Timestamp),
        DataType::Bool => {
            let values = column.values.iter().map(|value| match value {
                Some(Scalar::Bool(value)) => Some(*value),
                _ => None,
            });
            Arc::new(values.collect::<BooleanArray>())
        }
        DataType::Utf8 => {
            let values = column.values.iter().map(|value| match value {
                Some(Scalar::Utf8(value)) => Some(&**value),
                _ => None,
            });
            Arc::new(values.collect::<StringArray>())
        }
    }
}
