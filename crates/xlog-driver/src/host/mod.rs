//! The host device: a real asynchronous device made of threads.
//!
//! Streams are in-order queues, each run by a thread of its own, so work on two streams really
//! does overlap; events capture a place in a stream; stream-ordered memory is handed out again as
//! early as the stream order allows. Nothing here is polite: without the right wait a program
//! reads the wrong bytes, as on a GPU.
//!
//! The caller validates, as [`Driver`] says. A kernel that faults, or
//! panics, loses the device: every later call answers with that error, as on a GPU.

mod driver;
mod fault;
mod kernel;
mod memory;
mod stream;

pub use driver::HostDriver;
pub use kernel::{
    AccessObserver, Direct, HostKernel, Input, KernelBody, KernelCall, KernelFault, MemoryPolicy,
    Observed, Output,
};

#[cfg(doc)]
use crate::Driver;
