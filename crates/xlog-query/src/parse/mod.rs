//! Expressions and the clauses of queries, as text.
//!
//! Names are columns, in "double quotes" (or `back ticks`) where they could be taken for something
//! else; text stands in 'single quotes', in which '' is a quote. Keywords are the same in upper and
//! lower case. The operators, the loosest first:
//!
//! | | |
//! |---|---|
//! | `or` | at least one holds |
//! | `and` | both hold |
//! | `not` | it does not hold |
//! | `= <> < <= > >=`, `is [not] null`, `[not] in (…)`, `[not] between … and …` | comparisons |
//! | `+ -` | sums |
//! | `* / %` | products |
//! | `-` | a sign |
//!
//! Nothing here knows the columns: what an expression means for a table is
//! [`Expr::check`]'s to say.

mod clauses;
mod error;
mod expression;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;

pub use clauses::{AggregateOutput, JoinKey, Output, Selected};
pub use error::ParseError;

use xlog_relational::{Expr, SortKey};

use lexer::TokenKind;
use parser::Parser;

/// An expression.
///
/// ```
/// use xlog_query::parse;
///
/// let text = "amount > 100 and region in ('north', 'south') or not (name is null)";
/// assert_eq!(parse::expression(text)?.to_string(),
///            "amount > 100 and region in ('north', 'south') or not name is null");
/// let error = parse::expression("amount >").unwrap_err().to_string();
/// assert!(error.contains("expected a value"), "{error}");
/// # Ok::<(), parse::ParseError>(())
/// ```
pub fn expression(text: &str) -> Result<Expr, ParseError> {
    let mut parser = Parser::new(text)?;
    let expr = expression::expression(&mut parser)?;
    parser.end("an operator, or the end")?;
    Ok(expr)
}

/// Columns to select: `*`, names, and expressions with a name (`price * 2 as double`).
pub fn selection(text: &str) -> Result<Vec<Selected>, ParseError> {
    clauses::selection(&mut Parser::new(text)?)
}

/// Columns to group by: names, and expressions with a name.
pub fn outputs(text: &str) -> Result<Vec<Output>, ParseError> {
    clauses::outputs(&mut Parser::new(text)?)
}

/// Aggregates: `sum(amount) as total, count(*), count(distinct name), mean(price * 2)`.
///
/// ```
/// use xlog_query::parse;
///
/// let figures = parse::aggregates("sum(price * quantity) as total, count(*)")?;
/// assert_eq!((figures[0].name.as_str(), figures[1].name.as_str()), ("total", "count(*)"));
/// # Ok::<(), parse::ParseError>(())
/// ```
pub fn aggregates(text: &str) -> Result<Vec<AggregateOutput>, ParseError> {
    clauses::aggregates(&mut Parser::new(text)?)
}

/// Keys to sort by: `total:desc, name:asc:nulls-first`.
pub fn sort_keys(text: &str) -> Result<Vec<SortKey>, ParseError> {
    clauses::sort_keys(&mut Parser::new(text)?)
}

/// Keys to join on: `customer_id=id, region`.
pub fn join_keys(text: &str) -> Result<Vec<JoinKey>, ParseError> {
    clauses::join_keys(&mut Parser::new(text)?)
}

/// Names of columns.
pub fn names(text: &str) -> Result<Vec<String>, ParseError> {
    let mut parser = Parser::new(text)?;
    let names = parser.list(|parser| parser.name("a column"))?;
    parser.end("a comma, or the end")?;
    Ok(names)
}

/// An error about `name`, at the place of `text` where it is first spoken of.
pub fn about_name(text: &str, name: &str, message: impl Into<String>) -> ParseError {
    let tokens = lexer::tokens(text).unwrap_or_default();
    let found = tokens.iter().find(
        |token| matches!(&token.kind, TokenKind::Word(own) | TokenKind::Quoted(own) if own == name),
    );
    ParseError::new(message, text, found.map_or(0, |token| token.at))
}
