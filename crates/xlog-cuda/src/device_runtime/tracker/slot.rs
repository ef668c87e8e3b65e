//! What the tracker knows of one block: who may claim it how, who wrote it last, who read it since.
//!
//! # Claims
//!
//! Claims themselves stand on the threads' desks. The slot's *word* says who may claim without
//! asking anybody:
//!
//! - *biased* to one desk: that thread may claim for reading and writing;
//! - *shared*: every thread may claim for reading;
//! - *slow*: nobody; *retired*: nobody any more.
//!
//! A claim that the word allows is taken by announcing it on the own desk, one full fence for all
//! blocks of the launch, and a look at the word. Any other claim locks the word, reads the tickets
//! of every desk, and leaves the word so that the next claim of this kind is allowed. If an
//! announcer and a locker meet, a fence stands between each one's store and its load, so at least
//! one sees the other: either the announcer finds the word locked and takes its announcement back,
//! or the locker finds the announcement and waits until it is decided.
//!
//! So a program with one thread never exchanges an atomic for a block, and threads that read the
//! same blocks write no memory the others read.

use xlog_core::Access;

use super::{
    desk::DeskId,
    point::{Frontier, Point},
};
use crate::{
    device_runtime::{BlockUse, Generation},
    sync::{
        Mutex, Step,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
        leaves_out, spin_loop, yield_now,
    },
};

/// What runs when the last claim on a block that was freed meanwhile is given up.
pub(crate) type OnRelease = Box<dyn FnOnce() + Send>;

/// Who may claim a block without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// No block here.
    Vacant,
    /// Any thread, for reading.
    Shared,
    /// One thread, for anything.
    Biased(DeskId),
    /// Nobody.
    Slow,
    /// Nobody: the block was freed.
    Retired,
    /// Somebody is deciding.
    Locked,
}

impl Word {
    #[inline(always)]
    const fn pack(self) -> u64 {
        match self {
            Self::Vacant => 0,
            Self::Shared => 1,
            Self::Slow => 2,
            Self::Retired => 3,
            Self::Locked => 4,
            Self::Biased(desk) => 8 + desk.0 as u64,
        }
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        match word {
            0 => Self::Vacant,
            1 => Self::Shared,
            2 => Self::Slow,
            3 => Self::Retired,
            4 => Self::Locked,
            desk => Self::Biased(DeskId((desk - 8) as u32)),
        }
    }
}

/// The state of one block, on cache lines of its own: what every launch looks at comes first.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    word: AtomicU64,
    generation: AtomicU64,
    ptr: AtomicU64,
    /// The last write of a claim's holder; written only under a write claim.
    last_write: AtomicU64,
    /// The same, if the launch that wrote it counts it among its own: see [`Replaced`].
    ///
    /// [`Replaced`]: super::lane::Replaced
    counted: AtomicU64,
    /// Bit `l`: lane `l` has read the block since, under a claim, at the tick its table says. The
    /// highest bit: there is something in `rest` that a use has to look at.
    readers: AtomicU64,
    /// The resource the block belongs to.
    owner: AtomicU64,
    /// The lane it was allocated on.
    home: AtomicU32,
    /// Where its owner keeps it: the owner's business.
    place: AtomicU32,
    rest: Mutex<Rest>,
}

/// The bit of `Slot::readers` that is no lane.
pub(crate) const CROWDED: u64 = 1 << 63;

/// The uncommon part.
#[derive(Default)]
pub(crate) struct Rest {
    /// Uses finished without a claim, the latest of each lane.
    pub(crate) bare_writes: Vec<Point>,
    pub(crate) bare_reads: Vec<Point>,
    /// The free, once the last claim is gone.
    pub(crate) on_release: Option<OnRelease>,
    /// A use of this block could be neither recorded nor waited for: it may never be reused.
    pub(crate) unprotected: bool,
    /// Bytes granted.
    pub(crate) bytes: usize,
}

/// Who has a block, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    /// The resource it belongs to.
    pub(crate) owner: u64,
    /// The lane it was allocated on.
    pub(crate) home: usize,
    /// Where its owner keeps it.
    pub(crate) place: u32,
}

impl Tenant {
    /// The place of a block that its lane counts, and its owner does not.
    pub(crate) const NOWHERE: u32 = u32::MAX;
    /// The place of a block that its owner counts, and finds by its address. No pool has as many
    /// places as to name these two.
    pub(crate) const AT_ITS_ADDRESS: u32 = u32::MAX - 1;
}

/// Keeps one point a lane, the latest.
pub(crate) fn keep_latest(points: &mut Vec<Point>, point: Point) {
    match points.iter_mut().find(|other| other.lane() == point.lane()) {
        Some(other) => *other = other.later(point),
        None => points.push(point),
    }
}

impl Slot {
    /// Makes the slot a block's, born at `birth`, biased to the thread that allocates it.
    pub(crate) fn occupy(
        &self,
        generation: Generation,
        ptr: u64,
        birth: Point,
        tenant: Tenant,
        rest: Rest,
    ) {
        self.readers.store(0, Ordering::Relaxed);
        self.last_write.store(birth.pack(), Ordering::Relaxed);
        self.counted.store(0, Ordering::Relaxed);
        self.ptr.store(ptr, Ordering::Relaxed);
        self.owner.store(tenant.owner, Ordering::Relaxed);
        self.place.store(tenant.place, Ordering::Relaxed);
        self.set_home(tenant.home);
        self.with_rest(|old| *old = rest);
        self.renew(generation);
    }

    /// Makes the slot that of a range nobody has yet: out of use until it is renewed.
    pub(crate) fn reserve(&self, ptr: u64, uses: &[Point], tenant: Tenant, bytes: usize) {
        let (first, others) = uses.split_first().map_or((Point::default(), uses), |(f, o)| (*f, o));
        // Nobody's, and larger than any that a block at this address had in another slot.
        self.generation.store(Generation::next().0, Ordering::Relaxed);
        self.readers.store(0, Ordering::Relaxed);
        self.last_write.store(first.pack(), Ordering::Relaxed);
        self.counted.store(0, Ordering::Relaxed);
        self.ptr.store(ptr, Ordering::Relaxed);
        self.owner.store(tenant.owner, Ordering::Relaxed);
        self.place.store(tenant.place, Ordering::Relaxed);
        self.set_home(tenant.home);
        let rest = Rest { bytes, bare_writes: others.to_vec(), ..Rest::default() };
        self.with_rest(|old| *old = rest);
        self.change(Word::Retired);
    }

    /// Makes what is in the slot another block: same address, same uses to follow, a new name.
    #[inline]
    pub(crate) fn renew(&self, generation: Generation) {
        self.generation.store(generation.0, Ordering::Release);
        self.change(Word::Biased(DeskId::current()));
    }

    /// Makes the slot nobody's.
    pub(crate) fn vacate(&self) {
        self.generation.store(0, Ordering::Relaxed);
        *self.rest.lock() = Rest::default();
        self.change(Word::Vacant);
    }

    /// Changes the word of a slot that is out of use, which nobody locks.
    #[inline]
    pub(crate) fn change(&self, to: Word) {
        self.word.store(to.pack(), Ordering::Release);
    }

    /// Takes the block out of use if its word says that only `desk` can have claims on it.
    #[inline]
    pub(crate) fn retire_biased(&self, desk: DeskId) -> bool {
        let (biased, retired) = (Word::Biased(desk).pack(), Word::Retired.pack());
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.word.compare_exchange(biased, retired, order.0, order.1).is_ok()
    }

    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Relaxed))
    }

    pub(crate) fn ptr(&self) -> u64 {
        self.ptr.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn tenant(&self) -> Tenant {
        Tenant {
            owner: self.owner.load(Ordering::Relaxed),
            home: self.home.load(Ordering::Relaxed) as usize,
            place: self.place.load(Ordering::Relaxed),
        }
    }

    #[inline]
    pub(crate) fn set_home(&self, lane: usize) {
        self.home.store(lane as u32, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn word(&self) -> Word {
        Word::unpack(self.word.load(Ordering::Acquire))
    }

    /// Whether this is the block a handle names, freed meanwhile or not.
    #[inline(always)]
    pub(crate) fn owns(&self, ptr: u64, generation: Generation) -> bool {
        self.generation.load(Ordering::Acquire) == generation.0
            && self.ptr.load(Ordering::Relaxed) == ptr
    }

    /// Whether a block is in use here.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.word(), Word::Vacant | Word::Retired)
    }

    /// Whether a block lives at `ptr` here.
    pub(crate) fn lives_at(&self, ptr: u64) -> bool {
        self.is_live() && self.ptr.load(Ordering::Relaxed) == ptr
    }

    /// Whether `desk` may claim the block of a use without asking; no branches, since several
    /// blocks are asked about at once. The generation alone tells the block: no two blocks of a
    /// process share one, and uses that are claimed come from slices, whose addresses and devices
    /// are their blocks' own.
    #[inline(always)]
    pub(crate) fn allows_use(&self, one: &BlockUse, desk: DeskId) -> bool {
        let word = self.word.load(Ordering::Acquire);
        let allowed = (word == Word::Biased(desk).pack())
            | ((word == Word::Shared.pack()) & !one.access.writes());
        allowed & (self.generation.load(Ordering::Acquire) == one.block.generation.0)
    }

    /// Locks the word, and answers what it said; `None`, with nothing locked, if no block is in use
    /// here. Held for moments, over no driver call.
    pub(crate) fn lock(&self) -> Option<Word> {
        let (mut word, mut looks) = (self.word.load(Ordering::Acquire), 0);
        loop {
            match Word::unpack(word) {
                Word::Retired | Word::Vacant => return None,
                Word::Locked => {
                    looks += 1;
                    pause(looks);
                    word = self.word.load(Ordering::Acquire);
                }
                live => {
                    let (locked, order) = (Word::Locked.pack(), Ordering::SeqCst);
                    match self.word.compare_exchange(word, locked, order, Ordering::Acquire) {
                        Ok(_) => {
                            // Between locking the word and reading the tickets of the desks.
                            if !leaves_out(Step::LockersFence) {
                                fence(Ordering::SeqCst);
                            }
                            return Some(live);
                        }
                        Err(now) => word = now,
                    }
                }
            }
        }
    }

    /// Unlocks the word, which from now on says `word`.
    pub(crate) fn unlock(&self, word: Word) {
        self.word.store(word.pack(), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn last_write(&self) -> Point {
        Point::unpack(self.last_write.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn set_last_write(&self, point: Point) {
        self.last_write.store(point.pack(), Ordering::Release);
    }

    /// Has the launch of `point` count this slot, under its write claim; answers which did before.
    #[inline(always)]
    pub(crate) fn count_at(&self, point: Point) -> Point {
        let before = self.counted.load(Ordering::Relaxed);
        self.counted.store(point.pack(), Ordering::Relaxed);
        Point::unpack(before)
    }

    /// The lanes that have read the block since its last write, as bits, and [`CROWDED`].
    #[inline]
    pub(crate) fn readers(&self) -> u64 {
        self.readers.load(Ordering::Acquire)
    }

    /// The readers a use has to look at: all for a write, none but the crowd for a read.
    #[inline(always)]
    pub(crate) fn readers_before(&self, access: Access) -> u64 {
        self.readers() & if access.writes() { u64::MAX } else { CROWDED }
    }

    /// Notes a reading lane; most of the time it is noted already, and the answer is true.
    #[inline]
    pub(crate) fn add_reader(&self, lane: usize) -> bool {
        let known = self.readers.load(Ordering::Relaxed) & (1 << lane) != 0;
        if !known {
            self.readers.fetch_or(1 << lane, Ordering::AcqRel);
        }
        known
    }

    /// Forgets a reading lane.
    pub(crate) fn remove_reader(&self, lane: usize) {
        self.readers.fetch_and(!(1 << lane), Ordering::AcqRel);
    }

    /// Forgets every reading lane; under a write claim.
    #[inline]
    pub(crate) fn clear_readers(&self) {
        self.readers.fetch_and(CROWDED, Ordering::AcqRel);
    }

    /// The uncommon part, to look at or to change.
    pub(crate) fn with_rest<R>(&self, f: impl FnOnce(&mut Rest) -> R) -> R {
        let mut rest = self.rest.lock();
        let answer = f(&mut rest);
        if rest.bare_reads.is_empty() && rest.bare_writes.is_empty() && !rest.unprotected {
            if self.readers.load(Ordering::Relaxed) & CROWDED != 0 {
                self.readers.fetch_and(!CROWDED, Ordering::AcqRel);
            }
        } else {
            self.readers.fetch_or(CROWDED, Ordering::AcqRel);
        }
        answer
    }
}

/// Waits a moment for another thread: spinning at first, then letting it run.
pub(crate) fn pause(looks: u32) {
    if looks.is_multiple_of(64) {
        yield_now();
    } else {
        spin_loop();
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("word", &self.word()).finish_non_exhaustive()
    }
}

/// What a lane's tail is behind.
pub(crate) trait Follows {
    /// Whether work enqueued now is behind `point` as it is: in stream order, by a wait that was
    /// queued, or because the device has long passed the point.
    fn follows(&self, point: Point) -> bool;

    /// Adds `point` to `needed` unless it is followed already. Blocks that go together were often
    /// written together, so the point added last is looked at first.
    #[inline]
    fn need(&self, point: Point, needed: &mut Frontier) {
        if !needed.ends_with(point) && !self.follows(point) {
            needed.add(point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_launch_looks_at_is_one_cache_line() {
        assert!(std::mem::offset_of!(Slot, rest) <= 64);
        assert_eq!(size_of::<Slot>() % 64, 0);
    }

    #[test]
    fn words_survive_packing() {
        let words = [Word::Vacant, Word::Shared, Word::Slow, Word::Retired, Word::Locked];
        let biased = [0, 1, 7, u32::MAX - 1].map(|desk| Word::Biased(DeskId(desk)));
        for word in words.into_iter().chain(biased) {
            assert_eq!(Word::unpack(word.pack()), word);
        }
    }
}
