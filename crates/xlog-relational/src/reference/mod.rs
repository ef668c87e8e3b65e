//! The oracle: every operator, written to be obviously right.
//!
//! Plain values on the host, one row after the other, no device and no cleverness. Operators are
//! held against these functions by tests; nothing else uses them.
//!
//! Where an operator leaves the order of rows open, so does [`Relation::same_rows`], which compares
//! the rows of two tables as bags.

mod batch;
mod expression;
mod group;
mod join;
mod relation;
mod sets;
mod sort;

pub use expression::{evaluate, filter, project};
pub use group::group_by;
pub use join::join;
pub use relation::{HostColumn, Relation};
pub use sets::{concat, distinct, except, intersect, union};
pub use sort::{limit, sort, top_k};

#[cfg(test)]
mod tests;
