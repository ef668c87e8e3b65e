//! Groups and their figures.

use xlog_cuda::device_runtime::StreamId;

use super::{
    figures::Figures,
    keys::{Key, refuse_too_many},
    rows::{Missing, take_column},
};
use crate::{
    aggregate::Aggregate,
    column::Column,
    error::RelationalResult,
    primitives::{Grouping, Keys, Tuning},
    table::Table,
    types::Schema,
};

/// One row for each combination of keys: the keys, then the figures that `aggregates` ask for.
/// Missing keys are equal, and form a group; −0.0 is 0.0, and NaN is NaN. Without keys all rows are
/// one group, even if there are none. The order of the groups is not specified.
///
/// Waits for the device once, to learn the number of groups (not at all without keys); again if
/// there are millions of them; once more for each count of distinct values; and once for all sums
/// of 64-bit integers, which are an error if one does not fit.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Aggregate, Column, Engine, RelationalError, Table, ops::group_by};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let city = Column::from_strings(&engine, [Some("Ulm"), None, Some("Ulm")], StreamId::DEFAULT)?;
/// let price = Column::from_slice(&engine, &[4i32, 5, -1], StreamId::DEFAULT)?;
/// let table = Table::new(&engine, [("city", city), ("price", price)])?;
/// let figures = [Aggregate::sum("price"), Aggregate::mean("price")];
/// let groups = group_by(&table, &["city"], &figures, StreamId::DEFAULT)?;
/// assert_eq!(groups.rows(), 2);
/// assert_eq!(groups.schema().to_string(), "city: utf8?, sum_price: i64, mean_price: f64");
/// # Ok::<(), RelationalError>(())
/// ```
pub fn group_by(
    table: &Table,
    keys: &[&str],
    aggregates: &[Aggregate],
    stream: StreamId,
) -> RelationalResult<Table> {
    let schema = table.schema();
    let mut fields = Vec::new();
    for key in keys {
        fields.push(schema.field(key)?.clone());
    }
    for aggregate in aggregates {
        fields.push(aggregate.field(&schema)?);
    }
    let schema = Schema::new(fields)?;
    refuse_too_many(table.rows(), "the table")?;
    run(table, keys, aggregates, &schema, stream).map_err(|error| {
        let what = format!("group-by of {} rows", table.rows());
        error.needing(&what, Some(needed(table, keys.len(), aggregates.len())))
    })
}

/// Bytes that a group-by takes beside its input in which every row is a group of its own.
fn needed(table: &Table, keys: usize, aggregates: usize) -> u64 {
    let packed = if keys > 1 { 12 } else { 0 };
    table.rows() * (32 + packed + 8 * (keys as u64 + 2 * aggregates as u64))
}

fn run(
    table: &Table,
    keys: &[&str],
    aggregates: &[Aggregate],
    schema: &Schema,
    stream: StreamId,
) -> RelationalResult<Table> {
    let columns: Vec<&Column> =
        keys.iter().map(|key| table.column(key)).collect::<RelationalResult<_>>()?;
    let grouping = grouping(table, &columns, stream)?;
    let mut result = Vec::new();
    let mut batch = table.engine().batch(stream);
    for column in columns {
        let (rows, count) = (grouping.rows(), grouping.count());
        result.push(take_column(column, rows, count, Missing::Never, &mut batch)?);
    }
    batch.submit()?;
    let mut figures = Figures::new(table, &grouping, aggregates.len(), stream);
    for (aggregate, field) in aggregates.iter().zip(&schema.fields()[keys.len()..]) {
        result.push(figures.column(aggregate, field)?);
    }
    figures.refuse_overflow()?;
    let names = schema.fields().iter().map(|field| field.name.clone());
    Table::new(table.engine(), names.zip(result))
}

/// The groups of `table` by some of its columns.
pub(super) fn grouping<'t>(
    table: &'t Table,
    columns: &[&Column],
    stream: StreamId,
) -> RelationalResult<Grouping<'t>> {
    let (engine, rows) = (table.engine(), table.rows());
    if columns.is_empty() {
        return Ok(Grouping::single(engine, stream, rows)?);
    }
    let keys = Key::all(columns.iter().copied(), stream)?;
    let columns = Key::columns(&keys);
    Ok(Grouping::of(engine, stream, &Keys { columns: &columns, rows }, Tuning::default())?)
}

/// The groups of `table` by all of its columns.
pub(super) fn representatives<'t>(
    table: &'t Table,
    stream: StreamId,
) -> RelationalResult<Grouping<'t>> {
    let columns: Vec<&Column> = table.columns().map(|(_, column)| column).collect();
    grouping(table, &columns, stream)
}

/// The same, counted as [`Grouping::at_most`] does. The table has a column.
pub(super) fn representatives_at_most<'t>(
    table: &'t Table,
    stream: StreamId,
) -> RelationalResult<Grouping<'t>> {
    let keys = Key::all(table.columns().map(|(_, column)| column), stream)?;
    let columns = Key::columns(&keys);
    let keys = Keys { columns: &columns, rows: table.rows() };
    Ok(Grouping::at_most(table.engine(), stream, &keys)?)
}
