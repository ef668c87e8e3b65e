//! `xlog bench alloc`: the default stack beside the driver's own pool, in one run.
//!
//! Every case runs through the runtime that users get, and once more with the driver's
//! stream-ordered calls written by hand, turn by turn.

mod logging;
mod overlap;
mod pairs;
mod random;
mod report;
mod threads;

use std::sync::Arc;

use xlog_cuda::{
    CudaDevice,
    device_runtime::{DeviceStack, PoolOptions, ResourceResult, ResourceStack, StreamId},
};
use xlog_driver::{DeviceKind, RawStream};

use self::report::Report;
use super::{BenchOptions, measure, quiet_core::QuietCore};
use crate::{Failure, device::label};

/// Everything a case needs: the default stack, and the same stack without statistics.
struct Lab {
    device: Arc<CudaDevice>,
    default: DeviceStack,
    plain: DeviceStack,
    core: QuietCore,
    quick: bool,
}

impl Lab {
    fn new(device: &Arc<CudaDevice>, core: QuietCore, quick: bool) -> ResourceResult<Self> {
        let default = ResourceStack::production(Arc::clone(device))?.build()?;
        let limit = usize::try_from(device.memory()?.total).unwrap_or(usize::MAX);
        let plain = ResourceStack::over_driver(Arc::clone(device))
            .with_budget(limit)
            .with_pool(PoolOptions::default())
            .build()?;
        Ok(Self { device: Arc::clone(device), default, plain, core, quick })
    }

    /// A stream of `stack` and, for the driver's own calls, the same stream raw.
    fn stream(&self, stack: &DeviceStack) -> Result<(StreamId, RawStream), Failure> {
        let stream = stack.streams().acquire()?;
        // A block makes the pool create the stream.
        let block =
            stack.runtime.allocate(256, stream, xlog_cuda::device_runtime::AllocTag("warm"))?;
        stack.runtime.deallocate(block)?;
        let raw = self.device.driver().create_stream()?;
        Ok((stream, raw))
    }
}

/// A group of cases: measures on a fresh lab, and reports rows.
type Group = fn(&Lab, &mut Report) -> Result<(), Failure>;

/// Every group, by the name its cases start with, and whether it runs on one core.
const GROUPS: &[(&str, bool, Group)] = &[
    ("pair", true, pairs::same_stream),
    ("burst", true, pairs::burst),
    ("alternating", true, pairs::alternating),
    ("use-elsewhere", true, pairs::use_elsewhere),
    ("random", true, random::run),
    ("statistics", true, pairs::statistics),
    ("logging", true, logging::run),
    ("threads", false, threads::run),
    ("overlap", true, overlap::run),
];

/// Runs the allocation benchmark.
pub(crate) fn run_alloc(options: &BenchOptions) -> Result<(), Failure> {
    let chosen = options.choose(GROUPS, |(name, ..)| name)?;
    let earlier = options.earlier()?;
    let device = Arc::new(options.device.open()?);
    let mut report = Report::new(label(&device), options.json);
    report.open(&device.info().name);
    measure::wake_up(options.quick);
    for (_, one_core, group) in chosen {
        let quiet = *one_core && device.info().kind == DeviceKind::Cuda;
        let core = if quiet { QuietCore::find() } else { QuietCore::anywhere() };
        group(&Lab::new(&device, core, options.quick)?, &mut report)?;
    }
    report.close();
    options.compare(earlier.as_ref(), report.rows())
}
