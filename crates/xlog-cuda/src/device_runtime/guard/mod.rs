//! Finds writes outside of blocks, writes after a free, and second frees.
//!
//! Every block has a margin on each side, full of a pattern; a new block is full of one poison
//! (0xA5), a freed one of another (0xDD). A freed block is kept in quarantine for a while before
//! its memory can be used again. What changed that nobody may change is a finding, and names the
//! block.
//!
//! Ordering: whatever is filled or looked at is behind the block's uses, in stream order. The host
//! waits for every look, so a free waits for the work on its block: this is a tool for debugging.
//!
//! Validation: as everywhere, device, then stream, then (address, generation).

mod allocate;
mod books;
mod core;
mod examine;
mod finding;
mod options;
mod quarantine;

use std::{
    fmt,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use self::core::Core;
pub use self::{
    finding::{Finding, FindingKind, FreedBy},
    options::GuardOptions,
};
use super::{
    AllocTag, DeviceBlock, DeviceMemoryResource, PinnedHostResource, PinnedPoolOptions,
    PinnedPoolResource, ResourceError, ResourceResult, StreamId, StreamPool,
    async_cuda::{mismatch_over, next_owner},
    forward::tracked_uses,
    tracker::HoldsBlocks,
};

/// Finds writes outside of blocks, writes after a free, and second frees, and says whose block it
/// was.
///
/// Only what has happened by then is found: at a free, when a block leaves quarantine, at a
/// [`check`](Self::check), and when the guard is dropped. Reads leave no trace. Each of these waits
/// for the work on the block, so a program that frees a block before it lets that work go on hangs
/// here.
///
/// `deallocate` answers [`ResourceError::OutOfBounds`] if a margin was written to; the block is
/// taken into quarantine all the same. `try_deallocate` gives such a block back, still in use.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::host());
/// let streams = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// let driver = AsyncCudaResource::new(device, 0, Arc::clone(&streams));
/// let guard = DebugGuardResource::new(Box::new(driver), streams, GuardOptions::default());
///
/// let block = guard.allocate(1000, StreamId::DEFAULT, AllocTag("example"))?;
/// assert_eq!((block.bytes, guard.bytes_outstanding()), (1000, 1512)); // with its margins
/// guard.deallocate(block)?;
/// assert_eq!(guard.quarantined(), (1, 1512));
/// guard.check()?;
/// assert!(guard.findings().is_empty());
/// # Ok::<(), ResourceError>(())
/// ```
pub struct DebugGuardResource {
    core: Arc<Core>,
}

impl DebugGuardResource {
    /// A guard over `inner`, for the streams of `streams`. Parts that do not belong together are
    /// refused by every later call.
    #[must_use]
    pub fn new(
        inner: Box<dyn DeviceMemoryResource + Send + Sync>,
        streams: Arc<StreamPool>,
        options: GuardOptions,
    ) -> Self {
        let device = Arc::clone(streams.device());
        let ordinal = inner.device_ordinal();
        let mismatch = mismatch_over(&*inner, &streams);
        let pinned = PinnedHostResource::new(Arc::clone(&device));
        let core = Arc::new(Core {
            owner: next_owner(),
            staging: PinnedPoolResource::new(pinned, PinnedPoolOptions::default()),
            device,
            ordinal,
            options,
            mismatch,
            books: Mutex::default(),
            findings: Mutex::default(),
            unseen: Mutex::default(),
            inner,
            pool: streams,
        });
        let holder: Weak<dyn HoldsBlocks> = Arc::downgrade(&core) as Weak<dyn HoldsBlocks>;
        core.tracker().ask_too(holder);
        Self { core }
    }

    /// Everything that was found so far, in that order; each kind once for a block, but for second
    /// frees.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.core.findings.lock().clone()
    }

    /// Looks at the margins of every block, and at every freed one that is still in quarantine. The
    /// first mistake is the answer, also if it was found before; all are looked at.
    ///
    /// Waits for the work on the blocks. Do not call it while a stream is held back.
    pub fn check(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.tracker().run_deferred_frees();
        self.core.check_all()
    }

    /// Blocks in quarantine, and their bytes with their margins.
    #[must_use]
    pub fn quarantined(&self) -> (usize, usize) {
        self.core.books.lock().queued()
    }

    /// Looks at every block in quarantine, and gives it back.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xlog_cuda::{CudaDevice, device_runtime::*};
    ///
    /// let stack = ResourceStack::debugging(Arc::new(CudaDevice::host())).build()?;
    /// let block = stack.runtime.allocate(1000, StreamId::DEFAULT, AllocTag("example"))?;
    /// stack.runtime.deallocate(block)?;
    /// stack.guard.map_or(Ok(()), |guard| guard.empty_quarantine())?;
    /// stack.runtime.reap_pending()?;
    /// assert_eq!(stack.runtime.bytes_outstanding(), 0);
    /// # Ok::<(), ResourceError>(())
    /// ```
    pub fn empty_quarantine(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.empty_quarantine()
    }

    /// How the guard guards.
    #[must_use]
    pub fn options(&self) -> GuardOptions {
        self.core.options
    }
}

impl DeviceMemoryResource for DebugGuardResource {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        self.core.allocate(bytes, stream, tag)
    }

    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        self.core.free(&block, false)
    }

    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        self.core.free(&block, true).map_err(|error| (block, error))
    }

    fn device_ordinal(&self) -> u32 {
        self.core.ordinal
    }

    /// What the resource below holds: blocks with their margins, those in quarantine included.
    fn bytes_outstanding(&self) -> usize {
        self.core.inner.bytes_outstanding()
    }

    /// Catches up on what failed before; blocks stay in quarantine.
    fn reap_pending(&self) -> ResourceResult<()> {
        let core = &self.core;
        core.check()?;
        core.tracker().run_deferred_frees();
        let (unseen, settled, room) = (core.retry_unseen(), core.settle(), core.make_room());
        core.inner.reap_pending().and(unseen).and(settled).and(room)
    }

    fn try_reap(&self) -> ResourceResult<()> {
        self.core.check()?;
        self.core.tracker().run_deferred_frees();
        self.core.inner.try_reap()
    }

    tracked_uses!();
}

impl fmt::Debug for DebugGuardResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DebugGuardResource")
            .field("ordinal", &self.core.ordinal)
            .field("options", &self.core.options)
            .field("quarantined", &self.quarantined())
            .field("findings", &self.core.findings.lock().len())
            .finish_non_exhaustive()
    }
}
