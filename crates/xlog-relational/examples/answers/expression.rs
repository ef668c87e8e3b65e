//! Expressions as the folder keeps them: lists whose first item says what they are.

use serde_json::Value;
use xlog_relational::{Comparison, Expr, Operator, col, null};

use crate::{
    Failure, list_of,
    table::{data_type, scalar},
    text_of,
};

/// The expression that `json` stands for.
pub(crate) fn expression(json: &Value) -> Result<Expr, Failure> {
    let kind = text_of(&json[0])?;
    let one = || expression(&json[1]).map(Box::new);
    let two = || -> Result<_, Failure> { Ok((one()?, Box::new(expression(&json[2])?))) };
    if let Some(comparison) = Comparison::ALL.into_iter().find(|known| known.symbol() == kind) {
        let (left, right) = two()?;
        return Ok(Expr::Compare(comparison, left, right));
    }
    if let Some(operator) = Operator::ALL.into_iter().find(|known| known.symbol() == kind) {
        let (left, right) = two()?;
        return Ok(Expr::Arithmetic(operator, left, right));
    }
    Ok(match kind {
        "column" => col(text_of(&json[1])?),
        "literal" => {
            let value = scalar(data_type(&json[1])?, &json[2])?;
            Expr::Literal(value.ok_or("a literal has a value")?)
        }
        "null" => null(data_type(&json[1])?),
        "and" => two().map(|(left, right)| Expr::And(left, right))?,
        "or" => two().map(|(left, right)| Expr::Or(left, right))?,
        "not" => Expr::Not(one()?),
        "is_null" => Expr::IsNull(one()?),
        "is_not_null" => Expr::IsNotNull(one()?),
        "negate" => Expr::Negate(one()?),
        "in" => {
            let values: Result<Vec<_>, Failure> = list_of(&json[2])?
                .iter()
                .map(|value| match value {
                    Value::Null => Ok(None),
                    typed => scalar(data_type(&typed[0])?, &typed[1]),
                })
                .collect();
            Expr::InList(one()?, values?)
        }
        other => return Err(format!("there is no expression {other}").into()),
    })
}
