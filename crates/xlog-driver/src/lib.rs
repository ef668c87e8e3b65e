//! The driver layer of XLOG: one contract, two devices.
//!
//! [`Driver`] is what the runtime needs of a device: streams, events, memory, copies and kernel
//! launches. [`CudaDriver`](cuda::CudaDriver) keeps it with NVIDIA's driver, found at run time, so
//! that building needs no CUDA toolkit; [`HostDriver`](host::HostDriver) keeps it with threads of
//! this process, so that every program runs, and can go wrong, on a machine without a GPU;
//! [`SimulatedDriver`](host::SimulatedDriver) keeps it with no thread at all, in an order that a
//! seed decides. A [`DeviceWatcher`] sees what happens on either of the last two.
//!
//! This layer validates nothing it can leave to the runtime above it: handles and pointers are
//! passed as they are, and the methods that trust them are `unsafe`. What it does promise is that
//! every call answers with a value or a [`DriverError`], on any thread, and never panics.

pub mod cuda;
pub mod host;

mod contract;
mod error;
mod info;
mod kernel;
mod watch;

pub use contract::{
    Driver, RawEvent, RawFunction, RawStamp, RawStream, StreamProgress, WorkStamps,
};
pub use error::{DriverError, DriverResult};
pub use info::{DeviceInfo, DeviceKind, MemoryInfo};
pub use kernel::{
    Arguments, Extent, KernelDefinition, KernelModule, LaunchDims, MAX_ARGUMENTS, Parameter,
    ParameterKind,
};
pub use watch::{
    BlockChange, BlockNote, CopyKind, Declared, DeclaredUse, DeviceCall, DeviceWatcher, OperationId,
};
