//! Expressions, row by row and by the book.

use std::cmp::Ordering;

use super::{HostColumn, Relation};
use crate::{
    error::{RelationalError, RelationalResult},
    expr::{Checked, Expr, Node, Operator, whole_number},
    scalar::Scalar,
    types::{DataType, Field},
};

/// The rows for which `predicate` is true.
pub fn filter(input: &Relation, predicate: &Expr) -> RelationalResult<Relation> {
    let checked = predicate.check_predicate(&input.schema())?;
    let mut kept = Vec::new();
    for row in 0..input.rows() {
        if value(&checked, &input.row(row))? == Some(Scalar::Bool(true)) {
            kept.push(row);
        }
    }
    Ok(input.take(&kept))
}

/// One column for each expression, under the name beside it.
pub fn project(input: &Relation, columns: &[(&str, Expr)]) -> RelationalResult<Relation> {
    let columns: RelationalResult<Vec<_>> = columns
        .iter()
        .map(|(name, expr)| {
            let HostColumn { field, values } = evaluate(input, expr)?;
            Ok(HostColumn { field: Field { name: (*name).to_owned(), ..field }, values })
        })
        .collect();
    Relation::new(columns?)
}

/// The value of an expression for every row.
pub fn evaluate(input: &Relation, expr: &Expr) -> RelationalResult<HostColumn> {
    let checked = expr.check(&input.schema())?;
    let values: RelationalResult<Vec<_>> =
        (0..input.rows()).map(|row| value(&checked, &input.row(row))).collect();
    let (data_type, nullable) = (checked.data_type(), checked.is_nullable());
    Ok(HostColumn { field: Field { name: expr.to_string(), data_type, nullable }, values: values? })
}

/// The value of an expression for one row.
fn value(checked: &Checked, row: &[Option<Scalar>]) -> RelationalResult<Option<Scalar>> {
    let truth = |side: &Checked| -> RelationalResult<Option<bool>> {
        Ok(match value(side, row)? {
            Some(Scalar::Bool(truth)) => Some(truth),
            _ => None,
        })
    };
    let pair = |a: &Checked, b: &Checked| -> RelationalResult<_> {
        Ok(value(a, row)?.zip(value(b, row)?))
    };
    Ok(match &checked.node {
        Node::Column(index) => row[*index].clone(),
        Node::Literal(value) => Some(value.clone()),
        Node::Null => None,
        Node::Convert(inner) => {
            value(inner, row)?.map(|value| convert(&value, checked.data_type)).transpose()?
        }
        Node::Compare(comparison, left, right) => pair(left, right)?
            .map(|(left, right)| Scalar::Bool(comparison.holds(order(&left, &right)))),
        Node::And(left, right) => match (truth(left)?, truth(right)?) {
            (Some(false), _) | (_, Some(false)) => Some(Scalar::Bool(false)),
            (Some(true), Some(true)) => Some(Scalar::Bool(true)),
            _ => None,
        },
        Node::Or(left, right) => match (truth(left)?, truth(right)?) {
            (Some(true), _) | (_, Some(true)) => Some(Scalar::Bool(true)),
            (Some(false), Some(false)) => Some(Scalar::Bool(false)),
            _ => None,
        },
        Node::Not(inner) => truth(inner)?.map(|truth| Scalar::Bool(!truth)),
        Node::IsNull(inner) => Some(Scalar::Bool(value(inner, row)?.is_none())),
        Node::InList(inner, values, with_null) => match value(inner, row)? {
            None => None,
            Some(found) if values.iter().any(|other| order(&found, other).is_eq()) => {
                Some(Scalar::Bool(true))
            }
            Some(_) if *with_null => None,
            Some(_) => Some(Scalar::Bool(false)),
        },
        Node::Arithmetic(operator, left, right) => match pair(left, right)? {
            Some((left, right)) => calculate(*operator, &left, &right, checked.data_type)?,
            None => None,
        },
        Node::Negate(inner) => match value(inner, row)? {
            None => None,
            Some(Scalar::F32(value)) => Some(Scalar::F32(-value)),
            Some(Scalar::F64(value)) => Some(Scalar::F64(-value)),
            Some(value) => Some(whole(-whole_number(&value).unwrap_or(0), checked.data_type)?),
        },
    })
}

/// The order of two values; integers of different types by what they stand for.
fn order(left: &Scalar, right: &Scalar) -> Ordering {
    match (whole_number(left), whole_number(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => left.compare(right).unwrap_or(Ordering::Equal),
    }
}

/// An integer in a type, if it has it.
fn whole(value: i128, data_type: DataType) -> RelationalResult<Scalar> {
    let found = match data_type {
        DataType::U64 => u64::try_from(value).map(Scalar::U64),
        _ => i64::try_from(value).map(Scalar::I64),
    };
    found.map_err(|_| RelationalError::Overflow { operation: format!("{value} in {data_type}") })
}

fn convert(value: &Scalar, data_type: DataType) -> RelationalResult<Scalar> {
    match (value, whole_number(value), data_type) {
        (Scalar::F32(value), _, _) => Ok(Scalar::F64(f64::from(*value))),
        (_, Some(number), DataType::F64) => Ok(Scalar::F64(number as f64)),
        (_, Some(number), _) => whole(number, data_type),
        _ => Ok(value.clone()),
    }
}

fn calculate(
    operator: Operator,
    left: &Scalar,
    right: &Scalar,
    data_type: DataType,
) -> RelationalResult<Option<Scalar>> {
    macro_rules! real {
        ($a:expr, $b:expr) => {
            match operator {
                Operator::Add => $a + $b,
                Operator::Subtract => $a - $b,
                Operator::Multiply => $a * $b,
                Operator::Divide => $a / $b,
                Operator::Remainder => $a % $b,
            }
        };
    }
    let (a, b) = match (left, right) {
        // A NaN that comes out is always the same one.
        (Scalar::F32(a), Scalar::F32(b)) => {
            let value = real!(*a, *b);
            return Ok(Some(Scalar::F32(if value.is_nan() { f32::NAN } else { value })));
        }
        (Scalar::F64(a), Scalar::F64(b)) => {
            let value = real!(*a, *b);
            return Ok(Some(Scalar::F64(if value.is_nan() { f64::NAN } else { value })));
        }
        _ => (whole_number(left).unwrap_or(0), whole_number(right).unwrap_or(0)),
    };
    let result = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide | Operator::Remainder if b == 0 => return Ok(None),
        Operator::Divide => a.checked_div(b),
        Operator::Remainder => a.checked_rem(b),
    };
    // What does not even fit 128 bits fits no type.
    whole(result.unwrap_or(i128::MAX), data_type).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::compare_floats;

    #[test]
    fn floats_are_compared_with_nan_above_all() {
        let (nan, one) = (Scalar::F64(f64::NAN), Scalar::F64(1.0));
        assert_eq!(order(&nan, &one), compare_floats(f64::NAN, 1.0));
        assert!(order(&nan, &one).is_gt() && order(&nan, &nan).is_eq());
        assert!(order(&Scalar::I64(-1), &Scalar::U64(u64::MAX)).is_lt());
    }
}
