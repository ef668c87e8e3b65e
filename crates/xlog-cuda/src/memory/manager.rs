//! Hands out typed device memory within a budget.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytemuck::Pod;
use xlog_core::MemoryBudget;

use super::TrackedCudaSlice;
use crate::{
    CudaDevice,
    device_runtime::{
        AllocTag, ResourceError, ResourceResult, StreamId, XlogDeviceRuntime, current_desk,
    },
};

/// Hands out [`TrackedCudaSlice`]s.
///
/// ```
/// use std::sync::Arc;
/// use xlog_core::MemoryBudget;
/// use xlog_cuda::{CudaDevice, GpuMemoryManager, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::auto());
/// let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// let resource = AsyncCudaResource::new(Arc::clone(&device), 0, Arc::clone(&pool));
/// let runtime = Arc::new(XlogDeviceRuntime::with_resource(
///     Arc::clone(&device), 0, pool, Box::new(resource)));
/// let budget = MemoryBudget::with_limit(1 << 20);
/// let manager = GpuMemoryManager::with_runtime(device, budget, runtime);
///
/// let mut numbers = manager.alloc::<u32>(4)?;
/// numbers.upload(&[1, 2, 3, 4])?;
/// assert_eq!(numbers.download()?, [1, 2, 3, 4]);
/// # Ok::<(), ResourceError>(())
/// ```
#[derive(Clone)]
pub struct GpuMemoryManager {
    /// One under a limit. Without one as many as threads are likely to allocate at once: each
    /// slice holds on to one of them, and threads that count in one place wait for each other.
    cores: Arc<[Arc<ManagerCore>]>,
}

/// Cores of a manager without a limit.
const CORES: usize = 16;

/// What a manager and its slices share.
#[repr(align(128))] // processors fetch lines in pairs
pub(crate) struct ManagerCore {
    pub(super) device: Arc<CudaDevice>,
    pub(super) runtime: Option<Arc<XlogDeviceRuntime>>,
    budget: MemoryBudget,
    held: AtomicUsize,
}

impl GpuMemoryManager {
    /// Memory without a runtime: its slices have no block, strict recorders refuse them, and
    /// dropping one waits for the device.
    #[must_use]
    pub fn new(device: Arc<CudaDevice>, budget: MemoryBudget) -> Self {
        Self::with(device, budget, None)
    }

    /// Memory from `runtime`. A device that is not the runtime's is refused by every allocation.
    #[must_use]
    pub fn with_runtime(
        device: Arc<CudaDevice>,
        budget: MemoryBudget,
        runtime: Arc<XlogDeviceRuntime>,
    ) -> Self {
        Self::with(device, budget, Some(runtime))
    }

    fn with(
        device: Arc<CudaDevice>,
        budget: MemoryBudget,
        runtime: Option<Arc<XlogDeviceRuntime>>,
    ) -> Self {
        let core = || {
            let (device, runtime) = (Arc::clone(&device), runtime.clone());
            Arc::new(ManagerCore { device, runtime, budget, held: AtomicUsize::new(0) })
        };
        let count = if budget.limit().is_some() { 1 } else { CORES };
        Self { cores: (0..count).map(|_| core()).collect() }
    }

    /// The core that counts the calling thread's slices.
    #[inline]
    fn core(&self) -> &Arc<ManagerCore> {
        match &self.cores[..] {
            [one] => one,
            several => &several[current_desk() as usize % several.len()],
        }
    }

    /// Any of the cores: all but what they count is the same.
    fn any(&self) -> &ManagerCore {
        &self.cores[0]
    }

    /// `len` values on the default stream, their contents whatever was there before.
    #[track_caller]
    pub fn alloc<T: Pod>(&self, len: usize) -> ResourceResult<TrackedCudaSlice<T>> {
        self.alloc_on(len, StreamId::DEFAULT, AllocTag::UNTAGGED)
    }

    /// `len` values, valid on `stream` from here on, under a label.
    #[track_caller]
    pub fn alloc_on<T: Pod>(
        &self,
        len: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<TrackedCudaSlice<T>> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| ResourceError::OutOfBudget {
            requested: usize::MAX,
            remaining: self.any().remaining(),
        })?;
        let core = self.core();
        core.reserve(bytes)?;
        let slice = Self::take(core, len, bytes, (stream, tag));
        slice.inspect_err(|_| core.give_back(bytes))
    }

    #[track_caller]
    fn take<T: Pod>(
        core: &Arc<ManagerCore>,
        len: usize,
        bytes: usize,
        (stream, tag): (StreamId, AllocTag),
    ) -> ResourceResult<TrackedCudaSlice<T>> {
        if let Some(runtime) = &core.runtime {
            if runtime.device().identity() != core.device.identity() {
                return Err("the manager's device is not its runtime's; make both from one".into());
            }
            let block = runtime.allocate(bytes, stream, tag)?;
            return Ok(TrackedCudaSlice::tracked(Arc::clone(core), block, len, bytes));
        }
        core.device.check_alive()?;
        if bytes == 0 {
            return Err("an allocation of zero bytes was asked for; an empty column needs no \
                        memory"
                .into());
        }
        let ptr = core.device.note(core.device.driver().allocate(bytes))?;
        Ok(TrackedCudaSlice::untracked(Arc::clone(core), ptr, len, bytes))
    }

    /// Bytes held by slices that are alive.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.cores.iter().map(|core| core.held.load(Ordering::Relaxed)).sum()
    }

    /// The most the manager may hold.
    #[must_use]
    pub fn budget(&self) -> MemoryBudget {
        self.any().budget
    }

    /// The runtime slices are freed through, if there is one.
    #[must_use]
    pub fn runtime(&self) -> Option<&Arc<XlogDeviceRuntime>> {
        self.any().runtime.as_ref()
    }
}

impl ManagerCore {
    fn remaining(&self) -> usize {
        let held = self.held.load(Ordering::Relaxed) as u64;
        usize::try_from(self.budget.remaining(held)).unwrap_or(usize::MAX)
    }

    fn reserve(&self, bytes: usize) -> ResourceResult<()> {
        let mut held = self.held.load(Ordering::Relaxed);
        loop {
            if !self.budget.allows(held as u64, bytes as u64) {
                let remaining = self.budget.remaining(held as u64);
                return Err(ResourceError::OutOfBudget {
                    requested: bytes,
                    remaining: usize::try_from(remaining).unwrap_or(usize::MAX),
                });
            }
            let Some(more) = held.checked_add(bytes) else {
                return Err(ResourceError::OutOfBudget {
                    requested: bytes,
                    remaining: usize::MAX - held,
                });
            };
            match self.held.compare_exchange(held, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => held = now,
            }
        }
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for GpuMemoryManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuMemoryManager")
            .field("budget", &self.budget())
            .field("held", &self.held_bytes())
            .field("runtime", &self.runtime())
            .finish_non_exhaustive()
    }
}
