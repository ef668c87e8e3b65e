//! One value of a table, on the host: literals, and what the reference works with.

use std::{cmp::Ordering, fmt, sync::Arc};

use crate::{
    calendar::{DateText, TimestampText},
    types::DataType,
};

/// One value that is there. A missing one is `Option::None` around it.
///
/// Two orders apply to floating-point numbers. *Sorting* is total and tells everything apart, as
/// [`f64::total_cmp`] does: -NaN, -∞, …, -0.0, 0.0, …, ∞, NaN. *Comparing* (expressions, keys of
/// joins and groups, distinct) takes −0.0 for 0.0 and one NaN for another, and has NaN above every
/// number, so that `=` is an equivalence and a join on `=` agrees with a filter on it.
///
/// ```
/// use std::cmp::Ordering;
/// use xlog_relational::Scalar;
///
/// let (minus, plus) = (Scalar::from(-0.0), Scalar::from(0.0));
/// assert_eq!(minus.sort_order(&plus), Some(Ordering::Less));
/// assert_eq!(minus.compare(&plus), Some(Ordering::Equal));
/// assert_eq!(Scalar::from(1u32).compare(&plus), None); // of different types
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scalar {
    /// Of [`DataType::U32`].
    U32(u32),
    /// Of [`DataType::U64`].
    U64(u64),
    /// Of [`DataType::I32`].
    I32(i32),
    /// Of [`DataType::I64`].
    I64(i64),
    /// Of [`DataType::F32`].
    F32(f32),
    /// Of [`DataType::F64`].
    F64(f64),
    /// Of [`DataType::Bool`].
    Bool(bool),
    /// Of [`DataType::Date32`]: days since 1 January 1970.
    Date32(i32),
    /// Of [`DataType::Timestamp`]: microseconds since 1 January 1970.
    Timestamp(i64),
    /// Of [`DataType::Utf8`].
    Utf8(Arc<str>),
}

/// What tells keys apart: equal keys have equal identities, of whatever sign their zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyIdentity {
    /// A number, by bits that put the type's values in their comparing order.
    Bits(u64),
    /// A text.
    Text(Arc<str>),
}

impl Scalar {
    /// Its type.
    #[must_use]
    pub const fn data_type(&self) -> DataType {
        match self {
            Self::U32(_) => DataType::U32,
            Self::U64(_) => DataType::U64,
            Self::I32(_) => DataType::I32,
            Self::I64(_) => DataType::I64,
            Self::F32(_) => DataType::F32,
            Self::F64(_) => DataType::F64,
            Self::Bool(_) => DataType::Bool,
            Self::Date32(_) => DataType::Date32,
            Self::Timestamp(_) => DataType::Timestamp,
            Self::Utf8(_) => DataType::Utf8,
        }
    }

    /// The order that sorting, `min` and `max` go by; `None` for values of different types.
    #[must_use]
    pub fn sort_order(&self, other: &Self) -> Option<Ordering> {
        Some(match (self, other) {
            (Self::U32(a), Self::U32(b)) => a.cmp(b),
            (Self::U64(a), Self::U64(b)) => a.cmp(b),
            (Self::I32(a), Self::I32(b)) | (Self::Date32(a), Self::Date32(b)) => a.cmp(b),
            (Self::I64(a), Self::I64(b)) | (Self::Timestamp(a), Self::Timestamp(b)) => a.cmp(b),
            (Self::F32(a), Self::F32(b)) => a.total_cmp(b),
            (Self::F64(a), Self::F64(b)) => a.total_cmp(b),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Utf8(a), Self::Utf8(b)) => a.as_bytes().cmp(b.as_bytes()),
            _ => return None,
        })
    }

    /// The order that comparisons and keys go by; `None` for values of different types.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::F32(a), Self::F32(b)) => Some(compare_floats(f64::from(*a), f64::from(*b))),
            (Self::F64(a), Self::F64(b)) => Some(compare_floats(*a, *b)),
            _ => self.sort_order(other),
        }
    }

    /// What tells this value from others as a key.
    #[must_use]
    pub fn key_identity(&self) -> KeyIdentity {
        let signed = |value: i64| (value as u64) ^ (1 << 63);
        KeyIdentity::Bits(match self {
            Self::U32(value) => u64::from(*value),
            Self::U64(value) => *value,
            Self::I32(value) | Self::Date32(value) => signed(i64::from(*value)),
            Self::I64(value) | Self::Timestamp(value) => signed(*value),
            Self::F32(value) => float_identity(f64::from(*value)),
            Self::F64(value) => float_identity(*value),
            Self::Bool(value) => u64::from(*value),
            Self::Utf8(text) => return KeyIdentity::Text(Arc::clone(text)),
        })
    }
}

/// How comparisons order floating-point numbers: −0.0 is 0.0, NaN is NaN and above all numbers.
#[must_use]
pub fn compare_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

/// Bits that order as [`compare_floats`] does.
fn float_identity(value: f64) -> u64 {
    let value = if value.is_nan() { f64::NAN.abs() } else { value + 0.0 };
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U32(value) => value.fmt(f),
            Self::U64(value) => value.fmt(f),
            Self::I32(value) => value.fmt(f),
            Self::I64(value) => value.fmt(f),
            Self::F32(value) => write!(f, "{value:?}"),
            Self::F64(value) => write!(f, "{value:?}"),
            Self::Bool(value) => value.fmt(f),
            Self::Date32(value) => write!(f, "date '{}'", DateText(*value)),
            Self::Timestamp(value) => write!(f, "timestamp '{}'", TimestampText(*value)),
            Self::Utf8(value) => write!(f, "'{}'", value.replace('\'', "''")),
        }
    }
}

macro_rules! scalars {
    ($($rust:ty => $variant:ident),* $(,)?) => {
        $(impl From<$rust> for Scalar {
            fn from(value: $rust) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}

scalars! {
    u32 => U32, u64 => U64, i32 => I32, i64 => I64, f32 => F32, f64 => F64, bool => Bool,
    &str => Utf8, String => Utf8, Arc<str> => Utf8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_order_as_comparisons_do() {
        let numbers =
            [f64::NEG_INFINITY, -1.5, -f64::MIN_POSITIVE, -0.0, 0.0, 5e-324, 2.0, f64::INFINITY];
        let mut all: Vec<Scalar> = numbers.into_iter().map(Scalar::from).collect();
        all.extend([Scalar::F64(f64::NAN), Scalar::F64(-f64::NAN)]);
        for a in &all {
            for b in &all {
                let identities = a.key_identity().cmp(&b.key_identity());
                assert_eq!(a.compare(b), Some(identities), "{a} {b}");
            }
        }
        let integers = [i64::MIN, -1, 0, i64::MAX].map(Scalar::from);
        assert!(integers.is_sorted_by_key(Scalar::key_identity));
    }

    #[test]
    fn sorting_tells_zeros_and_signs_of_nan_apart() {
        let sorted = [-f64::NAN, f64::NEG_INFINITY, -0.0, 0.0, f64::INFINITY, f64::NAN];
        let sorted = sorted.map(Scalar::from);
        for pair in sorted.windows(2) {
            assert_eq!(pair[0].sort_order(&pair[1]), Some(Ordering::Less));
        }
    }
}
