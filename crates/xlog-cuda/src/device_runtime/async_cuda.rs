//! Stream-ordered memory with use tracking.
//!
//! The driver hands out memory in the order of a stream; this resource keeps the order of
//! everything else. A block is born at a point of its stream (rule 3), its uses are recorded in
//! the pool's tracker, and its free goes to a stream that follows all of them (rule 5).
//!
//! Freed bytes stay counted as pending until a reap has seen their stream pass them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    AllocTag, BlockId, BlockState, DeviceBlock, DeviceMemoryResource, ResourceError,
    ResourceResult, StreamId, StreamPool, UseTracker,
    accounts::{Accounts, Freed},
    forward::tracked_uses,
    tracker::{HeldEvent, Retired, unknown_stream},
};
use crate::{
    CudaDevice,
    mutant::{self, Mutant},
    sync::{Mutex, Step, leaves_out},
};

/// Alignment of every block, as the driver promises it.
pub(super) const ALIGNMENT: usize = 256;

/// A number that no other resource has.
pub(super) fn next_owner() -> u64 {
    static OWNERS: AtomicU64 = AtomicU64::new(1);
    OWNERS.fetch_add(1, Ordering::Relaxed)
}

/// The driver's stream-ordered allocator, with every use of every block tracked.
pub struct AsyncCudaResource {
    core: Arc<Core>,
}

struct Core {
    /// Tells this resource's blocks from those of another one over the same pool.
    owner: u64,
    device: Arc<CudaDevice>,
    ordinal: u32,
    /// For each lane, an event behind frees that were pending when `try_reap` last looked. Stands
    /// before the pool to be dropped before it.
    probes: Mutex<Vec<(usize, Freed, HeldEvent)>>,
    pool: Arc<StreamPool>,
    /// Why nothing works: the parts do not belong together.
    mismatch: Option<String>,
    accounts: Mutex<Accounts>,
    /// Blocks handed back whose free failed; each reap tries again.
    unfreed: Mutex<Vec<u64>>,
}

impl AsyncCudaResource {
    /// The allocator of `device`, which goes by `ordinal`, for the streams of `stream_pool`. Parts
    /// that do not belong together are refused by every later call.
    #[must_use]
    pub fn new(device: Arc<CudaDevice>, ordinal: u32, stream_pool: Arc<StreamPool>) -> Self {
        let mismatch = mismatch(&device, ordinal, &stream_pool);
        let lanes = stream_pool.tracker().lanes().len();
        Self {
            core: Arc::new(Core {
                owner: next_owner(),
                device,
                ordinal,
                pool: stream_pool,
                mismatch,
                accounts: Mutex::new(Accounts::new(lanes)),
                unfreed: Mutex::default(),
                probes: Mutex::default(),
            }),
        }
    }

    /// Bytes in blocks that are in use.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.core.accounts.lock().live()
    }

    /// Bytes freed and not yet reaped.
    #[must_use]
    pub fn pending_free_bytes(&self) -> usize {
        self.core.accounts.lock().pending()
    }

    /// The same, added up stream by stream.
    #[must_use]
    pub fn pending_per_stream_total(&self) -> usize {
        self.core.accounts.lock().pending_by_lane()
    }

    /// Outstanding dependencies of the live block at `ptr`: 1 for its last write or its
    /// allocation, plus 1 for each stream that has read it since. `None` if none lives there.
    #[must_use]
    pub fn pending_use_event_count(&self, ptr: u64) -> Option<usize> {
        self.core.tracker().dependency_count(ptr)
    }

    /// The device the memory is on.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.core.device
    }

    /// The streams memory is ordered by.
    #[must_use]
    pub fn stream_pool(&self) -> &Arc<StreamPool> {
        &self.core.pool
    }
}

/// What does not belong together, if anything.
pub(super) fn mismatch(device: &CudaDevice, ordinal: u32, pool: &StreamPool) -> Option<String> {
    if device.identity() != pool.device().identity() {
        return Some("the stream pool belongs to another device; make both from one".into());
    }
    (!device.accepts_ordinal(ordinal)).then(|| {
        format!(
            "the device is number {}, the ordinal given is {ordinal}; pass the device's own",
            device.info().ordinal
        )
    })
}

/// The same for a resource over another one.
pub(super) fn mismatch_over(
    inner: &(dyn DeviceMemoryResource + Send + Sync),
    pool: &StreamPool,
) -> Option<String> {
    let elsewhere = |theirs: &UseTracker| !std::ptr::eq(theirs, &**pool.tracker());
    mismatch(pool.device(), inner.device_ordinal(), pool).or_else(|| {
        inner
            .direct_tracker()
            .is_some_and(elsewhere)
            .then(|| "the resource works on another stream pool; share one".into())
    })
}

/// The answer to a free of memory that nobody can tell the last use of.
pub(super) fn never_reused(ptr: u64) -> ResourceError {
    ResourceError::Driver(
        format!(
            "the block at {ptr:#x} had a use that could be neither recorded nor waited for; it is \
             never reused"
        )
        .into(),
    )
}

impl Core {
    fn tracker(&self) -> &UseTracker {
        self.pool.tracker()
    }

    fn check(&self) -> ResourceResult<()> {
        self.device.check_alive()?;
        match &self.mismatch {
            None => Ok(()),
            Some(what) => Err(ResourceError::Driver(what.clone().into())),
        }
    }

    /// Checks device, then stream, then (address, generation), and takes the block out of use.
    /// `None` if the free waits for a launch to commit.
    fn retire(self: &Arc<Self>, block: &DeviceBlock) -> ResourceResult<Option<Retired>> {
        self.check()?;
        self.tracker().check_block(block, self.ordinal)?;
        let ptr = block.ptr;
        self.tracker().retire(BlockId::from_block(block), self.owner, || {
            let core = Arc::clone(self);
            Box::new(move || core.free_later(ptr))
        })
    }

    /// Hands a retired block to the driver, behind all its uses.
    fn free(&self, retired: &Retired) -> ResourceResult<()> {
        if retired.unprotected {
            return Err(never_reused(retired.ptr));
        }
        let tracker = self.tracker();
        let mut lane = tracker.follow_all(retired)?;
        lane.hold_block();
        // The hold comes before the second look: a release that missed it is seen by it, and the
        // block's own stream cannot be released while the block lives.
        if lane.stream().is_none() {
            lane.drop_blocks(1);
            lane = tracker.follow_at_home(retired)?;
            lane.hold_block();
        }
        let raw = tracker.uncaptured_raw(lane).inspect_err(|_| lane.drop_blocks(1))?;
        tracker.detach(retired);
        // SAFETY: the block is out of use, and its lane follows every use of it.
        let freed = self.device.note(unsafe { self.device.driver().free_on(retired.ptr, raw) });
        if let Err(error) = freed {
            tracker.attach(retired);
            lane.drop_blocks(1);
            return Err(error);
        }
        tracker.lanes()[retired.home].drop_blocks(1);
        self.accounts.lock().freed(retired.bytes, lane.index());
        tracker.unregister(retired);
        Ok(())
    }

    /// The free of a block that was claimed when it was handed back.
    fn free_later(&self, ptr: u64) {
        if let Some(retired) = self.tracker().retired(ptr)
            && let Err(error) = self.check().and_then(|()| self.free(&retired))
        {
            self.keep_for_reap(&retired, &error);
        }
    }

    /// Remembers a block whose free failed; one that may never be reused is only counted.
    fn keep_for_reap(&self, retired: &Retired, error: &ResourceError) {
        if mutant::is(Mutant::FreeForgotten) {
            self.accounts.lock().freed(retired.bytes, retired.home);
        } else if retired.unprotected {
            self.tracker().count_leaked_block();
            log::error!("block leaked: {error}");
        } else {
            self.unfreed.lock().push(retired.ptr);
        }
    }

    /// Tries the frees that failed again; those that fail again stay.
    fn retry_unfreed(&self) -> ResourceResult<()> {
        let unfreed = std::mem::take(&mut *self.unfreed.lock());
        let mut answer = Ok(());
        for ptr in unfreed {
            let Some(retired) = self.tracker().retired(ptr) else {
                continue;
            };
            if let Err(error) = self.free(&retired) {
                self.keep_for_reap(&retired, &error);
                answer = answer.and(Err(error));
            }
        }
        answer
    }

    fn settle(&self, lane: usize, seen: Freed) {
        let mut accounts = self.accounts.lock();
        let seen = if leaves_out(Step::SeenBefore) { accounts.freed_on(lane) } else { seen };
        let blocks = accounts.reaped(lane, seen);
        drop(accounts);
        self.tracker().lanes()[lane].drop_blocks(blocks);
    }

    fn take_probe(&self, lane: usize) -> Option<(usize, Freed, HeldEvent)> {
        let mut probes = self.probes.lock();
        let index = probes.iter().position(|(probed, ..)| *probed == lane)?;
        Some(probes.swap_remove(index))
    }

    fn try_reap_lane(&self, lane: usize, seen: Freed) -> ResourceResult<()> {
        let tracker = self.tracker();
        let Some(raw) = tracker.lanes()[lane].created_raw() else {
            return Ok(());
        };
        tracker.check_capture(&tracker.lanes()[lane])?;
        let (driver, tail) = (self.device.driver(), tracker.lanes()[lane].tail());
        // SAFETY: the stream lives as long as the tracker. `seen` and `tail` were read before the
        // question.
        let progress = self.device.note(unsafe { driver.stream_progress(raw) })?;
        let probe = self.take_probe(lane);
        if progress == xlog_driver::StreamProgress::Idle {
            tracker.lanes()[lane].learn_tail(&tail);
            self.settle(lane, seen);
            return Ok(());
        }
        let probe = match probe {
            Some(probe) => probe,
            // Behind every free of `seen`, and the earliest such point there can be by now.
            None => {
                let event = tracker.lanes()[lane].record_and_hold(&self.device, |_| ())?;
                (lane, seen, event)
            }
        };
        if tracker.is_event_done(&probe.2)? {
            self.settle(lane, probe.1);
        } else {
            self.probes.lock().push(probe);
        }
        Ok(())
    }
}

impl DeviceMemoryResource for AsyncCudaResource {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        let core = &self.core;
        core.check()?;
        if bytes == 0 {
            return Err(zero_bytes());
        }
        let (tracker, device) = (core.tracker(), &core.device);
        let lane = tracker.enter(stream)?;
        // The hold comes before the second look: a release that missed it is seen by it.
        lane.hold_block();
        let allocated = (|| {
            if lane.stream() != Some(stream) {
                return Err(unknown_stream(stream));
            }
            let raw = lane.raw(device)?;
            // SAFETY: the stream lives as long as the tracker.
            let ptr = device.note(unsafe { device.driver().allocate_on(bytes, raw) })?;
            let mut birth = None;
            let marked = tracker.mark(lane, |point, _| birth = Some(point));
            let registered = marked.and_then(|()| {
                let birth = birth.ok_or("an allocation without a point in its stream")?;
                tracker.register(ptr, bytes, core.owner, lane, birth)
            });
            registered.map(|generation| (ptr, generation)).inspect_err(|_| {
                // SAFETY: nobody has seen the memory yet.
                let freed = device.note(unsafe { device.driver().free_on(ptr, raw) });
                if let Err(error) = freed {
                    log::error!("{bytes} bytes leaked at {ptr:#x}: {error}");
                }
            })
        })();
        let (ptr, generation) = allocated.inspect_err(|_| lane.drop_blocks(1))?;
        core.accounts.lock().allocated(bytes);
        Ok(DeviceBlock {
            ptr,
            device_ordinal: core.ordinal,
            alloc_stream: stream,
            bytes,
            align: ALIGNMENT,
            tag,
            generation,
            state: BlockState::Live,
        })
    }

    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        let Some(retired) = self.core.retire(&block)? else {
            return Ok(());
        };
        self.core.free(&retired).inspect_err(|error| self.core.keep_for_reap(&retired, error))
    }

    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        match self.core.retire(&block) {
            Err(error) => Err((block, error)),
            Ok(None) => Ok(()),
            Ok(Some(retired)) => self.core.free(&retired).map_err(|error| {
                self.core.tracker().unretire(&retired);
                (block, error)
            }),
        }
    }

    fn device_ordinal(&self) -> u32 {
        self.core.ordinal
    }

    fn bytes_outstanding(&self) -> usize {
        let accounts = self.core.accounts.lock();
        accounts.live() + accounts.pending()
    }

    fn reap_pending(&self) -> ResourceResult<()> {
        let core = &self.core;
        core.check()?;
        core.tracker().run_deferred_frees();
        let retried = core.retry_unfreed();
        let pending = core.accounts.lock().lanes_with_pending();
        for (lane, seen) in pending {
            // Of no more use: it stands for frees that are settled here. Its event can rest.
            drop(core.take_probe(lane));
            core.tracker().synchronize(&core.tracker().lanes()[lane])?;
            core.settle(lane, seen);
        }
        retried
    }

    fn try_reap(&self) -> ResourceResult<()> {
        let core = &self.core;
        core.check()?;
        core.tracker().run_deferred_frees();
        let retried = core.retry_unfreed();
        let pending = core.accounts.lock().lanes_with_pending();
        for (lane, seen) in pending {
            core.try_reap_lane(lane, seen)?;
        }
        retried
    }

    tracked_uses!();
}

impl fmt::Debug for AsyncCudaResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncCudaResource")
            .field("ordinal", &self.core.ordinal)
            .field("accounts", &*self.core.accounts.lock())
            .finish_non_exhaustive()
    }
}

pub(super) fn zero_bytes() -> ResourceError {
    "an allocation of zero bytes was asked for; an empty column needs no memory".into()
}
