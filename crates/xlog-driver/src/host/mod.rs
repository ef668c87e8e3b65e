//! The host device: a real asynchronous device made of threads, and its simulated twin.
//!
//! [`HostDriver`] is the parallel one. [`SimulatedDriver`] spawns no thread: work runs when
//! somebody steps, in an order that a seed decides, and the same seed gives the same run. Either
//! can have a [`DeviceWatcher`], which is told of every call and every access.
//!
//! Streams are in-order queues, each run by a thread of its own, so work on two streams really
//! does overlap; events capture a place in a stream; stream-ordered memory is handed out again as
//! early as the stream order allows. Nothing here is polite: without the right wait a program
//! reads the wrong bytes, as on a GPU.
//!
//! The caller validates, as [`Driver`] says. A kernel that faults, or
//! panics, loses the device: every later call answers with that error, as on a GPU.

mod compress;
mod driver;
mod fault;
mod kernel;
mod memory;
mod operation;
mod pages;
mod parts;
mod simulated;
mod stamp;
mod stream;

pub use compress::{BitRange, Markable, compress, mark};
pub use driver::HostDriver;
pub use kernel::{
    Direct, HostKernel, Input, KernelBody, KernelCall, KernelFault, MemoryPolicy, Observed, Output,
    ReadWrite,
};
pub use simulated::{SimulatedDriver, Streams, Touched};

#[cfg(doc)]
use crate::{DeviceWatcher, Driver};
