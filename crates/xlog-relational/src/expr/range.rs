//! Predicates that ask whether one column lies in a range: comparisons with a literal, and several
//! of them on the same column joined by `and`. They have a kernel of their own, which does little
//! more than read the column.

use xlog_core::ScalarType::{U8, U32, U64};
use xlog_cuda::{LaunchDims, device_runtime::StreamId, memory::TrackedCudaSlice};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{Checked, Comparison, Node, bits};
use crate::{
    Engine,
    column::{Column, Values},
    error::RelationalResult,
    scalar::Scalar,
    types::{DataType, Physical},
};

static MODULE: KernelModule =
    KernelModule { name: "range", ptx: include_str!("../../kernels/range.ptx") };

macro_rules! parameters {
    ($key:expr) => {
        &[
            Parameter::input("values", $key).counted_by(7),
            Parameter::input("validity", U8),
            Parameter::value("nullable", U32),
            Parameter::value("order", U32),
            Parameter::value("low", $key),
            Parameter::value("high", $key),
            Parameter::value("negated", U32),
            Parameter::value("n", U64),
            Parameter::output("mask", U32),
        ]
    };
}

/// The mask of a range over values of four bytes.
static RANGE_WORDS: KernelDefinition = KernelDefinition {
    name: "xlog_range_words",
    module: &MODULE,
    parameters: parameters!(U32),
    host: HostKernel::of::<Range<u32>>(),
};

/// The same over values of eight bytes.
static RANGE_LONGS: KernelDefinition = KernelDefinition {
    name: "xlog_range_longs",
    module: &MODULE,
    parameters: parameters!(U64),
    host: HostKernel::of::<Range<u64>>(),
};

/// Rows that one thread of the device works on at a time, as in `kernels/range.cu`.
const ROWS_PER_THREAD: usize = 8;

/// How bits become a key that orders as their values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Order {
    Unsigned = 0,
    Signed = 1,
    Float = 2,
}

impl Order {
    fn of(data_type: DataType) -> Self {
        match data_type {
            DataType::F32 | DataType::F64 => Self::Float,
            DataType::I32 | DataType::I64 | DataType::Date32 | DataType::Timestamp => Self::Signed,
            _ => Self::Unsigned,
        }
    }
}

/// A predicate that is one range of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeTest {
    /// The column's place in the table.
    pub(crate) index: usize,
    data_type: DataType,
    /// The first and the last key that lie in it.
    low: u64,
    high: u64,
    /// Whether the rows are meant that lie outside.
    negated: bool,
}

impl RangeTest {
    /// The range that a predicate asks about, if it is no more than that.
    pub(crate) fn of(predicate: &Checked, columns: &[&Column]) -> Option<Self> {
        match &predicate.node {
            Node::Compare(comparison, left, right) => match (&left.node, &right.node) {
                (Node::Column(index), Node::Literal(value)) => {
                    Self::compared(*index, columns, *comparison, value)
                }
                (Node::Literal(value), Node::Column(index)) => {
                    Self::compared(*index, columns, comparison.flipped(), value)
                }
                _ => None,
            },
            Node::And(left, right) => Self::of(left, columns)?.within(&Self::of(right, columns)?),
            _ => None,
        }
    }

    fn compared(
        index: usize,
        columns: &[&Column],
        comparison: Comparison,
        value: &Scalar,
    ) -> Option<Self> {
        let data_type = value.data_type();
        let most = most_of(data_type);
        let key = match value {
            Scalar::Utf8(text) => {
                // The order of codes is not that of strings; whether they are equal is the same.
                if !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
                    return None;
                }
                let code = columns.get(index)?.dictionary()?.code_of(text);
                match code {
                    Some(code) => u64::from(code),
                    // No row has it. No code is as large, since there are fewer than 2^32 - 1.
                    None => u64::from(u32::MAX),
                }
            }
            other => key_of(other)?,
        };
        let range = |low, high| Self { index, data_type, low, high, negated: false };
        let nothing = range(0, most).nothing();
        Some(match comparison {
            Comparison::Equal => range(key, key),
            Comparison::NotEqual => Self { negated: true, ..range(key, key) },
            Comparison::Less => key.checked_sub(1).map_or(nothing, |last| range(0, last)),
            Comparison::LessOrEqual => range(0, key),
            Comparison::Greater if key == most => nothing,
            Comparison::Greater => range(key + 1, most),
            Comparison::GreaterOrEqual => range(key, most),
        })
    }

    /// The rows that lie in both, if that is one range.
    fn within(self, other: &Self) -> Option<Self> {
        let alike = (self.index, self.data_type) == (other.index, other.data_type);
        if !alike || self.negated || other.negated {
            return None;
        }
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        Some(match low <= high {
            true => Self { low, high, ..self },
            false => self.nothing(),
        })
    }

    /// No row of the column: those outside of all keys there are.
    fn nothing(self) -> Self {
        Self { low: 0, high: most_of(self.data_type), negated: true, ..self }
    }

    /// Writes the mask of `column`, which has rows, on `stream`.
    pub(crate) fn launch(
        &self,
        engine: &Engine,
        column: &Column,
        mask: &TrackedCudaSlice<u32>,
        stream: StreamId,
    ) -> RelationalResult<()> {
        let validity = column.validity().map(|words| words.as_view().as_bytes());
        let nullable = u32::from(validity.is_some());
        let (order, negated) = (Order::of(self.data_type) as u32, u32::from(self.negated));
        let dims = LaunchDims::for_elements(column.len().div_ceil(ROWS_PER_THREAD));
        match column.values() {
            Values::Words(values) => {
                let validity = validity.unwrap_or(values.as_view().as_bytes());
                let mut launch = engine.launch(&RANGE_WORDS, stream)?;
                launch.input(&**values).input(&validity).value(nullable).value(order);
                launch.value(self.low as u32).value(self.high as u32).value(negated);
                launch.value(column.len() as u64).output(mask).launch(dims)?;
            }
            Values::Longs(values) => {
                let validity = validity.unwrap_or(values.as_view().as_bytes());
                let mut launch = engine.launch(&RANGE_LONGS, stream)?;
                launch.input(&**values).input(&validity).value(nullable).value(order);
                launch.value(self.low).value(self.high).value(negated);
                launch.value(column.len() as u64).output(mask).launch(dims)?;
            }
            Values::Bytes(_) => {
                let found = column.data_type();
                let expected = self.data_type;
                return Err(crate::RelationalError::type_mismatch("a column", expected, found));
            }
        }
        Ok(())
    }
}

/// The largest key of a type's width.
fn most_of(data_type: DataType) -> u64 {
    match data_type.physical() {
        Physical::Long => u64::MAX,
        Physical::Word | Physical::Byte => u64::from(u32::MAX),
    }
}

/// The key of a literal that is neither text nor a truth value.
fn key_of(value: &Scalar) -> Option<u64> {
    let word = |bits: u32, order| u64::from(u32::key(bits, order));
    Some(match value {
        Scalar::U32(value) => u64::from(*value),
        Scalar::U64(value) => *value,
        Scalar::I32(value) | Scalar::Date32(value) => word(*value as u32, Order::Signed),
        Scalar::I64(value) | Scalar::Timestamp(value) => u64::key(*value as u64, Order::Signed),
        Scalar::F32(value) => word(value.to_bits(), Order::Float),
        Scalar::F64(value) => u64::key(value.to_bits(), Order::Float),
        Scalar::Bool(_) | Scalar::Utf8(_) => return None,
    })
}

/// Bits of a width, and the keys of them.
trait Keyed: bytemuck::Pod + Ord {
    fn signed(bits: Self) -> Self;
    fn float(bits: Self) -> Self;
    fn distance(self, low: Self) -> Self;

    fn key(bits: Self, order: Order) -> Self {
        match order {
            Order::Unsigned => bits,
            Order::Signed => Self::signed(bits),
            Order::Float => Self::float(bits),
        }
    }
}

macro_rules! keyed {
    ($bits:ty, $infinity:literal, $nan:literal) => {
        impl Keyed for $bits {
            #[inline(always)]
            fn signed(bits: Self) -> Self {
                bits ^ 1 << (<$bits>::BITS - 1)
            }

            /// With one zero and one NaN, which is above every number.
            #[inline(always)]
            fn float(bits: Self) -> Self {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let size = bits & !SIGN;
                let bits = if size > $infinity { $nan } else { bits };
                let bits = if size == 0 { 0 } else { bits };
                // All ones for a negative number: all of its bits turn, else the first one.
                let turned = (bits >> (<$bits>::BITS - 1)).wrapping_neg();
                bits ^ (turned | SIGN)
            }

            #[inline(always)]
            fn distance(self, low: Self) -> Self {
                self.wrapping_sub(low)
            }
        }
    };
}

keyed!(u32, 0x7f80_0000, 0x7fc0_0000);
keyed!(u64, 0x7ff0_0000_0000_0000, 0x7ff8_0000_0000_0000);

struct Range<T>(std::marker::PhantomData<T>);

/// Rows that are worked on at a time: a multiple of 32 that stays in the cache.
const PIECE: usize = 2048;

impl<T: Keyed> KernelBody for Range<T> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        match call.value::<u32>(3)? {
            0 => masked(call, |bits: T| bits),
            1 => masked(call, T::signed),
            _ => masked(call, T::float),
        }
    }
}

/// Writes the mask of all rows; compiled for each way to a key, so that none is chosen in a loop.
fn masked<T: Keyed, M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    key: impl Fn(T) -> T,
) -> Result<(), KernelFault> {
    let nullable = call.value::<u32>(2)? != 0;
    let (low, high) = (call.value::<T>(4)?, call.value::<T>(5)?);
    let (span, wanted) = (high.distance(low), call.value::<u32>(6)? == 0);
    let n = bits::length(call.value(7)?)?;
    let words = n.div_ceil(32);
    let (values, mask) = (call.input::<T>(0, n)?, call.output::<u32>(8, words)?);
    let validity = match nullable {
        true => Some(call.input::<u8>(1, words * 4)?),
        false => None,
    };
    let mut piece = [T::zeroed(); PIECE];
    let mut flags = [0u8; PIECE];
    let (mut packed, mut there) = ([0u32; PIECE / 32], [0u32; PIECE / 32]);
    for start in (0..n).step_by(PIECE) {
        let count = (n - start).min(PIECE);
        values.read_into(start, &mut piece[..count]);
        for (flag, value) in flags.iter_mut().zip(&piece[..count]) {
            *flag = u8::from((key(*value).distance(low) <= span) == wanted);
        }
        let used = bits::pack(&mut packed, &mut flags, count);
        if let Some(validity) = &validity {
            let there = &mut there[..used];
            validity.read_into(start / 8, bytemuck::cast_slice_mut(there));
            packed.iter_mut().zip(there).for_each(|(word, there)| *word &= *there);
        }
        mask.write_from(start / 32, &packed[..used]);
    }
    Ok(())
}
