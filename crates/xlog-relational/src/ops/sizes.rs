//! What operators need to know of a table's size.

use crate::{
    column::Column,
    error::{RelationalError, RelationalResult},
    primitives::MOST_ROWS,
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
