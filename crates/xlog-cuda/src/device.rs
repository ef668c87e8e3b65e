//! An opened device: a driver, and whether it is lost.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use xlog_driver::{
    DeviceInfo, DeviceKind, DeviceWatcher, Driver, DriverError, DriverResult, KernelDefinition,
    MemoryInfo, RawFunction, cuda::CudaDriver, host::HostDriver,
};

use crate::{
    device_runtime::{DeviceStack, ResourceError, ResourceResult, ResourceStack},
    known_kernels::KnownKernels,
};

/// A device the runtime can drive: a GPU, or the host.
///
/// ```
/// use xlog_cuda::CudaDevice;
///
/// let device = CudaDevice::auto();
/// println!("running on {}", device.info().name);
/// ```
pub struct CudaDevice {
    driver: Arc<dyn Driver>,
    lost: AtomicBool,
    /// It is lost, or watched: whatever is asked of it is not the common case.
    unusual: AtomicBool,
    /// Told of every launch's declared uses, if the driver has one.
    watcher: Option<Arc<dyn DeviceWatcher>>,
    reason: OnceLock<DriverError>,
    kernels: KnownKernels,
    identity: u64,
}

/// Numbers for devices: an address could come back.
static IDENTITIES: AtomicU64 = AtomicU64::new(1);

impl CudaDevice {
    /// Opens GPU number `ordinal`. Without a driver, without that GPU, or with too old a driver,
    /// the error says what is missing.
    pub fn new(ordinal: usize) -> Result<Self, ResourceError> {
        Ok(Self::with_driver(Arc::new(CudaDriver::open(ordinal)?)))
    }

    /// The host device: every program runs on it, on any machine.
    #[must_use]
    pub fn host() -> Self {
        Self::with_driver(Arc::new(HostDriver::new(0)))
    }

    /// The first GPU if there is one that works, else the host device.
    #[must_use]
    pub fn auto() -> Self {
        Self::new(0).unwrap_or_else(|_| Self::host())
    }

    /// A runtime on this device over the stack for production: stream-ordered memory, the device's
    /// budget, a pool, statistics. [`ResourceStack`] composes others.
    ///
    /// ```
    /// use xlog_cuda::CudaDevice;
    ///
    /// let stack = CudaDevice::auto().into_stack()?;
    /// let ones = stack.manager().alloc::<u32>(1024)?;
    /// assert_eq!(ones.len(), 1024);
    /// # Ok::<(), xlog_cuda::device_runtime::ResourceError>(())
    /// ```
    pub fn into_stack(self) -> ResourceResult<DeviceStack> {
        ResourceStack::production(Arc::new(self))?.build()
    }

    /// The same over the stack for debugging.
    pub fn into_debug_stack(self) -> ResourceResult<DeviceStack> {
        ResourceStack::debugging(Arc::new(self)).build()
    }

    /// A device behind any driver that keeps the contract.
    #[must_use]
    pub fn with_driver(driver: Arc<dyn Driver>) -> Self {
        let watcher = driver.watcher();
        Self {
            driver,
            lost: AtomicBool::new(false),
            unusual: AtomicBool::new(watcher.is_some()),
            watcher,
            reason: OnceLock::new(),
            kernels: KnownKernels::default(),
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The driver underneath. Work enqueued on it directly is outside every guarantee.
    #[must_use]
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// Who watches the device, if anybody does.
    #[inline]
    pub(crate) fn watcher(&self) -> Option<&Arc<dyn DeviceWatcher>> {
        self.watcher.as_ref()
    }

    /// The device's fixed properties.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        self.driver.info()
    }

    /// The device's memory now.
    pub fn memory(&self) -> ResourceResult<MemoryInfo> {
        self.check_alive()?;
        self.note(self.driver.memory())
    }

    /// Waits for everything enqueued on the device.
    pub fn synchronize(&self) -> ResourceResult<()> {
        self.check_alive()?;
        self.note(self.driver.synchronize_device())
    }

    /// Makes a kernel ready to launch on this device.
    pub fn load_kernel(
        &self,
        definition: &'static KernelDefinition,
    ) -> ResourceResult<LoadedKernel> {
        self.check_alive()?;
        let function = match self.kernels.get(definition) {
            Some(function) => function,
            None => {
                let function = self.note(self.driver.load_kernel(definition))?;
                self.kernels.add(definition, function);
                function
            }
        };
        Ok(LoadedKernel { function, definition, device: self.identity() })
    }

    /// The error that lost the device, if it is lost.
    #[must_use]
    pub fn lost_reason(&self) -> Option<&DriverError> {
        self.reason.get()
    }

    /// Whether `ordinal` can name this device. The host device takes any.
    pub(crate) fn accepts_ordinal(&self, ordinal: u32) -> bool {
        self.info().kind == DeviceKind::Host || self.info().ordinal == ordinal
    }

    /// Whether it is neither lost nor watched.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        !self.unusual.load(Ordering::Relaxed)
    }

    /// [`ResourceError::DeviceLost`] once the device is lost.
    #[inline]
    pub(crate) fn check_alive(&self) -> ResourceResult<()> {
        if self.lost.load(Ordering::Relaxed) { Err(ResourceError::DeviceLost) } else { Ok(()) }
    }

    /// Passes a driver's answer on, and remembers if it means that the device is lost.
    #[inline]
    pub(crate) fn note<T>(&self, answer: DriverResult<T>) -> ResourceResult<T> {
        answer.map_err(|error| self.note_error(error))
    }

    #[cold]
    #[inline(never)]
    fn note_error(&self, error: DriverError) -> ResourceError {
        if self.lost.load(Ordering::Relaxed) {
            return ResourceError::DeviceLost;
        }
        if error.is_sticky() {
            let first = self.reason.set(error.clone()).is_ok();
            self.lost.store(true, Ordering::Relaxed);
            self.unusual.store(true, Ordering::Relaxed);
            if first {
                log::error!("device lost: {error}");
            }
        }
        ResourceError::Driver(error)
    }

    /// Tells two devices apart.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice")
            .field("info", self.info())
            .field("lost", &self.lost_reason())
            .finish()
    }
}

/// A kernel ready to launch on the device that loaded it.
#[derive(Clone, Copy, Debug)]
pub struct LoadedKernel {
    pub(crate) function: RawFunction,
    pub(crate) definition: &'static KernelDefinition,
    pub(crate) device: u64,
}

impl LoadedKernel {
    /// The kernel's name and signature.
    #[must_use]
    pub const fn definition(&self) -> &'static KernelDefinition {
        self.definition
    }

    /// The handle a raw launch takes.
    #[must_use]
    pub const fn function(&self) -> RawFunction {
        self.function
    }
}
