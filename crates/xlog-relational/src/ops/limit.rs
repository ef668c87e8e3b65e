//! A window of rows.

use std::{ops::Range, sync::Arc};

use bytemuck::Pod;
use xlog_cuda::{device_runtime::StreamId, memory::TrackedCudaSlice};

use super::{bits::copy_bits, sizes::row_bytes};
use crate::{
    Engine,
    column::{Column, ColumnParts, Values, validity_words},
    error::RelationalResult,
    table::Table,
};

/// At most `count` rows of `table` from row `offset` on. Never waits for the device.
///
/// Rows from the first on share the memory of `table` if they are at least half of it; other
/// windows are copied, so that a few rows do not keep a large table alive.
pub fn limit(table: &Table, offset: u64, count: u64, stream: StreamId) -> RelationalResult<Table> {
    let rows = table.rows();
    let (start, end) = (offset.min(rows), offset.saturating_add(count).min(rows));
    if (start, end) == (0, rows) {
        return Ok(table.clone());
    }
    let window = start as usize..end as usize;
    let columns: RelationalResult<Vec<_>> = table
        .columns()
        .map(|(name, column)| Ok((name, part(column, window.clone(), stream)?)))
        .collect();
    let columns = columns.map_err(|error| {
        let needed = (end - start) * row_bytes(table);
        error.needing(&format!("a window of {} rows", end - start), Some(needed))
    })?;
    Table::new(table.engine(), columns)
}

/// Some rows of a column.
pub(super) fn part(
    column: &Column,
    window: Range<usize>,
    stream: StreamId,
) -> RelationalResult<Column> {
    let (engine, len) = (column.engine(), window.len());
    let values = if window.start == 0 && 2 * len >= column.len() {
        column.values().clone()
    } else {
        match column.values() {
            Values::Bytes(slice) => copy(engine, slice, window.clone(), stream)?.into(),
            Values::Words(slice) => copy(engine, slice, window.clone(), stream)?.into(),
            Values::Longs(slice) => copy(engine, slice, window.clone(), stream)?.into(),
        }
    };
    let validity = match column.validity() {
        Some(words) => {
            let mut part = engine.alloc(validity_words(len), stream, "column validity")?;
            part.fill_bytes(0, stream)?;
            let from = (&**words, window.start as u64);
            copy_bits(engine, stream, from, (&part, 0), len as u64)?;
            Some(Arc::new(part))
        }
        None => None,
    };
    let parts = ColumnParts { len, values, validity, null_count: None, ..column.parts().clone() };
    Column::from_parts(engine, parts)
}

/// Some of the values, in memory of their own.
pub(super) fn copy<T: Pod>(
    engine: &Engine,
    slice: &TrackedCudaSlice<T>,
    window: Range<usize>,
    stream: StreamId,
) -> RelationalResult<TrackedCudaSlice<T>> {
    let copied = engine.alloc::<T>(window.len().max(1), stream, "column values")?;
    if !window.is_empty() {
        copied.view(..window.len())?.copy_from(&slice.view(window)?, stream)?;
    }
    Ok(copied)
}
