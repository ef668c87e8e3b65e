//! The stages of a pipeline while rows go through it.

use xlog_relational::{Expr, RelationalError, RelationalResult, SortKey, Table, ops};

use super::{
    Context,
    accumulate::{Accumulator, Different, Kept},
    groups::{GroupParts, Groups},
    physical::{End, Pipeline, Stage},
    probe::{Build, ProbeState},
    schema::row_bytes,
    write::Writing,
};
use crate::{
    error::{QueryError, QueryResult},
    plan::SetKind,
};
use xlog_cuda::device_runtime::StreamId;

/// A pipeline that is under way.
pub(super) struct Chain<'c> {
    context: &'c Context<'c>,
    stages: Vec<State<'c>>,
    end: EndState<'c>,
    /// Rows that reached the end, and how much of the input they are of.
    rows: u64,
    fraction: Option<f64>,
    /// Whether it got anything, rows or not.
    fed: bool,
}

/// What a worker made of its rows.
pub(super) enum Parts {
    /// Figures of groups, and different values.
    Groups(GroupParts),
    /// Different rows.
    Rows(Kept),
}

enum State<'c> {
    Filter(&'c Expr),
    Project(Vec<(&'c str, Expr)>),
    Probe(ProbeState<'c>),
    Limit { skip: u64, left: u64 },
}

enum EndState<'c> {
    Collect(Vec<Table>),
    Sort(Vec<Table>, &'c [SortKey]),
    First { best: Option<Table>, keys: &'c [SortKey], count: u64 },
    Group(Box<Groups<'c>>),
    Distinct(Accumulator),
    Set { tables: Vec<Table>, other: Table, kind: SetKind },
    Write(Writing<'c>),
}

/// The tables that a pipeline's joins look rows up in, made once for all its workers.
pub(super) fn builds(
    context: &Context<'_>,
    pipeline: &Pipeline,
    tables: &[Table],
) -> QueryResult<Vec<Build>> {
    let probes = pipeline.stages.iter().filter_map(|stage| match stage {
        Stage::Probe(probe) => Some(probe),
        _ => None,
    });
    probes.map(|probe| Build::new(probe, &tables[probe.build], context.stream)).collect()
}

impl<'c> Chain<'c> {
    pub(super) fn new(
        context: &'c Context<'c>,
        pipeline: &'c Pipeline,
        tables: &[Table],
        builds: &[Build],
    ) -> QueryResult<Self> {
        let mut builds = builds.iter();
        let mut stages = Vec::with_capacity(pipeline.stages.len());
        for stage in &pipeline.stages {
            stages.push(match stage {
                Stage::Filter(expr) => State::Filter(expr),
                Stage::Project(columns) => {
                    let columns = columns.iter().map(|(name, expr)| (name.as_str(), expr.clone()));
                    State::Project(columns.collect())
                }
                Stage::Probe(probe) => {
                    let build = builds.next().ok_or_else(nothing)?.clone();
                    State::Probe(ProbeState::new(context, probe, build))
                }
                Stage::Limit { offset, count } => State::Limit { skip: *offset, left: *count },
            });
        }
        let end = match &pipeline.end {
            End::Collect => EndState::Collect(Vec::new()),
            End::Sort(keys) => EndState::Sort(Vec::new(), keys),
            End::First(keys, count) => EndState::First { best: None, keys, count: *count },
            End::Group { keys, aggregates } => {
                let schema = &pipeline.schema;
                EndState::Group(Box::new(Groups::new(context, keys, aggregates, schema)))
            }
            End::Distinct => {
                let schema = &pipeline.schema;
                let columns = schema.fields().iter().map(|field| field.name.as_str());
                EndState::Distinct(Accumulator::new(context, schema, columns))
            }
            End::Set { other, kind } => {
                EndState::Set { tables: Vec::new(), other: tables[*other].clone(), kind: *kind }
            }
            End::Write(sink) => EndState::Write(Writing::begin(context, *sink, &pipeline.schema)?),
        };
        Ok(Self { context, stages, end, rows: 0, fraction: None, fed: false })
    }

    /// Notes how much of the input has been read.
    pub(super) fn seen(&mut self, fraction: Option<f64>) {
        self.fraction = fraction;
    }

    /// Takes the next rows. `false` if no more are wanted.
    pub(super) fn push(&mut self, table: Table) -> QueryResult<bool> {
        self.push_at(0, table)
    }

    fn push_at(&mut self, stage: usize, table: Table) -> QueryResult<bool> {
        let stream = self.context.stream;
        let Some(state) = self.stages.get_mut(stage) else {
            return self.take(table);
        };
        let (table, more) = match state {
            State::Filter(expr) => (filter(&table, expr, stream)?, true),
            State::Project(columns) => (ops::project(&table, columns, stream)?, true),
            State::Probe(probe) => match probe.push(table)? {
                Some(joined) => (joined, true),
                None => return Ok(true),
            },
            State::Limit { skip, left } => {
                let offset = (*skip).min(table.rows());
                let window = ops::limit(&table, offset, *left, stream)?;
                *skip -= offset;
                *left -= window.rows();
                (window, *left > 0)
            }
        };
        Ok(self.push_at(stage + 1, table)? && more)
    }

    fn take(&mut self, table: Table) -> QueryResult<bool> {
        let stream = self.context.stream;
        self.rows += table.rows();
        self.fed = true;
        match &mut self.end {
            EndState::Collect(tables)
            | EndState::Sort(tables, _)
            | EndState::Set { tables, .. } => keep(tables, table),
            EndState::First { best, keys, count } => {
                let first = ops::top_k(&table, keys, *count, stream)?;
                *best = Some(match best.take() {
                    None => first,
                    Some(best) => {
                        ops::top_k(&ops::concat(&[&best, &first], stream)?, keys, *count, stream)?
                    }
                });
            }
            EndState::Group(groups) => groups.push(table, stream)?,
            EndState::Distinct(rows) => rows.push(table, stream, &Different)?,
            EndState::Write(writing) => return writing.write(&table),
        }
        Ok(true)
    }

    /// Pushes the rows that stages still hold.
    fn flush(&mut self) -> QueryResult<()> {
        for stage in 0..self.stages.len() {
            if let State::Probe(probe) = &mut self.stages[stage]
                && let Some(joined) = probe.finish()?
            {
                self.push_at(stage + 1, joined)?;
            }
        }
        Ok(())
    }

    /// What a worker made, for another chain to take over; nothing if it got no rows.
    pub(super) fn into_parts(mut self) -> QueryResult<Option<Parts>> {
        self.flush()?;
        let stream = self.context.stream;
        Ok(match &mut self.end {
            _ if !self.fed => None,
            EndState::Group(groups) => Some(Parts::Groups(groups.parts(stream)?)),
            EndState::Distinct(rows) => Some(Parts::Rows(rows.take(stream, &Different)?)),
            _ => None,
        })
    }

    /// Takes over what a worker made.
    pub(super) fn absorb(&mut self, parts: Parts) {
        self.fed = true;
        match (&mut self.end, parts) {
            (EndState::Group(groups), Parts::Groups(parts)) => groups.absorb(parts),
            (EndState::Distinct(rows), Parts::Rows(kept)) => rows.absorb(kept),
            // Only those two are worked on by several.
            _ => {}
        }
    }

    /// The result, once all rows came.
    pub(super) fn finish(&mut self) -> QueryResult<Table> {
        self.flush()?;
        let stream = self.context.stream;
        let table = match &mut self.end {
            EndState::Collect(tables) => all(tables, stream)?,
            EndState::Sort(tables, keys) => {
                let table = all(tables, stream)?;
                tables.clear();
                ops::sort(&table, keys, stream)?
            }
            EndState::First { best, .. } => best.take().ok_or_else(nothing)?,
            EndState::Group(groups) => groups.finish(&self.context.crew()?)?,
            EndState::Distinct(rows) => rows.finish(&self.context.crew()?, &Different)?,
            EndState::Set { tables, other, kind } => {
                let table = all(tables, stream)?;
                match *kind {
                    SetKind::Union { all: true } => ops::concat(&[&table, other], stream)?,
                    SetKind::Union { all: false } => ops::union(&table, other, stream)?,
                    SetKind::Intersect { all } => ops::intersect(&table, other, all, stream)?,
                    SetKind::Except { all } => ops::except(&table, other, all, stream)?,
                }
            }
            EndState::Write(_) => Table::new(self.context.engine, Vec::<(String, _)>::new())?,
        };
        Ok(table)
    }

    /// The refusal of a pipeline that ran out of memory: what it would have needed.
    pub(super) fn too_large(&self, pipeline: &Pipeline, error: RelationalError) -> QueryError {
        let row = row_bytes(&pipeline.schema);
        // What is kept, once in parts and once as a whole, and what the operator takes beside it.
        let (what, each) = match &pipeline.end {
            End::Collect => ("keeping all rows", 2 * row),
            End::Sort(_) => ("sorting all rows", 2 * row + 36),
            End::First(..) => ("keeping the first rows", 2 * row + 36),
            End::Group { .. } => ("grouping", 2 * row + 56),
            End::Distinct => ("keeping all different rows", 2 * row + 44),
            End::Set { .. } => ("comparing all rows", 4 * row + 44),
            End::Write(_) => ("the query", 4 * row),
        };
        let rows = self.rows as f64 / self.fraction.unwrap_or(1.0);
        let budget = self.context.shared.options.memory;
        let estimated = match &pipeline.end {
            // Groups are what is kept, and there are as many more as there is more to read at most.
            End::Group { .. } | End::Distinct => {
                (rows * each as f64).min(budget as f64 / self.fraction.unwrap_or(1.0)) as u64
            }
            _ => (rows * each as f64) as u64,
        };
        let said = match &error {
            RelationalError::OutOfMemory { needed: Some(needed), .. } => *needed,
            _ => 0,
        };
        // It did not fit, whatever the estimate says.
        let needed = estimated.max(said).max(budget + budget / 4);
        QueryError::TooLarge { what: format!("{} ({what})", pipeline.name), needed, budget }
    }
}

/// Adds a table; of several without rows, one is enough.
fn keep(tables: &mut Vec<Table>, table: Table) {
    if table.rows() > 0 || tables.is_empty() {
        tables.push(table);
    }
}

/// Several tables as one.
pub(super) fn all(tables: &[Table], stream: StreamId) -> QueryResult<Table> {
    match tables {
        [] => Err(nothing()),
        [only] => Ok(only.clone()),
        several => Ok(ops::concat(&several.iter().collect::<Vec<_>>(), stream)?),
    }
}

fn nothing() -> QueryError {
    QueryError::plan("a pipeline ended without a table; this is a defect, please report it")
}

/// The rows for which an expression holds; one that is too large for one step in several.
fn filter(table: &Table, expr: &Expr, stream: StreamId) -> RelationalResult<Table> {
    match (ops::filter(table, expr, stream), expr) {
        (Err(RelationalError::UnsupportedExpression { .. }), Expr::And(left, right)) => {
            filter(&filter(table, left, stream)?, right, stream)
        }
        (answer, _) => answer,
    }
}
