//! Pinned host memory that copies go through.
//!
//! A buffer belongs to whoever took it, and comes back with the event behind its last copy. It is
//! handed out again once that event is done, never before, and never waited for.

use std::{fmt, ptr::NonNull, sync::Arc};

use parking_lot::Mutex;

use crate::{
    CudaDevice,
    device_runtime::{ResourceResult, tracker::RecordedEvent},
};

/// Buffers kept for the next copies, at most.
const KEPT_BYTES: usize = 64 << 20;

/// Smallest buffer; sizes double from here, so that one serves many copies.
const SMALLEST: usize = 4096;

/// Pinned buffers of one runtime.
pub(crate) struct StagingPool {
    device: Arc<CudaDevice>,
    kept: Mutex<Vec<(StagingBuffer, Option<Arc<RecordedEvent>>)>>,
}

/// One pinned buffer, owned by whoever took it.
#[derive(Debug)]
pub(crate) struct StagingBuffer {
    pointer: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the buffer is plain memory with one owner; nothing about it is tied to a thread.
unsafe impl Send for StagingBuffer {}
// SAFETY: shared access only reads, and only once the device is done writing.
unsafe impl Sync for StagingBuffer {}

impl StagingBuffer {
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
}

impl StagingPool {
    pub(crate) fn new(device: Arc<CudaDevice>) -> Self {
        Self { device, kept: Mutex::default() }
    }

    /// A buffer of at least `bytes`, its last copy done.
    pub(crate) fn take(&self, bytes: usize) -> ResourceResult<StagingBuffer> {
        let capacity = bytes.checked_next_power_of_two().unwrap_or(bytes).max(SMALLEST);
        let mut candidate = {
            let mut kept = self.kept.lock();
            let fits = kept.iter().position(|(buffer, _)| buffer.capacity == capacity);
            fits.map(|index| kept.remove(index))
        };
        if let Some((buffer, event)) = candidate.take() {
            // The oldest of its size: if even that one is still being copied, all are.
            if self.is_done(event.as_deref())? {
                return Ok(buffer);
            }
            self.kept.lock().insert(0, (buffer, event));
        }
        let pointer = self.device.note(self.device.driver().allocate_pinned(capacity))?;
        match NonNull::new(pointer) {
            Some(pointer) => Ok(StagingBuffer { pointer, capacity }),
            None => Err("the driver gave no pinned memory, and no error either".into()),
        }
    }

    /// Takes a buffer back. Without an event no copy uses it any more.
    pub(crate) fn give_back(&self, buffer: StagingBuffer, event: Option<Arc<RecordedEvent>>) {
        let mut kept = self.kept.lock();
        kept.push((buffer, event));
        let mut bytes: usize = kept.iter().map(|(buffer, _)| buffer.capacity).sum();
        let mut index = 0;
        while bytes > KEPT_BYTES && index < kept.len() {
            match self.is_done(kept[index].1.as_deref()) {
                Ok(true) => {
                    let (buffer, _) = kept.remove(index);
                    bytes -= buffer.capacity;
                    self.free(buffer);
                }
                _ => index += 1,
            }
        }
    }

    fn is_done(&self, event: Option<&RecordedEvent>) -> ResourceResult<bool> {
        match event {
            None => Ok(true),
            // SAFETY: the caller holds the event.
            Some(event) => self.device.note(unsafe { self.device.driver().event_done(event.raw) }),
        }
    }

    fn free(&self, buffer: StagingBuffer) {
        // SAFETY: allocated by this device, its last copy done, and nobody owns it any more.
        let freed = unsafe { self.device.driver().free_pinned(buffer.as_ptr()) };
        if let Err(error) = self.device.note(freed) {
            log::warn!("freeing a staging buffer: {error}");
        }
    }
}

impl Drop for StagingPool {
    fn drop(&mut self) {
        for (buffer, event) in std::mem::take(self.kept.get_mut()) {
            let done = match &event {
                None => Ok(()),
                // SAFETY: the event is held here.
                Some(event) => unsafe { self.device.driver().synchronize_event(event.raw) },
            };
            match done {
                Ok(()) => self.free(buffer),
                // A copy that may still run keeps its memory: leaked, never pulled away.
                Err(error) => log::warn!("leaving a staging buffer behind: {error}"),
            }
        }
    }
}

impl fmt::Debug for StagingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StagingPool").field("kept", &self.kept.lock().len()).finish_non_exhaustive()
    }
}
