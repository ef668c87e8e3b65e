//! Columns under construction, by type.

mod seen;
mod text;

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, PrimitiveArray,
    types::{
        ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int32Type, Int64Type,
        TimestampMicrosecondType, UInt32Type, UInt64Type,
    },
};
use arrow_buffer::{
    ArrowNativeType, BooleanBuffer, BooleanBufferBuilder, NullBuffer, ScalarBuffer,
};
use arrow_schema::DataType;

pub(crate) use self::{
    seen::Seen,
    text::{DictionaryText, PlainText, TextSink},
};
use crate::column_type::ColumnType;

/// The rows that have no value. Most columns have none, and pay nothing for it.
#[derive(Default)]
pub(crate) struct Missing {
    rows: Vec<u32>,
}

impl Missing {
    /// Notes that a row has no value; rows come in order.
    #[inline]
    pub(crate) fn push(&mut self, row: usize) {
        self.rows.push(row as u32);
    }

    /// Arrow's bitmap for a column of so many rows.
    fn finish(&self, rows: usize) -> Option<NullBuffer> {
        if self.rows.is_empty() {
            return None;
        }
        let mut bits = BooleanBufferBuilder::new(rows);
        bits.append_n(rows, true);
        self.rows.iter().for_each(|row| bits.set_bit(*row as usize, false));
        Some(NullBuffer::new(bits.finish()))
    }
}

/// Values of a fixed width.
#[derive(Default)]
pub(crate) struct Plain<T> {
    pub(crate) values: Vec<T>,
    pub(crate) missing: Missing,
}

impl<T: Copy + Default> Plain<T> {
    /// Adds a value.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        self.values.push(value);
    }

    /// Adds a row without one.
    pub(crate) fn push_missing(&mut self) {
        self.missing.push(self.values.len());
        self.values.push(T::default());
    }
}

impl<T: ArrowNativeType> Plain<T> {
    fn finish<A: ArrowPrimitiveType<Native = T>>(self) -> ArrayRef {
        let missing = self.missing.finish(self.values.len());
        Arc::new(PrimitiveArray::<A>::new(ScalarBuffer::from(self.values), missing))
    }
}

/// A column under construction.
pub(crate) enum Builder {
    Bool(Plain<bool>),
    U32(Plain<u32>),
    U64(Plain<u64>),
    I32(Plain<i32>),
    I64(Plain<i64>),
    F32(Plain<f32>),
    F64(Plain<f64>),
    Date(Plain<i32>),
    Timestamp(Plain<i64>),
    Text(PlainText),
    Dictionary(DictionaryText),
}

impl Builder {
    /// An empty column; `dictionary` makes text one.
    pub(crate) fn new(column_type: ColumnType, dictionary: bool) -> Self {
        match column_type {
            ColumnType::Bool => Self::Bool(Plain::default()),
            ColumnType::U32 => Self::U32(Plain::default()),
            ColumnType::U64 => Self::U64(Plain::default()),
            ColumnType::I32 => Self::I32(Plain::default()),
            ColumnType::I64 => Self::I64(Plain::default()),
            ColumnType::F32 => Self::F32(Plain::default()),
            ColumnType::F64 => Self::F64(Plain::default()),
            ColumnType::Date => Self::Date(Plain::default()),
            ColumnType::Timestamp => Self::Timestamp(Plain::default()),
            ColumnType::Utf8 if dictionary => Self::Dictionary(DictionaryText::default()),
            ColumnType::Utf8 => Self::Text(PlainText::default()),
        }
    }

    /// Makes room for so many rows more.
    pub(crate) fn reserve(&mut self, rows: usize) {
        match self {
            Self::Bool(column) => column.values.reserve(rows),
            Self::U32(column) => column.values.reserve(rows),
            Self::U64(column) => column.values.reserve(rows),
            Self::I32(column) | Self::Date(column) => column.values.reserve(rows),
            Self::I64(column) | Self::Timestamp(column) => column.values.reserve(rows),
            Self::F32(column) => column.values.reserve(rows),
            Self::F64(column) => column.values.reserve(rows),
            Self::Text(column) => column.reserve(rows),
            Self::Dictionary(column) => column.reserve(rows),
        }
    }

    /// Adds a row without a value.
    pub(crate) fn push_missing(&mut self) {
        match self {
            Self::Bool(column) => column.push_missing(),
            Self::U32(column) => column.push_missing(),
            Self::U64(column) => column.push_missing(),
            Self::I32(column) | Self::Date(column) => column.push_missing(),
            Self::I64(column) | Self::Timestamp(column) => column.push_missing(),
            Self::F32(column) => column.push_missing(),
            Self::F64(column) => column.push_missing(),
            Self::Text(column) => column.push_missing(),
            Self::Dictionary(column) => column.push_missing(),
        }
    }

    /// The column as an Arrow array. Text must be UTF-8 by now: what is not is an error.
    pub(crate) fn finish(self) -> Result<ArrayRef, String> {
        Ok(match self {
            Self::Bool(column) => {
                let missing = column.missing.finish(column.values.len());
                Arc::new(BooleanArray::new(BooleanBuffer::from(column.values), missing))
            }
            Self::U32(column) => column.finish::<UInt32Type>(),
            Self::U64(column) => column.finish::<UInt64Type>(),
            Self::I32(column) => column.finish::<Int32Type>(),
            Self::I64(column) => column.finish::<Int64Type>(),
            Self::F32(column) => column.finish::<Float32Type>(),
            Self::F64(column) => column.finish::<Float64Type>(),
            Self::Date(column) => column.finish::<Date32Type>(),
            Self::Timestamp(column) => column.finish::<TimestampMicrosecondType>(),
            Self::Text(column) => column.finish()?,
            Self::Dictionary(column) => column.finish()?,
        })
    }
}

/// Arrow's type of a column that a [`Builder`] makes.
pub(crate) fn arrow_type(column_type: ColumnType, dictionary: bool) -> DataType {
    match column_type {
        ColumnType::Utf8 if dictionary => text_dictionary(),
        other => other.to_arrow(),
    }
}

/// Text as the engine takes it over without hashing every row.
pub(crate) fn text_dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8))
}
