//! Columns and relational operators on a GPU, or on the host device: sort, filter, join, group-by,
//! distinct and set operations.
//!
//! Every step is a kernel with two bodies, CUDA C and Rust, launched through the runtime's builder
//! over declared blocks: operators of different streams and threads may share inputs, and the
//! runtime orders them. Temporaries come from the runtime's memory stack, so a budget holds for
//! them too.

pub mod primitives;

mod engine;

pub use engine::Engine;
