//! Expressions as text, with the parentheses they need and no others.

use std::fmt;

use super::{Expr, Operator};

/// How tightly the parts of an expression hold together: what is below needs parentheses.
mod binding {
    pub(super) const OR: u8 = 1;
    pub(super) const AND: u8 = 2;
    pub(super) const NOT: u8 = 3;
    pub(super) const COMPARE: u8 = 4;
    pub(super) const SUM: u8 = 5;
    pub(super) const PRODUCT: u8 = 6;
    pub(super) const SIGN: u8 = 7;
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self, 0, f)
    }
}

/// Writes an expression; in parentheses if it binds less than `least`.
fn write(expr: &Expr, least: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let binding = match expr {
        Expr::Or(..) => binding::OR,
        Expr::And(..) => binding::AND,
        Expr::Not(_) => binding::NOT,
        Expr::Compare(..) | Expr::IsNull(_) | Expr::IsNotNull(_) | Expr::InList(..) => {
            binding::COMPARE
        }
        Expr::Arithmetic(Operator::Add | Operator::Subtract, ..) => binding::SUM,
        Expr::Arithmetic(..) => binding::PRODUCT,
        Expr::Negate(_) => binding::SIGN,
        Expr::Column(_) | Expr::Literal(_) | Expr::Null(_) => u8::MAX,
    };
    if binding < least {
        f.write_str("(")?;
        write(expr, 0, f)?;
        return f.write_str(")");
    }
    let mut pair = |left: &Expr, symbol: &str, right: &Expr, right_least: u8| {
        write(left, binding, f)?;
        write!(f, " {symbol} ")?;
        write(right, right_least, f)
    };
    match expr {
        Expr::Column(name) => write_name(name, f),
        Expr::Literal(value) => write!(f, "{value}"),
        Expr::Null(_) => f.write_str("null"),
        Expr::Compare(comparison, left, right) => {
            write(left, binding + 1, f)?;
            write!(f, " {} ", comparison.symbol())?;
            write(right, binding + 1, f)
        }
        Expr::And(left, right) => pair(left, "and", right, binding),
        Expr::Or(left, right) => pair(left, "or", right, binding),
        // A difference or a quotient on the right is not the same without its parentheses.
        Expr::Arithmetic(operator, left, right) => {
            pair(left, operator.symbol(), right, binding + 1)
        }
        Expr::Not(inner) => {
            f.write_str("not ")?;
            write(inner, binding, f)
        }
        Expr::Negate(inner) => {
            f.write_str("-")?;
            match &**inner {
                // A sign right before a number is part of it.
                Expr::Literal(value) => write!(f, "({value})"),
                inner => write(inner, binding + 1, f),
            }
        }
        Expr::IsNull(inner) => {
            write(inner, binding + 1, f)?;
            f.write_str(" is null")
        }
        Expr::IsNotNull(inner) => {
            write(inner, binding + 1, f)?;
            f.write_str(" is not null")
        }
        Expr::InList(inner, values) => {
            write(inner, binding + 1, f)?;
            f.write_str(" in (")?;
            for (index, value) in values.iter().enumerate() {
                f.write_str(if index == 0 { "" } else { ", " })?;
                match value {
                    Some(value) => write!(f, "{value}")?,
                    None => f.write_str("null")?,
                }
            }
            f.write_str(")")
        }
    }
}

/// Words that stand for something else than a column.
const RESERVED: [&str; 12] =
    ["and", "as", "between", "distinct", "false", "in", "is", "like", "not", "null", "or", "true"];

impl Expr {
    /// Whether a word means something else than the column of that name, unless it is in quotes.
    #[must_use]
    pub fn is_reserved(word: &str) -> bool {
        RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
    }
}

/// A name as it is, or in quotes if it could be taken for something else.
fn write_name(name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut letters = name.chars();
    let plain = letters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_alphanumeric() || "_.".contains(letter))
        && !Expr::is_reserved(name);
    if plain { f.write_str(name) } else { write!(f, "\"{}\"", name.replace('"', "\"\"")) }
}
