//! The first rows in the order of keys.

use xlog_cuda::device_runtime::StreamId;

use super::{
    limit,
    rows::take_rows,
    sizes::{numbered_rows, row_bytes},
    sort::{Keys, sort},
};
use crate::{error::RelationalResult, sort_key::SortKey, table::Table};

/// The first `count` rows of the table that [`sort`] makes, all of them if there are fewer. Never
/// waits for the device. Row numbers are sorted; of the columns, only those rows are fetched.
pub fn top_k(
    table: &Table,
    keys: &[SortKey],
    count: u64,
    stream: StreamId,
) -> RelationalResult<Table> {
    let checked = Keys::of(table, keys)?;
    let rows = numbered_rows(table)?;
    if count >= table.rows() {
        return sort(table, keys, stream);
    }
    let count = count as usize;
    if keys.is_empty() || count == 0 {
        return limit(table, 0, count as u64, stream);
    }
    let first = || {
        let order = checked.sorted_rows(table.engine(), rows, stream)?;
        take_rows(table, &order, count as u64, stream)
    };
    first().map_err(|error| {
        let needed = rows as u64 * checked.row_bytes() + count as u64 * row_bytes(table);
        error.needing(&format!("the first {count} of {rows} rows"), Some(needed))
    })
}
