//! Pinned memory straight from the driver.

use std::{
    fmt,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use super::{
    PinnedBuffer,
    buffer::{After, Home, Memory},
};
use crate::{
    CudaDevice,
    device_runtime::{ResourceError, ResourceResult, async_cuda::zero_bytes},
};

/// Page-locked host memory from the driver, each buffer an allocation of its own.
///
/// Getting one takes the driver tens of microseconds and more, and dropping one waits for the whole
/// device: [`PinnedPoolResource`](super::PinnedPoolResource) does neither. What the driver does not
/// take back stays counted, and the next [`reap_pending`](Self::reap_pending) tries again. Handles
/// are shared as they are cloned; a buffer may outlive all of them, and be dropped on any thread.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::{PinnedHostResource, ResourceError}};
///
/// let pinned = PinnedHostResource::new(Arc::new(CudaDevice::auto()));
/// let mut buffer = pinned.allocate(1 << 20)?;
/// buffer[..5].copy_from_slice(b"hello");
/// assert_eq!(pinned.bytes_outstanding(), 1 << 20);
/// drop(buffer);
/// assert_eq!(pinned.bytes_outstanding(), 0);
/// # Ok::<(), ResourceError>(())
/// ```
#[derive(Clone)]
pub struct PinnedHostResource {
    core: Arc<Core>,
}

struct Core {
    device: Arc<CudaDevice>,
    bytes: AtomicUsize,
    /// What the driver did not take back; each reap tries again.
    unfreed: Mutex<Vec<Memory>>,
}

impl PinnedHostResource {
    /// Pinned memory for copies from and to `device`.
    #[must_use]
    pub fn new(device: Arc<CudaDevice>) -> Self {
        let core = Core { device, bytes: AtomicUsize::new(0), unfreed: Mutex::default() };
        Self { core: Arc::new(core) }
    }

    /// A buffer of `bytes` bytes. Zero bytes, and more than there are, are
    /// [`ResourceError::Driver`].
    pub fn allocate(&self, bytes: usize) -> ResourceResult<PinnedBuffer> {
        let memory = self.take(bytes)?;
        Ok(PinnedBuffer::new(memory, bytes, Arc::clone(&self.core) as Arc<dyn Home>))
    }

    /// Bytes that the driver has not got back.
    #[must_use]
    pub fn bytes_outstanding(&self) -> usize {
        self.core.bytes.load(Ordering::Relaxed)
    }

    /// Tries again what the driver did not take back. Waits for the device if there is anything.
    pub fn reap_pending(&self) -> ResourceResult<()> {
        self.core.device.check_alive()?;
        self.core.retry()
    }

    /// The device the memory is pinned for.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.core.device
    }

    pub(super) fn take(&self, bytes: usize) -> ResourceResult<Memory> {
        let device = &self.core.device;
        device.check_alive()?;
        check_size(bytes)?;
        let pointer = device.note(device.driver().allocate_pinned(bytes))?;
        let pointer = NonNull::new(pointer)
            .ok_or("the driver gave no pinned memory, and no error either; restart the process")?;
        self.core.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Memory { pointer, bytes })
    }

    /// Gives memory that no copy uses back to the driver, which waits for the device.
    pub(super) fn free(&self, memory: Memory) -> ResourceResult<()> {
        self.core.free(memory)
    }
}

/// Refuses what no buffer can have.
pub(super) fn check_size(bytes: usize) -> ResourceResult<()> {
    match bytes {
        0 => Err(zero_bytes()),
        _ if bytes > isize::MAX as usize => Err(too_large(bytes)),
        _ => Ok(()),
    }
}

pub(super) fn too_large(bytes: usize) -> ResourceError {
    format!("{bytes} bytes are more than any host has; copy in pieces").into()
}

impl Core {
    fn free(&self, memory: Memory) -> ResourceResult<()> {
        let driver = self.device.driver();
        // SAFETY: `take` allocated it, nobody has it any more, and no copy uses it.
        self.device.note(unsafe { driver.free_pinned(memory.pointer.as_ptr()) })?;
        self.bytes.fetch_sub(memory.bytes, Ordering::Relaxed);
        Ok(())
    }

    fn retry(&self) -> ResourceResult<()> {
        let unfreed = std::mem::take(&mut *self.unfreed.lock());
        let mut answer = Ok(());
        for memory in unfreed {
            let freed = self.free(memory);
            answer = answer.and(freed.inspect_err(|_| self.unfreed.lock().push(memory)));
        }
        answer
    }
}

impl Home for Core {
    fn take_back(&self, memory: Memory, after: After) {
        let over = match after {
            After::Nothing => Ok(()),
            After::Copy(copy) => copy.wait(),
            After::Unknown => Err("a copy whose end nobody can tell".into()),
        };
        if let Err(error) = over {
            // Leaked, never pulled away.
            log::warn!("leaving {} pinned bytes behind: {error}", memory.bytes);
        } else if let Err(error) = self.free(memory) {
            log::warn!("{} pinned bytes wait for the next reap: {error}", memory.bytes);
            self.unfreed.lock().push(memory);
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Err(error) = self.retry() {
            log::warn!("pinned memory is left behind: {error}");
        }
    }
}

impl fmt::Debug for PinnedHostResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedHostResource")
            .field("device", &self.core.device)
            .field("bytes_outstanding", &self.bytes_outstanding())
            .finish_non_exhaustive()
    }
}
