//! What a query is made of, however it was written.
//!
//! A [`Query`] is a list of steps, each with the clauses of one command, and the tables that are
//! its results. The command line makes a query of one step, and a plan file one of several.

mod build;
mod file;
mod logical;
mod prune;
#[cfg(test)]
mod tests;

pub use file::{PlanFile, PlanInput, PlanOutput};
pub(crate) use logical::{JoinSpec, LogicalNode, LogicalPlan, Operation};

use xlog_relational::{Expr, JoinKind, SortKey};

use crate::{
    error::{QueryError, QueryResult},
    parse::{self, AggregateOutput, JoinKey, Output, ParseError, Selected},
};

/// A clause as it was written, and what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause<T> {
    /// What the user calls it.
    pub name: String,
    /// The text.
    pub text: String,
    /// What it says.
    pub value: T,
}

impl<T> Clause<T> {
    /// Reads a text; an error names the clause.
    pub fn read(
        name: impl Into<String>,
        text: impl Into<String>,
        read: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> QueryResult<Self> {
        let (name, text) = (name.into(), text.into());
        match read(&text) {
            Ok(value) => Ok(Self { name, text, value }),
            Err(error) => Err(QueryError::Parse { clause: name, error }),
        }
    }

    /// An error about one of the names in it.
    pub(crate) fn about(&self, column: &str, message: impl Into<String>) -> QueryError {
        let error = parse::about_name(&self.text, column, message);
        QueryError::Parse { clause: self.name.clone(), error }
    }
}

/// Which rows of two tables are in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// All of both; once each, or as often as they are there.
    Union {
        /// Whether rows are kept as often as they are there.
        all: bool,
    },
    /// Those of both.
    Intersect {
        /// Whether they are counted.
        all: bool,
    },
    /// Those of the first that are not in the second.
    Except {
        /// Whether they are counted.
        all: bool,
    },
}

/// A second table, and how it is combined with the first.
#[derive(Clone, Debug, PartialEq)]
pub enum Combination {
    /// By equal keys.
    Join {
        /// The second table's name.
        with: String,
        /// The keys.
        on: Clause<Vec<JoinKey>>,
        /// Which rows are kept.
        kind: JoinKind,
    },
    /// As sets of rows.
    Set {
        /// The second table's name.
        with: String,
        /// Which rows are kept.
        kind: SetKind,
    },
}

/// One step: its clauses are applied in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// What others call its result.
    pub name: String,
    /// The table it reads: an input or a step before it.
    pub from: String,
    /// A second table.
    pub combination: Option<Combination>,
    /// Which rows are kept.
    pub filter: Option<Clause<Expr>>,
    /// What rows are grouped by.
    pub group: Option<Clause<Vec<Output>>>,
    /// The figures of each group; of all rows, without groups.
    pub aggregates: Option<Clause<Vec<AggregateOutput>>>,
    /// Which groups are kept.
    pub having: Option<Clause<Expr>>,
    /// Which columns there are.
    pub select: Option<Clause<Vec<Selected>>>,
    /// Whether every different row is kept once only.
    pub distinct: bool,
    /// The order of the rows.
    pub sort: Option<Clause<Vec<SortKey>>>,
    /// How many rows are left out before the first.
    pub offset: u64,
    /// How many rows are kept at most.
    pub limit: Option<u64>,
}

/// Steps, and which tables are the results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// The steps, each after those it reads.
    pub steps: Vec<Step>,
    /// Names of the tables that are results: steps, or inputs as they are.
    pub outputs: Vec<String>,
}
