//! Queries over files: from text to tables.
//!
//! [`parse`] reads expressions and clauses, [`plan`] makes queries of them, from a command line or
//! from a plan in a file, and [`run`] runs a query over inputs that arrive batch by batch.

#![forbid(unsafe_code)]

pub mod parse;
pub mod plan;
pub mod run;

mod error;
mod nearest;

pub use error::{Bytes, QueryError, QueryResult};
