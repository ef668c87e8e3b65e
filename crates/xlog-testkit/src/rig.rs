//! Everything a device test needs, built in one line.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use xlog_core::MemoryBudget;
use xlog_cuda::{
    CudaDevice, GpuMemoryManager, LaunchDims, LoadedKernel,
    device_runtime::{
        Access, AllocTag, AsyncCudaResource, BlockId, DeviceBlock, DeviceMemoryResource,
        ResourceResult, StreamId, StreamPool, TrackerStats, XlogDeviceRuntime,
    },
    kernels,
    launch::LaunchBuilder,
    memory::TrackedCudaSlice,
};
use xlog_driver::{
    Arguments, Driver, KernelDefinition, StreamProgress, cuda::CudaDriver, host::HostDriver,
};

use crate::{DriverCall, LayeredDriver};

type BoxedResource = Box<dyn DeviceMemoryResource + Send + Sync>;

/// The device a suite runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestDevice {
    /// The host device.
    Host,
    /// GPU number 0. A machine without one fails the test; nothing is skipped.
    Cuda,
}

impl TestDevice {
    /// The bare driver of the device.
    ///
    /// # Panics
    /// Without a working GPU, if this is [`TestDevice::Cuda`].
    #[must_use]
    pub fn driver(self) -> Arc<dyn Driver> {
        match self {
            Self::Host => Arc::new(HostDriver::new(0)),
            Self::Cuda => match CudaDriver::open(0) {
                Ok(driver) => Arc::new(driver),
                #[allow(clippy::panic)] // a GPU test without a GPU must fail, not pass unseen
                Err(error) => panic!("a GPU test needs a GPU: {error}"),
            },
        }
    }
}

/// A device with a layer over its driver, a pool, a runtime over the stream-ordered resource, and
/// a manager.
#[derive(Debug)]
pub struct Rig {
    /// The layer over the driver: counts calls, injects failures, goes deaf.
    pub driver: Arc<LayeredDriver>,
    /// The device.
    pub device: Arc<CudaDevice>,
    /// Its streams.
    pub pool: Arc<StreamPool>,
    /// The resource under the runtime.
    pub resource: Arc<AsyncCudaResource>,
    /// The runtime.
    pub runtime: Arc<XlogDeviceRuntime>,
    /// Typed memory from the runtime.
    pub manager: GpuMemoryManager,
}

/// Every counter of a rig's resource, tracker and driver at one moment: what a refused call must
/// not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each is the method it is named for
pub struct Books {
    pub live_bytes: usize,
    pub pending_free_bytes: usize,
    pub pending_per_stream_total: usize,
    pub bytes_outstanding: usize,
    pub held_bytes: usize,
    pub tracker: TrackerStats,
    pub launches: u64,
    pub copies: u64,
    pub frees: u64,
}

impl Books {
    /// The same with nothing freed and nothing recorded: for a call that may do that much.
    #[must_use]
    pub fn ignoring_frees(mut self) -> Self {
        self.frees = 0;
        (self.tracker.records, self.tracker.waits) = (0, 0);
        self.tracker.remembered_uses = 0;
        (self.tracker.events_in_flight, self.tracker.events_idle) = (0, 0);
        self
    }
}

impl Rig {
    /// A rig on `device`.
    #[must_use]
    pub fn new(device: TestDevice) -> Self {
        Self::decorated(device, |resource| Box::new(resource))
    }

    /// A rig whose runtime sits over what `decorate` makes of the stream-ordered resource.
    #[must_use]
    pub fn decorated(
        device: TestDevice,
        decorate: impl FnOnce(Arc<AsyncCudaResource>) -> BoxedResource,
    ) -> Self {
        let driver = Arc::new(LayeredDriver::new(device.driver()));
        let device = Arc::new(CudaDevice::with_driver(Arc::clone(&driver) as Arc<dyn Driver>));
        let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
        let resource = Arc::new(AsyncCudaResource::new(Arc::clone(&device), 0, Arc::clone(&pool)));
        let runtime = Arc::new(XlogDeviceRuntime::with_resource(
            Arc::clone(&device),
            0,
            Arc::clone(&pool),
            decorate(Arc::clone(&resource)),
        ));
        let manager = GpuMemoryManager::with_runtime(
            Arc::clone(&device),
            MemoryBudget::unlimited(),
            Arc::clone(&runtime),
        );
        Self { driver, device, pool, resource, runtime, manager }
    }

    /// `N` streams of the pool.
    ///
    /// # Panics
    /// If the pool has no room for them.
    #[must_use]
    pub fn streams<const N: usize>(&self) -> [StreamId; N] {
        std::array::from_fn(|_| self.pool.acquire().unwrap_or_else(fail))
    }

    /// Every counter as it stands.
    #[must_use]
    pub fn books(&self) -> Books {
        let count = |call| self.driver.count(call);
        Books {
            live_bytes: self.resource.live_bytes(),
            pending_free_bytes: self.resource.pending_free_bytes(),
            pending_per_stream_total: self.resource.pending_per_stream_total(),
            bytes_outstanding: self.runtime.bytes_outstanding(),
            held_bytes: self.manager.held_bytes(),
            tracker: self.pool.stats(),
            launches: count(DriverCall::Launch),
            copies: count(DriverCall::CopyToDevice)
                + count(DriverCall::CopyToHost)
                + count(DriverCall::CopyOnDevice)
                + count(DriverCall::FillBytes),
            frees: count(DriverCall::Free) + count(DriverCall::FreeOn),
        }
    }

    /// A block of `bytes` bytes on `stream`.
    ///
    /// # Panics
    /// If there is none to be had.
    #[must_use]
    pub fn block(&self, bytes: usize, stream: StreamId) -> DeviceBlock {
        self.runtime.allocate(bytes, stream, AllocTag("test")).unwrap_or_else(fail)
    }

    /// Prepares and finishes a use of `block` on `stream`, with no work in between: enough to see
    /// what the runtime waits for and remembers.
    ///
    /// # Panics
    /// If either is refused.
    #[track_caller]
    pub fn touch(&self, block: &DeviceBlock, stream: StreamId, access: Access) {
        let id = BlockId::from_block(block);
        self.runtime.prepare_block_use(id, stream, access).unwrap_or_else(fail);
        self.runtime.finish_block_use(id, stream, access).unwrap_or_else(fail);
    }

    /// Whether everything enqueued on `stream` is done.
    ///
    /// # Panics
    /// If the device fails.
    #[must_use]
    pub fn is_idle(&self, stream: StreamId) -> bool {
        let raw = self.pool.resolve(stream).expect("a stream of the pool");
        // SAFETY: the stream is the pool's, and the pool is alive.
        let progress = unsafe { self.driver.stream_progress(raw) }.unwrap_or_else(fail);
        progress == StreamProgress::Idle
    }

    /// A kernel, loaded.
    ///
    /// # Panics
    /// If it does not load.
    #[must_use]
    pub fn kernel(&self, definition: &'static KernelDefinition) -> LoadedKernel {
        self.runtime.load_kernel(definition).unwrap_or_else(fail)
    }

    /// A slice of `len` zeros on `stream`, the zeros arrived.
    ///
    /// # Panics
    /// If the device fails.
    #[must_use]
    pub fn zeros(&self, len: usize, stream: StreamId) -> TrackedCudaSlice<u32> {
        let mut slice = self.manager.alloc_on(len, stream, AllocTag("zeros")).unwrap_or_else(fail);
        slice.fill_bytes(0, stream).unwrap_or_else(fail);
        self.runtime.synchronize(stream).unwrap_or_else(fail);
        slice
    }

    /// A slice of `value`s that every stream may use without a wait: it is all done.
    ///
    /// # Panics
    /// If the device fails.
    #[must_use]
    pub fn filled(&self, len: usize, value: u32, stream: StreamId) -> TrackedCudaSlice<u32> {
        let slice = self.zeros(len, stream);
        self.fill(&slice, value, stream).unwrap_or_else(fail);
        self.runtime.synchronize(stream).unwrap_or_else(fail);
        slice
    }

    /// How many waits `work` queues.
    pub fn waits(&self, work: impl FnOnce()) -> u64 {
        self.driver.count_during(DriverCall::WaitEvent, work)
    }

    /// Fills `out` with `value` on `stream`, through the builder.
    pub fn fill(
        &self,
        out: &TrackedCudaSlice<u32>,
        value: u32,
        stream: StreamId,
    ) -> ResourceResult<()> {
        LaunchBuilder::new(&self.runtime, &self.runtime.load_kernel(&kernels::FILL_U32)?, stream)
            .output(out)
            .value(value)
            .value(out.len() as u64)
            .launch(LaunchDims::for_elements(out.len()))
    }

    /// Copies `from` to `to` on `stream` with a kernel, through the builder.
    pub fn copy(
        &self,
        from: &TrackedCudaSlice<u32>,
        to: &TrackedCudaSlice<u32>,
        stream: StreamId,
    ) -> ResourceResult<()> {
        LaunchBuilder::new(&self.runtime, &self.runtime.load_kernel(&kernels::COPY_U32)?, stream)
            .input(from)
            .output(to)
            .value(from.len() as u64)
            .launch(LaunchDims::for_elements(from.len()))
    }

    /// Adds `amount` to every element of `data` on `stream`, through the builder.
    pub fn increment(
        &self,
        data: &TrackedCudaSlice<u32>,
        amount: u32,
        stream: StreamId,
    ) -> ResourceResult<()> {
        LaunchBuilder::new(
            &self.runtime,
            &self.runtime.load_kernel(&kernels::INCREMENT_U32)?,
            stream,
        )
        .in_out(data)
        .value(amount)
        .value(data.len() as u64)
        .launch(LaunchDims::for_elements(data.len()))
    }

    /// Launches a kernel on `stream` past the recorder: the runtime knows nothing of it.
    ///
    /// # Panics
    /// If the launch fails.
    pub fn launch_raw(
        &self,
        definition: &'static KernelDefinition,
        arguments: &Arguments,
        dims: LaunchDims,
        stream: StreamId,
    ) {
        let raw = self.pool.resolve(stream).expect("a stream of the pool");
        let function = self.kernel(definition).function();
        // SAFETY: the tests pass a kernel's own arguments over memory that outlives the launch.
        let launched = unsafe { self.driver.launch(function, dims, arguments, raw) };
        launched.unwrap_or_else(fail);
    }
}

/// Ends a test with the error itself, not its debug form.
#[allow(clippy::panic)] // the test fails here
#[track_caller]
pub fn fail<T>(error: impl std::fmt::Display) -> T {
    panic!("{error}")
}

/// Looks again and again until `condition` holds; false if it does not within `limit`.
///
/// Shows that something happens (assert true, with a generous limit), or gives a wrong program
/// every chance to go wrong (assert false, with a short one).
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}
