//! Pinned host memory that copies go through.
//!
//! A buffer belongs to whoever took it, and comes back with the event behind its last copy. It is
//! handed out again once that event is done, never before, and never waited for. Buffers go back to
//! the driver only with the pool or by `trim`: freeing pinned memory waits for the whole device.

use std::{fmt, ptr::NonNull, sync::Arc};

use parking_lot::Mutex;

use crate::{
    CudaDevice,
    device_runtime::{ResourceResult, StreamId, XlogDeviceRuntime, tracker::RecordedEvent},
};

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
        self.device.check_alive()?;
        let capacity = bytes.checked_next_power_of_two().unwrap_or(bytes).max(SMALLEST);
        {
            let mut kept = self.kept.lock();
            let sized = kept.iter().enumerate().filter(|(_, kept)| kept.0.capacity == capacity);
            // Asking about an event that is not done is cheap, and the first done one ends it.
            let done = sized
                .map(|(index, (_, event))| (index, self.is_done(event.as_deref())))
                .find(|(_, done)| !matches!(done, Ok(false)));
            if let Some((index, done)) = done {
                done?;
                return Ok(kept.swap_remove(index).0);
            }
        }
        let pointer = self.device.note(self.device.driver().allocate_pinned(capacity))?;
        match NonNull::new(pointer) {
            Some(pointer) => Ok(StagingBuffer { pointer, capacity }),
            None => Err("the driver gave no pinned memory, and no error either".into()),
        }
    }

    /// Takes a buffer back. Without an event no copy uses it any more.
    pub(crate) fn give_back(&self, buffer: StagingBuffer, event: Option<Arc<RecordedEvent>>) {
        self.kept.lock().push((buffer, event));
    }

    /// Takes a buffer back behind an event, or, if there is none to be had, behind everything on
    /// its stream. If even that cannot be waited for, the buffer is left behind.
    pub(crate) fn give_back_behind(
        &self,
        buffer: StagingBuffer,
        event: ResourceResult<Arc<RecordedEvent>>,
        runtime: &XlogDeviceRuntime,
        stream: StreamId,
    ) -> ResourceResult<()> {
        match event {
            Ok(event) => {
                self.give_back(buffer, Some(event));
                Ok(())
            }
            Err(error) => {
                if runtime.synchronize(stream).is_ok() {
                    self.give_back(buffer, None);
                }
                Err(error)
            }
        }
    }

    /// Frees the buffers no copy uses. Waits for the device, as freeing pinned memory does.
    pub(crate) fn trim(&self) -> ResourceResult<()> {
        let kept = std::mem::take(&mut *self.kept.lock());
        let mut answer = Ok(());
        for (buffer, event) in kept {
            match self.is_done(event.as_deref()) {
                Ok(true) => self.free(buffer),
                done => {
                    self.give_back(buffer, event);
                    answer = answer.and(done.map(drop));
                }
            }
        }
        answer
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
