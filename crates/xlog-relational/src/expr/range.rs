//! Predicates that ask whether columns lie in ranges: comparisons with a literal, and several of
//! them joined by `and`. They have a kernel of their own, which does little more than read its
//! column.

use xlog_cuda::{LaunchDims, device_runtime::StreamId, memory::TrackedCudaSlice};

use super::{
    Checked, Comparison, Node,
    range_kernel::{Keyed, LATER, NULLABLE, Order, RANGE_LONGS, RANGE_WORDS},
};
use crate::{
    Engine,
    column::{Column, Values},
    error::{RelationalError, RelationalResult},
    scalar::Scalar,
    types::{DataType, Physical},
};

/// Rows that one thread of the device works on at a time, as in `kernels/range.cu`.
const ROWS_PER_THREAD: usize = 8;

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
    /// The ranges that all of its rows lie in, if a predicate asks no more than that.
    pub(crate) fn all_of(predicate: &Checked, columns: &[&Column]) -> Option<Vec<Self>> {
        match &predicate.node {
            Node::Compare(comparison, left, right) => match (&left.node, &right.node) {
                (Node::Column(index), Node::Literal(value)) => {
                    Self::compared(*index, columns, *comparison, value).map(|range| vec![range])
                }
                (Node::Literal(value), Node::Column(index)) => {
                    let comparison = comparison.flipped();
                    Self::compared(*index, columns, comparison, value).map(|range| vec![range])
                }
                _ => None,
            },
            Node::And(left, right) => {
                let mut ranges = Self::all_of(left, columns)?;
                for range in Self::all_of(right, columns)? {
                    let merged = ranges.iter_mut().find_map(|other| {
                        let both = other.within(&range)?;
                        *other = both;
                        Some(())
                    });
                    if merged.is_none() {
                        ranges.push(range);
                    }
                }
                Some(ranges)
            }
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
        // A `u64` beside a negative literal keeps its own type.
        if columns.get(index)?.data_type() != data_type {
            return None;
        }
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

    /// Writes the mask of `column`, which has rows, on `stream`: of those rows alone that are in
    /// the mask `before`, if there is one.
    pub(crate) fn launch(
        &self,
        engine: &Engine,
        column: &Column,
        before: Option<&TrackedCudaSlice<u32>>,
        mask: &TrackedCudaSlice<u32>,
        stream: StreamId,
    ) -> RelationalResult<()> {
        let validity = column.validity().map(|words| words.as_view().as_bytes());
        let before = before.map(|words| words.as_view().as_bytes());
        let nullable = if validity.is_some() { NULLABLE } else { 0 };
        let flags = nullable | if before.is_some() { LATER } else { 0 };
        let (order, negated) = (Order::of(self.data_type) as u32, u32::from(self.negated));
        let dims = LaunchDims::for_elements(column.len().div_ceil(ROWS_PER_THREAD));
        match column.values() {
            Values::Words(values) => {
                let nothing = values.as_view().as_bytes();
                let mut launch = engine.launch(&RANGE_WORDS, stream)?;
                launch.input(&**values).input(&validity.unwrap_or(nothing));
                launch.input(&before.unwrap_or(nothing)).value(flags).value(order);
                launch.value(self.low as u32).value(self.high as u32).value(negated);
                launch.value(column.len() as u64).output(mask).launch(dims)?;
            }
            Values::Longs(values) => {
                let nothing = values.as_view().as_bytes();
                let mut launch = engine.launch(&RANGE_LONGS, stream)?;
                launch.input(&**values).input(&validity.unwrap_or(nothing));
                launch.input(&before.unwrap_or(nothing)).value(flags).value(order);
                launch.value(self.low).value(self.high).value(negated);
                launch.value(column.len() as u64).output(mask).launch(dims)?;
            }
            Values::Bytes(_) => {
                let (expected, found) = (self.data_type, column.data_type());
                return Err(RelationalError::type_mismatch("a column", expected, found));
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
