//! Blocks whose addresses are multiples of more than the driver promises.
//!
//! A block is cut from a slightly larger one of the resource below, at the first address that fits.
//! The part has an identity of its own in the tracker, as a pool's blocks have, so its uses are
//! recorded there, and the block below goes back behind all of them, in stream order.
//!
//! Validation: as everywhere, device, then stream, then (address, generation), before anything
//! changes. Locks: the books', over no driver call and no call of the resource below.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{
    AllocTag, BlockId, BlockState, DeviceBlock, DeviceMemoryResource, ResourceError,
    ResourceResult, StreamId, StreamPool, UseTracker,
    async_cuda::{ALIGNMENT, mismatch_over, never_reused, next_owner, zero_bytes},
    backing::{Backing, Source, Uses},
    forward::tracked_uses,
    tracker::{HoldsBlocks, Retired, Tenant, unknown_stream},
};
use crate::CudaDevice;

/// The largest alignment: a thousand times what any copy engine or page table asks for.
const LARGEST: usize = 1 << 30;

/// Hands out blocks at addresses that are multiples of an alignment.
///
/// Every resource aligns its blocks to 256 bytes; this is for what needs more, such as direct
/// storage (4 KiB) or huge pages (2 MiB). Requests of fewer bytes than the threshold are not worth
/// it, and stay at 256. Two alignments are two adaptors over one shared resource.
///
/// To find such an address, up to one alignment more is taken from the resource below:
/// [`bytes_outstanding`](DeviceMemoryResource::bytes_outstanding) counts what is really taken, the
/// block's own `bytes` what its caller may use. An adaptor that hands out a part of its blocks
/// belongs below this one, with one exception: over it, a guard whose margin is a multiple of the
/// alignment keeps it.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::host());
/// let streams = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// let driver = AsyncCudaResource::new(device, 0, Arc::clone(&streams));
/// let aligned = AlignedResource::new(Box::new(driver), streams, 4096, 1024)?;
///
/// let page = aligned.allocate(10_000, StreamId::DEFAULT, AllocTag("page"))?;
/// assert_eq!((page.ptr % 4096, page.align, page.bytes), (0, 4096, 10_000));
/// let small = aligned.allocate(100, StreamId::DEFAULT, AllocTag("small"))?;
/// assert_eq!((small.align, aligned.bytes_outstanding()), (256, 10_000 + 4096 - 256 + 100));
/// # aligned.deallocate(page)?;
/// # aligned.deallocate(small)?;
/// # Ok::<(), ResourceError>(())
/// ```
pub struct AlignedResource {
    core: Arc<Core>,
}

struct Core {
    owner: u64,
    device: Arc<CudaDevice>,
    ordinal: u32,
    alignment: usize,
    threshold: usize,
    mismatch: Option<String>,
    books: Mutex<Books>,
    inner: Box<dyn DeviceMemoryResource + Send + Sync>,
    pool: Arc<StreamPool>,
}

#[derive(Default)]
struct Books {
    /// Every block by its address, those included whose free failed.
    blocks: FxHashMap<u64, Cut>,
    /// Addresses of blocks handed back whose free failed; each reap tries again.
    unfreed: Vec<u64>,
    /// What nobody has seen and could not be given back, with the uses it follows; likewise.
    unseen: Vec<(Backing, Uses)>,
}

/// A block, and what it was cut from.
struct Cut {
    backing: Backing,
    slot: u32,
}

impl AlignedResource {
    /// Aligns blocks of `inner` of `threshold` bytes and more to `alignment`, for the streams of
    /// `streams`. An alignment that is not a power of two, or larger than 1 GiB, is an error; parts
    /// that do not belong together are refused by every later call.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use xlog_cuda::{CudaDevice, device_runtime::*};
    /// # let device = Arc::new(CudaDevice::host());
    /// # let streams = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
    /// let plain = DirectCudaResource::new(device, 0);
    /// let refused = AlignedResource::new(Box::new(plain), streams, 1000, 0);
    /// assert!(refused.is_err_and(|error| error.to_string().contains("not a power of two")));
    /// ```
    pub fn new(
        inner: Box<dyn DeviceMemoryResource + Send + Sync>,
        streams: Arc<StreamPool>,
        alignment: usize,
        threshold: usize,
    ) -> ResourceResult<Self> {
        if !alignment.is_power_of_two() || alignment > LARGEST {
            let what = if alignment.is_power_of_two() { "too large" } else { "not a power of two" };
            return Err(format!(
                "an alignment of {alignment} bytes is {what}; pass a power of two up to {LARGEST}"
            )
            .into());
        }
        let core = Arc::new(Core {
            owner: next_owner(),
            device: Arc::clone(streams.device()),
            ordinal: inner.device_ordinal(),
            alignment,
            threshold,
            mismatch: mismatch_over(&*inner, &streams),
            books: Mutex::default(),
            inner,
            pool: streams,
        });
        let holder: Weak<dyn HoldsBlocks> = Arc::downgrade(&core) as Weak<dyn HoldsBlocks>;
        core.tracker().ask_too(holder);
        Ok(Self { core })
    }

    /// What addresses are multiples of.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.core.alignment
    }

    /// The fewest bytes that are aligned.
    #[must_use]
    pub fn threshold(&self) -> usize {
        self.core.threshold
    }
}

impl Core {
    fn tracker(&self) -> &UseTracker {
        self.pool.tracker()
    }

    fn source(&self) -> Source<'_> {
        Source { inner: &*self.inner, tracker: self.tracker() }
    }

    fn check(&self) -> ResourceResult<()> {
        self.device.check_alive()?;
        match &self.mismatch {
            None => Ok(()),
            Some(what) => Err(ResourceError::Driver(what.clone().into())),
        }
    }

    /// What a request's address is a multiple of.
    fn alignment_for(&self, bytes: usize) -> usize {
        if bytes >= self.threshold { self.alignment.max(ALIGNMENT) } else { ALIGNMENT }
    }

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
        let tracker = self.tracker();
        let lane = tracker.enter(stream)?;
        let align = self.alignment_for(bytes);
        // Addresses below are multiples of 256, so the first that fits is no further than this.
        let padding = align - ALIGNMENT;
        let whole = bytes
            .checked_add(padding)
            .ok_or_else(|| format!("{bytes} bytes and {padding} to align them are too many"))?;
        let (backing, uses) = self.source().take(whole, lane, tag)?;
        let below = &backing.block;
        let granted = below.bytes.saturating_sub(padding);
        let ptr = below.ptr.checked_next_multiple_of(align as u64).unwrap_or(u64::MAX);
        if granted < bytes || ptr - below.ptr > padding as u64 {
            self.give_back_unseen(backing, uses);
            return Err("the resource below gave less than it was asked for, or an address that \
                        is no multiple of 256; align over one that keeps the contract"
                .into());
        }
        let tenant =
            Tenant { owner: self.owner, home: lane.index(), place: Tenant::AT_ITS_ADDRESS };
        let slot = match tracker.carve((ptr, granted), tenant, &uses) {
            Ok(slot) => slot,
            Err(error) => {
                self.give_back_unseen(backing, uses);
                return Err(error);
            }
        };
        self.books.lock().blocks.insert(ptr, Cut { backing, slot });
        // Counted before this look: a release that missed it is seen by it.
        if lane.stream() != Some(stream) {
            tracker.dissolve(slot);
            if let Some(cut) = self.books.lock().blocks.remove(&ptr) {
                self.give_back_unseen(cut.backing, uses);
            }
            return Err(unknown_stream(stream));
        }
        Ok(DeviceBlock {
            ptr,
            device_ordinal: self.ordinal,
            alloc_stream: stream,
            bytes: granted,
            align,
            tag,
            generation: tracker.renew(slot, lane),
            state: BlockState::Live,
        })
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

    /// Gives what a retired block was cut from back, behind all its uses. If that fails, the block
    /// stays in the books.
    fn free(&self, retired: &Retired) -> ResourceResult<()> {
        if retired.unprotected {
            return Err(never_reused(retired.ptr));
        }
        let tracker = self.tracker();
        // Out of the books before anybody else can get the address, which may be the same as that
        // of what it was cut from.
        let Some(Cut { backing, slot }) = self.books.lock().blocks.remove(&retired.ptr) else {
            return Ok(());
        };
        tracker.detach(retired);
        if let Err(kept) = self.source().give_back(backing, retired.uses()) {
            let (backing, error) = *kept;
            tracker.attach(retired);
            self.books.lock().blocks.insert(retired.ptr, Cut { backing, slot });
            return Err(error);
        }
        tracker.unregister(retired);
        Ok(())
    }

    /// Frees a block that nobody owns any more; if that fails, the next reap tries again.
    fn free_or_keep(&self, retired: &Retired) -> ResourceResult<()> {
        self.free(retired).inspect_err(|_| {
            if retired.unprotected {
                self.tracker().count_leaked_block();
            } else {
                self.books.lock().unfreed.push(retired.ptr);
            }
        })
    }

    /// The free of a block that was claimed when it was handed back.
    fn free_later(&self, ptr: u64) {
        if let Some(retired) = self.tracker().retired(ptr)
            && let Err(error) = self.free_or_keep(&retired)
        {
            log::warn!("freeing the block at {ptr:#x}: {error}");
        }
    }

    fn give_back_unseen(&self, backing: Backing, uses: Uses) {
        if let Err(kept) = self.source().give_back(backing, &uses) {
            let (backing, error) = *kept;
            log::warn!("a block that was not handed out waits for the next reap: {error}");
            self.books.lock().unseen.push((backing, uses));
        }
    }

    /// Tries again what could not be given back; what fails again stays.
    fn retry(&self) -> ResourceResult<()> {
        let mut answer = Ok(());
        let (unfreed, unseen) = {
            let mut books = self.books.lock();
            (std::mem::take(&mut books.unfreed), std::mem::take(&mut books.unseen))
        };
        for ptr in unfreed {
            if let Some(retired) = self.tracker().retired(ptr) {
                answer = answer.and(self.free_or_keep(&retired));
            }
        }
        for (backing, uses) in unseen {
            if let Err(kept) = self.source().give_back(backing, &uses) {
                let (backing, error) = *kept;
                self.books.lock().unseen.push((backing, uses));
                answer = answer.and(Err(error));
            }
        }
        answer
    }
}

impl HoldsBlocks for Core {
    fn blocks_on(&self, index: usize) -> usize {
        let books = self.books.lock();
        // A block that is set aside itself has another home by now.
        let home = |slot| self.tracker().tenant_of(slot).map(|tenant| tenant.home);
        let is_ours = |cut: &&Cut| !cut.backing.is_counted_below() && home(cut.slot) == Some(index);
        books.blocks.values().filter(is_ours).count()
    }
}

impl DeviceMemoryResource for AlignedResource {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        self.core.allocate(bytes, stream, tag)
    }

    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        match self.core.retire(&block)? {
            Some(retired) => self.core.free_or_keep(&retired),
            None => Ok(()),
        }
    }

    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        let retired = match self.core.retire(&block) {
            Err(error) => return Err((block, error)),
            Ok(None) => return Ok(()),
            Ok(Some(retired)) => retired,
        };
        self.core.free(&retired).map_err(|error| {
            self.core.tracker().unretire(&retired);
            (block, error)
        })
    }

    fn device_ordinal(&self) -> u32 {
        self.core.ordinal
    }

    /// What the resource below holds, what was taken to align the blocks included.
    fn bytes_outstanding(&self) -> usize {
        self.core.inner.bytes_outstanding()
    }

    fn reap_pending(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.tracker().run_deferred_frees();
        let retried = self.core.retry();
        self.core.inner.reap_pending().and(retried)
    }

    fn try_reap(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.tracker().run_deferred_frees();
        let retried = self.core.retry();
        self.core.inner.try_reap().and(retried)
    }

    tracked_uses!();
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Err(error) = self.retry() {
            log::warn!("an aligned resource could not give everything back: {error}");
        }
        let left = self.books.lock().blocks.len();
        if left > 0 {
            log::warn!("an aligned resource is gone while it has {left} blocks; they are leaked");
        }
    }
}

impl fmt::Debug for AlignedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedResource")
            .field("ordinal", &self.core.ordinal)
            .field("alignment", &self.core.alignment)
            .field("threshold", &self.core.threshold)
            .field("blocks", &self.core.books.lock().blocks.len())
            .finish_non_exhaustive()
    }
}
