//! The plain synchronous allocator.
//!
//! Memory from here is valid on every stream at once and freed only when the device is idle, so no
//! pool hides an out-of-bounds access from a memory checker. Uses are not tracked: preflight
//! refuses these blocks before anything is enqueued.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use super::{
    AllocTag, BlockState, DeviceBlock, DeviceMemoryResource, Generation, ResourceError,
    ResourceResult, StreamId, async_cuda::zero_bytes, tracker::foreign_device,
};
use crate::CudaDevice;

/// The driver's synchronous allocator, without use tracking.
pub struct DirectCudaResource {
    device: Arc<CudaDevice>,
    ordinal: u32,
    live: Mutex<HashMap<u64, (Generation, usize)>>,
    live_bytes: AtomicUsize,
    /// Address and bytes of blocks handed back whose free failed; each reap tries again.
    unfreed: Mutex<Vec<(u64, usize)>>,
}

impl DirectCudaResource {
    /// The allocator of `device`, which goes by `ordinal`. An ordinal that is not the device's is
    /// refused by every later call.
    #[must_use]
    pub fn new(device: Arc<CudaDevice>, ordinal: u32) -> Self {
        Self {
            device,
            ordinal,
            live: Mutex::default(),
            live_bytes: AtomicUsize::new(0),
            unfreed: Mutex::default(),
        }
    }

    fn check(&self) -> ResourceResult<()> {
        self.device.check_alive()?;
        if self.device.accepts_ordinal(self.ordinal) {
            return Ok(());
        }
        Err(foreign_device(self.device.info().ordinal, self.ordinal))
    }

    /// Takes a block out of use; one that is not this resource's changes nothing.
    fn retire(&self, block: &DeviceBlock) -> ResourceResult<(Generation, usize)> {
        self.check()?;
        if block.device_ordinal != self.ordinal {
            return Err(foreign_device(block.device_ordinal, self.ordinal));
        }
        let mut live = self.live.lock();
        let entry = match live.get(&block.ptr) {
            Some((generation, _)) if *generation == block.generation => live.remove(&block.ptr),
            _ => None,
        };
        entry.ok_or(ResourceError::UseAfterFree { generation: block.generation })
    }

    /// Hands a retired block to the driver.
    fn free(&self, ptr: u64, bytes: usize) -> ResourceResult<()> {
        // SAFETY: the memory came from `allocate`, its entry is gone, and `free` waits for the
        // device first.
        self.device.note(unsafe { self.device.driver().free(ptr) })?;
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl DeviceMemoryResource for DirectCudaResource {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        self.check()?;
        if bytes == 0 {
            return Err(zero_bytes());
        }
        let ptr = self.device.note(self.device.driver().allocate(bytes))?;
        let generation = Generation::next();
        self.live.lock().insert(ptr, (generation, bytes));
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(DeviceBlock {
            ptr,
            device_ordinal: self.ordinal,
            alloc_stream: stream,
            bytes,
            align: 256,
            tag,
            generation,
            state: BlockState::Live,
        })
    }

    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        let (_, bytes) = self.retire(&block)?;
        let freed = self.free(block.ptr, bytes);
        // Nobody owns the block any more, so the driver gets another chance at the next reap.
        freed.inspect_err(|_| self.unfreed.lock().push((block.ptr, bytes)))
    }

    fn reap_pending(&self) -> ResourceResult<()> {
        self.check()?;
        let unfreed = std::mem::take(&mut *self.unfreed.lock());
        let mut answer = Ok(());
        for (ptr, bytes) in unfreed {
            let freed = self.free(ptr, bytes);
            answer = answer.and(freed.inspect_err(|_| self.unfreed.lock().push((ptr, bytes))));
        }
        answer
    }

    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        let entry = match self.retire(&block) {
            Ok(entry) => entry,
            Err(error) => return Err((block, error)),
        };
        self.free(block.ptr, entry.1).map_err(|error| {
            self.live.lock().insert(block.ptr, entry);
            (block, error)
        })
    }

    fn device_ordinal(&self) -> u32 {
        self.ordinal
    }

    fn bytes_outstanding(&self) -> usize {
        self.live_bytes.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for DirectCudaResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectCudaResource")
            .field("ordinal", &self.ordinal)
            .field("live_bytes", &self.bytes_outstanding())
            .finish_non_exhaustive()
    }
}
