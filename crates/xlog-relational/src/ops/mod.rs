//! The operators: functions from tables to a table, on a stream.
//!
//! Each checks its input before it launches anything, takes its memory from the engine's stack, and
//! returns before its work has run, save where an output size must be known: what waits for the
//! device says so. An operator that fails frees what it had taken; its inputs are as they were.

mod distinct;
mod figures;
mod group;
mod join;
mod keys;
mod rows;
mod sets;
mod stack;

pub use distinct::distinct;
pub use group::group_by;
pub use join::hash_join;
pub use rows::take_rows;
pub use sets::{except, intersect, union};
