//! The vocabulary every XLOG crate shares: how much memory a program may take ([`MemoryBudget`]),
//! what a value on a device is ([`ScalarType`]), how columns are named and typed ([`Schema`]), and
//! how work touches memory ([`Access`]).
//!
//! Nothing here talks to a device, and nothing here is unsafe.
//!
//! ```
//! use xlog_core::{Field, MemoryBudget, ScalarType, Schema};
//!
//! let budget = MemoryBudget::with_limit(1 << 30);
//! assert_eq!(budget.limit(), Some(1 << 30));
//!
//! let schema = Schema::new(vec![
//!     Field::new("id", ScalarType::U64),
//!     Field::new("price", ScalarType::F64).nullable(),
//! ])?;
//! assert_eq!(schema.index_of("price")?, 1);
//! # Ok::<(), xlog_core::SchemaError>(())
//! ```
#![forbid(unsafe_code)]

pub mod calendar;

mod access;
mod budget;
mod scalar;
mod schema;

pub use access::Access;
pub use budget::MemoryBudget;
pub use scalar::ScalarType;
pub use schema::{Field, Schema, SchemaError};
