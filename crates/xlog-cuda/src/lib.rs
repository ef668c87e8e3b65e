//! Stream-safe GPU memory and launches.
//!
//! A multi-stream GPU program goes wrong in two ways nobody sees: work reads memory that another
//! stream is still writing, and memory is handed out again while a kernel still uses it. Here every
//! launch or copy declares the device blocks it touches, and the runtime queues exactly the waits
//! that takes, records the use with one event however many blocks there are, frees memory only
//! behind its last use, and refuses handles that outlived their block.
//!
//! The same program runs on a GPU ([`CudaDevice::new`]) and on the host device
//! ([`CudaDevice::host`]), where streams are threads and the same mistakes have the same effects.
//!
//! Start with [`launch`] for launching work, [`memory`] for typed memory, and [`device_runtime`]
//! for what is underneath.

pub mod device_runtime;
pub mod kernels;
pub mod launch;
pub mod memory;
#[doc(hidden)]
pub mod mutant;

mod device;
mod known_kernels;
mod sync;

pub use device::{CudaDevice, LoadedKernel};
pub use memory::GpuMemoryManager;
pub use xlog_driver::LaunchDims;
