//! How a guarded block comes to be.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    books::{CANARY, Guarded, NEW, State},
    core::Core,
    options::GRAIN,
};
use crate::device_runtime::{
    AllocTag, BlockState, DeviceBlock, Generation, ResourceResult, StreamId,
    async_cuda::zero_bytes,
    tracker::{Lane, Tenant, unknown_stream},
};

impl Core {
    pub(super) fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        self.check()?;
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
    ) -> ResourceResult<(u32, Generation)> {
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
        let (home, place) = (lane.index(), Tenant::AT_ITS_ADDRESS);
        let tenant = Tenant { owner: self.owner, home, place };
        let slot = tracker.carve((ptr, bytes), tenant, &[birth])?;
        Ok((slot, tracker.renew(slot, lane)))
    }

    fn enter_block(
        &self,
        below: DeviceBlock,
        (slot, generation): (u32, Generation),
        (before, bytes, after): (usize, usize, usize),
        lane: &Lane,
        stream: StreamId,
    ) -> ResourceResult<DeviceBlock> {
        let (ptr, tag) = (below.ptr + before as u64, below.tag);
        // As far as the margin is a multiple of what the block below is aligned to.
        let align = below.align.min(1 << before.trailing_zeros()).max(GRAIN);
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
            align,
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
}
