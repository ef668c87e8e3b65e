//! What every example needs: a device from the command line, and a runtime over it.

use std::{fmt, sync::Arc};

use xlog_core::MemoryBudget;
use xlog_cuda::{
    CudaDevice, GpuMemoryManager,
    device_runtime::{AsyncCudaResource, StreamPool, XlogDeviceRuntime},
};

/// A runtime, and typed memory from it.
pub(crate) struct Setup {
    pub(crate) runtime: Arc<XlogDeviceRuntime>,
    pub(crate) manager: GpuMemoryManager,
}

impl Setup {
    /// The usual stack: streams, stream-ordered memory with tracked uses, a runtime over both.
    pub(crate) fn new(device: CudaDevice, shows: &str) -> Self {
        println!("on {}: {shows}", device.info().name);
        let ordinal = device.info().ordinal;
        let device = Arc::new(device);
        let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
        let resource = AsyncCudaResource::new(Arc::clone(&device), ordinal, Arc::clone(&pool));
        let runtime = Arc::new(XlogDeviceRuntime::with_resource(
            Arc::clone(&device),
            ordinal,
            pool,
            Box::new(resource),
        ));
        let budget = MemoryBudget::with_limit(64 << 20);
        let manager = GpuMemoryManager::with_runtime(device, budget, Arc::clone(&runtime));
        Self { runtime, manager }
    }
}

/// The device the first argument names; without one, a GPU if there is one, else the host.
pub(crate) fn device_from_arguments() -> Result<CudaDevice, Failure> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    match (name.as_str(), name.strip_prefix("cuda:").map(str::parse)) {
        ("auto", _) => Ok(CudaDevice::auto()),
        ("host", _) => Ok(CudaDevice::host()),
        (_, Some(Ok(ordinal))) => Ok(CudaDevice::new(ordinal)?),
        _ => Err(format!("{name:?} is no device: say host, cuda:N (as cuda:0), or auto").into()),
    }
}

/// Fails with `what` unless it holds.
pub(crate) fn check(holds: bool, what: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(format!("wrong: {what}").into()) }
}

/// Why an example failed: one message, which `main` prints as it is.
pub(crate) struct Failure(String);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}
