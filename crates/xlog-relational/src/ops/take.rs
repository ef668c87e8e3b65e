//! Rows fetched by their numbers, and what operators need to know of a table's size.

use std::sync::Arc;

use xlog_cuda::{device_runtime::StreamId, memory::TrackedCudaSlice};

use crate::{
    column::{Column, ColumnParts, Values},
    error::{RelationalError, RelationalResult},
    primitives::{MOST_ROWS, gather, gather_bits},
    table::Table,
};

/// The rows of a table that operators number with 32 bits; more are refused.
pub(super) fn numbered_rows(table: &Table) -> RelationalResult<usize> {
    match table.rows() {
        found if found > MOST_ROWS => {
            let what = "rows for an operator that numbers them".to_owned();
            Err(RelationalError::TooMany { what, found, most: MOST_ROWS })
        }
        rows => Ok(rows as usize),
    }
}

/// Bytes that a row of a table takes, validity counted as one byte.
pub(super) fn row_bytes(table: &Table) -> u64 {
    table.columns().map(|(_, column)| column_bytes(column)).sum()
}

/// Bytes that a row of a column takes, validity counted as one byte.
pub(super) fn column_bytes(column: &Column) -> u64 {
    column.data_type().size() as u64 + u64::from(column.is_nullable())
}

/// The rows of a column that the first `count` of `rows` number, all of which it has.
pub(super) fn take(
    column: &Column,
    rows: &TrackedCudaSlice<u32>,
    count: usize,
    stream: StreamId,
) -> RelationalResult<Column> {
    let (engine, len, places) = (column.engine(), column.len() as u64, count as u64);
    let values = match column.values() {
        Values::Bytes(slice) => gather(engine, stream, slice, len, rows, places)?.into(),
        Values::Words(slice) => gather(engine, stream, slice, len, rows, places)?.into(),
        Values::Longs(slice) => gather(engine, stream, slice, len, rows, places)?.into(),
    };
    let validity = match column.validity() {
        Some(bits) => Some(Arc::new(gather_bits(engine, stream, bits, len, rows, places)?)),
        None => None,
    };
    // Every row once is as many missing ones as before.
    let null_count = column.null_count().filter(|_| count == column.len());
    let parts = ColumnParts { len: count, values, validity, null_count, ..column.parts().clone() };
    Column::from_parts(engine, parts)
}

/// The rows of a table that the first `count` of `rows` number.
pub(super) fn take_rows(
    table: &Table,
    rows: &TrackedCudaSlice<u32>,
    count: usize,
    stream: StreamId,
) -> RelationalResult<Table> {
    let columns: RelationalResult<Vec<_>> = table
        .columns()
        .map(|(name, column)| Ok((name, take(column, rows, count, stream)?)))
        .collect();
    Table::new(table.engine(), columns?)
}
