//! Operators over operators, with the columns of each.

use xlog_relational::{Aggregate, Expr, JoinKind, Schema, SortKey};

use super::SetKind;

/// A query in which every name is a column and every type is known.
#[derive(Debug, Default)]
pub(crate) struct LogicalPlan {
    /// Each after those it reads.
    pub(crate) nodes: Vec<LogicalNode>,
    /// The nodes that are results.
    pub(crate) outputs: Vec<usize>,
}

/// One operator.
#[derive(Clone, Debug)]
pub(crate) struct LogicalNode {
    pub(crate) operation: Operation,
    pub(crate) inputs: Vec<usize>,
    pub(crate) schema: Schema,
    /// The step it belongs to, for messages.
    pub(crate) step: String,
}

/// What an operator does.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Reads an input.
    Scan { source: usize },
    /// Keeps rows.
    Filter(Expr),
    /// Makes columns.
    Project(Vec<(String, Expr)>),
    /// Joins two tables.
    Join(JoinSpec),
    /// Figures of groups.
    Group { keys: Vec<String>, aggregates: Vec<Aggregate> },
    /// Every different row once.
    Distinct,
    /// Rows in an order; only the first ones if a number is given.
    Sort { keys: Vec<SortKey>, first: Option<u64> },
    /// A window of rows.
    Limit { offset: u64, count: u64 },
    /// Two tables as sets.
    Set(SetKind),
}

/// A join, and where the columns of its result come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JoinSpec {
    pub(crate) kind: JoinKind,
    /// A column of each side for each key, of the same type.
    pub(crate) on: Vec<(String, String)>,
    /// Columns of the left side in the result, and what they are called there.
    pub(crate) left: Vec<(String, String)>,
    /// The same for the right side; they stand behind the left ones.
    pub(crate) right: Vec<(String, String)>,
}

impl JoinSpec {
    /// Where a column of the result comes from: whether from the left side, and its name there.
    pub(crate) fn origin(&self, name: &str) -> Option<(bool, &str)> {
        let find = |side: &'_ [(String, String)]| side.iter().position(|(_, out)| out == name);
        let left = find(&self.left).map(|index| (true, self.left[index].0.as_str()));
        left.or_else(|| find(&self.right).map(|index| (false, self.right[index].0.as_str())))
    }
}

/// Calls `seen` with every column that an expression speaks of.
pub(crate) fn columns_of(expr: &Expr, seen: &mut impl FnMut(&str)) {
    match expr {
        Expr::Column(name) => seen(name),
        Expr::Compare(_, a, b) | Expr::And(a, b) | Expr::Or(a, b) | Expr::Arithmetic(_, a, b) => {
            columns_of(a, seen);
            columns_of(b, seen);
        }
        Expr::Not(a) | Expr::IsNull(a) | Expr::IsNotNull(a) | Expr::Negate(a) => {
            columns_of(a, seen);
        }
        Expr::InList(a, _) => columns_of(a, seen),
        _ => {}
    }
}

/// The same expression over other names.
pub(crate) fn renamed(expr: &Expr, name: &impl Fn(&str) -> String) -> Expr {
    let part = |part: &Expr| Box::new(renamed(part, name));
    match expr {
        Expr::Column(column) => Expr::Column(name(column)),
        Expr::Compare(comparison, a, b) => Expr::Compare(*comparison, part(a), part(b)),
        Expr::And(a, b) => Expr::And(part(a), part(b)),
        Expr::Or(a, b) => Expr::Or(part(a), part(b)),
        Expr::Arithmetic(operator, a, b) => Expr::Arithmetic(*operator, part(a), part(b)),
        Expr::Not(a) => Expr::Not(part(a)),
        Expr::IsNull(a) => Expr::IsNull(part(a)),
        Expr::IsNotNull(a) => Expr::IsNotNull(part(a)),
        Expr::Negate(a) => Expr::Negate(part(a)),
        Expr::InList(a, values) => Expr::InList(part(a), values.clone()),
        other => other.clone(),
    }
}

/// The parts of an expression that all must hold.
pub(crate) fn conjuncts(expr: Expr, into: &mut Vec<Expr>) {
    match expr {
        Expr::And(a, b) => {
            conjuncts(*a, into);
            conjuncts(*b, into);
        }
        other => into.push(other),
    }
}

/// Parts as one expression; `None` without any.
pub(crate) fn conjunction(parts: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    parts.into_iter().reduce(Expr::and)
}
