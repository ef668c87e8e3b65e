//! How a pool grows and shrinks: slabs of the resource below it.

use super::{
    Core,
    arena::{Chunk, Take},
    class::Class,
    options::round,
};
use crate::{
    device_runtime::{AllocTag, ResourceError, ResourceResult, backing::Source, tracker::Lane},
    sync::atomic::Ordering,
};

impl Core {
    /// Takes another slab from the resource below, and a block from it.
    #[cold]
    pub(super) fn grow(&self, class: Class, lane: &Lane) -> ResourceResult<Chunk> {
        let needed = class.bytes();
        let of_arena = self.arenas[lane.index()].0.lock().fill().slab_bytes;
        let wished = self.options.next_slab(of_arena, needed);
        match self.add_slab(wished, class, lane) {
            // The least that will do, if that is less.
            Err(_) if round(needed) < wished => self.add_slab(round(needed), class, lane),
            answer => answer,
        }
    }

    fn add_slab(&self, bytes: usize, class: Class, lane: &Lane) -> ResourceResult<Chunk> {
        self.reserve(bytes)?;
        let slab = self.source().take(bytes, lane, AllocTag("pool"));
        let (slab, uses) = slab.inspect_err(|_| self.unreserve(bytes))?;
        // What was granted may be more than what was asked for.
        self.reserved.fetch_add(slab.block.bytes - bytes, Ordering::Relaxed);
        let tracker = self.tracker();
        let chunk = {
            let mut arena = self.arenas[lane.index()].0.lock();
            arena.add_slab(slab, uses);
            arena.take(class, Take::Any, tracker, lane)?
        };
        let chunk = chunk.ok_or("a new slab too small for the block it was made for")?;
        if let Err(error) = tracker.follow_slot(chunk.slot, lane) {
            self.arenas[lane.index()].0.lock().push(chunk, lane.index());
            return Err(error);
        }
        Ok(chunk)
    }

    fn source(&self) -> Source<'_> {
        Source { inner: &*self.inner, tracker: self.tracker() }
    }

    /// Counts bytes before they are asked for, so that threads together never pass the maximum.
    fn reserve(&self, bytes: usize) -> ResourceResult<()> {
        let maximum = self.options.maximum.unwrap_or(usize::MAX);
        let add = |reserved: usize| reserved.checked_add(bytes).filter(|sum| *sum <= maximum);
        match self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(reserved) => Err(ResourceError::OutOfBudget {
                requested: bytes,
                remaining: maximum.saturating_sub(reserved),
            }),
        }
    }

    fn unreserve(&self, bytes: usize) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn trim(&self) -> ResourceResult<()> {
        let mut answer = Ok(());
        for cell in &self.arenas {
            let empty = cell.0.lock().take_empty_slabs(self.tracker());
            for (slab, uses) in empty {
                let bytes = slab.block.bytes;
                match self.source().give_back(slab, &uses) {
                    Ok(()) => self.unreserve(bytes),
                    Err(kept) => {
                        let (slab, error) = *kept;
                        cell.0.lock().add_slab(slab, uses);
                        answer = answer.and(Err(error));
                    }
                }
            }
        }
        answer
    }
}
