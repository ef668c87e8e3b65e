//! One buffer of pinned memory, with one owner.

use std::{
    fmt, mem,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::Arc,
};

use bytemuck::Pod;

use super::LastCopy;
use crate::device_runtime::{ResourceError, ResourceResult};

/// Bytes of page-locked host memory, which go back where they came from when this is dropped.
///
/// Whoever has it may read and write it: no copy uses it. [`start_upload_from`] and
/// [`start_download_into`] take the buffer for as long as theirs runs. What a fresh buffer holds
/// is whatever was there before.
///
/// ```
/// use xlog_cuda::{CudaDevice, device_runtime::ResourceError};
///
/// let stack = CudaDevice::host().into_stack()?;
/// let mut buffer = stack.runtime.staging().allocate(4 * 1000)?;
/// buffer.values_mut::<u32>()?.fill(7);
/// let mut slice = stack.manager().alloc::<u32>(1000)?;
/// let copy = slice.start_upload_from(buffer, xlog_cuda::device_runtime::StreamId::DEFAULT)?;
/// let buffer = copy.wait()?;
/// assert_eq!((buffer.len(), buffer[0], slice.download()?[999]), (4000, 7, 7));
/// # Ok::<(), ResourceError>(())
/// ```
///
/// [`start_upload_from`]: crate::memory::TrackedCudaSlice::start_upload_from
/// [`start_download_into`]: crate::memory::TrackedCudaSlice::start_download_into
pub struct PinnedBuffer {
    memory: Memory,
    len: usize,
    after: After,
    home: Arc<dyn Home>,
}

/// A range of pinned memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) pointer: NonNull<u8>,
    pub(super) bytes: usize,
}

// SAFETY: a range of memory that has one owner at a time; nothing about it is tied to a thread.
unsafe impl Send for Memory {}
// SAFETY: what is behind the pointer is reached through the buffer alone, under its borrows.
unsafe impl Sync for Memory {}

/// What still happens to a buffer's memory when it is handed back.
#[derive(Debug, Default)]
pub(super) enum After {
    /// Nothing.
    #[default]
    Nothing,
    /// A copy.
    Copy(LastCopy),
    /// A copy that nobody can tell the end of: the memory may never be used again.
    Unknown,
}

/// Where buffers go back to.
pub(super) trait Home: Send + Sync {
    fn take_back(&self, memory: Memory, after: After);
}

impl PinnedBuffer {
    /// A buffer of which `len` bytes were asked for.
    pub(super) fn new(memory: Memory, len: usize, home: Arc<dyn Home>) -> Self {
        Self { memory, len: len.min(memory.bytes), after: After::Nothing, home }
    }

    /// The bytes that were granted, at least as many as were asked for: what every counter counts.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.bytes
    }

    /// The buffer as values. Bytes that are no whole number of them are an error.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use xlog_cuda::{CudaDevice, device_runtime::*};
    /// let pinned = PinnedHostResource::new(Arc::new(CudaDevice::host()));
    /// let mut buffer = pinned.allocate(12)?;
    /// buffer.fill(1);
    /// assert_eq!(buffer.values::<u32>()?, [0x0101_0101; 3]);
    /// assert!(buffer.values::<u64>().is_err());
    /// # Ok::<(), ResourceError>(())
    /// ```
    pub fn values<T: Pod>(&self) -> ResourceResult<&[T]> {
        bytemuck::try_cast_slice(self).map_err(|_| no_whole_number::<T>(self.len))
    }

    /// The same to be written.
    pub fn values_mut<T: Pod>(&mut self) -> ResourceResult<&mut [T]> {
        let len = self.len;
        bytemuck::try_cast_slice_mut(self).map_err(|_| no_whole_number::<T>(len))
    }

    /// The memory itself: for a copy, which holds on to the buffer.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.memory.pointer.as_ptr()
    }

    /// Hands the buffer back in the middle of a copy.
    pub(crate) fn hand_back_behind(mut self, copy: LastCopy) {
        self.after = After::Copy(copy);
    }

    /// Hands the buffer back in the middle of a copy that nobody can tell the end of.
    pub(crate) fn leave_behind(mut self) {
        self.after = After::Unknown;
    }
}

impl Deref for PinnedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory has `len` bytes, which the driver or an earlier owner has written. It
        // is this buffer's alone, and no copy uses it: a copy owns its buffer until it is over.
        unsafe { std::slice::from_raw_parts(self.memory.pointer.as_ptr(), self.len) }
    }
}

impl DerefMut for PinnedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the buffer is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.pointer.as_ptr(), self.len) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        self.home.take_back(self.memory, mem::take(&mut self.after));
    }
}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer")
            .field("pointer", &self.memory.pointer)
            .field("len", &self.len)
            .field("capacity", &self.memory.bytes)
            .finish_non_exhaustive()
    }
}

fn no_whole_number<T>(len: usize) -> ResourceError {
    let size = size_of::<T>();
    format!("{len} bytes are no whole number of values of {size} bytes; allocate a multiple").into()
}
