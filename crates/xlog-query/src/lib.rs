//! Queries over files: from text to tables.
//!
//! [`parse`] reads expressions and clauses.

#![forbid(unsafe_code)]

pub mod parse;

mod nearest;
