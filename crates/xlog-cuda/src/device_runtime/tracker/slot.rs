//! What the tracker knows of one block: who wrote it last, who read it since, who holds it now.

use smallvec::SmallVec;
use xlog_core::Access;

use super::{
    claims::{Conflict, Holder, ThreadToken},
    point::{Frontier, Point},
};
use crate::{
    device_runtime::{BlockUse, Generation},
    sync::TinyLock,
};

/// What runs when the last claim on a block that was freed meanwhile is given up.
pub(crate) type OnRelease = Box<dyn FnOnce() + Send>;

/// One block's state behind its lock, on cache lines of its own.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Slot(pub(crate) TinyLock<SlotState>);

/// The state of one block. Generation 0 is no block at all.
#[derive(Default)]
pub(crate) struct SlotState {
    generation: u64,
    ptr: u64,
    bytes: usize,
    home: usize,
    last_write: Option<Point>,
    /// The latest read of each lane since the last write.
    reads: SmallVec<[Point; 4]>,
    /// Writes that a later write, finished without having been prepared, did not follow.
    loose_writes: SmallVec<[Point; 1]>,
    holders: SmallVec<[Holder; 2]>,
    write_claimed: bool,
    contended: bool,
    retired: bool,
    /// A use of this block could be neither recorded nor waited for: it may never be reused.
    unprotected: bool,
    on_release: Option<OnRelease>,
}

/// What giving up a claim leaves to do, outside the block's lock.
#[derive(Default)]
pub(crate) struct Released {
    pub(crate) wake: bool,
    pub(crate) run: Option<OnRelease>,
}

/// How a lane stands to a point: what the planning of a use asks.
pub(crate) trait Follows {
    /// Whether work enqueued now is already behind `point`.
    fn follows(&self, point: Point) -> bool;
    /// Whether the device is known to have passed `point`.
    fn is_done(&self, point: Point) -> bool;
}

/// Keeps one point a lane, the latest.
fn keep_latest<A: smallvec::Array<Item = Point>>(points: &mut SmallVec<A>, point: Point) {
    match points.iter_mut().find(|other| other.lane() == point.lane()) {
        Some(other) if other.tick() < point.tick() => *other = point,
        Some(_) => {}
        None => points.push(point),
    }
}

impl SlotState {
    /// Makes the slot a block's of `home`, born at `birth`.
    pub(crate) fn occupy(
        &mut self,
        generation: Generation,
        ptr: u64,
        bytes: usize,
        home: usize,
        birth: Point,
    ) {
        let generation = generation.0;
        let last_write = Some(birth);
        *self = Self { generation, ptr, bytes, home, last_write, ..Self::default() };
    }

    /// Makes the slot nobody's.
    pub(crate) fn vacate(&mut self) {
        *self = Self::default();
    }

    /// Whether this is the live block a handle names.
    #[inline]
    pub(crate) fn is(&self, ptr: u64, generation: Generation) -> bool {
        self.generation == generation.0 && self.ptr == ptr && !self.retired
    }

    /// Whether this is the block a handle names, freed meanwhile or not.
    #[inline]
    pub(crate) fn owns(&self, ptr: u64, generation: Generation) -> bool {
        self.generation == generation.0 && self.ptr == ptr
    }

    pub(crate) fn lives_at(&self, ptr: u64) -> bool {
        self.generation != 0 && self.ptr == ptr && !self.retired
    }

    /// The lane the block was born on.
    pub(crate) fn home(&self) -> usize {
        self.home
    }

    /// Bytes granted.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a claim for `one`, unless another launch holds one that conflicts.
    #[inline]
    pub(crate) fn claim(
        &mut self,
        one: &BlockUse,
        slot: u32,
        holder: Holder,
    ) -> Result<(), Conflict> {
        if self.write_claimed || (one.access.writes() && !self.holders.is_empty()) {
            return Err(Conflict {
                slot,
                generation: one.block.generation,
                access: one.access,
                holder: self.holders[0],
            });
        }
        self.write_claimed = one.access.writes();
        self.holders.push(holder);
        Ok(())
    }

    /// Whether a claim for `access` would be refused now.
    pub(crate) fn conflicts(&self, access: Access) -> bool {
        self.write_claimed || (access.writes() && !self.holders.is_empty())
    }

    /// Gives a claim up.
    #[inline]
    pub(crate) fn release(&mut self, holder: Holder) -> Released {
        if let Some(index) = self.holders.iter().position(|other| *other == holder) {
            self.holders.swap_remove(index);
            self.write_claimed = false;
        }
        if !self.contended && self.on_release.is_none() {
            return Released::default();
        }
        Released {
            wake: std::mem::take(&mut self.contended),
            run: if self.holders.is_empty() { self.on_release.take() } else { None },
        }
    }

    /// The threads that hold claims here; with any, the slot is marked so that giving one up
    /// wakes those who wait.
    pub(crate) fn contend(&mut self) -> Vec<ThreadToken> {
        self.contended = !self.holders.is_empty();
        self.holders.iter().map(|holder| holder.thread).collect()
    }

    pub(crate) fn is_claimed_on(&self, stream: crate::device_runtime::StreamId) -> bool {
        self.holders.iter().any(|holder| holder.stream == stream)
    }

    /// Adds what a use must follow to `needed`: rule 1 (and 3: the birth is the first write).
    #[inline]
    pub(crate) fn gather(&self, access: Access, lane: &impl Follows, needed: &mut Frontier) {
        let mut need = |point: Point| {
            if !lane.follows(point) && !lane.is_done(point) {
                needed.add(point);
            }
        };
        self.last_write.into_iter().for_each(&mut need);
        self.loose_writes.iter().copied().for_each(&mut need);
        if access.writes() {
            self.reads.iter().copied().for_each(&mut need);
        }
    }

    /// Records a use at `point`, by a lane that already follows whatever it waited for.
    ///
    /// Rule 4 falls out of the clocks: a write forgets exactly what its lane follows. What a
    /// write finished without preparation did not follow is kept.
    #[inline]
    pub(crate) fn publish(&mut self, access: Access, point: Point, lane: &impl Follows) {
        if access.writes() {
            self.reads.retain(|read| !lane.follows(*read));
            if !self.loose_writes.is_empty() {
                self.loose_writes.retain(|write| !lane.follows(*write));
            }
            if let Some(write) = self.last_write
                && !lane.follows(write)
            {
                keep_latest(&mut self.loose_writes, write);
            }
            self.last_write = Some(point);
        } else {
            keep_latest(&mut self.reads, point);
        }
    }

    /// Every point a free must follow: rule 5.
    pub(crate) fn outstanding(&self) -> Frontier {
        let mut all = Frontier::default();
        let writes = self.last_write.iter().chain(&self.loose_writes);
        writes.chain(&self.reads).for_each(|point| all.add(*point));
        all
    }

    /// 1 for the last write or the allocation, plus 1 for each reading stream.
    pub(crate) fn dependency_count(&self) -> usize {
        usize::from(self.last_write.is_some()) + self.reads.len()
    }

    /// Keeps the block from every further use while it is being freed; with claims on it, the
    /// free itself is left to `deferred`, and this answers false.
    pub(crate) fn retire(&mut self, deferred: impl FnOnce() -> OnRelease) -> bool {
        self.retired = true;
        if !self.holders.is_empty() {
            self.on_release = Some(deferred());
        }
        self.holders.is_empty()
    }

    /// Takes `retire` back: the free failed, the block lives on.
    pub(crate) fn unretire(&mut self) {
        self.retired = false;
    }

    pub(crate) fn set_unprotected(&mut self) {
        self.unprotected = true;
    }

    pub(crate) fn is_unprotected(&self) -> bool {
        self.unprotected
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}
