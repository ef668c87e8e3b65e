//! The operators: tables in, one table out.
//!
//! Each works on the stream it is given and returns before the device is done, unless it says that
//! it waits. What is wrong with names, types and engines is refused before anything is launched.
//! Inputs never change; an operator that fails frees what it took, and one that lacked memory says
//! how much it would have needed.

mod bits;
mod concat;
mod distinct;
mod encode;
mod figures;
mod filter;
mod group;
mod join;
mod join_build;
mod keys;
mod limit;
mod partition;
mod project;
mod rows;
mod sets;
mod sizes;
mod sort;
mod stack;
mod top_k;

pub use concat::{concat, concat_windows};
pub use distinct::distinct;
pub use filter::{FilterBy, filter, filter_tuned};
pub use group::group_by;
pub use join::{hash_join, hash_join_tuned};
pub use join_build::JoinBuild;
pub use limit::limit;
pub use partition::{Partitioned, partition};
pub use project::project;
pub use sets::{except, except_tuned, intersect, intersect_tuned, union};
pub use sort::sort;
pub use top_k::top_k;
