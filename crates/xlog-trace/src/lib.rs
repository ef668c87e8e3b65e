//! What happened on a device, and why it had to happen in that order.
//!
//! [`Trace`] stands between a program and its driver. It notes every launch, copy, fill, event,
//! wait, allocation and free, with the host's times and, where the device keeps time, the device's;
//! and what the runtime tells: which blocks a launch declares, and which it hands out under which
//! tag. It changes nothing: the same calls reach the driver in the same order, and between them go
//! only stamps, which order nothing.
//!
//! [`Recording`] is what came of it. Each wait between streams has its [`Reason`]s, derived from
//! the declared uses: which block, which use came first, which follows it. It is written as a
//! [Chrome trace](Recording::write_chrome), for Perfetto, or as a [page](Recording::write_report)
//! that needs nothing but a browser.
//!
//! ```
//! use std::sync::Arc;
//! use xlog_cuda::CudaDevice;
//! use xlog_driver::host::HostDriver;
//! use xlog_trace::Trace;
//!
//! let trace = Trace::new(Arc::new(HostDriver::new(0)));
//! let stack = CudaDevice::with_driver(trace.driver()).into_stack()?;
//! let mut data = stack.manager().alloc::<u32>(3)?;
//! data.upload(&[1, 2, 3])?;
//! assert_eq!(data.download()?, [1, 2, 3]);
//!
//! let recording = trace.finish();
//! assert_eq!(recording.operations.len(), 2); // a copy to the device, and one back
//! recording.write_report(&mut std::io::sink(), None)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod analysis;
mod chrome;
mod driver;
mod history;
mod log;
mod memory;
mod reason;
mod recording;
mod report;
mod stream;
mod trace;
mod watcher;

pub use reason::{Dependency, Reason, WaitCause};
pub use recording::{
    Block, CallKind, HostCall, MemorySample, Operation, OperationKind, Recording, Stream,
    TagChange, Use, Wait,
};
pub use report::Hazard;
pub use trace::Trace;
