//! A typed range of device memory with an owner.

use std::{fmt, marker::PhantomData, ops::RangeBounds, sync::Arc};

use bytemuck::Pod;

use super::{
    Download, PinnedCopy, PinnedCopyError, SliceView,
    manager::ManagerCore,
    transfer::{self, Way},
};
use crate::device_runtime::{
    Access, BlockId, BlockUse, DeviceBlock, Generation, PinnedBuffer, ResourceResult, SlotHint,
    StreamId, XlogDeviceRuntime,
};

/// Device memory for `len` values of `T`, freed when it is dropped: behind its last use if it has
/// a block, behind everything on the device if it has none.
///
/// Shared between threads as it is: the runtime orders what they do with it.
#[repr(C, align(64))] // what a launch reads of each of its slices is one cache line
pub struct TrackedCudaSlice<T> {
    /// What a launch declares for this slice but for the access; generation 0 without a block.
    template: BlockUse,
    ptr: u64,
    len: usize,
    core: Arc<ManagerCore>,
    block: Option<DeviceBlock>,
    bytes: usize,
    values: PhantomData<fn() -> T>,
}

impl<T: Pod> TrackedCudaSlice<T> {
    pub(super) fn tracked(
        core: Arc<ManagerCore>,
        block: DeviceBlock,
        len: usize,
        bytes: usize,
    ) -> Self {
        let slot = match &core.runtime {
            Some(runtime) => runtime.core().tracker().locate(&block),
            None => SlotHint::NONE,
        };
        let (id, ptr) = (BlockId::from_block(&block), block.ptr);
        let template = BlockUse { slot, ..BlockUse::new(id, Access::Read) };
        Self { core, template, ptr, block: Some(block), len, bytes, values: PhantomData }
    }

    pub(super) fn untracked(core: Arc<ManagerCore>, ptr: u64, len: usize, bytes: usize) -> Self {
        let nobody = BlockId {
            ptr,
            generation: Generation(0),
            alloc_stream: StreamId::DEFAULT,
            device_ordinal: 0,
        };
        let template = BlockUse::new(nobody, Access::Read);
        Self { core, template, ptr, block: None, len, bytes, values: PhantomData }
    }

    /// A view of part of the slice, recordable like the slice. A range that leaves it is refused.
    pub fn view(&self, range: impl RangeBounds<usize>) -> ResourceResult<SliceView<'_, T>> {
        SliceView::new(self, range)
    }

    /// A view of all of it.
    #[must_use]
    pub fn as_view(&self) -> SliceView<'_, T> {
        SliceView::whole(self)
    }

    /// Copies `values` into the slice, on the stream it was allocated on. The values are copied
    /// before this returns; the device has them in stream order.
    #[track_caller]
    pub fn upload(&mut self, values: &[T]) -> ResourceResult<()> {
        self.upload_on(values, self.home())
    }

    /// The same on `stream`.
    #[track_caller]
    pub fn upload_on(&mut self, values: &[T], stream: StreamId) -> ResourceResult<()> {
        transfer::upload(&self.as_view(), values, stream)
    }

    /// The slice's values, once everything that writes them is done.
    #[track_caller]
    pub fn download(&self) -> ResourceResult<Vec<T>> {
        self.start_download(self.home())?.wait()
    }

    /// Starts copying the slice's values to the host on `stream`, behind everything that writes
    /// them. Nothing blocks until [`Download::wait`].
    #[track_caller]
    pub fn start_download(&self, stream: StreamId) -> ResourceResult<Download<T>> {
        transfer::download(&self.as_view(), stream)
    }

    /// Starts copying a pinned buffer into the slice on `stream`, without the detour through
    /// staging memory. The buffer has as many bytes as the slice, and belongs to the copy until it
    /// is done; one that is refused comes back with the error.
    ///
    /// ```
    /// use xlog_cuda::{CudaDevice, device_runtime::{ResourceError, StreamId}};
    ///
    /// let stack = CudaDevice::auto().into_stack()?;
    /// let mut slice = stack.manager().alloc::<u32>(3)?;
    /// let mut buffer = stack.runtime.staging().allocate(12)?;
    /// buffer.values_mut::<u32>()?.copy_from_slice(&[1, 2, 3]);
    /// let uploading = slice.start_upload_from(buffer, StreamId::DEFAULT)?;
    /// let mut buffer = uploading.wait()?; // the same one, to be filled again
    /// buffer.fill(0);
    /// let buffer = slice.start_download_into(buffer, StreamId::DEFAULT)?.wait()?;
    /// assert_eq!(buffer.values::<u32>()?, [1, 2, 3]);
    /// # Ok::<(), ResourceError>(())
    /// ```
    #[track_caller]
    pub fn start_upload_from(
        &mut self,
        buffer: PinnedBuffer,
        stream: StreamId,
    ) -> Result<PinnedCopy, PinnedCopyError> {
        transfer::copy_pinned(&self.as_view(), buffer, Way::ToDevice, stream)
    }

    /// Starts copying the slice's values into a pinned buffer on `stream`, behind everything that
    /// writes them; otherwise as [`start_upload_from`](Self::start_upload_from).
    #[track_caller]
    pub fn start_download_into(
        &self,
        buffer: PinnedBuffer,
        stream: StreamId,
    ) -> Result<PinnedCopy, PinnedCopyError> {
        transfer::copy_pinned(&self.as_view(), buffer, Way::ToHost, stream)
    }

    /// Copies another slice of the same length into this one, on the device, on `stream`.
    #[track_caller]
    pub fn copy_from(&mut self, source: &Self, stream: StreamId) -> ResourceResult<()> {
        transfer::copy(&source.as_view(), &self.as_view(), stream)
    }

    /// Sets every byte of the slice on `stream`.
    #[track_caller]
    pub fn fill_bytes(&mut self, value: u8, stream: StreamId) -> ResourceResult<()> {
        transfer::fill_bytes(&self.as_view(), value, stream)
    }
}

impl<T> TrackedCudaSlice<T> {
    /// How many values there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its address on the device.
    #[must_use]
    pub const fn ptr(&self) -> u64 {
        self.ptr
    }

    /// The block behind the slice; `None` without a runtime.
    #[must_use]
    pub const fn runtime_block(&self) -> Option<&DeviceBlock> {
        self.block.as_ref()
    }

    /// The stream the slice was allocated on.
    pub(crate) fn home(&self) -> StreamId {
        self.block.as_ref().map_or(StreamId::DEFAULT, |block| block.alloc_stream)
    }

    pub(crate) fn runtime(&self) -> Option<&Arc<XlogDeviceRuntime>> {
        self.core.runtime.as_ref()
    }

    pub(super) fn core(&self) -> &ManagerCore {
        &self.core
    }

    /// What a launch that touches the slice declares, but for the access; `None` without a block.
    #[inline(always)]
    pub(crate) fn declaration(&self) -> Option<&BlockUse> {
        if self.template.block.generation.0 == 0 { None } else { Some(&self.template) }
    }

    fn free(&mut self) -> ResourceResult<()> {
        let Some(block) = self.block.take() else {
            self.core.device.synchronize()?;
            // SAFETY: allocated by this device, and nothing on it runs any more.
            let freed = unsafe { self.core.device.driver().free(self.ptr) };
            return self.core.device.note(freed);
        };
        match &self.core.runtime {
            Some(runtime) => runtime.deallocate(block),
            None => Ok(()),
        }
    }
}

impl<T> Drop for TrackedCudaSlice<T> {
    fn drop(&mut self) {
        // The resource keeps a block whose free failed, and counts it; here it can only be said.
        if let Err(error) = self.free() {
            log::warn!("freeing {} bytes at {:#x}: {error}", self.bytes, self.ptr);
        }
        self.core.give_back(self.bytes);
    }
}

impl<T> fmt::Debug for TrackedCudaSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedCudaSlice")
            .field("ptr", &format_args!("{:#x}", self.ptr))
            .field("len", &self.len)
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}
