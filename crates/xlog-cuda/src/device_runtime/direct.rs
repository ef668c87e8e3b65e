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
    /// Blocks handed back whose free failed; each reap tries again.
    unfreed: Mutex<Vec<DeviceBlock>>,
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
        self.try_deallocate(block).map_err(|(block, error)| {
            // Misuse leaves the block with nobody; a driver that failed gets another chance.
            if block.device_ordinal == self.ordinal
                && self.live.lock().get(&block.ptr).is_some_and(|live| live.0 == block.generation)
            {
                self.unfreed.lock().push(block);
            }
            error
        })
    }

    fn reap_pending(&self) -> ResourceResult<()> {
        let unfreed = std::mem::take(&mut *self.unfreed.lock());
        let mut answer = Ok(());
        for block in unfreed {
            answer = answer.and(self.deallocate(block));
        }
        answer
    }

    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        if let Err(error) = self.check() {
            return Err((block, error));
        }
        if block.device_ordinal != self.ordinal {
            let error = foreign_device(block.device_ordinal, self.ordinal);
            return Err((block, error));
        }
        let entry = {
            let mut live = self.live.lock();
            match live.get(&block.ptr) {
                Some((generation, _)) if *generation == block.generation => live.remove(&block.ptr),
                _ => None,
            }
        };
        let Some(entry) = entry else {
            let generation = block.generation;
            return Err((block, ResourceError::UseAfterFree { generation }));
        };
        // SAFETY: the block came from `allocate`, its entry is gone, and `free` waits for the
        // device first.
        match self.device.note(unsafe { self.device.driver().free(block.ptr) }) {
            Ok(()) => {
                self.live_bytes.fetch_sub(entry.1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.live.lock().insert(block.ptr, entry);
                Err((block, error))
            }
        }
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
