//! A device on which no hazard can hide, for tests of one's own code.

use std::sync::Arc;

use xlog_cuda::{
    CudaDevice,
    device_runtime::{DeviceStack, ResourceResult, ResourceStack},
};
use xlog_driver::{Driver, host::SimulatedDriver};

use crate::{
    LayeredDriver,
    oracle::{Finding, Oracle},
};

/// Ranges longer than this get poison at both ends only: a pool's slabs are as long, and writing
/// over all of them would take longer than most tests.
const POISONED_AT_MOST: usize = 256 << 10;

/// A simulated device, an oracle that watches it, and a layer that can make its calls fail.
///
/// A test runs its code over it with many seeds, and asks for findings. A seed that finds something
/// finds it again.
///
/// ```
/// use xlog_cuda::{LaunchDims, device_runtime::ResourceError, kernels, launch::LaunchBuilder};
/// use xlog_testkit::CheckedDevice;
///
/// for seed in 0..10 {
///     let checked = CheckedDevice::new(seed);
///     let stack = checked.production_stack()?;
///     let (runtime, manager) = (&stack.runtime, stack.manager());
///     let (writer, reader) = (stack.streams().acquire()?, stack.streams().acquire()?);
///     let (from, to) = (manager.alloc::<u32>(100)?, manager.alloc::<u32>(100)?);
///     let fill = runtime.load_kernel(&kernels::FILL_U32)?;
///     LaunchBuilder::new(runtime, &fill, writer)
///         .output(&from)
///         .value(7u32)
///         .value(100u64)
///         .launch(LaunchDims::for_elements(100))?;
///     let copy = runtime.load_kernel(&kernels::COPY_U32)?;
///     LaunchBuilder::new(runtime, &copy, reader)
///         .input(&from)
///         .output(&to)
///         .value(100u64)
///         .launch(LaunchDims::for_elements(100))?;
///     assert_eq!(to.download()?, [7; 100]);
///     checked.assert_clean();
/// }
/// # Ok::<(), ResourceError>(())
/// ```
#[derive(Debug)]
pub struct CheckedDevice {
    /// The simulated driver, to step and to ask about deadlocks.
    pub driver: Arc<SimulatedDriver>,
    /// The layer over it: counts calls, injects failures, goes deaf.
    pub layer: Arc<LayeredDriver>,
    /// Who watches.
    pub oracle: Arc<Oracle>,
    /// The device.
    pub device: Arc<CudaDevice>,
}

impl CheckedDevice {
    /// A device whose every choice comes from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(SimulatedDriver::new(0, seed).poisoning_at_most(POISONED_AT_MOST))
    }

    /// The same over a driver with settings of its own.
    #[must_use]
    pub fn with(driver: SimulatedDriver) -> Self {
        let oracle = Arc::new(Oracle::new());
        let driver = Arc::new(driver.watched_by(Arc::clone(&oracle) as _));
        let layer = Arc::new(LayeredDriver::new(Arc::clone(&driver) as Arc<dyn Driver>));
        let device = Arc::new(CudaDevice::with_driver(Arc::clone(&layer) as Arc<dyn Driver>));
        Self { driver, layer, oracle, device }
    }

    /// A runtime over the driver's stream-ordered allocator and nothing else.
    pub fn plain_stack(&self) -> ResourceResult<DeviceStack> {
        ResourceStack::over_driver(Arc::clone(&self.device)).build()
    }

    /// A runtime over the stack that [`CudaDevice::into_stack`] builds.
    pub fn production_stack(&self) -> ResourceResult<DeviceStack> {
        ResourceStack::production(Arc::clone(&self.device))?.build()
    }

    /// A runtime over the stack that [`CudaDevice::into_debug_stack`] builds.
    pub fn debugging_stack(&self) -> ResourceResult<DeviceStack> {
        ResourceStack::debugging(Arc::clone(&self.device)).build()
    }

    /// Lets everything that was enqueued run, and says what was found.
    #[must_use]
    pub fn finish(&self) -> Vec<Finding> {
        self.driver.drain();
        self.oracle.findings()
    }

    /// Lets everything that was enqueued run, and ends the test if anything was found.
    ///
    /// # Panics
    /// If there is a finding, or a call that blocks could never have gone on. The text says which
    /// seed it was.
    #[track_caller]
    #[allow(clippy::panic)] // a test fails here
    pub fn assert_clean(&self) {
        let mut texts: Vec<_> = self.finish().iter().map(ToString::to_string).collect();
        texts.extend(self.driver.deadlock());
        if !texts.is_empty() {
            panic!("seed {}, {} findings:\n{}", self.driver.seed(), texts.len(), texts.join("\n"));
        }
    }
}
