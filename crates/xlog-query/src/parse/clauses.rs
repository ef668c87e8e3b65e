//! The lists that queries are made of: columns, aggregates, sort keys, join keys.

use std::fmt;

use xlog_relational::{AggregateFunction, Expr, SortKey};

use super::{ParseError, expression::expression, lexer::TokenKind, parser::Parser};

/// A column of a result: what it is made of, and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// What it is made of.
    pub expr: Expr,
    /// What it is called.
    pub name: String,
}

/// One item of a selection.
#[derive(Clone, Debug, PartialEq)]
pub enum Selected {
    /// Every column there is.
    All,
    /// One column.
    One(Output),
}

/// A figure of each group.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateOutput {
    /// What is worked out.
    pub function: AggregateFunction,
    /// Of what; [`AggregateFunction::CountRows`] has none.
    pub of: Option<Expr>,
    /// What the result is called.
    pub name: String,
}

/// A key of a join: a column of each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinKey {
    /// The left side's column.
    pub left: String,
    /// The right side's column.
    pub right: String,
}

impl fmt::Display for JoinKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |name: &str| Expr::Column(name.to_owned());
        write!(f, "{}={}", name(&self.left), name(&self.right))
    }
}

pub(super) fn selection(parser: &mut Parser<'_>) -> Result<Vec<Selected>, ParseError> {
    let items = parser.list(|parser| match parser.take("*") {
        true => Ok(Selected::All),
        false => output(parser).map(Selected::One),
    })?;
    parser.end("a comma, an operator, or \"as\" and a name")?;
    Ok(items)
}

pub(super) fn outputs(parser: &mut Parser<'_>) -> Result<Vec<Output>, ParseError> {
    let items = parser.list(output)?;
    parser.end("a comma, an operator, or \"as\" and a name")?;
    Ok(items)
}

/// `expression`, or `expression as name`. A column keeps its name, anything else is called as it
/// is written.
fn output(parser: &mut Parser<'_>) -> Result<Output, ParseError> {
    let start = parser.at();
    let expr = expression(parser)?;
    let name = match (&expr, parser.peek().is_word("as")) {
        (Expr::Column(name), false) => name.clone(),
        (_, false) => parser.written_since(start).to_owned(),
        (_, true) => alias(parser)?,
    };
    Ok(Output { expr, name })
}

fn alias(parser: &mut Parser<'_>) -> Result<String, ParseError> {
    parser.expect_word("as")?;
    parser.name("a name")
}

pub(super) fn aggregates(parser: &mut Parser<'_>) -> Result<Vec<AggregateOutput>, ParseError> {
    let items = parser.list(aggregate)?;
    parser.end("a comma, or \"as\" and a name")?;
    Ok(items)
}

/// The functions by the names they are called by.
const FUNCTIONS: [(&str, AggregateFunction); 8] = [
    ("count", AggregateFunction::Count),
    ("sum", AggregateFunction::Sum),
    ("mean", AggregateFunction::Mean),
    ("avg", AggregateFunction::Mean),
    ("min", AggregateFunction::Min),
    ("max", AggregateFunction::Max),
    ("count_distinct", AggregateFunction::CountDistinct),
    ("count_rows", AggregateFunction::CountRows),
];

fn aggregate(parser: &mut Parser<'_>) -> Result<AggregateOutput, ParseError> {
    let start = parser.at();
    let called = match parser.peek() {
        TokenKind::Word(word) => word.clone(),
        _ => return Err(parser.expected("an aggregate, such as sum(amount)")),
    };
    let known = FUNCTIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&called));
    let Some((_, function)) = known else {
        let nearest = crate::nearest::nearest(&called, FUNCTIONS.iter().map(|(name, _)| *name));
        let meant = nearest.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default();
        let message = format!("{called:?} is no aggregate{meant}");
        let all = "there are count, sum, mean, min, max and count(distinct …)";
        return Err(parser.error(format!("{message}; {all}")));
    };
    parser.advance();
    parser.expect("(")?;
    let (function, of) = match *function {
        AggregateFunction::Count if parser.take("*") => (AggregateFunction::CountRows, None),
        AggregateFunction::Count if parser.take_word("distinct") => {
            (AggregateFunction::CountDistinct, Some(expression(parser)?))
        }
        AggregateFunction::CountRows => (AggregateFunction::CountRows, None),
        _ if parser.peek().is("*") => {
            return Err(parser.error(format!("only count takes *; name a column of {called}")));
        }
        function => (function, Some(expression(parser)?)),
    };
    parser.expect(")")?;
    let name = match parser.peek().is_word("as") {
        true => alias(parser)?,
        false => parser.written_since(start).to_owned(),
    };
    Ok(AggregateOutput { function, of, name })
}

/// `column`, `column:desc`, `column:asc:nulls-first`.
pub(super) fn sort_keys(parser: &mut Parser<'_>) -> Result<Vec<SortKey>, ParseError> {
    let keys = parser.list(|parser| {
        let mut key = SortKey::new(parser.name("a column")?);
        while parser.take(":") {
            if parser.take_word("desc") {
                key.descending = true;
            } else if parser.take_word("asc") {
                key.descending = false;
            } else if parser.take_word("nulls") {
                parser.expect("-")?;
                key.nulls_first = parser.take_word("first");
                if !key.nulls_first {
                    parser.expect_word("last")?;
                }
            } else {
                return Err(parser.expected("asc, desc, nulls-first or nulls-last"));
            }
        }
        Ok(key)
    })?;
    parser.end("a comma, or \":desc\"")?;
    Ok(keys)
}

/// `column`, or `left_column=right_column`.
pub(super) fn join_keys(parser: &mut Parser<'_>) -> Result<Vec<JoinKey>, ParseError> {
    let keys = parser.list(|parser| {
        let left = parser.name("a column")?;
        let right = match parser.take("=") {
            true => parser.name("a column of the right table")?,
            false => left.clone(),
        };
        Ok(JoinKey { left, right })
    })?;
    parser.end("a comma, or \"=\" and a column of the right table")?;
    Ok(keys)
}
