//! The memory that one stream's allocations come from first.
//!
//! Blocks that came back wait in *bins*, one for each size class, last in first out, with their
//! slots: the next request of that class on that stream takes the last one as it is. What is in no
//! bin is in the *ranges*. Bins are emptied into the ranges when the arena would grow otherwise.

use std::collections::BTreeMap;

use super::{
    class::{CLASSES, Class},
    ranges::{Cut, Ranges},
};
use crate::device_runtime::{
    ResourceResult, UseTracker,
    backing::{Backing, Uses},
    tracker::{Lane, Tenant},
};

/// Blocks of a bin that are looked at for one that needs no wait.
const LOOKS: usize = 9;

/// Blocks a bin has room for from the start.
const FIRST_IN_BIN: usize = 32;

/// Blocks that wait in a bin before the device is asked how far it has come.
const MANY: usize = 32;

/// Larger classes whose blocks do as well, a quarter larger at most; small blocks are cheap to cut.
const NEAR: u16 = 4;
const NEAR_FROM: usize = 64 << 10;

/// Small blocks are cut several at once, this much memory at a time.
const RUN: usize = 64 << 10;

/// A free block in a bin: its slot remembers the uses that its memory follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) ptr: u64,
    pub(super) slot: u32,
    pub(super) class: Class,
}

/// A large block of the resource below.
pub(super) type Slab = Backing;

/// What a stack of free memory may hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Memory that needs no wait.
    Ready,
    /// Any memory.
    Any,
}

/// One arena. Its lock is held over no driver call.
#[derive(Debug)]
pub(super) struct Arena {
    index: usize,
    owner: u64,
    bins: Vec<Vec<Chunk>>,
    /// Bytes in bins.
    cached: usize,
    ranges: Ranges,
    slabs: BTreeMap<u64, Slab>,
    slab_bytes: usize,
    live_bytes: usize,
    live_blocks: usize,
    /// Blocks in use, by the lane they were allocated on.
    homed: Box<[u32]>,
    /// Blocks that this lane took from other arenas since it last asked for a slab because of them.
    borrowed: u32,
}

/// Blocks that a lane takes from other arenas before its own grows instead. They go back to where
/// they are from, so whoever keeps on borrowing looks for each anew, and meets others there.
const BORROWS: u32 = 48;

/// How full an arena is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fill {
    pub(super) slabs: usize,
    pub(super) slab_bytes: usize,
    pub(super) live_bytes: usize,
    pub(super) live_blocks: usize,
    pub(super) cached: usize,
    pub(super) ranges: usize,
    pub(super) largest: usize,
}

impl Arena {
    pub(super) fn new(index: usize, owner: u64, lanes: usize) -> Self {
        Self {
            homed: vec![0; lanes].into_boxed_slice(),
            index,
            owner,
            bins: Vec::new(),
            cached: 0,
            ranges: Ranges::default(),
            slabs: BTreeMap::new(),
            slab_bytes: 0,
            live_bytes: 0,
            live_blocks: 0,
            borrowed: 0,
        }
    }

    /// Notes a block from another arena.
    pub(super) fn borrow_one(&mut self) {
        self.borrowed += 1;
    }

    /// Whether it is time for memory of its own; the count begins anew then.
    pub(super) fn has_borrowed_enough(&mut self) -> bool {
        let enough = self.borrowed >= BORROWS;
        if enough {
            self.borrowed = 0;
        }
        enough
    }

    pub(super) fn fill(&self) -> Fill {
        Fill {
            slabs: self.slabs.len(),
            slab_bytes: self.slab_bytes,
            live_bytes: self.live_bytes,
            live_blocks: self.live_blocks,
            cached: self.cached,
            ranges: self.ranges.count(),
            largest: self.ranges.largest(),
        }
    }

    pub(super) fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Blocks in use that were allocated on a lane.
    pub(super) fn homed_on(&self, lane: usize) -> usize {
        self.homed.get(lane).map_or(0, |blocks| *blocks as usize)
    }

    /// The block that came back last, if `lane` can use it as it is. Inlined, so that the answer
    /// stays in registers.
    #[inline(always)]
    pub(super) fn pop_last(
        &mut self,
        class: Class,
        tracker: &UseTracker,
        lane: &Lane,
    ) -> Option<Chunk> {
        let bin = self.bins.get_mut(usize::from(class.0))?;
        let last = *bin.last()?;
        if !tracker.follows_slot(last.slot, lane) {
            return None;
        }
        bin.pop();
        self.count_taken(class, lane.index());
        Some(last)
    }

    /// A block of the bin that `lane` can use as it is, from the last one back.
    fn pop_ready(&mut self, class: Class, tracker: &UseTracker, lane: &Lane) -> Option<Chunk> {
        let bin = self.bins.get_mut(usize::from(class.0))?;
        let ready = |chunk: &Chunk| tracker.follows_slot(chunk.slot, lane);
        let found = bin.iter().rev().take(LOOKS).position(ready);
        // The oldest is the likeliest to be done with.
        let found = match found {
            Some(found) => bin.len() - 1 - found,
            None if bin.first().is_some_and(ready) => 0,
            None => return None,
        };
        let chunk = bin.swap_remove(found);
        self.count_taken(class, lane.index());
        Some(chunk)
    }

    /// The oldest block of a bin in which many wait for uses that are likely to be over by now.
    pub(super) fn oldest_of_many(&self, class: Class) -> Option<u32> {
        let bin = self.bins.get(usize::from(class.0))?;
        (bin.len() >= MANY).then(|| bin[0].slot)
    }

    /// The same, or one that is a little larger: before bins are emptied and ranges cut.
    fn pop_near(&mut self, class: Class, tracker: &UseTracker, lane: &Lane) -> Option<Chunk> {
        let last = if class.bytes() < NEAR_FROM { class.0 } else { class.0 + NEAR };
        (class.0..=last).find_map(|near| self.pop_ready(Class(near), tracker, lane))
    }

    /// The same, whatever it has to wait for.
    fn pop_any(&mut self, class: Class, home: usize) -> Option<Chunk> {
        let chunk = self.bins.get_mut(usize::from(class.0))?.pop()?;
        self.count_taken(class, home);
        Some(chunk)
    }

    #[inline]
    fn count_taken(&mut self, class: Class, home: usize) {
        self.cached -= class.bytes();
        self.live_bytes += class.bytes();
        self.live_blocks += 1;
        self.homed[home] += 1;
    }

    /// Takes a block that was allocated on lane `home` back into its bin.
    #[inline]
    pub(super) fn push(&mut self, chunk: Chunk, home: usize) {
        let bytes = chunk.class.bytes();
        self.live_bytes -= bytes;
        self.live_blocks -= 1;
        self.homed[home] -= 1;
        self.put_into_bin(chunk);
    }

    #[inline]
    fn put_into_bin(&mut self, chunk: Chunk) {
        self.cached += chunk.class.bytes();
        match self.bins.get_mut(usize::from(chunk.class.0)) {
            Some(bin) if bin.len() < bin.capacity() => bin.push(chunk),
            _ => self.push_into_larger(chunk),
        }
    }

    #[cold]
    #[inline(never)]
    fn push_into_larger(&mut self, chunk: Chunk) {
        if self.bins.is_empty() {
            self.bins.resize_with(CLASSES, Vec::new);
        }
        let bin = &mut self.bins[usize::from(chunk.class.0)];
        // Far enough from what another arena's thread writes.
        bin.reserve(FIRST_IN_BIN.max(bin.len()));
        bin.push(chunk);
    }

    /// Makes one larger free block part of the ranges, for a request that finds nothing else.
    fn break_larger(&mut self, class: Class, tracker: &UseTracker, lane: &Lane) -> bool {
        let larger = self.bins.iter().enumerate().skip(usize::from(class.0) + 1);
        let ready = |bin: &Vec<Chunk>| {
            bin.last().is_some_and(|chunk| tracker.follows_slot(chunk.slot, lane))
        };
        let Some((found, _)) = larger.into_iter().find(|(_, bin)| ready(bin)) else {
            return false;
        };
        let Some(chunk) = self.bins[found].pop() else { return false };
        self.cached -= chunk.class.bytes();
        self.dissolve(chunk, tracker);
        true
    }

    /// Makes a free block part of the ranges.
    fn dissolve(&mut self, chunk: Chunk, tracker: &UseTracker) {
        // Memory with a use that nobody can wait for is never used again.
        if tracker.is_unprotected(chunk.slot) {
            return;
        }
        let uses = Uses::from_slice(tracker.dissolve(chunk.slot).points());
        if let Some(slab) = self.slab_of(chunk.ptr) {
            self.ranges.add(chunk.ptr, chunk.class.bytes(), slab, uses);
        }
    }

    /// A block from a bin or from the ranges.
    pub(super) fn take(
        &mut self,
        class: Class,
        take: Take,
        tracker: &UseTracker,
        lane: &Lane,
    ) -> ResourceResult<Option<Chunk>> {
        if let Some(chunk) = self.pop_near(class, tracker, lane) {
            return Ok(Some(chunk));
        }
        let ready = |uses: &[_]| tracker.follows_points(uses, lane);
        let bytes = class.bytes();
        // Several small ones at once, while that is free.
        let run = (RUN / bytes).max(1) * bytes;
        let cut = |ranges: &mut Ranges| {
            let whole = ranges.cut(run, false, ready).map(|cut| (cut, run));
            whole.or_else(|| Some((ranges.cut(bytes, false, ready)?, bytes)))
        };
        let mut found = cut(&mut self.ranges);
        if found.is_none() && self.break_larger(class, tracker, lane) {
            found = cut(&mut self.ranges);
        }
        if let Some((cut, run)) = found {
            return self.carve(class, cut, run, (tracker, lane)).map(Some);
        }
        if take == Take::Ready {
            return Ok(None);
        }
        if let Some(chunk) = self.pop_any(class, lane.index()) {
            return Ok(Some(chunk));
        }
        match self.ranges.cut(bytes, true, ready) {
            Some(cut) => self.carve(class, cut, bytes, (tracker, lane)).map(Some),
            None => Ok(None),
        }
    }

    /// Makes blocks of `run` bytes that were cut: the first is the answer, the others go into the
    /// bin.
    fn carve(
        &mut self,
        class: Class,
        mut cut: Cut,
        run: usize,
        (tracker, lane): (&UseTracker, &Lane),
    ) -> ResourceResult<Chunk> {
        let bytes = class.bytes();
        let place = (self.index as u32) << 16 | u32::from(class.0);
        let tenant = Tenant { owner: self.owner, home: self.index, place };
        let mut first = None;
        for left in (0..run / bytes).rev() {
            let part = if left == 0 {
                std::mem::replace(&mut cut, Cut::empty())
            } else {
                cut.split_off_front(bytes)
            };
            let carved = tracker.carve((part.ptr, bytes), tenant, &part.uses());
            let chunk = match carved {
                Ok(slot) => Chunk { ptr: part.ptr, slot, class },
                Err(error) => {
                    self.ranges.put_back(part);
                    self.ranges.put_back(cut);
                    return first.ok_or(error);
                }
            };
            match first {
                None => {
                    first = Some(chunk);
                    self.live_bytes += bytes;
                    self.live_blocks += 1;
                    self.homed[lane.index()] += 1;
                }
                Some(_) => self.put_into_bin(chunk),
            }
        }
        first.ok_or_else(|| "a run without a block".into())
    }

    /// Empties the bins into the ranges, where neighbours join.
    pub(super) fn flush(&mut self, tracker: &UseTracker) {
        for class in 0..self.bins.len() {
            for chunk in std::mem::take(&mut self.bins[class]) {
                self.dissolve(chunk, tracker);
            }
        }
        self.cached = 0;
        self.ranges.forget(|point| tracker.is_done(point));
    }

    fn slab_of(&self, ptr: u64) -> Option<u64> {
        self.slabs.range(..=ptr).next_back().map(|(base, _)| *base)
    }

    /// Adds a slab, all of it free behind `uses`.
    pub(super) fn add_slab(&mut self, slab: Slab, uses: Uses) {
        let (base, bytes) = (slab.block.ptr, slab.block.bytes);
        self.slab_bytes += bytes;
        self.slabs.insert(base, slab);
        self.ranges.add(base, bytes, base, uses);
    }

    /// Takes out every slab of which nothing is in use, with the uses it follows.
    pub(super) fn take_empty_slabs(&mut self, tracker: &UseTracker) -> Vec<(Slab, Uses)> {
        self.flush(tracker);
        let whole: Vec<(u64, Uses)> = self
            .slabs
            .iter()
            .filter_map(|(base, slab)| {
                let uses = self.ranges.take_whole(*base, slab.block.bytes)?;
                Some((*base, uses))
            })
            .collect();
        let mut taken = Vec::with_capacity(whole.len());
        for (base, uses) in whole {
            if let Some(slab) = self.slabs.remove(&base) {
                self.slab_bytes -= slab.block.bytes;
                taken.push((slab, uses));
            }
        }
        taken
    }
}
