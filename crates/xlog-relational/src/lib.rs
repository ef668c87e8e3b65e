//! Columns and relational operators on a GPU, or on the host device: sort, filter, join, group-by,
//! distinct and set operations.
//!
//! Every step is a kernel with two bodies, CUDA C and Rust, launched through the runtime's builder
//! over declared blocks: operators of different streams and threads may share inputs, and the
//! runtime orders them. Temporaries come from the runtime's memory stack, so a budget holds for
//! them too.

pub mod arrow;
pub mod calendar;
pub mod exec;
pub mod ops;
pub mod primitives;
pub mod reference;
#[cfg(any(test, feature = "strategies"))]
pub mod strategies;

mod aggregate;
mod column;
mod engine;
mod error;
mod expr;
mod join_kind;
mod scalar;
mod sort_key;
mod table;
mod types;

pub use aggregate::{Aggregate, AggregateFunction};
pub use column::{
    Column, ColumnParts, Dictionary, DictionaryBuilder, Native, Unified, Values, validity_words,
};
pub use engine::Engine;
pub use error::{RelationalError, RelationalResult};
pub use expr::{Checked, Comparison, Evaluated, Expr, Mask, Operator, Program, col, lit, null};
pub use join_kind::JoinKind;
pub use scalar::{KeyIdentity, Scalar, compare_floats};
pub use sort_key::SortKey;
pub use table::Table;
pub use types::{DataType, Field, Physical, Schema};

/// The README's programs, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
