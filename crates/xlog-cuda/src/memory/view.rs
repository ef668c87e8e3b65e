//! Part of a slice.

use std::ops::{Bound, RangeBounds};

use bytemuck::Pod;

use super::{
    Download, PinnedCopy, PinnedCopyError, TrackedCudaSlice,
    transfer::{self, Way},
};
use crate::device_runtime::{BlockUse, PinnedBuffer, ResourceError, ResourceResult, StreamId};

/// A range of a slice's values. For the runtime a use of a view is a use of the whole block: two
/// views of one slice never run at the same time if one is written.
#[derive(Clone, Copy, Debug)]
pub struct SliceView<'s, T> {
    slice: &'s TrackedCudaSlice<T>,
    start: usize,
    len: usize,
}

impl<'s, T: Pod> SliceView<'s, T> {
    pub(super) fn new(
        slice: &'s TrackedCudaSlice<T>,
        range: impl RangeBounds<usize>,
    ) -> ResourceResult<Self> {
        let start = match range.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(slice.len()),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= slice.len() => {
                Ok(Self { slice, start, len: end - start })
            }
            _ => Err(slice.runtime_block().map_or_else(
                || "the range leaves the slice".into(),
                |block| ResourceError::OutOfBounds { generation: block.generation },
            )),
        }
    }

    /// Its values, once everything that writes the slice is done.
    #[track_caller]
    pub fn download(&self) -> ResourceResult<Vec<T>> {
        self.start_download(self.slice.home())?.wait()
    }

    /// Starts copying its values to the host on `stream`, behind everything that writes the slice.
    /// Nothing blocks until [`Download::wait`].
    #[track_caller]
    pub fn start_download(&self, stream: StreamId) -> ResourceResult<Download<T>> {
        transfer::download(self, stream)
    }

    /// Starts copying its values into a pinned buffer of the same size on `stream`, as
    /// [`TrackedCudaSlice::start_download_into`] does with all of a slice.
    ///
    /// ```
    /// use xlog_cuda::{CudaDevice, device_runtime::{ResourceError, StreamId}};
    ///
    /// let stack = CudaDevice::auto().into_stack()?;
    /// let mut slice = stack.manager().alloc::<u32>(3)?;
    /// slice.upload(&[1, 2, 3])?;
    /// let buffer = stack.runtime.staging().allocate(8)?;
    /// let copy = slice.view(1..)?.start_download_into(buffer, StreamId::DEFAULT)?;
    /// assert_eq!(copy.wait()?.values::<u32>()?, [2, 3]);
    /// # Ok::<(), ResourceError>(())
    /// ```
    #[track_caller]
    pub fn start_download_into(
        &self,
        buffer: PinnedBuffer,
        stream: StreamId,
    ) -> Result<PinnedCopy, PinnedCopyError> {
        transfer::copy_pinned(self, buffer, Way::ToHost, stream)
    }

    /// The same memory, for a kernel that takes bytes and knows from elsewhere what they mean.
    #[must_use]
    pub fn as_bytes(&self) -> ByteView<'s> {
        ByteView { address: self.ptr(), bytes: self.bytes(), declared: self.declaration() }
    }

    /// Copies `values` into this part of the slice on `stream`. The values are copied before this
    /// returns; the device has them in stream order.
    #[track_caller]
    pub fn upload_on(&self, values: &[T], stream: StreamId) -> ResourceResult<()> {
        transfer::upload(self, values, stream)
    }

    /// Copies another part of the same length into this one, on the device, on `stream`. The two
    /// must not overlap.
    ///
    /// ```
    /// use xlog_cuda::{CudaDevice, device_runtime::{ResourceError, StreamId}};
    ///
    /// let manager = CudaDevice::auto().into_stack()?.manager();
    /// let (mut from, to) = (manager.alloc::<u32>(3)?, manager.alloc::<u32>(2)?);
    /// from.upload(&[1, 2, 3])?;
    /// to.as_view().copy_from(&from.view(1..)?, StreamId::DEFAULT)?;
    /// assert_eq!(to.download()?, [2, 3]);
    /// # Ok::<(), ResourceError>(())
    /// ```
    #[track_caller]
    pub fn copy_from(&self, source: &SliceView<'_, T>, stream: StreamId) -> ResourceResult<()> {
        transfer::copy(source, self, stream)
    }

    /// Sets every byte of this part of the slice on `stream`.
    #[track_caller]
    pub fn fill_bytes(&self, value: u8, stream: StreamId) -> ResourceResult<()> {
        transfer::fill_bytes(self, value, stream)
    }

    pub(super) fn whole(slice: &'s TrackedCudaSlice<T>) -> Self {
        Self { slice, start: 0, len: slice.len() }
    }
}

impl<'s, T> SliceView<'s, T> {
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

    /// The address of its first value on the device.
    #[must_use]
    pub const fn ptr(&self) -> u64 {
        self.slice.ptr() + (self.start * size_of::<T>()) as u64
    }

    /// The slice it is part of.
    #[must_use]
    pub const fn slice(&self) -> &'s TrackedCudaSlice<T> {
        self.slice
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    #[inline]
    pub(crate) fn declaration(&self) -> Option<&'s BlockUse> {
        self.slice.declaration()
    }
}

/// The memory of a view as bytes: an argument for a parameter of type `u8`.
///
/// One kernel can so take columns of different types through one parameter. Alignment is that of
/// the values it was made from.
#[derive(Clone, Copy, Debug)]
pub struct ByteView<'s> {
    address: u64,
    bytes: usize,
    declared: Option<&'s BlockUse>,
}

impl<'s> ByteView<'s> {
    /// How many bytes there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The address of the first one on the device.
    #[must_use]
    pub const fn ptr(&self) -> u64 {
        self.address
    }

    pub(crate) const fn declaration(&self) -> Option<&'s BlockUse> {
        self.declared
    }
}
