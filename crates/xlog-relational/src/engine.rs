//! What every operator needs of a device: its runtime, its memory, its kernels.

use std::{fmt, sync::Arc};

use bytemuck::Pod;
use parking_lot::Mutex;
use xlog_core::MemoryBudget;
use xlog_cuda::{
    CudaDevice, GpuMemoryManager, LoadedKernel,
    device_runtime::{
        AllocTag, DeviceStack, ResourceError, ResourceResult, ResourceStack, StreamId,
        XlogDeviceRuntime,
    },
    launch::{LaunchBatch, LaunchBuilder},
    memory::TrackedCudaSlice,
};
use xlog_driver::KernelDefinition;

/// A device with its memory stack, ready to run operators. Cheap to clone; threads share it.
#[derive(Clone)]
pub struct Engine {
    /// One pointer: every column has a clone, and threads that make them count in one place.
    core: Arc<EngineCore>,
}

struct EngineCore {
    runtime: Arc<XlogDeviceRuntime>,
    manager: GpuMemoryManager,
    /// Streams that plans run on. Kept: a stream is home to the tables that were made on it.
    workers: Mutex<Vec<StreamId>>,
}

impl Engine {
    /// An engine over the default memory stack of `device`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xlog_cuda::CudaDevice;
    /// use xlog_relational::Engine;
    ///
    /// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
    /// assert!(engine.runtime().supports_block_use_tracking());
    /// # Ok::<(), xlog_cuda::device_runtime::ResourceError>(())
    /// ```
    pub fn new(device: Arc<CudaDevice>) -> ResourceResult<Self> {
        Ok(Self::over(&ResourceStack::production(device)?.build()?))
    }

    /// An engine over a stack that was composed by hand.
    #[must_use]
    pub fn over(stack: &DeviceStack) -> Self {
        Self::of(Arc::clone(&stack.runtime), stack.manager())
    }

    /// An engine over a runtime, whose memory is bounded by `budget` besides what bounds its stack.
    #[must_use]
    pub fn with_runtime(runtime: Arc<XlogDeviceRuntime>, budget: MemoryBudget) -> Self {
        let device = Arc::clone(runtime.device());
        let manager = GpuMemoryManager::with_runtime(device, budget, Arc::clone(&runtime));
        Self::of(runtime, manager)
    }

    fn of(runtime: Arc<XlogDeviceRuntime>, manager: GpuMemoryManager) -> Self {
        Self { core: Arc::new(EngineCore { runtime, manager, workers: Mutex::default() }) }
    }

    /// Up to `count` streams that all plans of this engine share; fewer if the pool has no more,
    /// and the default one if it has none at all.
    pub fn worker_streams(&self, count: usize) -> ResourceResult<Vec<StreamId>> {
        let mut workers = self.core.workers.lock();
        while workers.len() < count {
            match self.core.runtime.stream_pool().acquire() {
                Ok(stream) => workers.push(stream),
                Err(ResourceError::DeviceLost) => return Err(ResourceError::DeviceLost),
                // A full pool: what there is has to do.
                Err(_) => break,
            }
        }
        let mut streams: Vec<_> = workers.iter().take(count).copied().collect();
        if streams.is_empty() {
            streams.push(StreamId::DEFAULT);
        }
        Ok(streams)
    }

    /// Whether both share one runtime, so that memory of one can be used by the other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core.runtime, &other.core.runtime)
    }

    /// The runtime underneath.
    #[must_use]
    pub fn runtime(&self) -> &Arc<XlogDeviceRuntime> {
        &self.core.runtime
    }

    /// Where memory comes from.
    #[must_use]
    pub fn manager(&self) -> &GpuMemoryManager {
        &self.core.manager
    }

    /// Memory for `len` values, first used on `stream`.
    pub(crate) fn alloc<T: Pod>(
        &self,
        len: usize,
        stream: StreamId,
        tag: &'static str,
    ) -> ResourceResult<TrackedCudaSlice<T>> {
        self.core.manager.alloc_on(len, stream, AllocTag(tag))
    }

    /// A kernel, loaded when it is first asked for.
    pub(crate) fn kernel(
        &self,
        definition: &'static KernelDefinition,
    ) -> ResourceResult<LoadedKernel> {
        self.core.runtime.load_kernel(definition)
    }

    /// Steps on a stream under one event.
    #[track_caller]
    pub(crate) fn batch(&self, stream: StreamId) -> LaunchBatch<'_> {
        LaunchBatch::new(&self.core.runtime, stream)
    }

    /// A launch of a kernel on a stream.
    #[track_caller]
    pub(crate) fn launch(
        &self,
        definition: &'static KernelDefinition,
        stream: StreamId,
    ) -> ResourceResult<LaunchBuilder<'_>> {
        let kernel = self.kernel(definition)?;
        Ok(LaunchBuilder::new(&self.core.runtime, &kernel, stream))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
