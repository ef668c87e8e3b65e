//! Figures of groups, of rows that come in batches.
//!
//! Of each batch partial figures are kept (a mean is a sum and a count), and put together by the
//! figures of figures: the sum of sums, the sum of counts, the least of the least. How many
//! different values a group has cannot be told from parts: the different pairs of keys and value
//! are kept, and counted at the end.

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Aggregate, AggregateFunction, DataType, Expr, RelationalResult, Schema, Table, col, null, ops,
};

use super::{
    Context,
    accumulate::{Accumulator, Crew, Different, Kept, Reduce},
};
use crate::error::QueryResult;

/// Groups that are being made.
pub(super) struct Groups<'g> {
    aggregates: &'g [Aggregate],
    figures: Figures<'g>,
    rows: Accumulator,
    /// Different values by their columns.
    distinct: Vec<(&'g str, Accumulator)>,
}

/// How rows become figures.
struct Figures<'g> {
    keys: Vec<&'g str>,
    /// Columns before they are grouped; `None` if they are as they come.
    prepared: Option<Vec<(String, Expr)>>,
    /// Figures of a batch, and those that put such figures together.
    partial: Vec<Aggregate>,
    merging: Vec<Aggregate>,
}

/// Groups of some of the rows.
pub(super) struct GroupParts {
    figures: Kept,
    distinct: Vec<Kept>,
}

/// The name of a partial figure, which no column of a file has.
fn part_name(figure: usize, part: &str) -> String {
    format!("\u{1}{part}{figure}")
}

impl<'g> Groups<'g> {
    pub(super) fn new(
        context: &Context<'_>,
        keys: &'g [String],
        aggregates: &'g [Aggregate],
        schema: &Schema,
    ) -> Self {
        use AggregateFunction as F;
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let rows = || Accumulator::new(context, schema, keys.iter().copied());
        let mut groups = Self {
            aggregates,
            rows: rows(),
            figures: Figures {
                keys: keys.clone(),
                prepared: None,
                partial: Vec::new(),
                merging: Vec::new(),
            },
            distinct: Vec::new(),
        };
        let mut prepared: Vec<(String, Expr)> =
            schema.fields().iter().map(|field| (field.name.clone(), col(&field.name))).collect();
        let columns = prepared.len();
        for (figure, aggregate) in aggregates.iter().enumerate() {
            let name = part_name(figure, "");
            let column = aggregate.column.as_deref().unwrap_or_default();
            match aggregate.function {
                F::CountRows | F::Count => groups.part(aggregate.function, column, F::Sum, name),
                F::Sum => groups.part(F::Sum, column, F::Sum, name),
                F::Min => groups.part(F::Min, column, F::Min, name),
                F::Max => groups.part(F::Max, column, F::Max, name),
                F::Mean => {
                    // Added as floating-point numbers, so that no sum overflows.
                    let integer =
                        schema.field(column).is_ok_and(|field| field.data_type.is_integer());
                    let summed = match integer {
                        true => {
                            let name = part_name(figure, "real ");
                            prepared.push((name.clone(), col(column) * 1.0f64));
                            name
                        }
                        false => column.to_owned(),
                    };
                    groups.part(F::Sum, &summed, F::Sum, name);
                    groups.part(F::Count, column, F::Sum, part_name(figure, "count "));
                }
                F::CountDistinct if groups.distinct.iter().all(|(own, _)| *own != column) => {
                    groups.distinct.push((column, rows()));
                }
                _ => {}
            }
        }
        groups.figures.prepared = (prepared.len() > columns).then_some(prepared);
        groups
    }

    fn part(&mut self, of: AggregateFunction, column: &str, by: AggregateFunction, name: String) {
        let column = (of != AggregateFunction::CountRows).then(|| column.to_owned());
        self.figures.partial.push(Aggregate { function: of, column, name: name.clone() });
        self.figures.merging.push(Aggregate::of(by, name.clone()).named(name));
    }

    /// Whether there is anything to keep besides different values.
    fn has_figures(&self) -> bool {
        self.distinct.is_empty() || !self.figures.partial.is_empty()
    }

    pub(super) fn push(&mut self, table: Table, stream: StreamId) -> QueryResult<()> {
        for (column, rows) in &mut self.distinct {
            let pairs = table.select(&pair(&self.figures.keys, column))?;
            rows.push(pairs, stream, &Different)?;
        }
        if self.has_figures() {
            self.rows.push(table, stream, &self.figures)?;
        }
        Ok(())
    }

    /// Everything so far, for another to take over.
    pub(super) fn parts(&mut self, stream: StreamId) -> QueryResult<GroupParts> {
        let figures = self.rows.take(stream, &self.figures)?;
        let mut distinct = Vec::with_capacity(self.distinct.len());
        for (_, rows) in &mut self.distinct {
            distinct.push(rows.take(stream, &Different)?);
        }
        Ok(GroupParts { figures, distinct })
    }

    /// Takes over what another made.
    pub(super) fn absorb(&mut self, parts: GroupParts) {
        self.rows.absorb(parts.figures);
        for ((_, rows), pairs) in self.distinct.iter_mut().zip(parts.distinct) {
            rows.absorb(pairs);
        }
    }

    pub(super) fn finish(&mut self, crew: &Crew<'_>) -> QueryResult<Table> {
        let stream = crew.streams[0];
        let mut parts: Vec<Table> = Vec::new();
        if self.has_figures() {
            parts.push(self.rows.finish(crew, &self.figures)?);
        }
        for (column, rows) in &mut self.distinct {
            let pairs = rows.finish(crew, &Different)?;
            let name = distinct_name(column);
            let count = [Aggregate::count(*column).named(name)];
            parts.push(ops::group_by(&pairs, &self.figures.keys, &count, stream)?);
        }
        let together = match &parts[..] {
            [only] => only.clone(),
            _ => self.side_by_side(&parts, stream)?,
        };
        let mut columns: Vec<(&str, Expr)> =
            self.figures.keys.iter().map(|key| (*key, col(*key))).collect();
        for (figure, aggregate) in self.aggregates.iter().enumerate() {
            let part = || col(part_name(figure, ""));
            let expr = match aggregate.function {
                AggregateFunction::Mean => part() / col(part_name(figure, "count ")),
                AggregateFunction::CountDistinct => {
                    col(distinct_name(aggregate.column.as_deref().unwrap_or_default()))
                }
                _ => part(),
            };
            columns.push((&aggregate.name, expr));
        }
        Ok(ops::project(&together, &columns, stream)?)
    }

    /// Tables with the same keys and different figures as one: each row of one of them has the
    /// figures of the others missing, and of every group the figures that are there are kept.
    /// A join would lose the groups whose keys are missing.
    fn side_by_side(&self, parts: &[Table], stream: StreamId) -> QueryResult<Table> {
        let mut figures: Vec<(usize, String, DataType)> = Vec::new();
        for (place, part) in parts.iter().enumerate() {
            for field in part.schema().fields() {
                if !self.figures.keys.contains(&field.name.as_str()) {
                    figures.push((place, field.name.clone(), field.data_type));
                }
            }
        }
        let mut wide = Vec::with_capacity(parts.len());
        for (place, part) in parts.iter().enumerate() {
            let keys = self.figures.keys.iter().map(|key| (*key, col(*key)));
            let own = figures.iter().map(|(of, name, data_type)| {
                let figure = if *of == place { col(name) } else { null(*data_type) };
                (name.as_str(), figure)
            });
            let columns: Vec<(&str, Expr)> = keys.chain(own).collect();
            wide.push(ops::project(part, &columns, stream)?);
        }
        let largest: Vec<Aggregate> =
            figures.iter().map(|(_, name, _)| Aggregate::max(name).named(name)).collect();
        let together = ops::concat(&wide.iter().collect::<Vec<_>>(), stream)?;
        Ok(ops::group_by(&together, &self.figures.keys, &largest, stream)?)
    }
}

impl Reduce for Figures<'_> {
    fn first(&self, table: &Table, stream: StreamId) -> RelationalResult<Table> {
        let Some(columns) = &self.prepared else {
            return ops::group_by(table, &self.keys, &self.partial, stream);
        };
        let columns: Vec<(&str, Expr)> =
            columns.iter().map(|(name, expr)| (name.as_str(), expr.clone())).collect();
        let prepared = ops::project(table, &columns, stream)?;
        ops::group_by(&prepared, &self.keys, &self.partial, stream)
    }

    fn again(&self, table: &Table, stream: StreamId) -> RelationalResult<Table> {
        ops::group_by(table, &self.keys, &self.merging, stream)
    }
}

/// The columns whose different values are counted.
fn pair<'p>(keys: &[&'p str], column: &'p str) -> Vec<&'p str> {
    let mut pair = keys.to_vec();
    if !pair.contains(&column) {
        pair.push(column);
    }
    pair
}

fn distinct_name(column: &str) -> String {
    format!("\u{1}different {column}")
}
