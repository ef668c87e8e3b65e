//! Columns as files have them, and as tables do.

use std::sync::Arc;

use arrow_schema::{
    DataType as ArrowType, Field as ArrowField, Schema as ArrowSchema, SchemaRef, TimeUnit,
};
use xlog_relational::{DataType, Field, Schema};

use crate::error::{QueryError, QueryResult};

/// The columns of a table that is made of such batches.
pub fn table_schema(schema: &ArrowSchema) -> QueryResult<Schema> {
    let mut fields = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let data_type = data_type(field.data_type()).ok_or_else(|| {
            QueryError::plan(format!(
                "column {:?} is {}, which cannot be worked with; leave it out with a select",
                field.name(),
                field.data_type()
            ))
        })?;
        fields.push(Field { name: field.name().clone(), data_type, nullable: field.is_nullable() });
    }
    Ok(Schema::new(fields)?)
}

fn data_type(arrow: &ArrowType) -> Option<DataType> {
    Some(match arrow {
        ArrowType::UInt32 => DataType::U32,
        ArrowType::UInt64 => DataType::U64,
        ArrowType::Int32 => DataType::I32,
        ArrowType::Int64 => DataType::I64,
        ArrowType::Float32 => DataType::F32,
        ArrowType::Float64 => DataType::F64,
        ArrowType::Boolean => DataType::Bool,
        ArrowType::Date32 => DataType::Date32,
        ArrowType::Timestamp(TimeUnit::Microsecond, None) => DataType::Timestamp,
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => DataType::Utf8,
        ArrowType::Dictionary(_, values) if data_type(values) == Some(DataType::Utf8) => {
            DataType::Utf8
        }
        _ => return None,
    })
}

/// The columns of the batches that a table comes back in. Values may be missing in all of them:
/// whether some are is known only when the last batch is there.
#[must_use]
pub fn arrow_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let data_type = match field.data_type {
            DataType::U32 => ArrowType::UInt32,
            DataType::U64 => ArrowType::UInt64,
            DataType::I32 => ArrowType::Int32,
            DataType::I64 => ArrowType::Int64,
            DataType::F32 => ArrowType::Float32,
            DataType::F64 => ArrowType::Float64,
            DataType::Bool => ArrowType::Boolean,
            DataType::Date32 => ArrowType::Date32,
            DataType::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, None),
            _ => ArrowType::Dictionary(Box::new(ArrowType::UInt32), Box::new(ArrowType::Utf8)),
        };
        ArrowField::new(&field.name, data_type, true)
    });
    Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
}

/// Bytes that a row takes on the device, a byte for whether each value is there included.
pub(super) fn row_bytes(schema: &Schema) -> u64 {
    schema.fields().iter().map(|field| field.data_type.size() as u64 + 1).sum()
}
