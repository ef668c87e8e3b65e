//! Suballocation: large blocks of another resource, cut into the ones that programs use.
//!
//! Each stream has an *arena* of its own, so that threads on different streams do not meet. A
//! request takes, in this order: memory of its own arena that needs no wait, memory of another
//! arena that needs none, memory of its own arena behind the waits it needs, a new slab, and at
//! last, when there is no more, any memory of any arena. The host waits only before a refusal. A
//! stream that has borrowed from others many times gets a slab of its own before it borrows again.
//!
//! Ordering: freed memory remembers the uses it has to follow, in the tracker's own terms. A stream
//! that follows them gets it as it is; for any other, exactly the missing waits are queued. The
//! block that is cut from it inherits those uses (rule 7), so another stream's first use waits for
//! them too, and for no "allocation".
//!
//! Validation: as everywhere, device, then stream, then (address, generation), before anything
//! changes. Locks: an arena's, over no driver call and no call of the resource below.

mod arena;
mod class;
mod options;
mod ranges;
mod slabs;

use std::{
    fmt,
    sync::{Arc, Weak},
};

pub use self::options::PoolOptions;
use self::{
    arena::{Arena, Chunk, Take},
    class::{Class, GRAIN, class_of},
};
use super::{
    AllocTag, BlockId, BlockState, DeviceBlock, DeviceMemoryResource, ResourceError,
    ResourceResult, StreamId, StreamPool, UseTracker,
    async_cuda::{mismatch_over, never_reused, next_owner, zero_bytes},
    forward::tracked_uses,
    tracker::{HoldsBlocks, Lane, Retired, Tenant, unknown_stream},
};
use crate::{
    CudaDevice,
    sync::{TinyLock, atomic::AtomicUsize},
};

/// Cuts blocks from large ones of another resource, and reuses them without asking the driver.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::host());
/// let streams = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// let driver = AsyncCudaResource::new(device, 0, Arc::clone(&streams));
/// let pool = PoolResource::new(Box::new(driver), streams, PoolOptions::default());
///
/// let block = pool.allocate(1000, StreamId::DEFAULT, AllocTag("example"))?;
/// assert_eq!((block.bytes, pool.report().live_bytes), (1024, 1024));
/// pool.deallocate(block)?;
/// assert_eq!(pool.report().slabs, 1); // kept for the next one
/// pool.trim()?;
/// assert_eq!(pool.report().slabs, 0);
/// # Ok::<(), ResourceError>(())
/// ```
pub struct PoolResource {
    core: Arc<Core>,
}

struct Core {
    owner: u64,
    device: Arc<CudaDevice>,
    ordinal: u32,
    /// Bytes of all slabs, those included that are being asked for.
    reserved: AtomicUsize,
    arenas: Box<[ArenaCell]>,
    options: PoolOptions,
    mismatch: Option<String>,
    inner: Box<dyn DeviceMemoryResource + Send + Sync>,
    pool: Arc<StreamPool>,
}

/// An arena on cache lines of its own.
#[repr(align(128))]
struct ArenaCell(TinyLock<Arena>);

/// How full a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolReport {
    /// Blocks taken from the resource below.
    pub slabs: usize,
    /// Their bytes.
    pub slab_bytes: usize,
    /// Blocks in use.
    pub live_blocks: usize,
    /// Their bytes.
    pub live_bytes: usize,
    /// Free bytes that wait in bins, cut to size.
    pub cached_bytes: usize,
    /// Free bytes in all.
    pub free_bytes: usize,
    /// Free ranges, bins not counted.
    pub free_ranges: usize,
    /// The largest of them.
    pub largest_free_range: usize,
}

impl PoolResource {
    /// A pool over `inner`, for the streams of `streams`. Parts that do not belong together are
    /// refused by every later call.
    #[must_use]
    pub fn new(
        inner: Box<dyn DeviceMemoryResource + Send + Sync>,
        streams: Arc<StreamPool>,
        options: PoolOptions,
    ) -> Self {
        let device = Arc::clone(streams.device());
        let ordinal = inner.device_ordinal();
        let tracker = streams.tracker();
        let mismatch = mismatch_over(&*inner, &streams);
        let owner = next_owner();
        let lanes = tracker.lanes().len();
        let arenas = (0..lanes)
            .map(|index| ArenaCell(TinyLock::new(Arena::new(index, owner, lanes))))
            .collect();
        let core = Arc::new(Core {
            owner,
            device,
            ordinal,
            reserved: AtomicUsize::new(0),
            arenas,
            options,
            mismatch,
            inner,
            pool: streams,
        });
        let holder: Weak<dyn HoldsBlocks> = Arc::downgrade(&core) as Weak<dyn HoldsBlocks>;
        core.tracker().ask_too(holder);
        Self { core }
    }

    /// How full the pool is at this moment.
    #[must_use]
    pub fn report(&self) -> PoolReport {
        let mut report = PoolReport::default();
        for cell in &self.core.arenas {
            let fill = cell.0.lock().fill();
            report.slabs += fill.slabs;
            report.slab_bytes += fill.slab_bytes;
            report.live_blocks += fill.live_blocks;
            report.live_bytes += fill.live_bytes;
            report.cached_bytes += fill.cached;
            report.free_bytes += fill.slab_bytes - fill.live_bytes;
            report.free_ranges += fill.ranges;
            report.largest_free_range = report.largest_free_range.max(fill.largest);
        }
        report
    }

    /// Gives every slab of which nothing is in use back to the resource below, behind the uses it
    /// follows. The host does not wait for them; whether the bytes count as pending there until a
    /// reap is for that resource to say.
    pub fn trim(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.trim()
    }

    /// How the pool grows.
    #[must_use]
    pub fn options(&self) -> PoolOptions {
        self.core.options
    }

    /// The resource below.
    #[must_use]
    pub fn inner(&self) -> &(dyn DeviceMemoryResource + Send + Sync) {
        &*self.core.inner
    }
}

impl HoldsBlocks for Core {
    fn blocks_on(&self, index: usize) -> usize {
        self.arenas.iter().map(|cell| cell.0.lock().homed_on(index)).sum()
    }
}

impl Core {
    #[inline]
    fn tracker(&self) -> &UseTracker {
        self.pool.tracker()
    }

    #[inline]
    fn check(&self) -> ResourceResult<()> {
        self.device.check_alive()?;
        if self.mismatch.is_some() { Err(self.refusal()) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self) -> ResourceError {
        ResourceError::Driver(self.mismatch.clone().unwrap_or_default().into())
    }

    /// A block for `lane`: the common case, a block of its own arena's bin that needs no wait.
    #[inline(always)]
    fn take(&self, class: Class, lane: &Lane) -> Option<Chunk> {
        self.arenas[lane.index()].0.lock().pop_last(class, self.tracker(), lane)
    }

    #[cold]
    #[inline(never)]
    fn take_elsewhere(&self, class: Class, lane: &Lane) -> ResourceResult<Chunk> {
        let own = &self.arenas[lane.index()].0;
        let oldest = own.lock().oldest_of_many(class);
        if let Some(slot) = oldest
            && !self.tracker().follows_slot(slot, lane)
        {
            self.tracker().ask_about_slot(slot);
        }
        if let Some(chunk) = self.take_from(lane.index(), class, Take::Ready, lane)? {
            return Ok(chunk);
        }
        if self.flush_own(class, lane)
            && let Some(chunk) = self.take_from(lane.index(), class, Take::Ready, lane)?
        {
            return Ok(chunk);
        }
        if own.lock().has_borrowed_enough()
            && let Ok(chunk) = self.grow(class, lane)
        {
            return Ok(chunk);
        }
        for index in self.others(lane) {
            if let Some(chunk) = self.take_from(index, class, Take::Ready, lane)? {
                own.lock().borrow_one();
                return Ok(chunk);
            }
        }
        if let Some(chunk) = self.take_from(lane.index(), class, Take::Any, lane)? {
            return Ok(chunk);
        }
        let refusal = match self.grow(class, lane) {
            Ok(chunk) => return Ok(chunk),
            Err(refusal) => refusal,
        };
        // There is no more: whatever is free anywhere will do, whole slabs given back included.
        for index in std::iter::once(lane.index()).chain(self.others(lane)) {
            self.arenas[index].0.lock().flush(self.tracker());
            if let Some(chunk) = self.take_from(index, class, Take::Any, lane)? {
                return Ok(chunk);
            }
        }
        self.trim()?;
        self.inner.reap_pending()?;
        self.grow(class, lane).map_err(|_| refusal)
    }

    /// Every arena but `lane`'s own.
    fn others(&self, lane: &Lane) -> impl Iterator<Item = usize> + use<> {
        let own = lane.index();
        (0..self.arenas.len()).filter(move |index| *index != own)
    }

    /// A block of one arena, with the waits it needs queued on `lane`.
    fn take_from(
        &self,
        index: usize,
        class: Class,
        take: Take,
        lane: &Lane,
    ) -> ResourceResult<Option<Chunk>> {
        let tracker = self.tracker();
        let arena = &self.arenas[index].0;
        let Some(chunk) = arena.lock().take(class, take, tracker, lane)? else { return Ok(None) };
        if take == Take::Any
            && let Err(error) = tracker.follow_slot(chunk.slot, lane)
        {
            arena.lock().push(chunk, lane.index());
            return Err(error);
        }
        Ok(Some(chunk))
    }

    /// Empties the bins of `lane`'s own arena if there is enough in them to be worth it.
    fn flush_own(&self, class: Class, lane: &Lane) -> bool {
        let mut arena = self.arenas[lane.index()].0.lock();
        let fill = arena.fill();
        let worth_it = fill.cached >= class.bytes().max(fill.slab_bytes / 4);
        if worth_it {
            arena.flush(self.tracker());
        }
        worth_it
    }

    /// Puts a block back that nobody got.
    #[cold]
    fn undo(&self, chunk: Chunk, lane: &Lane) {
        if let Some(tenant) = self.tracker().tenant_of(chunk.slot) {
            self.arenas[(tenant.place >> 16) as usize].0.lock().push(chunk, lane.index());
        }
    }

    /// Checks device, then stream, then (address, generation), and takes the block back.
    #[inline]
    fn put_back(self: &Arc<Self>, block: &DeviceBlock) -> ResourceResult<()> {
        self.check()?;
        let tracker = self.tracker();
        tracker.check_block(block, self.ordinal)?;
        let id = BlockId::from_block(block);
        match tracker.retire_quickly(id, self.owner) {
            Some((slot, tenant)) => {
                self.store(block.ptr, slot, tenant);
                Ok(())
            }
            None => self.put_back_slowly(id),
        }
    }

    #[inline(never)]
    fn put_back_slowly(self: &Arc<Self>, id: BlockId) -> ResourceResult<()> {
        let retired = self.tracker().retire(id, self.owner, || {
            let core = Arc::clone(self);
            Box::new(move || core.put_back_later(id.ptr))
        })?;
        match retired {
            Some(retired) => self.store_retired(&retired),
            None => Ok(()),
        }
    }

    /// The free of a block that was claimed when it was handed back.
    fn put_back_later(&self, ptr: u64) {
        if let Some(retired) = self.tracker().retired(ptr)
            && let Err(error) = self.store_retired(&retired)
        {
            log::error!("block leaked: {error}");
        }
    }

    fn store_retired(&self, retired: &Retired) -> ResourceResult<()> {
        let tracker = self.tracker();
        if retired.unprotected {
            tracker.count_leaked_block();
            return Err(never_reused(retired.ptr));
        }
        let slot = retired.slot();
        let tenant = tracker.tenant_of(slot).ok_or("a block without a place")?;
        self.store(retired.ptr, slot, tenant);
        Ok(())
    }

    /// Puts a block that is out of use into its bin.
    #[inline]
    fn store(&self, ptr: u64, slot: u32, tenant: Tenant) {
        let chunk = Chunk { ptr, slot, class: Class(tenant.place as u16) };
        self.arenas[(tenant.place >> 16) as usize].0.lock().push(chunk, tenant.home);
    }
}

impl DeviceMemoryResource for PoolResource {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        let core = &*self.core;
        core.check()?;
        if bytes == 0 {
            return Err(zero_bytes());
        }
        let Some(class) = class_of(bytes) else { return Err(too_large(bytes)) };
        let tracker = core.tracker();
        let lane = tracker.enter(stream)?;
        let chunk = match core.take(class, lane) {
            Some(chunk) => chunk,
            None => core.take_elsewhere(class, lane)?,
        };
        // Counted under the arena's lock before this look: a release that missed it is seen by it.
        if lane.stream() != Some(stream) {
            core.undo(chunk, lane);
            return Err(unknown_stream(stream));
        }
        Ok(DeviceBlock {
            ptr: chunk.ptr,
            device_ordinal: core.ordinal,
            alloc_stream: stream,
            bytes: chunk.class.bytes(),
            align: GRAIN,
            tag,
            generation: tracker.renew(chunk.slot, lane),
            state: BlockState::Live,
        })
    }

    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        self.core.put_back(&block)
    }

    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        self.core.put_back(&block).map_err(|error| (block, error))
    }

    fn device_ordinal(&self) -> u32 {
        self.core.ordinal
    }

    /// Bytes of blocks in use. What was freed can be had again at once, behind the waits it needs.
    fn bytes_outstanding(&self) -> usize {
        self.core.arenas.iter().map(|cell| cell.0.lock().live_bytes()).sum()
    }

    fn reap_pending(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.tracker().run_deferred_frees();
        self.core.inner.reap_pending()
    }

    fn try_reap(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.tracker().run_deferred_frees();
        self.core.inner.try_reap()
    }

    tracked_uses!();
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Err(error) = self.trim() {
            log::warn!("a pool could not give everything back: {error}");
        }
        let live: usize = self.arenas.iter().map(|cell| cell.0.lock().live_bytes()).sum();
        if live > 0 {
            log::warn!("a pool is gone while {live} bytes of it are in use; they are leaked");
        }
    }
}

#[cold]
fn too_large(bytes: usize) -> ResourceError {
    ResourceError::Driver(format!("{bytes} bytes are more than any device has").into())
}

impl fmt::Debug for PoolResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolResource")
            .field("ordinal", &self.core.ordinal)
            .field("options", &self.core.options)
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}
