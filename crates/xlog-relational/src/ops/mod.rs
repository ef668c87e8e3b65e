//! The operators: tables in, one table out.
//!
//! Each works on the stream it is given and returns before the device is done, unless it says that
//! it waits. What is wrong with names, types and engines is refused before anything is launched.
//! Inputs never change; an operator that fails frees what it took, and one that lacked memory says
//! how much it would have needed.

mod bits;
mod concat;
mod encode;
mod filter;
mod limit;
mod project;
mod sort;
mod take;
mod top_k;

pub use concat::concat;
pub use filter::filter;
pub use limit::limit;
pub use project::project;
pub use sort::sort;
pub use top_k::top_k;
