//! The device-wide steps that operators are made of, over typed memory rather than columns.
//!
//! Each takes the stream it works on, allocates its temporaries there, and returns before the work
//! has run. What must wait for the device, to learn a size, says so.

pub mod order;

mod host;
mod rows;
mod sort;

pub use rows::MOST_ROWS;
pub use sort::{SortBy, SortKey, SortValue, sort_keys, sort_pairs};
