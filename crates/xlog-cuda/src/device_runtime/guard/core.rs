//! The life of a guarded block: allocated, freed, in quarantine, given back.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    books::{Books, CANARY, Guarded, NEW, State},
    finding::{Finding, FindingKind, FreedBy},
    options::{GRAIN, GuardOptions},
};
use crate::{
    CudaDevice,
    device_runtime::{
        AllocTag, BlockId, BlockState, DeviceBlock, DeviceMemoryResource, ResourceError,
        ResourceResult, StreamId, StreamPool, UseTracker,
        async_cuda::zero_bytes,
        tracker::{HoldsBlocks, Lane, Tenant, foreign_device, unknown_stream},
    },
    memory::StagingPool,
};

pub(super) struct Core {
    pub(super) owner: u64,
    pub(super) device: Arc<CudaDevice>,
    pub(super) ordinal: u32,
    pub(super) options: GuardOptions,
    pub(super) mismatch: Option<String>,
    /// Locked over no driver call. A block's state may be locked when this is, never the other way.
    pub(super) books: Mutex<Books>,
    pub(super) findings: Mutex<Vec<Finding>>,
    /// Blocks of the resource below that nobody has seen and that could not be given back.
    pub(super) unseen: Mutex<Vec<(DeviceBlock, usize)>>,
    pub(super) staging: StagingPool,
    pub(super) inner: Box<dyn DeviceMemoryResource + Send + Sync>,
    pub(super) pool: Arc<StreamPool>,
}

impl Core {
    pub(super) fn tracker(&self) -> &UseTracker {
        self.pool.tracker()
    }

    pub(super) fn check_parts(&self) -> ResourceResult<()> {
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

    pub(super) fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        self.check_parts()?;
        if bytes == 0 {
            return Err(zero_bytes());
        }
        let lane = self.tracker().enter(stream)?;
        let margin = self.options.rounded_margin();
        let sizes = margin.and_then(|margin| {
            Some((margin, margin.checked_mul(2).and_then(|both| bytes.checked_add(both))?))
        });
        let (margin, whole) =
            sizes.ok_or_else(|| format!("{bytes} bytes and their margins are too many"))?;
        let below = self.allocate_below(whole, stream, tag)?;
        match self.guard(&below, (margin, bytes), lane) {
            Ok((slot, generation)) => {
                let after = below.bytes - margin - bytes;
                self.enter_block(below, (slot, generation), (margin, bytes, after), lane, stream)
            }
            Err(error) => {
                self.give_back_unseen(below, lane.index());
                Err(error)
            }
        }
    }

    /// A block of the resource below; if there is no memory, the quarantine is emptied for it.
    fn allocate_below(
        &self,
        whole: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        let refused = match self.inner.allocate(whole, stream, tag) {
            Err(error) if error.is_out_of_memory() && self.books.lock().queued().0 > 0 => error,
            answer => return answer,
        };
        self.empty_quarantine().and_then(|()| self.inner.reap_pending()).map_err(|error| {
            log::warn!("emptying a quarantine for {whole} bytes: {error}");
            refused
        })?;
        self.inner.allocate(whole, stream, tag)
    }

    /// Fills a block, and gives its middle an identity of its own, born behind that.
    fn guard(
        &self,
        below: &DeviceBlock,
        (margin, bytes): (usize, usize),
        lane: &Lane,
    ) -> ResourceResult<(u32, crate::device_runtime::Generation)> {
        let tracker = self.tracker();
        let after = below
            .bytes
            .checked_sub(margin + bytes)
            .ok_or("the resource below gave less than it was asked for")?;
        let (ptr, end) = (below.ptr + margin as u64, (margin + bytes) as u64);
        self.fill((below.ptr, margin), CANARY, lane)?;
        self.fill((below.ptr + end, after), CANARY, lane)?;
        self.fill((ptr, bytes), NEW, lane)?;
        let mut birth = None;
        tracker.mark(lane, |point, _| birth = Some(point))?;
        let birth = birth.ok_or("an allocation without a point in its stream")?;
        let tenant = Tenant { owner: self.owner, home: lane.index(), place: 0 };
        let slot = tracker.carve((ptr, bytes), tenant, &[birth])?;
        Ok((slot, tracker.renew(slot, lane)))
    }

    fn enter_block(
        &self,
        below: DeviceBlock,
        (slot, generation): (u32, crate::device_runtime::Generation),
        (before, bytes, after): (usize, usize, usize),
        lane: &Lane,
        stream: StreamId,
    ) -> ResourceResult<DeviceBlock> {
        let (ptr, tag) = (below.ptr + before as u64, below.tag);
        let (freed, poisoned, reported) = (None, false, Vec::new());
        let state = State { below: Some(below), freed, poisoned, reported };
        let block = {
            let mut books = self.books.lock();
            let block = Arc::new(Guarded {
                ptr,
                bytes,
                tag,
                generation,
                stream,
                sequence: books.next_sequence(),
                home: lane.index(),
                slot,
                margins: (before, after),
                state: Mutex::new(state),
            });
            books.add(Arc::clone(&block));
            block
        };
        // Counted before this look: a release that missed it is seen by it.
        if lane.stream() != Some(stream) {
            self.books.lock().remove(&block);
            self.tracker().dissolve(slot);
            if let Some(below) = block.state.lock().below.take() {
                self.give_back_unseen(below, lane.index());
            }
            return Err(unknown_stream(stream));
        }
        Ok(DeviceBlock {
            ptr,
            device_ordinal: self.ordinal,
            alloc_stream: stream,
            bytes,
            align: GRAIN,
            tag,
            generation,
            state: BlockState::Live,
        })
    }

    /// Gives a block back that nobody has seen, behind what its lane does; if that fails, the next
    /// reap tries again.
    fn give_back_unseen(&self, below: DeviceBlock, lane: usize) {
        if let Err(error) = self.try_give_back_unseen(below, lane) {
            log::warn!("a block that was not handed out waits for the next reap: {error}");
        }
    }

    fn try_give_back_unseen(&self, below: DeviceBlock, lane: usize) -> ResourceResult<()> {
        let (below, error) = match self.tracker().synchronize(&self.tracker().lanes()[lane]) {
            Err(error) => (below, error),
            Ok(()) => match self.inner.try_deallocate(below) {
                Ok(()) => return Ok(()),
                Err(kept) => kept,
            },
        };
        self.unseen.lock().push((below, lane));
        Err(error)
    }

    /// Tries those again that could not be given back.
    pub(super) fn retry_unseen(&self) -> ResourceResult<()> {
        let unseen = std::mem::take(&mut *self.unseen.lock());
        let mut answer = Ok(());
        for (below, lane) in unseen {
            answer = answer.and(self.try_give_back_unseen(below, lane));
        }
        answer
    }

    /// Checks device, then stream, then (address, generation), looks at the margins, and takes the
    /// block into quarantine. `keep`: if anything is wrong, the block stays the caller's.
    pub(super) fn free(self: &Arc<Self>, block: &DeviceBlock, keep: bool) -> ResourceResult<()> {
        self.check_parts()?;
        if block.device_ordinal != self.ordinal {
            return Err(foreign_device(block.device_ordinal, self.ordinal));
        }
        let tracker = self.tracker();
        if tracker.lane(block.alloc_stream).is_none() {
            return Err(unknown_stream(block.alloc_stream));
        }
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
        ResourceError::Driver(
            format!(
                "the block at {:#x} had a use that could be neither recorded nor waited for; it is \
                 never reused",
                block.ptr
            )
            .into(),
        )
    }

    /// Looks at the blocks that came into quarantine without a look, and poisons them. A block
    /// whose free waits for a launch is not there yet.
    pub(super) fn settle(&self) -> ResourceResult<()> {
        let (queue, mut answer) = (self.books.lock().queue(), Ok(()));
        for block in queue {
            let mut state = block.state.lock();
            if state.below.is_some() && !state.poisoned {
                let looked = self.examine(&block, &mut state).map(drop);
                answer = answer.and(looked).and(self.poison(&block, &mut state));
            }
        }
        answer
    }

    /// Lets the oldest blocks leave quarantine while there are too many.
    pub(super) fn make_room(&self) -> ResourceResult<()> {
        loop {
            let Some(block) = self.books.lock().pop_over(&self.options) else { return Ok(()) };
            self.let_go(&block).inspect_err(|_| self.books.lock().put_back(block))?;
        }
    }

    pub(super) fn empty_quarantine(&self) -> ResourceResult<()> {
        self.let_go_all(|_| true).map(drop)
    }

    /// Lets every block leave quarantine that is asked for. Answers how many did.
    fn let_go_all(&self, wanted: impl Fn(&Guarded) -> bool) -> ResourceResult<usize> {
        let (blocks, mut gone, mut answer) =
            (self.books.lock().take(wanted, usize::MAX), 0, Ok(()));
        for block in blocks.into_iter().rev() {
            match self.let_go(&block) {
                Ok(()) => gone += 1,
                Err(error) => {
                    self.books.lock().put_back(block);
                    answer = answer.and(Err(error));
                }
            }
        }
        answer.map(|()| gone)
    }

    /// Looks at a block for the last time, and gives it back. Everything that ever used it is over
    /// then, so the resource below has nothing to wait for.
    fn let_go(&self, block: &Arc<Guarded>) -> ResourceResult<()> {
        let mut state = block.state.lock();
        self.check_parts()?;
        self.examine(block, &mut state)?;
        let tracker = self.tracker();
        let Some(below) = state.below.take() else { return Ok(()) };
        let retired = tracker.retired(block.ptr);
        // The address is out of the books before anybody else can get it.
        self.books.lock().remove(block);
        if let Some(retired) = &retired {
            tracker.detach(retired);
        }
        if let Err((below, error)) = self.inner.try_deallocate(below) {
            if let Some(retired) = &retired {
                tracker.attach(retired);
            }
            self.books.lock().add(Arc::clone(block));
            state.below = Some(below);
            return Err(error);
        }
        if let Some(retired) = &retired {
            tracker.unregister(retired);
        }
        Ok(())
    }

    /// Looks at every block; the first error is the answer.
    pub(super) fn check_all(&self) -> ResourceResult<()> {
        let all = self.books.lock().all();
        let mut answer = Ok(());
        for block in all {
            let mut state = block.state.lock();
            if state.below.is_none() {
                continue;
            }
            let looked = match self.examine(&block, &mut state) {
                Ok(None) => Ok(()),
                Ok(Some(error)) | Err(error) => Err(error),
            };
            answer = answer.and(looked);
        }
        answer.and(self.settle())
    }
}

impl HoldsBlocks for Core {
    fn blocks_on(&self, index: usize) -> usize {
        // A resource that knows of streams counts its own blocks.
        if self.inner.supports_block_use_tracking() { 0 } else { self.books.lock().homed_on(index) }
    }

    fn make_way(&self, index: usize) {
        let gone = self.let_go_all(|block| block.home == index);
        let reaped =
            gone.and_then(|gone| if gone > 0 { self.inner.reap_pending() } else { Ok(()) });
        if let Err(error) = reaped {
            log::warn!("blocks in quarantine keep their stream: {error}");
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Err(error) = self.check_parts().and_then(|()| self.check_all()) {
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
