//! What the tracker knows of one block: who wrote it last, who read it since, who holds it now.
//!
//! A launch locks every block it names twice, so the common case — one claim, one reading stream,
//! writes that followed what came before — is kept on one cache line and touches nothing else.

use xlog_core::Access;

use super::{
    claims::{Holder, ThreadToken},
    point::{Frontier, Point},
};
use crate::{
    device_runtime::{Generation, StreamId},
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
#[repr(C)] // in this order: what every launch touches shares a line with the lock
pub(crate) struct SlotState {
    generation: u64,
    ptr: u64,
    last_write: Point,
    /// The latest read since the last write, if one stream reads the block.
    read: Point,
    /// Of the first claim; meaningful while there are claims.
    holder: Option<Holder>,
    claims: u16,
    write_claimed: bool,
    retired: bool,
    contended: bool,
    /// There is something in `rest` that a use has to look at.
    crowded: bool,
    rest: Rest,
}

/// The uncommon part.
#[derive(Default)]
struct Rest {
    /// The latest reads of other streams than the one of `SlotState::read`.
    reads: Vec<Point>,
    /// Writes that a later write, finished without having been prepared, did not follow.
    loose_writes: Vec<Point>,
    /// Claims beside the first.
    holders: Vec<Holder>,
    on_release: Option<OnRelease>,
    /// A use of this block could be neither recorded nor waited for: it may never be reused.
    unprotected: bool,
    bytes: usize,
    home: usize,
}

/// What giving up a claim leaves to do, outside the block's lock.
#[derive(Default)]
pub(crate) struct Released {
    pub(crate) wake: bool,
    pub(crate) run: Option<OnRelease>,
}

/// How a lane stands to a point: what the planning of a use asks.
pub(crate) trait Follows {
    /// Whether work enqueued now is behind `point` as it is: in stream order, by a wait that was
    /// queued, or because the device has long passed the point.
    fn follows(&self, point: Point) -> bool;
}

/// Keeps one point a lane, the latest.
fn keep_latest(points: &mut Vec<Point>, point: Point) {
    match points.iter_mut().find(|other| other.lane() == point.lane()) {
        Some(other) => *other = other.later(point),
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
        *self = Self {
            generation: generation.0,
            ptr,
            last_write: birth,
            rest: Rest { bytes, home, ..Rest::default() },
            ..Self::default()
        };
    }

    /// Makes the slot nobody's.
    pub(crate) fn vacate(&mut self) {
        *self = Self::default();
    }

    /// Whether this is the live block a handle names.
    #[inline]
    pub(crate) fn is(&self, ptr: u64, generation: Generation) -> bool {
        self.owns(ptr, generation) && !self.retired
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
        self.rest.home
    }

    /// Bytes granted.
    pub(crate) fn bytes(&self) -> usize {
        self.rest.bytes
    }

    /// Takes a claim for `access`; false if another launch holds one that conflicts.
    #[inline]
    pub(crate) fn claim(&mut self, access: Access, holder: Holder) -> bool {
        if self.claims == 0 {
            self.claims = 1;
            self.write_claimed = access.writes();
            self.holder = Some(holder);
            return true;
        }
        if self.conflicts(access) || self.claims == u16::MAX {
            return false;
        }
        self.claims += 1;
        self.rest.holders.push(holder);
        true
    }

    /// Whether a claim for `access` would be refused now.
    pub(crate) fn conflicts(&self, access: Access) -> bool {
        self.claims > 0 && (self.write_claimed || access.writes())
    }

    /// Gives a claim up.
    #[inline]
    pub(crate) fn release(&mut self, holder: Holder) -> Released {
        if self.claims == 1 {
            self.claims = 0;
            self.holder = None;
            self.write_claimed = false;
        } else {
            self.release_one_of_several(holder);
        }
        if self.contended || self.retired {
            return self.release_awaited();
        }
        Released::default()
    }

    #[cold]
    fn release_one_of_several(&mut self, holder: Holder) {
        let others = &mut self.rest.holders;
        if self.holder == Some(holder) {
            self.holder = others.pop();
        } else if let Some(index) = others.iter().position(|other| *other == holder) {
            others.swap_remove(index);
        }
        self.claims = self.claims.saturating_sub(1);
    }

    #[cold]
    fn release_awaited(&mut self) -> Released {
        Released {
            wake: std::mem::take(&mut self.contended),
            run: if self.claims == 0 { self.rest.on_release.take() } else { None },
        }
    }

    fn holders(&self) -> impl Iterator<Item = Holder> {
        self.holder.into_iter().chain(self.rest.holders.iter().copied())
    }

    /// The launch that a conflicting claim met.
    pub(crate) fn first_holder(&self) -> Option<Holder> {
        self.holder
    }

    /// The threads that hold claims here; with any, the slot is marked so that giving one up
    /// wakes those who wait.
    pub(crate) fn contend(&mut self) -> Vec<ThreadToken> {
        self.contended = self.claims > 0;
        self.holders().map(|holder| holder.thread).collect()
    }

    pub(crate) fn is_claimed_on(&self, stream: StreamId) -> bool {
        self.holders().any(|holder| holder.stream == stream)
    }

    /// Adds what a use must follow to `needed`: rule 1 (and 3: the birth is the first write).
    #[inline]
    pub(crate) fn gather(&self, access: Access, lane: &impl Follows, needed: &mut Frontier) {
        if !lane.follows(self.last_write) {
            needed.add(self.last_write);
        }
        if access.writes() && !lane.follows(self.read) {
            needed.add(self.read);
        }
        if self.crowded {
            self.gather_rest(access, lane, needed);
        }
    }

    #[cold]
    fn gather_rest(&self, access: Access, lane: &impl Follows, needed: &mut Frontier) {
        let reads: &[Point] = if access.writes() { &self.rest.reads } else { &[] };
        for &point in self.rest.loose_writes.iter().chain(reads) {
            if !lane.follows(point) {
                needed.add(point);
            }
        }
    }

    /// Records a use at `point`, by a lane that already follows whatever it waited for.
    ///
    /// Rule 4 falls out of the clocks: a write forgets exactly what its lane follows. What a
    /// write finished without preparation did not follow is kept.
    #[inline]
    pub(crate) fn publish(&mut self, access: Access, point: Point, lane: &impl Follows) {
        if access.writes() {
            let before = std::mem::replace(&mut self.last_write, point);
            if lane.follows(self.read) {
                self.read = Point::NONE;
            }
            if self.crowded || !lane.follows(before) {
                self.publish_write_rest(before, lane);
            }
        } else if self.read == Point::NONE || self.read.lane() == point.lane() {
            self.read = self.read.later(point);
        } else {
            keep_latest(&mut self.rest.reads, point);
            self.crowded = true;
        }
    }

    #[cold]
    fn publish_write_rest(&mut self, before: Point, lane: &impl Follows) {
        let rest = &mut self.rest;
        rest.reads.retain(|read| !lane.follows(*read));
        rest.loose_writes.retain(|write| !lane.follows(*write));
        if !lane.follows(before) {
            keep_latest(&mut rest.loose_writes, before);
        }
        self.crowded = !rest.reads.is_empty() || !rest.loose_writes.is_empty();
    }

    /// Every point a free must follow: rule 5.
    pub(crate) fn outstanding(&self) -> Frontier {
        let mut all = Frontier::default();
        let rest = self.rest.reads.iter().chain(&self.rest.loose_writes);
        for &point in [self.last_write, self.read].iter().chain(rest) {
            if point != Point::NONE {
                all.add(point);
            }
        }
        all
    }

    /// 1 for the last write or the allocation, plus 1 for each reading stream.
    pub(crate) fn dependency_count(&self) -> usize {
        1 + usize::from(self.read != Point::NONE) + self.rest.reads.len()
    }

    /// Keeps the block from every further use while it is being freed; with claims on it, the
    /// free itself is left to `deferred`, and this answers false.
    pub(crate) fn retire(&mut self, deferred: impl FnOnce() -> OnRelease) -> bool {
        self.retired = true;
        if self.claims > 0 {
            self.rest.on_release = Some(deferred());
        }
        self.claims == 0
    }

    /// Takes `retire` back: the free failed, the block lives on.
    pub(crate) fn unretire(&mut self) {
        self.retired = false;
    }

    pub(crate) fn set_unprotected(&mut self) {
        self.rest.unprotected = true;
    }

    pub(crate) fn is_unprotected(&self) -> bool {
        self.rest.unprotected
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_launch_touches_is_one_cache_line() {
        let lock = align_of::<SlotState>();
        assert!(lock + std::mem::offset_of!(SlotState, rest) <= 64);
    }
}
