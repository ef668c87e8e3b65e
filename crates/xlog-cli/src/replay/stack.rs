//! The stacks of resources a log can be run against.

use std::{fmt, sync::Arc};

use clap::ValueEnum;
use xlog_cuda::{
    CudaDevice,
    device_runtime::{
        AsyncCudaResource, DirectCudaResource, ResourceResult, StreamPool, XlogDeviceRuntime,
    },
};

/// A stack of resources as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stack {
    /// The driver's stream-ordered allocator, with uses tracked
    Async,
    /// The driver's synchronous allocator; uses in the log are left out
    Direct,
}

impl Stack {
    /// A runtime over the stack.
    pub(crate) fn build(
        self,
        device: Arc<CudaDevice>,
        pool: Arc<StreamPool>,
    ) -> ResourceResult<XlogDeviceRuntime> {
        match self {
            Self::Async => stream_ordered(device, pool),
            Self::Direct => synchronous(device, pool),
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

fn stream_ordered(
    device: Arc<CudaDevice>,
    pool: Arc<StreamPool>,
) -> ResourceResult<XlogDeviceRuntime> {
    let ordinal = device.info().ordinal;
    let memory = AsyncCudaResource::new(Arc::clone(&device), ordinal, Arc::clone(&pool));
    XlogDeviceRuntime::try_with_resource(device, ordinal, pool, Box::new(memory))
}

fn synchronous(
    device: Arc<CudaDevice>,
    pool: Arc<StreamPool>,
) -> ResourceResult<XlogDeviceRuntime> {
    let ordinal = device.info().ordinal;
    let memory = DirectCudaResource::new(Arc::clone(&device), ordinal);
    XlogDeviceRuntime::try_with_resource(device, ordinal, pool, Box::new(memory))
}
