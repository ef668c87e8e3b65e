//! The stacks of resources a log can be run against.

use std::{fmt, sync::Arc};

use clap::ValueEnum;
use xlog_cuda::{
    CudaDevice,
    device_runtime::{DeviceStack, PoolOptions, ResourceResult, ResourceStack, StreamPool},
};

/// A stack of resources as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stack {
    /// The driver's stream-ordered allocator, with uses tracked
    Async,
    /// The driver's synchronous allocator; uses in the log are left out
    Direct,
    /// A pool over the stream-ordered allocator
    Pool,
    /// What programs get: a budget, a pool and statistics
    Default,
    /// What programs get for debugging: a guard, statistics, and who holds what
    Debug,
}

impl Stack {
    /// A runtime over the stack.
    pub(crate) fn build(
        self,
        device: Arc<CudaDevice>,
        streams: Arc<StreamPool>,
    ) -> ResourceResult<DeviceStack> {
        let driver = ResourceStack::over_driver_for;
        match self {
            Self::Async => driver(device, streams),
            Self::Direct => ResourceStack::over_plain_driver_for(device, streams),
            Self::Pool => driver(device, streams).with_pool(PoolOptions::default()),
            Self::Default => driver(device, streams).as_in_production()?,
            Self::Debug => driver(device, streams).as_for_debugging(),
        }
        .build()
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}
