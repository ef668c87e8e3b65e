//! The facade: a device, its streams, and the stack of resources over them.

use std::{
    fmt,
    panic::Location,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use xlog_driver::{Arguments, BlockChange, BlockNote, DeviceWatcher, KernelDefinition, LaunchDims};

use super::{
    Access, AllocTag, BlockId, BlockUse, DeviceBlock, DeviceMemoryResource, PinnedHostResource,
    PinnedPoolOptions, PinnedPoolResource, ResourceError, ResourceResult, StreamId, StreamPool,
    UseTracker,
    async_cuda::{mismatch, mismatch_over},
    tracker::unknown_stream,
};
use crate::{CudaDevice, LoadedKernel};

/// One value to share between threads: allocate, launch, reap.
///
/// Forwards every method of [`DeviceMemoryResource`] to the stack it was made with. Parts that do
/// not belong to one device are refused by every call; [`try_with_resource`] refuses at once.
///
/// [`try_with_resource`]: Self::try_with_resource
#[derive(Clone)]
pub struct XlogDeviceRuntime {
    core: Arc<RuntimeCore>,
}

/// What a runtime is made of.
#[repr(C, align(64))] // in this order: what every launch looks at comes first
pub(crate) struct RuntimeCore {
    pub(crate) device: Arc<CudaDevice>,
    tracker: Arc<UseTracker>,
    /// No other runtime of the process has it, then or later.
    pub(crate) number: u64,
    pub(crate) ordinal: u32,
    /// Whether the recorder may talk to the tracker without the stack in between.
    direct: bool,
    mismatch: Option<String>,
    resource: Box<dyn DeviceMemoryResource + Send + Sync>,
    staging: PinnedPoolResource,
    pub(crate) pool: Arc<StreamPool>,
}

impl RuntimeCore {
    #[inline(always)]
    pub(crate) fn tracker(&self) -> &UseTracker {
        &self.tracker
    }

    pub(crate) fn resource(&self) -> &(dyn DeviceMemoryResource + Send + Sync) {
        &*self.resource
    }

    /// The tracker, if the recorder may talk to it without the stack in between.
    #[inline(always)]
    pub(crate) fn direct_tracker(&self) -> Option<&UseTracker> {
        self.direct.then_some(&*self.tracker)
    }

    /// The same, if there is nothing else about the runtime or its device that a launch has to look
    /// at.
    #[inline(always)]
    pub(crate) fn plain_tracker(&self) -> Option<&UseTracker> {
        (self.direct && self.device.is_plain()).then_some(&*self.tracker)
    }

    #[inline]
    pub(crate) fn check(&self) -> ResourceResult<()> {
        self.device.check_alive()?;
        if self.mismatch.is_some() { Err(self.refusal()) } else { Ok(()) }
    }

    /// Allocates on a device that is watched: apart, as everything that tells a watcher, since
    /// hardly any device is.
    #[cold]
    #[inline(never)]
    fn allocate_watched(
        &self,
        watcher: &dyn DeviceWatcher,
        (bytes, stream, tag): (usize, StreamId, AllocTag),
        place: &'static Location<'static>,
    ) -> ResourceResult<DeviceBlock> {
        let block = self.resource.allocate(bytes, stream, tag)?;
        watcher.block(&self.note_of(&block, BlockChange::HandedOut, Some(place)));
        Ok(block)
    }

    #[cold]
    #[inline(never)]
    fn free_watched<E>(
        &self,
        watcher: &dyn DeviceWatcher,
        block: DeviceBlock,
        free: impl FnOnce(DeviceBlock) -> Result<(), E>,
    ) -> Result<(), E> {
        let taken_back = self.note_of(&block, BlockChange::TakenBack, None);
        free(block).inspect(|()| watcher.block(&taken_back))
    }

    /// What whoever watches the device is told of a block.
    fn note_of(
        &self,
        block: &DeviceBlock,
        change: BlockChange,
        place: Option<&'static Location<'static>>,
    ) -> BlockNote {
        let lane = self.tracker.lane(block.alloc_stream);
        BlockNote {
            change,
            address: block.ptr,
            bytes: block.bytes,
            tag: block.tag.0,
            generation: block.generation.0,
            stream: lane.and_then(|lane| lane.created_raw()),
            stream_name: block.alloc_stream.0,
            place,
        }
    }

    /// Why the parts of this runtime do not belong together.
    #[cold]
    #[inline(never)]
    fn refusal(&self) -> ResourceError {
        ResourceError::Driver(self.mismatch.clone().unwrap_or_default().into())
    }
}

impl XlogDeviceRuntime {
    /// A runtime over `resource`.
    #[must_use]
    pub fn with_resource(
        device: Arc<CudaDevice>,
        ordinal: u32,
        pool: Arc<StreamPool>,
        resource: Box<dyn DeviceMemoryResource + Send + Sync>,
    ) -> Self {
        let of_resource = resource.device_ordinal();
        let tracker = Arc::clone(pool.tracker());
        let is_ours = |direct: &UseTracker| std::ptr::eq(direct, &*tracker);
        let direct = resource.direct_tracker().is_some_and(is_ours);
        let mismatch = mismatch(&device, ordinal, &pool).or_else(|| {
            if of_resource != ordinal {
                return Some(format!(
                    "the resource serves device {of_resource}, the runtime device {ordinal}"
                ));
            }
            mismatch_over(&*resource, &pool)
        });
        let pinned = PinnedHostResource::new(Arc::clone(&device));
        let staging = PinnedPoolResource::new(pinned, PinnedPoolOptions::default());
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let core = RuntimeCore {
            device,
            tracker,
            number,
            ordinal,
            direct: direct && mismatch.is_none(),
            mismatch,
            resource,
            staging,
            pool,
        };
        Self { core: Arc::new(core) }
    }

    /// The same, refusing parts of different devices at once.
    pub fn try_with_resource(
        device: Arc<CudaDevice>,
        ordinal: u32,
        pool: Arc<StreamPool>,
        resource: Box<dyn DeviceMemoryResource + Send + Sync>,
    ) -> ResourceResult<Self> {
        let runtime = Self::with_resource(device, ordinal, pool, resource);
        runtime.core.check()?;
        Ok(runtime)
    }

    pub(crate) fn core(&self) -> &Arc<RuntimeCore> {
        &self.core
    }

    /// The device everything runs on.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.core.device
    }

    /// The streams of the device.
    #[must_use]
    pub fn stream_pool(&self) -> &Arc<StreamPool> {
        &self.core.pool
    }

    /// The resource stack.
    #[must_use]
    pub fn resource(&self) -> &(dyn DeviceMemoryResource + Send + Sync) {
        self.core.resource()
    }

    /// The pinned memory that uploads and downloads go through; a program may take buffers from it
    /// too.
    #[must_use]
    pub fn staging(&self) -> &PinnedPoolResource {
        &self.core.staging
    }

    /// Makes a kernel ready to launch.
    pub fn load_kernel(
        &self,
        definition: &'static KernelDefinition,
    ) -> ResourceResult<LoadedKernel> {
        self.core.check()?;
        self.core.device.load_kernel(definition)
    }

    /// Enqueues a kernel on `stream` as it is: for the step between a recorder's preflight and its
    /// commit. [`LaunchBuilder`](crate::launch::LaunchBuilder) does all of it in one call.
    ///
    /// # Safety
    /// The arguments are the kernel's in number, order and type, and the memory they point to is
    /// recorded for this launch, or ordered by the caller.
    pub unsafe fn enqueue(
        &self,
        kernel: &LoadedKernel,
        dims: LaunchDims,
        arguments: &Arguments,
        stream: StreamId,
    ) -> ResourceResult<()> {
        self.core.check()?;
        if kernel.device != self.core.device.identity() {
            return Err(ResourceError::StreamMisuse(format!(
                "kernel {} was loaded on another device; load it on this runtime",
                kernel.definition.name
            )));
        }
        let lane = self.core.tracker().lane(stream).ok_or_else(|| unknown_stream(stream))?;
        let device = &self.core.device;
        let raw = lane.raw(device)?;
        // SAFETY: the kernel is this device's, the stream the pool's; the rest is the caller's
        // promise.
        device.note(unsafe { device.driver().launch(kernel.function, dims, arguments, raw) })
    }

    /// Waits for everything enqueued on `stream`.
    pub fn synchronize(&self, stream: StreamId) -> ResourceResult<()> {
        self.core.check()?;
        self.core.pool.synchronize(stream)
    }

    /// Waits for everything recorded on every stream: one wait for each stream that is ahead, and
    /// one synchronisation.
    pub fn fence(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.pool.fence()
    }

    /// Gives back what is kept for later: events between launches, staging buffers between copies.
    /// Waits for the device.
    pub fn trim(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.pool.trim()?;
        self.core.staging.trim()
    }

    /// See [`DeviceMemoryResource::allocate`].
    #[track_caller]
    pub fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        self.core.check()?;
        if !self.core.pool.contains(stream) {
            return Err(unknown_stream(stream));
        }
        if let Some(watcher) = self.core.device.watcher() {
            return self.core.allocate_watched(
                &**watcher,
                (bytes, stream, tag),
                Location::caller(),
            );
        }
        self.core.resource.allocate(bytes, stream, tag)
    }

    /// See [`DeviceMemoryResource::deallocate`].
    pub fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        self.core.check()?;
        if let Some(watcher) = self.core.device.watcher() {
            let resource = &self.core.resource;
            return self.core.free_watched(&**watcher, block, |block| resource.deallocate(block));
        }
        self.core.resource.deallocate(block)
    }

    /// See [`DeviceMemoryResource::try_deallocate`].
    pub fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        if let Err(error) = self.core.check() {
            return Err((block, error));
        }
        if let Some(watcher) = self.core.device.watcher() {
            let resource = &self.core.resource;
            let free = |block| resource.try_deallocate(block);
            return self.core.free_watched(&**watcher, block, free);
        }
        self.core.resource.try_deallocate(block)
    }

    /// The device this runtime serves.
    #[must_use]
    pub fn device_ordinal(&self) -> u32 {
        self.core.ordinal
    }

    /// See [`DeviceMemoryResource::bytes_outstanding`].
    #[must_use]
    pub fn bytes_outstanding(&self) -> usize {
        self.core.resource.bytes_outstanding()
    }

    /// See [`DeviceMemoryResource::reap_pending`].
    pub fn reap_pending(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.resource.reap_pending()
    }

    /// See [`DeviceMemoryResource::try_reap`].
    pub fn try_reap(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.resource.try_reap()
    }

    /// See [`DeviceMemoryResource::supports_block_use_tracking`].
    #[must_use]
    pub fn supports_block_use_tracking(&self) -> bool {
        self.core.resource.supports_block_use_tracking()
    }

    /// See [`DeviceMemoryResource::prepare_block_use`].
    pub fn prepare_block_use(
        &self,
        block: BlockId,
        stream: StreamId,
        access: Access,
    ) -> ResourceResult<()> {
        self.core.check()?;
        self.core.resource.prepare_block_use(block, stream, access)
    }

    /// See [`DeviceMemoryResource::finish_block_use`].
    pub fn finish_block_use(
        &self,
        block: BlockId,
        stream: StreamId,
        access: Access,
    ) -> ResourceResult<()> {
        self.core.check()?;
        self.core.resource.finish_block_use(block, stream, access)
    }

    /// See [`DeviceMemoryResource::record_block_use`].
    pub fn record_block_use(&self, block: &DeviceBlock, stream: StreamId) -> ResourceResult<()> {
        self.core.check()?;
        self.core.resource.record_block_use(block, stream)
    }

    /// See [`DeviceMemoryResource::prepare_uses`].
    pub fn prepare_uses(&self, uses: &[BlockUse], stream: StreamId) -> ResourceResult<()> {
        self.core.check()?;
        self.core.resource.prepare_uses(uses, stream)
    }

    /// See [`DeviceMemoryResource::finish_uses`].
    pub fn finish_uses(&self, uses: &[BlockUse], stream: StreamId) -> ResourceResult<()> {
        self.core.check()?;
        self.core.resource.finish_uses(uses, stream)
    }
}

impl fmt::Debug for XlogDeviceRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XlogDeviceRuntime")
            .field("device", &self.core.device)
            .field("ordinal", &self.core.ordinal)
            .field("pool", &self.core.pool)
            .finish_non_exhaustive()
    }
}
