//! Key columns as the words that hashing and sorting compare.
//!
//! Integers, dates, timestamps and codes of text are their own words. Floats are copied with one
//! zero and one NaN, truth values widened. Both sides of a join have keys of one type: nothing is
//! converted, and text is compared by the codes of one dictionary for both.

use std::{marker::PhantomData, ops::Range, sync::Arc};

use bytemuck::Pod;
use xlog_core::ScalarType::{U8, U32, U64};
use xlog_cuda::{LaunchDims, device_runtime::StreamId, memory::TrackedCudaSlice};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use crate::{
    Engine,
    column::{Column, Dictionary, Values},
    error::{RelationalError, RelationalResult},
    primitives::{KeyColumn, KeyWords, gather},
    table::Table,
    types::DataType,
};

/// The most rows of a table that is hashed, as the primitives have it.
const MOST_ROWS: u64 = (1 << 31) - 64;

/// Refuses a table of more rows than can be hashed.
pub(super) fn refuse_too_many(rows: u64, what: &str) -> RelationalResult<()> {
    if rows > MOST_ROWS {
        let what = format!("rows of {what}");
        return Err(RelationalError::TooMany { what, found: rows, most: MOST_ROWS });
    }
    Ok(())
}

/// Refuses tables of two engines, by the first column of the second one.
pub(super) fn refuse_foreign(left: &Table, right: &Table) -> RelationalResult<()> {
    if left.engine().is_same(right.engine()) {
        return Ok(());
    }
    let column = right.columns().next().map_or(String::new(), |(name, _)| name.to_owned());
    Err(RelationalError::ForeignColumn { column })
}

/// The validity of a column that may miss values. One that is known to miss none has none.
pub(super) fn validity(column: &Column) -> Option<&Arc<TrackedCudaSlice<u32>>> {
    column.validity().filter(|_| column.null_count() != Some(0))
}

/// Words of one size, shared with a column or made from it.
#[derive(Debug)]
pub(super) enum Words {
    Short(Arc<TrackedCudaSlice<u32>>),
    Long(Arc<TrackedCudaSlice<u64>>),
}

/// One key column, as words.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) words: Words,
    validity: Option<Arc<TrackedCudaSlice<u32>>>,
}

impl Key {
    /// The words of `column`; its own memory where that serves.
    pub(super) fn of(column: &Column, stream: StreamId) -> RelationalResult<Self> {
        let (engine, rows) = (column.engine(), column.len());
        let words = match (column.values(), column.data_type()) {
            (Values::Words(values), DataType::F32) => {
                Words::Short(convert(engine, &FLOAT_32, values, rows, stream)?)
            }
            (Values::Longs(values), DataType::F64) => {
                Words::Long(convert(engine, &FLOAT_64, values, rows, stream)?)
            }
            (Values::Bytes(values), _) => {
                Words::Short(convert(engine, &BOOL, values, rows, stream)?)
            }
            (Values::Words(values), _) => Words::Short(Arc::clone(values)),
            (Values::Longs(values), _) => Words::Long(Arc::clone(values)),
        };
        Ok(Self { words, validity: validity(column).cloned() })
    }

    /// The same key with every word replaced by the one of `codes` in its place.
    pub(super) fn mapped(
        column: &Column,
        codes: &[u32],
        stream: StreamId,
    ) -> RelationalResult<Self> {
        let key = Self::of(column, stream)?;
        let Words::Short(words) = &key.words else {
            let found = column.data_type();
            return Err(RelationalError::type_mismatch("a column of codes", DataType::Utf8, found));
        };
        let words = map_codes(column.engine(), words, codes, column.len(), stream)?;
        Ok(Self { words: Words::Short(Arc::new(words)), validity: key.validity })
    }

    /// Two columns of one type, with words that are comparable with each other. The words of the
    /// left one mean what they did.
    pub(super) fn both(
        left: &Column,
        right: &Column,
        stream: StreamId,
    ) -> RelationalResult<[Self; 2]> {
        let codes = match (left.dictionary(), right.dictionary()) {
            (Some(a), Some(b)) => Dictionary::unify(a, b)?.right_codes,
            _ => None,
        };
        let right = match codes {
            Some(codes) => Self::mapped(right, &codes, stream)?,
            None => Self::of(right, stream)?,
        };
        Ok([Self::of(left, stream)?, right])
    }

    /// The keys of several columns.
    pub(super) fn all<'c>(
        columns: impl IntoIterator<Item = &'c Column>,
        stream: StreamId,
    ) -> RelationalResult<Vec<Self>> {
        columns.into_iter().map(|column| Self::of(column, stream)).collect()
    }

    /// As the primitives take it.
    pub(super) fn column(&self) -> KeyColumn<'_> {
        let words = match &self.words {
            Words::Short(words) => KeyWords::U32(words.as_view()),
            Words::Long(words) => KeyWords::U64(words.as_view()),
        };
        KeyColumn { words, validity: self.validity.as_ref().map(|bits| bits.as_view()) }
    }

    /// Several, as the primitives take them.
    pub(super) fn columns(keys: &[Self]) -> Vec<KeyColumn<'_>> {
        keys.iter().map(Self::column).collect()
    }

    /// The memory of its validity.
    pub(super) fn validity(&self) -> Option<&TrackedCudaSlice<u32>> {
        self.validity.as_deref()
    }
}

/// `codes[words[i]]` for the first `rows` words.
pub(super) fn map_codes(
    engine: &Engine,
    words: &TrackedCudaSlice<u32>,
    codes: &[u32],
    rows: usize,
    stream: StreamId,
) -> RelationalResult<TrackedCudaSlice<u32>> {
    let mut map = engine.alloc::<u32>(codes.len().max(1), stream, "codes of text")?;
    if codes.is_empty() {
        map.fill_bytes(0, stream)?;
    } else {
        map.upload_on(codes, stream)?;
    }
    Ok(gather(engine, stream, &map, codes.len() as u64, words, rows as u64)?)
}

fn convert<From: xlog_cuda::launch::DeviceElement, To: xlog_cuda::launch::DeviceElement>(
    engine: &Engine,
    definition: &'static KernelDefinition,
    values: &TrackedCudaSlice<From>,
    rows: usize,
    stream: StreamId,
) -> RelationalResult<Arc<TrackedCudaSlice<To>>> {
    let words = engine.alloc::<To>(rows.max(1), stream, "key words")?;
    if rows > 0 {
        engine
            .launch(definition, stream)?
            .input(values)
            .output(&words)
            .value(rows as u64)
            .launch(LaunchDims::for_elements(rows))?;
    }
    Ok(Arc::new(words))
}

static MODULE: KernelModule =
    KernelModule { name: "keys", ptx: include_str!("../../kernels/keys.ptx") };

macro_rules! conversion {
    ($static:ident, $name:literal, $from:expr, $to:expr, $body:ty) => {
        static $static: KernelDefinition = KernelDefinition {
            name: $name,
            module: &MODULE,
            parameters: &[
                Parameter::input("values", $from).counted_by(2),
                Parameter::output("words", $to).counted_by(2),
                Parameter::value("n", U64),
            ],
            host: HostKernel::of::<$body>(),
        };
    };
}

conversion!(FLOAT_32, "xlog_key_float_32", U32, U32, Convert<u32, u32>);
conversion!(FLOAT_64, "xlog_key_float_64", U64, U64, Convert<u64, u64>);
conversion!(BOOL, "xlog_key_bool", U8, U32, Convert<u8, u32>);

/// A value as the word that stands for it.
trait Convertible<To>: Pod + Send + Sync {
    fn word(self) -> To;
}

impl Convertible<u32> for u32 {
    fn word(self) -> u32 {
        match self & (u32::MAX >> 1) {
            0 => 0,
            magnitude if magnitude > f32::INFINITY.to_bits() => 0x7fc0_0000,
            _ => self,
        }
    }
}

impl Convertible<u64> for u64 {
    fn word(self) -> u64 {
        match self & (u64::MAX >> 1) {
            0 => 0,
            magnitude if magnitude > f64::INFINITY.to_bits() => 0x7ff8_0000_0000_0000,
            _ => self,
        }
    }
}

impl Convertible<u32> for u8 {
    fn word(self) -> u32 {
        u32::from(self)
    }
}

/// Values that are read and written at a time.
const PIECE: usize = 1024;

struct Convert<From, To>(PhantomData<(From, To)>);

impl<From: Convertible<To>, To: Pod + Send + Sync> KernelBody for Convert<From, To> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = host_length(call.value(2)?)?;
        let (values, words) = (call.input::<From>(0, n)?, call.output::<To>(1, n)?);
        call.in_parts(n, call.threads_for(n), PIECE, |_, range| {
            let (mut piece, mut out) = ([From::zeroed(); PIECE], [To::zeroed(); PIECE]);
            for part in pieces(range, PIECE) {
                let (piece, out) = (&mut piece[..part.len()], &mut out[..part.len()]);
                values.read_into(part.start, piece);
                out.iter_mut().zip(piece).for_each(|(word, value)| *word = value.word());
                words.write_from(part.start, out);
            }
        });
        Ok(())
    }
}

/// A length argument as this machine counts.
pub(super) fn host_length(n: u64) -> Result<usize, KernelFault> {
    usize::try_from(n).map_err(|_| KernelFault(format!("{n} values do not fit this machine")))
}

/// A range in pieces of at most `size`.
pub(super) fn pieces(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(size).map(move |start| start..end.min(start + size))
}
