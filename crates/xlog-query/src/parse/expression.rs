//! Expressions, by how tightly their operators bind.

use xlog_relational::{
    Comparison, Expr, Operator, Scalar,
    calendar::{parse_date, parse_timestamp},
    col, lit,
};

use super::{ParseError, lexer::TokenKind, parser::Parser};

/// How tightly operators bind, the loosest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Or,
    And,
    Compare,
    Sum,
    Product,
}

/// The most operators of one text. A longer chain makes a tree that is as deep.
const LONGEST: usize = 512;

/// What an operator between two values makes of them.
enum Infix {
    And,
    Or,
    Compare(Comparison),
    Arithmetic(Operator),
    /// `is`, `in`, `between`, and `not` before one of those.
    Word,
}

/// An expression as a whole.
pub(super) fn expression(parser: &mut Parser<'_>) -> Result<Expr, ParseError> {
    Reader { operators: 0 }.part(parser, Binding::Or)
}

/// Counts the operators of one expression.
struct Reader {
    operators: usize,
}

impl Reader {
    /// A part whose operators bind at least that tightly.
    fn part(&mut self, parser: &mut Parser<'_>, least: Binding) -> Result<Expr, ParseError> {
        let mut left = self.first(parser, least)?;
        let mut compared = false;
        while let Some((binding, infix)) = infix(parser).filter(|(binding, _)| *binding >= least) {
            self.count(parser)?;
            if compared && binding == Binding::Compare {
                let message = "comparisons do not chain; join two of them with \"and\"";
                return Err(parser.error(message));
            }
            compared = binding == Binding::Compare;
            left = match infix {
                Infix::Word => self.word(parser, left)?,
                Infix::And => {
                    parser.advance();
                    left.and(self.part(parser, Binding::Compare)?)
                }
                Infix::Or => {
                    parser.advance();
                    left.or(self.part(parser, Binding::And)?)
                }
                Infix::Compare(comparison) => {
                    parser.advance();
                    let right = self.part(parser, Binding::Sum)?;
                    Expr::Compare(comparison, Box::new(left), Box::new(right))
                }
                Infix::Arithmetic(operator) => {
                    parser.advance();
                    let right = match binding {
                        Binding::Sum => self.part(parser, Binding::Product)?,
                        _ => self.factor(parser)?,
                    };
                    Expr::Arithmetic(operator, Box::new(left), Box::new(right))
                }
            };
        }
        Ok(left)
    }

    fn count(&mut self, parser: &Parser<'_>) -> Result<(), ParseError> {
        self.operators += 1;
        if self.operators > LONGEST {
            let message = format!("more than {LONGEST} operators; use \"in\", or split it");
            return Err(parser.error(message));
        }
        Ok(())
    }

    /// The part before the first operator: `not` binds less than what it stands before.
    fn first(&mut self, parser: &mut Parser<'_>, least: Binding) -> Result<Expr, ParseError> {
        if least <= Binding::Compare && parser.take_word("not") {
            self.count(parser)?;
            return Ok(!parser.nested(|parser| self.part(parser, Binding::Compare))?);
        }
        self.factor(parser)
    }

    /// `is null`, `in (…)`, `between … and …`, each with a `not` or without.
    fn word(&mut self, parser: &mut Parser<'_>, left: Expr) -> Result<Expr, ParseError> {
        if parser.take_word("is") {
            let not = parser.take_word("not");
            parser.expect_word("null")?;
            return Ok(if not { left.is_not_null() } else { left.is_null() });
        }
        let not = parser.take_word("not");
        let positive = if parser.take_word("in") {
            parser.expect("(")?;
            let values = match parser.peek().is(")") {
                true => Vec::new(),
                false => parser.list(list_value)?,
            };
            parser.expect(")")?;
            Expr::InList(Box::new(left), values)
        } else if parser.take_word("between") {
            let low = self.part(parser, Binding::Sum)?;
            parser.expect_word("and")?;
            let high = self.part(parser, Binding::Sum)?;
            // What is between stands in the result twice.
            self.operators += size(&left);
            self.count(parser)?;
            left.between(low, high)
        } else if parser.peek().is_word("like") {
            return Err(parser.error("patterns are not supported; compare with =, or use \"in\""));
        } else {
            return Err(parser.expected("\"in\" or \"between\""));
        };
        Ok(if not { !positive } else { positive })
    }

    /// A value, a column, or a part in parentheses.
    fn factor(&mut self, parser: &mut Parser<'_>) -> Result<Expr, ParseError> {
        if parser.take("-") {
            self.count(parser)?;
            if matches!(parser.peek(), TokenKind::Whole(_) | TokenKind::Real(_)) {
                return Ok(Expr::Literal(number(parser, true)?));
            }
            return Ok(-parser.nested(|parser| self.factor(parser))?);
        }
        if parser.take("+") {
            self.count(parser)?;
            return parser.nested(|parser| self.factor(parser));
        }
        if parser.take("(") {
            let inner = parser.nested(|parser| self.part(parser, Binding::Or))?;
            parser.expect(")")?;
            return Ok(inner);
        }
        if parser.peek().is_word("null") {
            let message = "a bare null has no type; test for it with \"is null\"";
            return Err(parser.error(message));
        }
        if let Some(value) = literal(parser)? {
            return Ok(lit(value));
        }
        let is_call = parser.peek_second().is("(");
        match parser.peek() {
            TokenKind::Word(word) if is_call && !Expr::is_reserved(word) => {
                let message = format!("there is no function {word:?} in an expression");
                Err(parser.error(format!("{message}; figures of groups go with aggregates")))
            }
            _ => Ok(col(parser.name("a value")?)),
        }
    }
}

/// The operator that comes next, if one does.
fn infix(parser: &Parser<'_>) -> Option<(Binding, Infix)> {
    Some(match parser.peek() {
        TokenKind::Symbol(symbol) => {
            let comparison = Comparison::ALL.into_iter().find(|own| own.symbol() == *symbol);
            let operator = Operator::ALL.into_iter().find(|own| own.symbol() == *symbol);
            match (comparison, operator) {
                (Some(comparison), _) => (Binding::Compare, Infix::Compare(comparison)),
                (_, Some(operator @ (Operator::Add | Operator::Subtract))) => {
                    (Binding::Sum, Infix::Arithmetic(operator))
                }
                (_, Some(operator)) => (Binding::Product, Infix::Arithmetic(operator)),
                _ => return None,
            }
        }
        word if word.is_word("and") => (Binding::And, Infix::And),
        word if word.is_word("or") => (Binding::Or, Infix::Or),
        word if ["is", "in", "between", "not", "like"].iter().any(|w| word.is_word(w)) => {
            (Binding::Compare, Infix::Word)
        }
        _ => return None,
    })
}

/// A value of a list: a literal with or without a sign, or null.
fn list_value(parser: &mut Parser<'_>) -> Result<Option<Scalar>, ParseError> {
    if parser.take_word("null") {
        return Ok(None);
    }
    if parser.take("-") {
        return number(parser, true).map(Some);
    }
    match literal(parser)? {
        Some(value) => Ok(Some(value)),
        None => Err(parser.expected("a number, a text in single quotes, or null")),
    }
}

/// The literal that comes next, if one does.
fn literal(parser: &mut Parser<'_>) -> Result<Option<Scalar>, ParseError> {
    let text_follows = matches!(parser.peek_second(), TokenKind::Text(_));
    Ok(Some(match parser.peek() {
        TokenKind::Text(text) => {
            let value = Scalar::from(text.as_str());
            parser.advance();
            value
        }
        TokenKind::Whole(_) | TokenKind::Real(_) => number(parser, false)?,
        word if word.is_word("true") || word.is_word("false") => {
            let value = word.is_word("true");
            parser.advance();
            Scalar::Bool(value)
        }
        word if word.is_word("date") && text_follows => {
            let form = "a date is written '2024-01-31'";
            dated(parser, form, |text| parse_date(text).map(Scalar::Date32))?
        }
        word if word.is_word("timestamp") && text_follows => {
            let form = "a timestamp is written '2024-01-31 12:30:00'";
            dated(parser, form, |text| parse_timestamp(text).map(Scalar::Timestamp))?
        }
        _ => return Ok(None),
    }))
}

/// A keyword, and the text behind it as `read` takes it.
fn dated(
    parser: &mut Parser<'_>,
    form: &str,
    read: impl Fn(&str) -> Option<Scalar>,
) -> Result<Scalar, ParseError> {
    parser.advance();
    let at = parser.at();
    let TokenKind::Text(text) = parser.advance() else {
        return Err(parser.error_at(form, at));
    };
    read(&text).ok_or_else(|| parser.error_at(format!("'{text}' is none: {form}"), at))
}

/// The number that comes next, with the other sign if `negative`.
fn number(parser: &mut Parser<'_>, negative: bool) -> Result<Scalar, ParseError> {
    let at = parser.at();
    let value = match parser.peek() {
        TokenKind::Whole(whole) if negative => 0i64.checked_sub_unsigned(*whole).map(Scalar::I64),
        TokenKind::Whole(whole) => {
            Some(i64::try_from(*whole).map_or(Scalar::U64(*whole), Scalar::I64))
        }
        TokenKind::Real(real) => Some(Scalar::F64(if negative { -real } else { *real })),
        _ => return Err(parser.expected("a number")),
    };
    parser.advance();
    value.ok_or_else(|| parser.error_at("this number is too small; write it as -1e20", at))
}

/// How many parts an expression has.
fn size(expr: &Expr) -> usize {
    1 + match expr {
        Expr::Compare(_, a, b) | Expr::And(a, b) | Expr::Or(a, b) | Expr::Arithmetic(_, a, b) => {
            size(a) + size(b)
        }
        Expr::Not(a) | Expr::IsNull(a) | Expr::IsNotNull(a) | Expr::Negate(a) => size(a),
        Expr::InList(a, values) => size(a) + values.len(),
        _ => 0,
    }
}
