//! The CUDA device: the driver contract kept with NVIDIA's driver, found at run time.
//!
//! It owns a hold on the device's primary context, one memory pool, and the kernel modules it has
//! loaded; streams, events and memory belong to whoever asked for them. The caller validates, as
//! [`Driver`](crate::Driver) says: what is passed in goes to the driver as it is. Streams order
//! their own work and nothing else: none waits for the legacy default stream, and the pool is told
//! never to add a wait between two streams.
//!
//! Only the driver's C interface is used. A layer above it that records events of its own would
//! order work a second time, beside the runtime's tracker and unknown to it.

mod context;
mod copy;
mod device;
mod driver;
mod event;
mod failure;
mod launch;
mod memory;
mod module;
mod pool;
mod probe;
mod stamp;
mod stream;

pub use driver::CudaDriver;
pub use probe::CudaProbe;
