//! Whole tables by row numbers.

use std::sync::Arc;

use xlog_cuda::{device_runtime::StreamId, launch::LaunchBatch, memory::TrackedCudaSlice};

use super::{keys::validity, stack};
use crate::{
    Engine,
    column::{Column, ColumnParts, Values},
    error::{RelationalError, RelationalResult},
    primitives::{gather_bits_in, gather_in, rows_valid_in},
    table::Table,
};

/// The rows of `table` with the first `count` of the numbers in `rows`, in that order. Every number
/// must be one of a row, and no row may come more often than there are rows like it. Waits for
/// nothing.
pub(super) fn take_rows(
    table: &Table,
    rows: &TrackedCudaSlice<u32>,
    count: u64,
    stream: StreamId,
) -> RelationalResult<Table> {
    let mut batch = table.engine().batch(stream);
    let columns = table
        .columns()
        .map(|(name, column)| Ok((name, take_once(column, rows, count, &mut batch)?)))
        .collect::<RelationalResult<Vec<_>>>()?;
    batch.submit()?;
    Table::new(table.engine(), columns)
}

/// The values of one column by row numbers, of which none comes more often than there are rows like
/// it, once a batch has run.
pub(super) fn take_once(
    column: &Column,
    rows: &TrackedCudaSlice<u32>,
    count: u64,
    batch: &mut LaunchBatch<'_>,
) -> RelationalResult<Column> {
    let taken = take_column(column, rows, count, Missing::Never, batch)?;
    // As many rows are all of them, and as many missing ones as before.
    let null_count = column.null_count().filter(|_| count == column.len() as u64);
    let parts = ColumnParts { null_count, ..taken.parts().clone() };
    Column::from_parts(column.engine(), parts)
}

/// What row numbers may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Rows only.
    Never,
    /// Rows whose value in this column is there.
    NoNulls,
    /// Rows, or `u32::MAX` for a row whose every value is missing.
    Rows,
}

/// The values of one column by row numbers, once a batch has run.
pub(super) fn take_column(
    column: &Column,
    rows: &TrackedCudaSlice<u32>,
    count: u64,
    missing: Missing,
    batch: &mut LaunchBatch<'_>,
) -> RelationalResult<Column> {
    let (engine, length) = (column.engine(), column.len() as u64);
    let len = host_count(count, "rows")?;
    let values = match column.values() {
        Values::Bytes(values) => gather_in(engine, batch, values, length, rows, count)?.into(),
        Values::Words(values) => gather_in(engine, batch, values, length, rows, count)?.into(),
        Values::Longs(values) => gather_in(engine, batch, values, length, rows, count)?.into(),
    };
    let bits = match (validity(column), missing) {
        (_, Missing::NoNulls) | (None, Missing::Never) => None,
        (Some(bits), _) => Some(gather_bits_in(engine, batch, bits, length, rows, count)?),
        (None, Missing::Rows) => Some(rows_valid_in(engine, batch, rows, length, count)?),
    };
    // Nobody writes the word that stands for the bits of no row.
    let bits = bits.filter(|_| len > 0);
    let parts = ColumnParts {
        len,
        values,
        validity: bits.map(Arc::new),
        null_count: None,
        ..column.parts().clone()
    };
    Column::from_parts(engine, parts)
}

/// A count of rows as this machine counts.
pub(super) fn host_count(count: u64, what: &str) -> RelationalResult<usize> {
    usize::try_from(count).map_err(|_| RelationalError::TooMany {
        what: what.to_owned(),
        found: count,
        most: usize::MAX as u64,
    })
}

/// Bytes from which on memory that is mostly unused is given back.
const WORTH_A_COPY: usize = 1 << 20;

/// Whether memory is much longer than the `count` values in it.
pub(super) fn is_mostly_unused<T>(values: &TrackedCudaSlice<T>, count: usize) -> bool {
    values.len() / 2 > count && values.len() * size_of::<T>() >= WORTH_A_COPY
}

/// The first `count` values in memory of their own.
pub(super) fn trimmed<T: stack::Stackable>(
    engine: &Engine,
    values: &TrackedCudaSlice<T>,
    count: usize,
    stream: StreamId,
) -> RelationalResult<TrackedCudaSlice<T>> {
    stack::stack_values(engine, (values, count), (values, 0), stream)
}

#[cfg(test)]
mod tests {
    use xlog_cuda::CudaDevice;

    use super::*;
    use crate::{SortKey, ops};

    #[test]
    fn all_rows_have_as_many_missing_values_as_before_and_others_are_not_counted() {
        let engine = Engine::new(Arc::new(CudaDevice::host())).expect("a host device");
        let stream = StreamId::DEFAULT;
        let keys = Column::from_slice(&engine, &[3u32, 1, 2], stream).expect("a column");
        let values = Column::from_options(&engine, &[Some(1i64), None, None], stream);
        let columns = [("key", keys), ("value", values.expect("a column"))];
        let table = Table::new(&engine, columns).expect("a table");
        let by = [SortKey::new("key")];
        let missing = |table: &Table| table.column("value").map(Column::null_count);
        let sorted = ops::sort(&table, &by, stream).expect("a table");
        assert_eq!(missing(&sorted), Ok(Some(2)));
        let first = ops::top_k(&table, &by, 2, stream).expect("a table");
        assert_eq!(missing(&first), Ok(None));
    }
}
