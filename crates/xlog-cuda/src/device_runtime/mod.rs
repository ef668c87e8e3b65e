//! The device runtime: resources, the stream pool, and the facade over them.
//!
//! A [`StreamPool`] holds the streams of one device and owns the books of who uses what. A
//! [`DeviceMemoryResource`] hands out blocks; [`AsyncCudaResource`] in stream order, with their
//! uses tracked, [`DirectCudaResource`] plainly, and [`PoolResource`] out of larger ones.
//! [`GlobalDeviceBudget`] keeps a limit. Adaptors wrap any of them: [`StatisticsResource`] counts,
//! [`TrackingResource`] knows who holds what, [`LoggingResource`] writes down what is asked for,
//! [`AlignedResource`] hands out addresses that are multiples of more than 256 bytes,
//! [`FailureCallbackResource`] asks for memory to be freed, [`DebugGuardResource`] finds writes
//! outside of blocks and after frees, and [`FaultInjectionResource`] fails on purpose.
//! [`PinnedHostResource`] and [`PinnedPoolResource`] hand out the host's side of a copy.
//! [`ResourceStack`] composes them. [`XlogDeviceRuntime`] is the one value a program passes around.
//!
//! ```
//! use std::sync::Arc;
//! use xlog_cuda::{CudaDevice, device_runtime::*};
//!
//! let device = Arc::new(CudaDevice::auto());
//! let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
//! let resource = AsyncCudaResource::new(Arc::clone(&device), 0, Arc::clone(&pool));
//! let runtime = XlogDeviceRuntime::with_resource(device, 0, pool, Box::new(resource));
//!
//! let block = runtime.allocate(1 << 20, StreamId::DEFAULT, AllocTag("example"))?;
//! assert!(runtime.bytes_outstanding() >= 1 << 20);
//! runtime.deallocate(block)?;
//! runtime.reap_pending()?;
//! assert_eq!(runtime.bytes_outstanding(), 0);
//! # Ok::<(), ResourceError>(())
//! ```

mod accounts;
mod adaptors;
mod aligned;
mod async_cuda;
mod backing;
mod budget;
mod direct;
mod error;
mod forward;
mod guard;
mod logging;
#[cfg(all(test, loom))]
mod models;
mod pinned;
mod pool;
mod resource;
mod runtime;
mod stack;
mod stream_pool;
pub(crate) mod tracker;
mod vocabulary;

pub use adaptors::{
    Counter, Failure, FailureCallbackResource, FaultInjectionResource, FaultPlan, Holding,
    Operation, Statistics, StatisticsResource, TrackingResource,
};
pub use aligned::AlignedResource;
pub use async_cuda::AsyncCudaResource;
pub use budget::{GlobalDeviceBudget, Reservation, Shortage};
pub use direct::DirectCudaResource;
pub use error::{ResourceError, ResourceResult};
pub use guard::{DebugGuardResource, Finding, FindingKind, FreedBy, GuardOptions};
pub use logging::{
    CsvSink, JsonLinesSink, LogAction, LogReadError, LogRecord, LogSink, LoggedCall,
    LoggingResource, MemorySink, read_log,
};
pub(crate) use pinned::LastCopy;
pub use pinned::{
    PinnedBuffer, PinnedHostResource, PinnedPoolOptions, PinnedPoolResource, PinnedReport,
};
pub use pool::{PoolOptions, PoolReport, PoolResource};
pub use resource::DeviceMemoryResource;
pub(crate) use runtime::RuntimeCore;
pub use runtime::XlogDeviceRuntime;
pub use stack::{DeviceStack, ResourceStack};
pub use stream_pool::StreamPool;
pub(crate) use tracker::current_desk;
pub use tracker::{TrackerStats, UseTracker, VirtualThread};
pub(crate) use vocabulary::SlotHint;
pub use vocabulary::{AllocTag, BlockId, BlockState, BlockUse, DeviceBlock, Generation, StreamId};
pub use xlog_core::Access;
pub use xlog_driver::DriverError;
