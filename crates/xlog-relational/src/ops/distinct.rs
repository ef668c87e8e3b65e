//! Every different row once.

use xlog_cuda::{device_runtime::StreamId, memory::TrackedCudaSlice};

use super::{
    group::representatives,
    keys::{Key, Words, refuse_too_many, validity},
    rows::{host_count, is_mostly_unused, take_rows, trimmed},
    stack::Stackable,
};
use crate::{
    Engine,
    column::{Column, ColumnParts, Values},
    error::RelationalResult,
    primitives::{Runs, SortBy, SortKey, sort_keys, unique},
    table::Table,
    types::Physical,
};

/// Every different row of some columns of `table` once, or of all of them if `columns` is `None`.
/// Missing values are equal to each other; −0.0 is 0.0, and NaN is NaN, whichever of them comes
/// out. The order of the rows is not specified.
///
/// Waits for the device once, to learn the number of rows; a second time if there are millions of
/// different rows of several columns.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, Engine, RelationalError, Table, ops::distinct};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let id = Column::from_slice(&engine, &[3u32, 1, 3], StreamId::DEFAULT)?;
/// let score = Column::from_slice(&engine, &[0.5f64, 0.0, 0.25], StreamId::DEFAULT)?;
/// let table = Table::new(&engine, [("id", id), ("score", score)])?;
/// assert_eq!(distinct(&table, None, StreamId::DEFAULT)?.rows(), 3);
/// assert_eq!(distinct(&table, Some(&["id"]), StreamId::DEFAULT)?.rows(), 2);
/// # Ok::<(), RelationalError>(())
/// ```
pub fn distinct(
    table: &Table,
    columns: Option<&[&str]>,
    stream: StreamId,
) -> RelationalResult<Table> {
    let table = match columns {
        Some(columns) => &table.select(columns)?,
        None => table,
    };
    refuse_too_many(table.rows(), "the table")?;
    distinct_rows(table, stream).map_err(|error| {
        let what = format!("distinct of {} rows", table.rows());
        error.needing(&what, Some(needed(table)))
    })
}

/// Bytes that it takes beside its input if no row is there twice.
pub(super) fn needed(table: &Table) -> u64 {
    let width: u64 = table.columns().map(|(_, column)| column.data_type().size() as u64).sum();
    match single(table) {
        Some(_) => table.rows() * 3 * width,
        None => table.rows() * (44 + width),
    }
}

/// All of it, once the input was checked.
pub(super) fn distinct_rows(table: &Table, stream: StreamId) -> RelationalResult<Table> {
    if table.width() == 0 {
        return Ok(table.clone());
    }
    if let Some((name, column)) = single(table) {
        return Table::new(table.engine(), [(name, sorted(column, stream)?)]);
    }
    let groups = representatives(table, stream)?;
    take_rows(table, groups.rows(), groups.count(), stream)
}

/// The one column of a table if it can be sorted to find its values: a sort moves every value a few
/// times in order, and a table of as many places as there are values is hit at random.
pub(super) fn single(table: &Table) -> Option<(&str, &Column)> {
    let mut columns = table.columns();
    let (name, column) = columns.next()?;
    let sortable = validity(column).is_none() && column.data_type().physical() != Physical::Byte;
    (sortable && columns.next().is_none()).then_some((name, column))
}

/// The different values of a column that is never missing, in the order of their words.
fn sorted(column: &Column, stream: StreamId) -> RelationalResult<Column> {
    let (engine, len) = (column.engine(), column.len() as u64);
    // Codes end where their dictionary does: the bits above are all zero.
    let most = column.dictionary().map(|dictionary| dictionary.len().saturating_sub(1) as u64);
    let (values, count): (Values, u64) = match Key::of(column, stream)?.words {
        Words::Short(words) => {
            let (values, count) = once(engine, &words, len, most, stream)?;
            (values.into(), count)
        }
        Words::Long(words) => {
            let (values, count) = once(engine, &words, len, most, stream)?;
            (values.into(), count)
        }
    };
    let len = host_count(count, "different rows")?;
    let parts =
        ColumnParts { len, values, validity: None, null_count: None, ..column.parts().clone() };
    Column::from_parts(engine, parts)
}

/// Each of the first `len` words once; none is greater than `most`.
fn once<W: SortKey + Runs + Stackable>(
    engine: &Engine,
    words: &TrackedCudaSlice<W>,
    len: u64,
    most: Option<u64>,
    stream: StreamId,
) -> RelationalResult<(TrackedCudaSlice<W>, u64)> {
    let mut by = SortBy::ascending::<W>();
    if let Some(most) = most {
        by.bits.end = by.bits.end.min(u64::BITS - most.leading_zeros());
    }
    let sorted = sort_keys(engine, stream, words, len, &by)?;
    let (values, count) = unique(engine, stream, &sorted, len)?.wait()?;
    let used = host_count(count, "different rows")?;
    match is_mostly_unused(&values, used) {
        true => Ok((trimmed(engine, &values, used, stream)?, count)),
        false => Ok((values, count)),
    }
}
