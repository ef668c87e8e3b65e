//! Names become columns, and types are made to fit.
//!
//! The rules:
//!
//! - A *literal number* takes the type of the other side if that changes nothing about it: `100`
//!   beside a `u64` column is a `u64`, `0.5` beside an `f32` column an `f32`. `0.1` is no `f32`,
//!   and `-1` no `u64`: they stay what they are. (Where one calculates, `2.0` beside an integer
//!   stays an `f64` too.)
//! - A *literal text* beside a date or a timestamp is one, if it is written as one; so is a date
//!   beside a timestamp: midnight.
//! - *Comparing* integers of any types compares what they stand for. An integer and a
//!   floating-point number are compared as `f64`, which rounds integers beyond 2^53. Truth values,
//!   dates, timestamps and text are compared with their own kind only.
//! - *Calculating* with integers widens: `u64` if both sides are unsigned, else `i64`. A difference
//!   is `i64` always, and so is a number with its sign changed. What does not fit is an error, in
//!   whatever part of the expression and of the rows, and never wraps.
//! - With a floating-point number it is `f64`, or `f32` if both sides are; infinities and NaN come
//!   and go as IEEE 754 has them. A NaN that comes out is always the same one, positive, whatever
//!   went in.
//! - An integer *divided by zero* is missing, and so is its remainder.

use super::{Comparison, Expr, Operator};
use crate::{
    calendar::{parse_date, parse_timestamp},
    error::{RelationalError, RelationalResult},
    scalar::Scalar,
    types::{DataType, Schema},
};

const MICROSECONDS_A_DAY: i64 = 86_400_000_000;

/// An expression that fits a schema: names are columns, and conversions are explicit.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    pub(crate) node: Node,
    pub(crate) data_type: DataType,
    pub(crate) nullable: bool,
}

/// One step of a checked expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// The column at a place of the schema.
    Column(usize),
    /// A value.
    Literal(Scalar),
    /// A missing value.
    Null,
    /// A number in a wider type; a `u64` that is no `i64` is an error.
    Convert(Box<Checked>),
    /// Two values of one type; or an `i64` and a `u64`, in either order.
    Compare(Comparison, Box<Checked>, Box<Checked>),
    And(Box<Checked>, Box<Checked>),
    Or(Box<Checked>, Box<Checked>),
    Not(Box<Checked>),
    IsNull(Box<Checked>),
    /// Values of the type in question that it may equal, and whether one more is missing.
    InList(Box<Checked>, Vec<Scalar>, bool),
    /// Two numbers of one type, which is `u64`, `i64`, `f64` or `f32`.
    Arithmetic(Operator, Box<Checked>, Box<Checked>),
    /// A number of one of those types.
    Negate(Box<Checked>),
}

impl Checked {
    /// The type of its values.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Whether values may be missing.
    #[must_use]
    pub fn is_nullable(&self) -> bool {
        self.nullable
    }

    fn boolean(node: Node, nullable: bool) -> Self {
        Self { node, data_type: DataType::Bool, nullable }
    }

    fn literal(value: Scalar) -> Self {
        let data_type = value.data_type();
        Self { node: Node::Literal(value), data_type, nullable: false }
    }

    /// In a wider type, if it is not of it already.
    fn converted(self, data_type: DataType) -> Self {
        if self.data_type == data_type {
            return self;
        }
        if let Node::Literal(value) = &self.node
            && let Some(value) = as_type(value, data_type)
        {
            return Self::literal(value);
        }
        if self.node == Node::Null {
            return Self { data_type, ..self };
        }
        let nullable = self.nullable;
        Self { node: Node::Convert(Box::new(self)), data_type, nullable }
    }
}

impl Expr {
    /// The expression over the columns of `schema`. What does not fit is refused: an unknown name,
    /// a type, an operation that a type does not have.
    ///
    /// ```
    /// use xlog_relational::{DataType, Field, Schema, col};
    ///
    /// let schema = Schema::new(vec![Field::new("amount", DataType::U32).nullable()])?;
    /// let checked = (col("amount") * 2).check(&schema)?;
    /// assert_eq!((checked.data_type(), checked.is_nullable()), (DataType::U64, true));
    /// let error = col("amount").eq("many").check(&schema).unwrap_err().to_string();
    /// assert_eq!(error, "'many' in amount = 'many' is utf8; expected u32, like amount");
    /// # Ok::<(), xlog_relational::RelationalError>(())
    /// ```
    pub fn check(&self, schema: &Schema) -> RelationalResult<Checked> {
        match self {
            Self::Column(name) => {
                let index = schema.index_of(name)?;
                let field = &schema.fields()[index];
                let (data_type, nullable) = (field.data_type, field.nullable);
                Ok(Checked { node: Node::Column(index), data_type, nullable })
            }
            Self::Literal(value) => Ok(Checked::literal(value.clone())),
            Self::Null(data_type) => {
                Ok(Checked { node: Node::Null, data_type: *data_type, nullable: true })
            }
            Self::Compare(comparison, left, right) => {
                self.check_compare(*comparison, left, right, schema)
            }
            Self::And(left, right) | Self::Or(left, right) => {
                let a = Box::new(self.check_bool(left, schema)?);
                let b = Box::new(self.check_bool(right, schema)?);
                let nullable = a.nullable || b.nullable;
                let and = matches!(self, Self::And(..));
                let node = if and { Node::And(a, b) } else { Node::Or(a, b) };
                Ok(Checked::boolean(node, nullable))
            }
            Self::Not(inner) => {
                let inner = self.check_bool(inner, schema)?;
                let nullable = inner.nullable;
                Ok(Checked::boolean(Node::Not(Box::new(inner)), nullable))
            }
            Self::IsNull(inner) => {
                let inner = Box::new(inner.check(schema)?);
                Ok(Checked::boolean(Node::IsNull(inner), false))
            }
            Self::IsNotNull(inner) => {
                let inner = Box::new(inner.check(schema)?);
                let is_null = Checked::boolean(Node::IsNull(inner), false);
                Ok(Checked::boolean(Node::Not(Box::new(is_null)), false))
            }
            Self::InList(inner, values) => self.check_in_list(inner, values, schema),
            Self::Arithmetic(operator, left, right) => {
                let a = self.check_number(left, schema)?;
                let b = self.check_number(right, schema)?;
                Ok(arithmetic(*operator, a, b))
            }
            Self::Negate(inner) => {
                let inner = self.check_number(inner, schema)?;
                let data_type = match inner.data_type {
                    float if float.is_float() => float,
                    _ => DataType::I64,
                };
                // An unsigned number changes its sign before it becomes an `i64`: -2^63 is one.
                let inner = match inner.data_type {
                    DataType::U32 => inner.converted(DataType::U64),
                    DataType::I32 => inner.converted(DataType::I64),
                    _ => inner,
                };
                let nullable = inner.nullable;
                Ok(Checked { node: Node::Negate(Box::new(inner)), data_type, nullable })
            }
        }
    }

    /// As [`check`](Self::check), for a filter: anything but a truth value is refused.
    pub fn check_predicate(&self, schema: &Schema) -> RelationalResult<Checked> {
        let checked = self.check(schema)?;
        match checked.data_type {
            DataType::Bool => Ok(checked),
            found => {
                Err(RelationalError::type_mismatch(format!("the predicate {self}"), "bool", found))
            }
        }
    }

    fn check_bool(&self, part: &Self, schema: &Schema) -> RelationalResult<Checked> {
        let checked = part.check(schema)?;
        match checked.data_type {
            DataType::Bool => Ok(checked),
            found => {
                Err(RelationalError::type_mismatch(format!("{part} in {self}"), "bool", found))
            }
        }
    }

    fn check_number(&self, part: &Self, schema: &Schema) -> RelationalResult<Checked> {
        let checked = part.check(schema)?;
        match checked.data_type {
            number if number.is_number() => Ok(checked),
            found => {
                Err(RelationalError::type_mismatch(format!("{part} in {self}"), "a number", found))
            }
        }
    }

    fn check_compare(
        &self,
        comparison: Comparison,
        left: &Self,
        right: &Self,
        schema: &Schema,
    ) -> RelationalResult<Checked> {
        let (a, b) = adapted(left.check(schema)?, right.check(schema)?);
        let comparable =
            a.data_type == b.data_type || (a.data_type.is_number() && b.data_type.is_number());
        if !comparable {
            let (part, expected) = (format!("{right} in {self}"), a.data_type);
            let expected = format!("{expected}, like {left}");
            return Err(RelationalError::type_mismatch(part, expected, b.data_type));
        }
        let nullable = a.nullable || b.nullable;
        let (a, b) = if a.data_type == b.data_type {
            (a, b)
        } else if a.data_type.is_float() || b.data_type.is_float() {
            (a.converted(DataType::F64), b.converted(DataType::F64))
        } else {
            let widened = |side: Checked| match side.data_type.is_unsigned() {
                true => side.converted(DataType::U64),
                false => side.converted(DataType::I64),
            };
            // A `u32` beside a signed number is best compared as one.
            match (a.data_type, b.data_type) {
                (DataType::U32, b_type) if !b_type.is_unsigned() => {
                    (a.converted(DataType::I64), b.converted(DataType::I64))
                }
                (a_type, DataType::U32) if !a_type.is_unsigned() => {
                    (a.converted(DataType::I64), b.converted(DataType::I64))
                }
                _ => (widened(a), widened(b)),
            }
        };
        Ok(Checked::boolean(Node::Compare(comparison, Box::new(a), Box::new(b)), nullable))
    }

    fn check_in_list(
        &self,
        inner: &Self,
        values: &[Option<Scalar>],
        schema: &Schema,
    ) -> RelationalResult<Checked> {
        let checked = inner.check(schema)?;
        let data_type = checked.data_type;
        let mut candidates = Vec::with_capacity(values.len());
        for value in values.iter().flatten() {
            let found = value.data_type();
            let candidate = as_type(value, data_type);
            if candidate.is_none() && !(found.is_number() && data_type.is_number()) {
                let expected = format!("{data_type}, like {inner}");
                let part = format!("{value} in {self}");
                return Err(RelationalError::type_mismatch(part, expected, found));
            }
            // A number that the type does not have equals none of its values.
            candidates.extend(candidate);
        }
        let with_null = values.iter().any(Option::is_none);
        let nullable = checked.nullable || with_null;
        Ok(Checked::boolean(Node::InList(Box::new(checked), candidates, with_null), nullable))
    }
}

/// Two numbers made one, in the type that they share.
fn arithmetic(operator: Operator, a: Checked, b: Checked) -> Checked {
    // Not `2.0` beside an integer: who writes it wants to calculate in floating point.
    let (a, b) = match (a.data_type.is_float(), b.data_type.is_float()) {
        (true, false) if matches!(a.node, Node::Literal(_)) => (a, b),
        (false, true) if matches!(b.node, Node::Literal(_)) => (a, b),
        _ => adapted(a, b),
    };
    let shared = match (a.data_type, b.data_type) {
        (DataType::F32, DataType::F32) => DataType::F32,
        (a, b) if a.is_float() || b.is_float() => DataType::F64,
        (a, b) if a.is_unsigned() && b.is_unsigned() => DataType::U64,
        _ => DataType::I64,
    };
    let data_type = match (operator, shared) {
        (Operator::Subtract, DataType::U64) => DataType::I64,
        _ => shared,
    };
    let by_zero = matches!(operator, Operator::Divide | Operator::Remainder) && !shared.is_float();
    let nullable = a.nullable || b.nullable || by_zero;
    let (a, b) = (Box::new(a.converted(shared)), Box::new(b.converted(shared)));
    Checked { node: Node::Arithmetic(operator, a, b), data_type, nullable }
}

/// A literal beside something else, in the type of that if it can be.
fn adapted(a: Checked, b: Checked) -> (Checked, Checked) {
    let fit = |side: Checked, other: &Checked| match &side.node {
        Node::Literal(value) => as_type(value, other.data_type).map_or(side, Checked::literal),
        _ => side,
    };
    match (&a.node, &b.node) {
        (Node::Literal(_), Node::Literal(_)) => (a, b),
        (Node::Literal(_), _) => (fit(a, &b), b),
        (_, Node::Literal(_)) => {
            let b = fit(b, &a);
            (a, b)
        }
        _ => (a, b),
    }
}

/// A value in another type, if it stands for the same there.
fn as_type(value: &Scalar, data_type: DataType) -> Option<Scalar> {
    if value.data_type() == data_type {
        return Some(value.clone());
    }
    match (value, data_type) {
        (Scalar::Utf8(text), DataType::Date32) => return parse_date(text).map(Scalar::Date32),
        (Scalar::Utf8(text), DataType::Timestamp) => {
            return parse_timestamp(text).map(Scalar::Timestamp);
        }
        (Scalar::Date32(days), DataType::Timestamp) => {
            return i64::from(*days).checked_mul(MICROSECONDS_A_DAY).map(Scalar::Timestamp);
        }
        _ => {}
    }
    if let Some(whole) = whole_number(value) {
        return match data_type {
            DataType::U32 => u32::try_from(whole).ok().map(Scalar::U32),
            DataType::U64 => u64::try_from(whole).ok().map(Scalar::U64),
            DataType::I32 => i32::try_from(whole).ok().map(Scalar::I32),
            DataType::I64 => i64::try_from(whole).ok().map(Scalar::I64),
            DataType::F32 => (whole as f32 as i128 == whole).then_some(Scalar::F32(whole as f32)),
            DataType::F64 => (whole as f64 as i128 == whole).then_some(Scalar::F64(whole as f64)),
            _ => None,
        };
    }
    let real = match value {
        Scalar::F32(value) => f64::from(*value),
        Scalar::F64(value) => *value,
        _ => return None,
    };
    match data_type {
        DataType::F64 => Some(Scalar::F64(real)),
        DataType::F32 => {
            let narrow = real as f32;
            (f64::from(narrow) == real || real.is_nan()).then_some(Scalar::F32(narrow))
        }
        integer if integer.is_integer() => {
            // Beyond 2^64 nothing fits, and the cast stops at its ends.
            let whole = real as i128;
            let same = whole as f64 == real && whole.unsigned_abs() <= 1 << 64;
            same.then(|| as_type(&whole_scalar(whole)?, integer)).flatten()
        }
        _ => None,
    }
}

fn whole_scalar(whole: i128) -> Option<Scalar> {
    let signed = i64::try_from(whole).map(Scalar::I64);
    signed.ok().or_else(|| u64::try_from(whole).ok().map(Scalar::U64))
}

/// An integer as such.
pub(crate) fn whole_number(value: &Scalar) -> Option<i128> {
    match value {
        Scalar::U32(value) => Some(i128::from(*value)),
        Scalar::U64(value) => Some(i128::from(*value)),
        Scalar::I32(value) => Some(i128::from(*value)),
        Scalar::I64(value) => Some(i128::from(*value)),
        _ => None,
    }
}
