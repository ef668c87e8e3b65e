//! Row counts as the primitives take them.

use xlog_cuda::device_runtime::{ResourceError, ResourceResult};

/// The most rows a primitive with row numbers of 32 bits takes.
pub const MOST_ROWS: u64 = u32::MAX as u64;

/// A row count that memory of `available` values holds and a primitive can number.
pub(crate) fn checked_rows(rows: u64, available: usize, what: &str) -> ResourceResult<usize> {
    if rows > MOST_ROWS {
        return Err(ResourceError::StreamMisuse(format!(
            "{what}: {rows} rows are more than the {MOST_ROWS} that 32-bit row numbers reach; \
             split the input"
        )));
    }
    match usize::try_from(rows) {
        Ok(rows) if rows <= available => Ok(rows),
        _ => Err(ResourceError::StreamMisuse(format!(
            "{what}: {rows} rows were named, the memory has {available}; name as many as there are"
        ))),
    }
}

/// Values to allocate for `rows` results: memory of no bytes does not exist.
pub(crate) fn room(rows: usize) -> usize {
    rows.max(1)
}
