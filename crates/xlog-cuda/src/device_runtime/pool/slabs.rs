//! How a pool grows and shrinks: slabs of the resource below it.

use std::sync::atomic::Ordering;

use super::{
    Core,
    arena::{Chunk, Slab, Take},
    class::Class,
    options::round,
    ranges::Uses,
};
use crate::device_runtime::{
    AllocTag, BlockId, ResourceError, ResourceResult, StreamId, tracker::Lane,
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
        let slab = self.new_slab(bytes, lane).inspect_err(|_| self.unreserve(bytes))?;
        let (slab, uses) = slab;
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

    /// A slab, and the uses that its memory follows: none but its own allocation.
    fn new_slab(&self, bytes: usize, lane: &Lane) -> ResourceResult<(Slab, Uses)> {
        let stream = lane.stream().ok_or("the stream was released meanwhile")?;
        let tracker = self.tracker();
        let mut block = self.inner.allocate(bytes, stream, AllocTag("pool"))?;
        let aside = tracker.set_aside(BlockId::from_block(&block));
        let uses = match &aside {
            Some(aside) => {
                if aside.rehomed {
                    block.alloc_stream = StreamId::DEFAULT;
                }
                Uses::from_slice(aside.birth.points())
            }
            // Nobody says when the memory is valid but that it is so behind this point.
            None => {
                let mut birth = Uses::new();
                if let Err(error) = tracker.mark(lane, |point, _| birth.push(point)) {
                    if let Err((block, lost)) = self.inner.try_deallocate(block) {
                        log::error!("{} bytes leaked at {:#x}: {lost}", block.bytes, block.ptr);
                    }
                    return Err(error);
                }
                birth
            }
        };
        Ok((Slab { block, aside }, uses))
    }

    pub(super) fn trim(&self) -> ResourceResult<()> {
        let mut answer = Ok(());
        for cell in &self.arenas {
            let empty = cell.0.lock().take_empty_slabs(self.tracker());
            for (slab, uses) in empty {
                let bytes = slab.block.bytes;
                match self.give_back(slab, &uses) {
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

    /// Hands a slab to the resource below, behind `uses`; gives it back if that fails.
    fn give_back(&self, slab: Slab, uses: &Uses) -> Result<(), Box<(Slab, ResourceError)>> {
        let tracker = self.tracker();
        let Slab { block, aside } = slab;
        match &aside {
            Some(aside) => tracker.bring_back(aside, uses),
            None => {
                let lane = tracker.lane(block.alloc_stream);
                let followed = match lane {
                    Some(lane) => tracker.follow_points(uses, lane),
                    None => self.device.synchronize(),
                };
                if let Err(error) = followed {
                    return Err(Box::new((Slab { block, aside }, error)));
                }
            }
        }
        self.inner.try_deallocate(block).map_err(|(block, error)| {
            let aside = aside.and_then(|_| tracker.set_aside(BlockId::from_block(&block)));
            Box::new((Slab { block, aside }, error))
        })
    }
}
