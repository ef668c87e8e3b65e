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

use super::accumulate::{Accumulator, stacked};
use crate::error::QueryResult;

/// Groups that are being made.
pub(super) struct Groups<'g> {
    keys: Vec<&'g str>,
    aggregates: &'g [Aggregate],
    /// Columns before they are grouped; `None` if they are as they come.
    prepared: Option<Vec<(String, Expr)>>,
    /// Figures of a batch, and those that put such figures together.
    partial: Vec<Aggregate>,
    merging: Vec<Aggregate>,
    rows: Accumulator,
    /// Different values by their columns.
    distinct: Vec<(&'g str, Accumulator)>,
}

/// Groups of some of the rows.
pub(super) struct GroupParts {
    figures: Vec<Table>,
    distinct: Vec<Table>,
}

/// The name of a partial figure, which no column of a file has.
fn part_name(figure: usize, part: &str) -> String {
    format!("\u{1}{part}{figure}")
}

impl<'g> Groups<'g> {
    pub(super) fn new(
        keys: &'g [String],
        aggregates: &'g [Aggregate],
        schema: &Schema,
        memory: u64,
    ) -> Self {
        use AggregateFunction as F;
        let mut groups = Self {
            keys: keys.iter().map(String::as_str).collect(),
            aggregates,
            prepared: None,
            partial: Vec::new(),
            merging: Vec::new(),
            rows: Accumulator::new(schema, memory),
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
                    groups.distinct.push((column, Accumulator::new(schema, memory)));
                }
                _ => {}
            }
        }
        groups.prepared = (prepared.len() > columns).then_some(prepared);
        groups
    }

    fn part(&mut self, of: AggregateFunction, column: &str, by: AggregateFunction, name: String) {
        let column = (of != AggregateFunction::CountRows).then(|| column.to_owned());
        self.partial.push(Aggregate { function: of, column, name: name.clone() });
        self.merging.push(Aggregate::of(by, name.clone()).named(name));
    }

    /// Whether there is anything to keep besides different values.
    fn has_figures(&self) -> bool {
        self.distinct.is_empty() || !self.partial.is_empty()
    }

    pub(super) fn push(&mut self, table: Table, stream: StreamId) -> QueryResult<()> {
        for (column, rows) in &mut self.distinct {
            let pairs = table.select(&pair(&self.keys, column))?;
            rows.push(pairs, stream, &mut |table| ops::distinct(table, None, stream))?;
        }
        if self.has_figures()
            && let Some(chunk) = self.rows.chunk(table, stream)?
        {
            self.reduce(&chunk, stream)?;
        }
        Ok(())
    }

    fn reduce(&mut self, chunk: &Table, stream: StreamId) -> QueryResult<()> {
        let reduced = match &self.prepared {
            None => self.grouped(chunk, &self.partial, stream)?,
            Some(columns) => {
                let columns: Vec<(&str, Expr)> =
                    columns.iter().map(|(name, expr)| (name.as_str(), expr.clone())).collect();
                self.grouped(&ops::project(chunk, &columns, stream)?, &self.partial, stream)?
            }
        };
        if self.rows.add(chunk.rows(), reduced) {
            self.merge(stream)?;
        }
        Ok(())
    }

    fn grouped(
        &self,
        table: &Table,
        aggregates: &[Aggregate],
        stream: StreamId,
    ) -> RelationalResult<Table> {
        ops::group_by(table, &self.keys, aggregates, stream)
    }

    fn merge(&mut self, stream: StreamId) -> QueryResult<()> {
        let together = self.rows.take(stream)?;
        let merged = self.grouped(&together, &self.merging, stream)?;
        self.rows.put_back(merged);
        Ok(())
    }

    /// Everything so far, made as few as it gets, for another to take over.
    pub(super) fn parts(&mut self, stream: StreamId) -> QueryResult<GroupParts> {
        let mut figures = Vec::new();
        if self.has_figures() {
            if let Some(rest) = self.rows.rest(stream)? {
                self.reduce(&rest, stream)?;
            }
            // Whoever takes over may have nothing to merge it with.
            if self.rows.tables() > 1 {
                self.merge(stream)?;
            }
            figures.push(self.rows.take(stream)?);
        }
        let mut distinct = Vec::with_capacity(self.distinct.len());
        for (_, rows) in &mut self.distinct {
            distinct.push(rows.finish(stream, &mut |table| ops::distinct(table, None, stream))?);
        }
        Ok(GroupParts { figures, distinct })
    }

    /// Takes over what another made.
    pub(super) fn absorb(&mut self, parts: GroupParts) {
        self.rows.absorb(parts.figures);
        for ((_, rows), pairs) in self.distinct.iter_mut().zip(parts.distinct) {
            rows.absorb(vec![pairs]);
        }
    }

    pub(super) fn finish(&mut self, stream: StreamId) -> QueryResult<Table> {
        let mut parts: Vec<Table> = Vec::new();
        if self.has_figures() {
            if let Some(rest) = self.rows.rest(stream)? {
                self.reduce(&rest, stream)?;
            }
            if self.rows.tables() > 1 {
                self.merge(stream)?;
            }
            parts.push(self.rows.take(stream)?);
        }
        for (column, rows) in &mut self.distinct {
            let pairs = rows.finish(stream, &mut |table| ops::distinct(table, None, stream))?;
            let name = distinct_name(column);
            let count = [Aggregate::count(*column).named(name)];
            parts.push(ops::group_by(&pairs, &self.keys, &count, stream)?);
        }
        let together = match &parts[..] {
            [only] => only.clone(),
            _ => self.side_by_side(&parts, stream)?,
        };
        let mut columns: Vec<(&str, Expr)> =
            self.keys.iter().map(|key| (*key, col(*key))).collect();
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
                if !self.keys.contains(&field.name.as_str()) {
                    figures.push((place, field.name.clone(), field.data_type));
                }
            }
        }
        let mut wide = Vec::with_capacity(parts.len());
        for (place, part) in parts.iter().enumerate() {
            let keys = self.keys.iter().map(|key| (*key, col(*key)));
            let own = figures.iter().map(|(of, name, data_type)| {
                let figure = if *of == place { col(name) } else { null(*data_type) };
                (name.as_str(), figure)
            });
            let columns: Vec<(&str, Expr)> = keys.chain(own).collect();
            wide.push(ops::project(part, &columns, stream)?);
        }
        let largest: Vec<Aggregate> =
            figures.iter().map(|(_, name, _)| Aggregate::max(name).named(name)).collect();
        Ok(self.grouped(&stacked(&wide, stream)?, &largest, stream)?)
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
