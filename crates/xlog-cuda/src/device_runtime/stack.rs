//! Stacks of resources, composed in the order in which they stand.

use std::sync::Arc;

use xlog_core::MemoryBudget;

use super::{
    AlignedResource, AsyncCudaResource, DebugGuardResource, DeviceMemoryResource,
    DirectCudaResource, GlobalDeviceBudget, GuardOptions, PoolOptions, PoolResource,
    ResourceResult, StatisticsResource, StreamPool, TrackingResource, XlogDeviceRuntime,
};
use crate::{CudaDevice, GpuMemoryManager};

/// Composes a stack of resources, from the driver up: each call puts one more on top.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::auto());
/// let stack = ResourceStack::over_driver(device)
///     .with_budget(1 << 30)
///     .with_pool(PoolOptions::default())
///     .with_statistics()
///     .build()?;
/// let block = stack.runtime.allocate(4096, StreamId::DEFAULT, AllocTag("example"))?;
/// assert_eq!(stack.statistics.as_ref().map(|s| s.statistics().bytes.current), Some(4096));
/// stack.runtime.deallocate(block)?;
/// # Ok::<(), ResourceError>(())
/// ```
#[must_use = "nothing is made until build() is called"]
pub struct ResourceStack {
    device: Arc<CudaDevice>,
    streams: Arc<StreamPool>,
    top: Box<dyn DeviceMemoryResource + Send + Sync>,
    parts: Parts,
}

/// Parts of a stack that answer questions of their own.
#[derive(Debug, Default)]
struct Parts {
    budget: Option<Arc<GlobalDeviceBudget>>,
    pool: Option<Arc<PoolResource>>,
    guard: Option<Arc<DebugGuardResource>>,
    statistics: Option<Arc<StatisticsResource>>,
    tracking: Option<Arc<TrackingResource>>,
}

/// A runtime over a stack, and the parts of it that can be asked about themselves.
#[derive(Debug)]
#[non_exhaustive]
pub struct DeviceStack {
    /// The runtime.
    pub runtime: Arc<XlogDeviceRuntime>,
    /// The budget, if the stack has one.
    pub budget: Option<Arc<GlobalDeviceBudget>>,
    /// The pool, if the stack has one.
    pub pool: Option<Arc<PoolResource>>,
    /// The guard, if the stack has one.
    pub guard: Option<Arc<DebugGuardResource>>,
    /// The statistics, if the stack has any.
    pub statistics: Option<Arc<StatisticsResource>>,
    /// The list of who holds what, if the stack has one.
    pub tracking: Option<Arc<TrackingResource>>,
}

impl ResourceStack {
    /// Starts with any resource, for streams of the caller's own.
    pub fn over(
        device: Arc<CudaDevice>,
        streams: Arc<StreamPool>,
        bottom: Box<dyn DeviceMemoryResource + Send + Sync>,
    ) -> Self {
        Self { device, streams, top: bottom, parts: Parts::default() }
    }

    /// Starts with the driver's stream-ordered allocator.
    pub fn over_driver(device: Arc<CudaDevice>) -> Self {
        let streams = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
        Self::over_driver_for(device, streams)
    }

    /// The same for streams of the caller's own.
    pub fn over_driver_for(device: Arc<CudaDevice>, streams: Arc<StreamPool>) -> Self {
        let (ordinal, pool) = (device.info().ordinal, Arc::clone(&streams));
        let driver = AsyncCudaResource::new(Arc::clone(&device), ordinal, pool);
        Self::over(device, streams, Box::new(driver))
    }

    /// Starts with the driver's plain allocator, which tracks no uses: for Compute Sanitizer.
    pub fn over_plain_driver_for(device: Arc<CudaDevice>, streams: Arc<StreamPool>) -> Self {
        let driver = DirectCudaResource::new(Arc::clone(&device), device.info().ordinal);
        Self::over(device, streams, Box::new(driver))
    }

    /// The stack for production: the stream-ordered allocator, the device's budget, a pool, and
    /// statistics. The budget is all of the device's memory.
    pub fn production(device: Arc<CudaDevice>) -> ResourceResult<Self> {
        Self::over_driver(device).as_in_production()
    }

    /// The stack for debugging: every block a driver allocation of its own and
    /// guarded, every holder known.
    pub fn debugging(device: Arc<CudaDevice>) -> Self {
        Self::over_driver(device).as_for_debugging()
    }

    /// What [`production`](Self::production) puts on top of the driver.
    pub fn as_in_production(self) -> ResourceResult<Self> {
        let limit = usize::try_from(self.device.memory()?.total).unwrap_or(usize::MAX);
        Ok(self.with_budget(limit).with_pool(PoolOptions::default()).with_statistics())
    }

    /// What [`debugging`](Self::debugging) puts on top of the driver.
    pub fn as_for_debugging(self) -> Self {
        self.with_guard(GuardOptions::default()).with_statistics().with_tracking()
    }

    /// A limit that every stack of the device shares; see [`GlobalDeviceBudget::for_device`]. A
    /// pool that is put on top later is trimmed before a request is refused.
    pub fn with_budget(mut self, limit: usize) -> Self {
        let budget = Arc::new(GlobalDeviceBudget::for_device(self.top, limit));
        self.top = Box::new(Arc::clone(&budget));
        self.parts.budget = Some(budget);
        self
    }

    /// A pool.
    pub fn with_pool(mut self, options: PoolOptions) -> Self {
        let pool = Arc::new(PoolResource::new(self.top, Arc::clone(&self.streams), options));
        if let Some(budget) = &self.parts.budget {
            let pool = Arc::downgrade(&pool);
            budget.trim_with(move || pool.upgrade().map_or(Ok(()), |pool| pool.trim()));
        }
        self.top = Box::new(Arc::clone(&pool));
        self.parts.pool = Some(pool);
        self
    }

    /// A guard, which finds writes outside of blocks and after frees.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xlog_cuda::{CudaDevice, device_runtime::*};
    ///
    /// let stack = ResourceStack::over_driver(Arc::new(CudaDevice::host()))
    ///     .with_guard(GuardOptions::default().with_margin(4096))
    ///     .build()?;
    /// let block = stack.runtime.allocate(4096, StreamId::DEFAULT, AllocTag("example"))?;
    /// stack.runtime.deallocate(block)?;
    /// stack.guard.map_or(Ok(()), |guard| guard.check())?;
    /// # Ok::<(), ResourceError>(())
    /// ```
    pub fn with_guard(mut self, options: GuardOptions) -> Self {
        let streams = Arc::clone(&self.streams);
        let guard = Arc::new(DebugGuardResource::new(self.top, streams, options));
        self.top = Box::new(Arc::clone(&guard));
        self.parts.guard = Some(guard);
        self
    }

    /// Blocks at multiples of `alignment`, from `threshold` bytes on; see [`AlignedResource`]. Over
    /// the pool and the guard, which hand out parts of what is below them; below statistics, which
    /// then count what callers have, and not what aligning took.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xlog_cuda::{CudaDevice, device_runtime::*};
    ///
    /// let stack = ResourceStack::over_driver(Arc::new(CudaDevice::host()))
    ///     .with_pool(PoolOptions::default())
    ///     .with_alignment(2 << 20, 1 << 20)?
    ///     .with_statistics()
    ///     .build()?;
    /// let block = stack.runtime.allocate(3 << 20, StreamId::DEFAULT, AllocTag("huge page"))?;
    /// assert_eq!(block.ptr % (2 << 20), 0);
    /// # stack.runtime.deallocate(block)?;
    /// # Ok::<(), ResourceError>(())
    /// ```
    pub fn with_alignment(mut self, alignment: usize, threshold: usize) -> ResourceResult<Self> {
        let streams = Arc::clone(&self.streams);
        self.top = Box::new(AlignedResource::new(self.top, streams, alignment, threshold)?);
        Ok(self)
    }

    /// Statistics.
    pub fn with_statistics(mut self) -> Self {
        let statistics = Arc::new(StatisticsResource::new(self.top));
        self.top = Box::new(Arc::clone(&statistics));
        self.parts.statistics = Some(statistics);
        self
    }

    /// A list of who holds what.
    pub fn with_tracking(mut self) -> Self {
        let tracking = Arc::new(TrackingResource::new(self.top));
        self.top = Box::new(Arc::clone(&tracking));
        self.parts.tracking = Some(tracking);
        self
    }

    /// Any other adaptor.
    pub fn with(
        mut self,
        adaptor: impl FnOnce(
            Box<dyn DeviceMemoryResource + Send + Sync>,
        ) -> Box<dyn DeviceMemoryResource + Send + Sync>,
    ) -> Self {
        self.top = adaptor(self.top);
        self
    }

    /// The streams that the stack's memory is ordered by.
    #[must_use]
    pub fn streams(&self) -> &Arc<StreamPool> {
        &self.streams
    }

    /// A runtime over all of it. Parts that do not belong together are refused.
    pub fn build(self) -> ResourceResult<DeviceStack> {
        let Self { device, streams, top, parts } = self;
        let ordinal = device.info().ordinal;
        let runtime = XlogDeviceRuntime::try_with_resource(device, ordinal, streams, top)?;
        let Parts { budget, pool, guard, statistics, tracking } = parts;
        let runtime = Arc::new(runtime);
        Ok(DeviceStack { runtime, budget, pool, guard, statistics, tracking })
    }
}

impl DeviceStack {
    /// Typed memory from the stack.
    #[must_use]
    pub fn manager(&self) -> GpuMemoryManager {
        let device = Arc::clone(self.runtime.device());
        let runtime = Arc::clone(&self.runtime);
        GpuMemoryManager::with_runtime(device, MemoryBudget::unlimited(), runtime)
    }

    /// The streams of the device.
    #[must_use]
    pub fn streams(&self) -> &Arc<StreamPool> {
        self.runtime.stream_pool()
    }
}

impl std::fmt::Debug for ResourceStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceStack")
            .field("device", &self.device)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}
