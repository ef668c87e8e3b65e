//! The device that a query runs on, and how much of it.
//!
//! This is the one place where a relational command opens a device.

use std::{num::NonZeroUsize, sync::Arc};

use clap::Args;
use xlog_cuda::{
    CudaDevice,
    device_runtime::{PoolOptions, ResourceError, ResourceStack},
};
use xlog_driver::{DeviceKind, DriverError};
use xlog_query::{QueryError, run::RunOptions};
use xlog_relational::{Engine, RelationalError};

use super::size::Size;
use crate::{
    Failure,
    device::DeviceChoice,
    trace::{TraceOptions, TracedDriver},
};

/// Which device, and how much of it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceOptions {
    /// The device to run on: host, cuda:N, or auto (the first GPU, else the host)
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    /// Memory that may be used, as 4GiB; all that is free without it
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Streams at most
    #[arg(long, default_value = "8", value_name = "N")]
    streams: NonZeroUsize,
    /// Threads that read files and drive the device; as many as there are cores without it
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    trace: TraceOptions,
}

/// A device that is ready.
#[derive(Debug)]
pub(super) struct OpenDevice {
    pub(super) engine: Engine,
    pub(super) options: RunOptions,
    /// Bytes of what the command was given that the device does not have.
    reserved: u64,
    traced: TracedDriver,
}

impl OpenDevice {
    /// The same error in terms of what the command was given.
    pub(super) fn explain(&self, error: QueryError) -> QueryError {
        match error {
            QueryError::TooLarge { what, needed, budget } => QueryError::TooLarge {
                what,
                needed: needed + self.reserved,
                budget: budget + self.reserved,
            },
            error => error,
        }
    }

    /// Writes what happened on the device, where that was asked for.
    pub(super) fn finish(self) -> Result<(), QueryError> {
        self.traced.finish().map_err(failure)
    }
}

/// The least that a query can be run in: the program itself, a reader and a few batches.
const LEAST_MEMORY: u64 = 96 << 20;
/// What files are read and written through, beside the host device's memory: a quarter of all
/// within these bounds, and half of it at most.
const READING: std::ops::RangeInclusive<u64> = 56 << 20..=192 << 20;

impl DeviceOptions {
    /// Threads that read files.
    pub(super) fn reading_threads(&self) -> Option<NonZeroUsize> {
        self.threads
    }

    /// Opens the device.
    pub(super) fn open(&self) -> Result<OpenDevice, QueryError> {
        let failed = |error| QueryError::from(RelationalError::from(error));
        let traced = self.trace.open(self.device).map_err(failure)?;
        let device = Arc::new(CudaDevice::with_driver(Arc::clone(&traced.driver)));
        let free = device.memory().map_err(failed)?.free;
        let memory = match (self.memory, device.info().kind) {
            (None, DeviceKind::Cuda) => free / 10 * 9,
            // What is read, and what is made of it, is host memory as well.
            (None, DeviceKind::Host) => free / 2,
            (Some(Size(memory)), DeviceKind::Cuda) => memory.min(free),
            (Some(Size(memory)), DeviceKind::Host) => {
                let reading = (memory / 4).clamp(*READING.start(), *READING.end());
                memory - reading.min(memory / 2)
            }
        };
        let reserved = self.memory.map_or(0, |given| given.0.saturating_sub(memory));
        if let Some(Size(given)) = self.memory.filter(|given| given.0 < LEAST_MEMORY) {
            let message = format!(
                "--memory {} is too little to work in; give 96MiB or more",
                xlog_query::Bytes(given)
            );
            return Err(QueryError::Plan { message });
        }
        let limit = usize::try_from(memory).unwrap_or(usize::MAX);
        // Slabs that are small beside the limit: one stream must not keep what another needs.
        let slab = (limit / 16).clamp(1 << 20, 1 << 30);
        let pool = PoolOptions::default()
            .with_first_slab(slab.min(PoolOptions::default().first_slab))
            .with_largest_slab(slab);
        let stack = ResourceStack::over_driver(device).with_budget(limit).with_pool(pool);
        let stack = stack.with_statistics().build().map_err(failed)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.map_or(cores.min(8), usize::from);
        let streams = self.streams.get();
        let options = RunOptions { memory, streams, threads, batch_rows: None };
        Ok(OpenDevice { engine: Engine::over(&stack), options, reserved, traced })
    }
}

/// A device that does not work is no fault of the command line's; a file that cannot be written is.
fn failure(error: Failure) -> QueryError {
    match error.downcast::<DriverError>() {
        Ok(error) => RelationalError::from(ResourceError::from(*error)).into(),
        Err(error) => QueryError::Plan { message: error.to_string() },
    }
}
