//! The device-wide steps that operators are made of, over typed memory rather than columns.
//!
//! Each takes the stream it works on, allocates its temporaries there, and returns before the work
//! has run. What must wait for the device, to learn a size, says so.

mod group;
mod hash;
mod join;

pub use group::{Aggregate, AggregateWords, Groups, Values, group_by, group_by_tuned};
pub use hash::{KeyColumn, KeyWords, Keys, Tuning};
pub use join::{
    JoinKind, JoinRows, JoinedPayloads, NO_ROW, inner_join_payloads, inner_join_payloads_tuned,
    join, join_tuned,
};
