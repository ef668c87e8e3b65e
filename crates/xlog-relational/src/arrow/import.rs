//! From Arrow.

use std::sync::Arc;

use arrow_array::{
    Array, ArrowPrimitiveType, BooleanArray, PrimitiveArray, RecordBatch, StringArray,
    cast::AsArray,
    types::{
        Date32Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
        UInt32Type, UInt64Type,
    },
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType as ArrowType, TimeUnit};
use bytemuck::Pod;
use xlog_cuda::device_runtime::StreamId;

use crate::{
    Engine,
    column::{Column, Dictionary, DictionaryBuilder, Validity, Values, validity_words},
    error::{RelationalError, RelationalResult},
    table::Table,
    types::DataType,
};

impl Table {
    /// Uploads a record batch on `stream`. The batch may be dropped when this returns; the device
    /// has the table in stream order.
    pub fn from_batch(
        engine: &Engine,
        batch: &RecordBatch,
        stream: StreamId,
    ) -> RelationalResult<Self> {
        let needed = batch.columns().iter().map(|array| bytes_for(array)).sum();
        let schema = batch.schema();
        let columns: RelationalResult<Vec<_>> = schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, array)| {
                let column = Column::from_array(engine, field.name(), array, stream);
                let column = column.map_err(|error| error.needing("an import", Some(needed)))?;
                Ok((field.name().clone(), column))
            })
            .collect();
        Self::new(engine, columns?)
    }
}

impl Column {
    /// Uploads an Arrow array on `stream`; errors call it `name`.
    pub fn from_array(
        engine: &Engine,
        name: &str,
        array: &dyn Array,
        stream: StreamId,
    ) -> RelationalResult<Self> {
        Import { engine, name, stream }.column(array)
    }
}

/// One array on its way to the device.
struct Import<'i> {
    engine: &'i Engine,
    name: &'i str,
    stream: StreamId,
}

impl Import<'_> {
    fn column(&self, array: &dyn Array) -> RelationalResult<Column> {
        match array.data_type() {
            ArrowType::UInt32 => self.plain::<UInt32Type>(array, DataType::U32),
            ArrowType::UInt64 => self.plain::<UInt64Type>(array, DataType::U64),
            ArrowType::Int32 => self.plain::<Int32Type>(array, DataType::I32),
            ArrowType::Int64 => self.plain::<Int64Type>(array, DataType::I64),
            ArrowType::Float32 => self.plain::<Float32Type>(array, DataType::F32),
            ArrowType::Float64 => self.plain::<Float64Type>(array, DataType::F64),
            ArrowType::Date32 => self.plain::<Date32Type>(array, DataType::Date32),
            ArrowType::Timestamp(TimeUnit::Microsecond, None) => {
                self.plain::<TimestampMicrosecondType>(array, DataType::Timestamp)
            }
            ArrowType::Timestamp(_, Some(zone)) => Err(self.refuse(format!(
                "its timestamps have the time zone {zone:?}; cast them to timestamps without one"
            ))),
            ArrowType::Timestamp(unit, None) => {
                Err(self
                    .refuse(format!("its timestamps count in {unit:?}; cast them to microseconds")))
            }
            ArrowType::Boolean => self.booleans(array.as_boolean()),
            ArrowType::Utf8 => self.strings(array.as_string::<i32>().iter(), array.nulls()),
            ArrowType::LargeUtf8 => self.strings(array.as_string::<i64>().iter(), array.nulls()),
            ArrowType::Utf8View => self.strings(array.as_string_view().iter(), array.nulls()),
            ArrowType::Dictionary(_, _) => self.dictionary(array),
            other => Err(self.refuse(format!(
                "type {other} is not supported; cast it to one of UInt32, UInt64, Int32, Int64, \
                 Float32, Float64, Boolean, Date32, Timestamp(Microsecond), Utf8"
            ))),
        }
    }

    fn refuse(&self, reason: impl std::fmt::Display) -> RelationalError {
        RelationalError::arrow(self.name, reason)
    }

    /// Values whose bytes are the same on both sides.
    fn plain<T>(&self, array: &dyn Array, data_type: DataType) -> RelationalResult<Column>
    where
        T: ArrowPrimitiveType<Native: Pod>,
    {
        let array: &PrimitiveArray<T> = array.as_primitive();
        let values = Values::upload(self.engine, array.values(), self.stream)?;
        let validity = validity(array.nulls()).map(|v| v.upload(self.engine, self.stream));
        let validity = validity.transpose()?.flatten();
        Column::complete(self.engine, data_type, array.len(), values, validity, None)
    }

    fn booleans(&self, array: &BooleanArray) -> RelationalResult<Column> {
        let bytes: Vec<u8> = array.values().iter().map(u8::from).collect();
        let values = Values::upload(self.engine, &bytes, self.stream)?;
        let validity = validity(array.nulls()).map(|v| v.upload(self.engine, self.stream));
        let validity = validity.transpose()?.flatten();
        Column::complete(self.engine, DataType::Bool, array.len(), values, validity, None)
    }

    fn strings<'s>(
        &self,
        strings: impl ExactSizeIterator<Item = Option<&'s str>>,
        nulls: Option<&NullBuffer>,
    ) -> RelationalResult<Column> {
        let mut builder = DictionaryBuilder::new();
        let codes: RelationalResult<Vec<u32>> =
            strings.map(|string| string.map_or(Ok(0), |s| builder.code_of(s))).collect();
        self.codes(&codes?, nulls, builder.finish())
    }

    fn codes(
        &self,
        codes: &[u32],
        nulls: Option<&NullBuffer>,
        dictionary: Dictionary,
    ) -> RelationalResult<Column> {
        let validity = validity(nulls).unwrap_or_else(|| Validity::of_words(Vec::new(), 0));
        Column::from_codes(self.engine, codes, &validity, Arc::new(dictionary), self.stream)
    }

    fn dictionary(&self, array: &dyn Array) -> RelationalResult<Column> {
        let Some(array) = array.as_any_dictionary_opt() else {
            return Err(self.refuse("its dictionary cannot be read"));
        };
        let values = array.values();
        let strings: Vec<Option<&str>> = match values.data_type() {
            ArrowType::Utf8 => {
                let strings: &StringArray = values.as_string();
                // Keys may do as codes, and the strings as they are.
                let keys = word_keys(array.keys())
                    .filter(|keys| keys.iter().all(|key| (*key as usize) < strings.len()));
                if let Some((keys, dictionary)) = keys.zip(Dictionary::of_distinct(strings)) {
                    return self.codes(&keys, array.nulls(), dictionary);
                }
                strings.iter().collect()
            }
            ArrowType::LargeUtf8 => values.as_string::<i64>().iter().collect(),
            ArrowType::Utf8View => values.as_string_view().iter().collect(),
            other => {
                return Err(self.refuse(format!(
                    "dictionaries of {other} are not supported; use dictionaries of text"
                )));
            }
        };
        let mut builder = DictionaryBuilder::new();
        let codes: RelationalResult<Vec<Option<u32>>> = strings
            .into_iter()
            .map(|string| string.map(|string| builder.code_of(string)).transpose())
            .collect();
        let codes = codes?;
        // Without strings no row has one, whatever its key.
        let keys = match codes.is_empty() {
            true => vec![0; array.len()],
            false => array.normalized_keys(),
        };
        let coded: Vec<u32> =
            keys.iter().map(|key| codes.get(*key).copied().flatten().unwrap_or(0)).collect();
        // A row is missing if its key is, or if its key stands for a missing string.
        let nulls = array.logical_nulls();
        self.codes(&coded, nulls.as_ref(), builder.finish())
    }
}

/// Bytes that a column of an array takes on the device.
fn bytes_for(array: &dyn Array) -> u64 {
    let width = match array.data_type() {
        ArrowType::Boolean => 1,
        ArrowType::UInt64 | ArrowType::Int64 | ArrowType::Float64 => 8,
        ArrowType::Timestamp(_, _) => 8,
        _ => 4,
    };
    let words = if array.is_nullable() { validity_words(array.len()) } else { 0 };
    (array.len().max(1) * width + words * 4) as u64
}

/// Keys of 32 bits, as they are. A negative one reads as one that is too large.
fn word_keys(keys: &dyn Array) -> Option<ScalarBuffer<u32>> {
    match keys.data_type() {
        ArrowType::UInt32 => Some(keys.as_primitive::<UInt32Type>().values().clone()),
        ArrowType::Int32 => {
            let keys = keys.as_primitive::<Int32Type>().values();
            Some(ScalarBuffer::new(keys.inner().clone(), 0, keys.len()))
        }
        _ => None,
    }
}

/// Arrow's bitmap as words whose first bit is the first row, from whatever bit it starts at.
fn validity(nulls: Option<&NullBuffer>) -> Option<Validity> {
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0)?;
    let chunks = nulls.inner().bit_chunks();
    let halves = chunks.iter_padded().flat_map(|chunk| [chunk as u32, (chunk >> 32) as u32]);
    let words = halves.take(validity_words(nulls.len())).collect();
    Some(Validity::of_words(words, nulls.null_count() as u64))
}
