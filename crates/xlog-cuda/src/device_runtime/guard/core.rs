//! The parts of a guard, and how a block is freed.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    books::{Books, Guarded},
    finding::{Finding, FindingKind, FreedBy},
    options::GuardOptions,
};
use crate::{
    CudaDevice,
    device_runtime::{
        BlockId, DeviceBlock, DeviceMemoryResource, PinnedPoolResource, ResourceError,
        ResourceResult, StreamPool, UseTracker, async_cuda::never_reused, tracker::Lane,
    },
};

pub(super) struct Core {
    pub(super) owner: u64,
    pub(super) device: Arc<CudaDevice>,
    pub(super) ordinal: u32,
    pub(super) options: GuardOptions,
    pub(super) mismatch: Option<String>,
    /// Locked over no driver call. Whoever locks it may hold a block's state already; nobody locks
    /// a state while holding this.
    pub(super) books: Mutex<Books>,
    pub(super) findings: Mutex<Vec<Finding>>,
    /// Blocks of the resource below that nobody has seen and that could not be given back.
    pub(super) unseen: Mutex<Vec<(DeviceBlock, usize)>>,
    pub(super) staging: PinnedPoolResource,
    pub(super) inner: Box<dyn DeviceMemoryResource + Send + Sync>,
    pub(super) pool: Arc<StreamPool>,
}

impl Core {
    pub(super) fn tracker(&self) -> &UseTracker {
        self.pool.tracker()
    }

    pub(super) fn check(&self) -> ResourceResult<()> {
        self.device.check_alive()?;
        match &self.mismatch {
            None => Ok(()),
            Some(what) => Err(ResourceError::Driver(what.clone().into())),
        }
    }

    pub(super) fn add_finding(&self, finding: Finding) {
        log::error!("{finding:#}");
        self.findings.lock().push(finding);
    }

    /// The lane a block is looked at on: its own, or the default one if its stream is gone, all
    /// its work done.
    pub(super) fn lane_of(&self, block: &Guarded) -> &Lane {
        self.tracker().lane(block.stream).unwrap_or(&self.tracker().lanes()[0])
    }

    /// Checks device, then stream, then (address, generation), looks at the margins, and takes the
    /// block into quarantine. `keep`: if anything is wrong, the block stays the caller's.
    pub(super) fn free(self: &Arc<Self>, block: &DeviceBlock, keep: bool) -> ResourceResult<()> {
        self.check()?;
        let tracker = self.tracker();
        tracker.check_block(block, self.ordinal)?;
        let id = BlockId::from_block(block);
        let found = self.books.lock().find(id);
        let retired = tracker.retire(id, self.owner, || {
            let core = Arc::clone(self);
            Box::new(move || core.free_later(id.ptr))
        });
        let Some(block) = found else { return retired.map(drop) };
        let freed = FreedBy::here(self.options.backtraces);
        let retired = match retired {
            Err(error) => {
                self.report_double_free(&block);
                return Err(error);
            }
            Ok(None) => {
                block.state.lock().freed = Some(freed);
                return Ok(());
            }
            Ok(Some(retired)) => retired,
        };
        if retired.unprotected {
            return Err(self.lose(&block));
        }
        let mut state = block.state.lock();
        let looked = self.examine(&block, &mut state);
        let answer = match looked {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        if keep && let Err(error) = answer {
            tracker.unretire(&retired);
            return Err(error);
        }
        state.freed = Some(freed);
        let poisoned = self.poison(&block, &mut state);
        if keep && let Err(error) = poisoned {
            state.freed = None;
            tracker.unretire(&retired);
            return Err(error);
        }
        drop(state);
        self.books.lock().enqueue(block);
        if let Err(error) = self.make_room() {
            log::warn!("a block could not leave quarantine; the next reap tries again: {error}");
        }
        answer.and(poisoned)
    }

    /// The free of a block that was claimed when it was handed back. Nobody waits here: the block
    /// is looked at by the next check, reap or free.
    fn free_later(&self, ptr: u64) {
        let Some(block) = self.books.lock().at(ptr) else { return };
        if self.tracker().is_unprotected(block.slot) {
            log::error!("{}", self.lose(&block));
        } else {
            self.books.lock().enqueue(block);
        }
    }

    fn report_double_free(&self, block: &Guarded) {
        let freed = block.state.lock().freed.clone();
        self.add_finding(block.finding(FindingKind::DoubleFree, (0, 0), freed));
    }

    /// A block that may never be used again: nobody can tell when its last use is over.
    fn lose(&self, block: &Guarded) -> ResourceError {
        self.books.lock().remove(block);
        self.tracker().count_leaked_block();
        never_reused(block.ptr)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Err(error) = self.check().and_then(|()| self.check_all()) {
            log::warn!("a guard that is dropped found something: {error}");
        }
        let given = self.empty_quarantine().and(self.retry_unseen());
        if let Err(error) = given {
            log::warn!("a guard could not give everything back: {error}");
        }
        let left = self.books.lock().all().len();
        if left > 0 {
            log::warn!("a guard is gone while it has {left} blocks; they are leaked");
        }
    }
}
