//! Models of what counts and of what hands out memory.

mod pool;
mod reaping;
