//! The device-wide steps that operators are made of, over typed memory rather than columns.
//!
//! Each takes the stream it works on, allocates its temporaries there, and returns before the work
//! has run. What must wait for the device, to learn a size, says so.

pub mod order;

mod gather;
mod group;
mod hash;
mod host;
mod join;
mod pending;
mod rows;
mod scan;
mod select;
mod sets;
mod sort;
mod tiles;
mod unique;

pub use gather::{Gatherable, RowNumber, fill, gather, gather_bits, iota, rows_valid};
pub(crate) use gather::{gather_bits_in, gather_in, rows_valid_in};
pub(crate) use group::Grouping;
pub use group::{Aggregate, AggregateWords, Groups, Values, group_by, group_by_tuned};
pub use hash::{KeyColumn, KeyWords, Keys, Tuning};
pub(crate) use join::join_payloads;
pub use join::{
    BuiltSide, JoinKind, JoinRows, JoinedPayloads, NO_ROW, PARTS, PartRows, inner_join_payloads,
    inner_join_payloads_tuned, join, join_tuned, part_rows,
};
pub use pending::{Pending, PendingCount};
pub use rows::MOST_ROWS;
pub use scan::{Summable, exclusive_sum};
pub(crate) use select::{BitCondition, select_bits_if, select_rows_if_bits};
pub use select::{
    Comparison, Condition, Selectable, select_by_mask, select_if, select_rows_by_mask,
    select_rows_if,
};
pub(crate) use sets::{Keep, is_small_set, keep_rows, keep_words};
pub use sort::{SortBy, SortKey, SortValue, sort_keys, sort_pairs};
pub(crate) use sort::{sort_bit_pairs, sort_bits};
pub use unique::{Runs, run_starts, unique};
