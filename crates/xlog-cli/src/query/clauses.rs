//! The clauses that every command takes.

use clap::{Args, ValueEnum};
use xlog_query::{
    QueryError, parse,
    plan::{Clause, SetKind, Step},
};
use xlog_relational::JoinKind;

/// What is done with the rows, in this order.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clauses, applied in this order")]
pub(crate) struct Clauses {
    /// Keep the rows for which this holds, as "amount > 100 and region = 'north'"
    #[arg(id = "filter", long = "where", value_name = "EXPRESSION")]
    pub(super) filter: Option<String>,
    /// Group by these columns or expressions, as "region, amount / 100 as hundreds"
    #[arg(id = "group", long, value_name = "COLUMNS")]
    pub(super) group: Option<String>,
    /// Figures of each group, as "sum(amount) as total, count(*)"
    #[arg(id = "aggregates", long = "agg", value_name = "AGGREGATES")]
    pub(super) aggregates: Option<String>,
    /// Keep the groups for which this holds
    #[arg(id = "having", long, value_name = "EXPRESSION")]
    having: Option<String>,
    /// The columns of the result, as "name, price * 2 as double"; * stands for all there are
    #[arg(id = "select", long, value_name = "COLUMNS")]
    select: Option<String>,
    /// Keep every different row once
    #[arg(id = "distinct", long)]
    pub(super) distinct: bool,
    /// Sort by these columns, as "total:desc,name:asc:nulls-first"
    #[arg(id = "sort", long, value_name = "KEYS")]
    sort: Option<String>,
    /// Leave out that many rows before the first
    #[arg(id = "offset", long, value_name = "ROWS", default_value_t = 0)]
    offset: u64,
    /// Keep that many rows at most
    #[arg(id = "limit", long, value_name = "ROWS")]
    limit: Option<u64>,
}

/// The clause that a command calls `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Neither,
    Group,
    Sort,
}

impl By {
    /// What a clause is called in errors.
    fn name(self, clause: Self, otherwise: &'static str) -> &'static str {
        if self == clause { "--by" } else { otherwise }
    }
}

impl Clauses {
    /// The step that these are, over a table.
    pub(super) fn step(&self, from: &str, by: By) -> Result<Step, QueryError> {
        let (group, sort) = (by.name(By::Group, "--group"), by.name(By::Sort, "--sort"));
        Ok(Step {
            name: String::new(),
            from: from.to_owned(),
            combination: None,
            filter: read("--where", &self.filter, parse::expression)?,
            group: read(group, &self.group, parse::outputs)?,
            aggregates: read("--agg", &self.aggregates, parse::aggregates)?,
            having: read("--having", &self.having, parse::expression)?,
            select: read("--select", &self.select, parse::selection)?,
            distinct: self.distinct,
            sort: read(sort, &self.sort, parse::sort_keys)?,
            offset: self.offset,
            limit: self.limit,
        })
    }
}

fn read<T>(
    name: &str,
    text: &Option<String>,
    parse: impl FnOnce(&str) -> Result<T, parse::ParseError>,
) -> Result<Option<Clause<T>>, QueryError> {
    text.as_ref().map(|text| Clause::read(name, text, parse)).transpose()
}

/// Which rows a join keeps, as the command line names it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum JoinChoice {
    /// Rows with a partner
    Inner,
    /// And left rows without one
    Left,
    /// And right rows without one
    Right,
    /// And rows of both sides without one
    Full,
    /// Left rows with a partner, once each, and no columns of the right side
    Semi,
    /// Left rows without a partner
    Anti,
}

impl From<JoinChoice> for JoinKind {
    fn from(choice: JoinChoice) -> Self {
        match choice {
            JoinChoice::Inner => Self::Inner,
            JoinChoice::Left => Self::Left,
            JoinChoice::Right => Self::Right,
            JoinChoice::Full => Self::Full,
            JoinChoice::Semi => Self::Semi,
            JoinChoice::Anti => Self::Anti,
        }
    }
}

/// Which rows of two tables are kept, as the command line names it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SetChoice {
    /// Rows of either
    Union,
    /// Rows of both
    Intersect,
    /// Rows of the first that are not in the second
    Except,
}

impl SetChoice {
    /// The kind of set; with `all`, rows are kept as often as they are there.
    pub(super) fn kind(self, all: bool) -> SetKind {
        match self {
            Self::Union => SetKind::Union { all },
            Self::Intersect => SetKind::Intersect { all },
            Self::Except => SetKind::Except { all },
        }
    }
}
