//! Launches that say what they touch.
//!
//! [`LaunchBuilder`] is the form to reach for: the arguments of the kernel are the declared uses,
//! and recording, waiting, enqueueing and publishing happen in one call. [`LaunchRecorder`] is the
//! same in steps, for work that somebody else enqueues: record every buffer, `preflight`, enqueue,
//! `commit`. [`LaunchBatch`] puts several launches of one stream under one event.
//!
//! ```
//! use std::sync::Arc;
//! use xlog_core::MemoryBudget;
//! use xlog_cuda::{CudaDevice, GpuMemoryManager, LaunchDims, device_runtime::*, kernels};
//! use xlog_cuda::launch::LaunchBuilder;
//!
//! let device = Arc::new(CudaDevice::auto());
//! let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
//! let resource = AsyncCudaResource::new(Arc::clone(&device), 0, Arc::clone(&pool));
//! let runtime = Arc::new(XlogDeviceRuntime::with_resource(
//!     Arc::clone(&device), 0, pool, Box::new(resource)));
//! let manager =
//!     GpuMemoryManager::with_runtime(device, MemoryBudget::unlimited(), Arc::clone(&runtime));
//!
//! let stream = runtime.stream_pool().acquire()?;
//! let out = manager.alloc::<u32>(1000)?; // on the default stream; the launch waits for it
//! let fill = runtime.load_kernel(&kernels::FILL_U32)?;
//! LaunchBuilder::new(&runtime, &fill, stream)
//!     .output(&out)
//!     .value(7u32)
//!     .value(1000u64)
//!     .launch(LaunchDims::for_elements(1000))?;
//! assert_eq!(out.download()?, [7; 1000]);
//! # Ok::<(), ResourceError>(())
//! ```

mod batch;
mod builder;
mod declaration;
mod element;
mod enqueue;
mod recorder;
mod uses;

pub use batch::LaunchBatch;
pub use builder::{LaunchBuilder, Region};
pub use element::DeviceElement;
pub(crate) use enqueue::Enqueue;
pub use recorder::{LaunchRecorder, RecorderMode, dropped_recorders};
pub(crate) use uses::Uses;
