//! Rows by the part that their keys belong to.

use xlog_cuda::device_runtime::StreamId;

use super::{
    concat::concat_windows,
    keys::{Key, refuse_too_many},
    rows::take_rows,
    sizes::row_bytes,
};
use crate::{
    column::Column,
    error::{RelationalError, RelationalResult},
    primitives::{Keys, PARTS, part_rows},
    table::Table,
    types::DataType,
};

/// A table whose rows stand in the order of parts.
#[derive(Clone, Debug)]
pub struct Partitioned {
    table: Table,
    /// Where each part starts, and behind the last one where it ends.
    starts: Vec<u64>,
}

/// Orders rows by a hash of their keys and splits them into `parts` parts, a power of two up to
/// 256.
///
/// Rows with equal keys are in the same part, also rows of other tables that were split by keys of
/// the same types: each part can be grouped by itself, and in memory that the processor has close
/// by. Nulls are equal to each other, −0.0 is 0.0 and NaN is NaN. Text does not decide where a row
/// goes, as its codes mean something in its own table alone; one key at least must be something
/// else.
///
/// Waits for the device once, to learn how large the parts are.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, Engine, RelationalError, Table, ops::{Partitioned, partition}};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let numbers: Vec<u32> = (0..1000).collect();
/// let column = Column::from_slice(&engine, &numbers, StreamId::DEFAULT)?;
/// let table = Table::new(&engine, [("n", column)])?;
/// let split = partition(&table, &["n"], 4, StreamId::DEFAULT)?;
/// let sizes: Vec<u64> = (0..4).map(|part| split.rows_of(part)).collect();
/// assert_eq!(sizes.iter().sum::<u64>(), 1000);
/// let third = Partitioned::part(&[&split], 2, StreamId::DEFAULT)?;
/// assert_eq!(third.rows(), sizes[2]);
/// # Ok::<(), RelationalError>(())
/// ```
pub fn partition(
    table: &Table,
    keys: &[&str],
    parts: usize,
    stream: StreamId,
) -> RelationalResult<Partitioned> {
    if !parts.is_power_of_two() || parts > PARTS {
        let reason = format!(
            "a table cannot be split into {parts} parts; a power of two up to \
                              {PARTS} can"
        );
        return Err(RelationalError::InvalidPlan { reason });
    }
    refuse_too_many(table.rows(), "the table")?;
    let mut columns = Vec::with_capacity(keys.len());
    for key in keys {
        let column = table.column(key)?;
        if column.data_type() != DataType::Utf8 {
            columns.push(column);
        }
    }
    if columns.is_empty() {
        return Err(RelationalError::UnsupportedExpression {
            expression: format!("partition by {}", keys.join(", ")),
            reason: "text alone cannot decide which part a row belongs to; name a key that is \
                     not text"
                .to_owned(),
        });
    }
    if table.rows() == 0 {
        return Ok(Partitioned { table: table.clone(), starts: vec![0; parts + 1] });
    }
    split(table, &columns, parts, stream).map_err(|error| {
        // The rows once more, the words of their keys, and their numbers.
        let needed = table.rows().saturating_mul(row_bytes(table) + 20);
        error.needing(&format!("{parts} parts of {} rows", table.rows()), Some(needed))
    })
}

fn split(
    table: &Table,
    columns: &[&Column],
    parts: usize,
    stream: StreamId,
) -> RelationalResult<Partitioned> {
    let keys = Key::all(columns.iter().copied(), stream)?;
    let columns = Key::columns(&keys);
    let keys = Keys { columns: &columns, rows: table.rows() };
    let split = part_rows(table.engine(), stream, &keys)?;
    let ordered = take_rows(table, &split.rows, table.rows(), stream)?;
    let mut starts = vec![0];
    let mut rows = 0;
    for counts in split.counts.chunks(PARTS / parts) {
        rows += counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        starts.push(rows);
    }
    Ok(Partitioned { table: ordered, starts })
}

impl Partitioned {
    /// How many parts there are.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many rows a part has; none if there is no such part.
    #[must_use]
    pub fn rows_of(&self, part: usize) -> u64 {
        let end = self.starts.get(part + 1).copied().unwrap_or(0);
        end.saturating_sub(self.starts.get(part).copied().unwrap_or(0))
    }

    /// All rows, in the order of parts.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// One part of all of the tables, those of the first one first. Never waits for the device.
    pub fn part(split: &[&Self], part: usize, stream: StreamId) -> RelationalResult<Table> {
        let windows: Vec<_> = split
            .iter()
            .map(|one| {
                let start = one.starts.get(part).copied().unwrap_or(0);
                (&one.table, start..start + one.rows_of(part))
            })
            .collect();
        concat_windows(&windows, stream)
    }
}
