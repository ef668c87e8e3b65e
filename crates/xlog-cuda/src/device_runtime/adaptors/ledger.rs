//! Counters with a peak and nested scopes, for threads that must not meet at them.
//!
//! Each thread counts in a *shard* of its own. What makes a peak exact all the same is that every
//! shard has *room*: how much it may add without asking anybody. All levels and all room together
//! are the peak so far, so while a shard has room, nothing it adds can be a new peak. What a shard
//! removes becomes its room. One that has too little takes what the others have, with all of them
//! locked, and only if that does not do either, the peak rises.
//!
//! So a thread that allocates and frees takes the lock of its own shard, once for each, and threads
//! that overlap soon have the room they need.

use std::cell::Cell;

use crate::sync::{
    Mutex, TinyGuard, TinyLock,
    atomic::{AtomicUsize, Ordering},
    own, shared, sized,
};

/// How much there is of something, was at most, and has come in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Now. Below zero in a scope that freed more than it allocated.
    pub current: i64,
    /// At most.
    pub peak: u64,
    /// In all: what was allocated, freed meanwhile or not.
    pub total: u64,
}

/// What was allocated and freed in one scope. A scope starts at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// In bytes, as granted.
    pub bytes: Counter,
    /// In blocks.
    pub blocks: Counter,
}

/// Shards: threads beyond that share them.
const SHARDS: usize = sized(16, 2);

/// The books of one resource.
#[derive(Debug)]
pub(super) struct Ledger {
    shards: Box<[Shard]>,
    /// The open scopes, the innermost last; the first is the whole life of the ledger. Locked
    /// before any shard by whoever locks more than one.
    scopes: Mutex<Vec<Scope>>,
}

/// A shard on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(TinyLock<Books>);

/// What one shard added and removed, and what it may add without asking: of bytes, and of blocks
/// beside them, because both change together.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
struct Books {
    room: [i64; 2],
    added: [u64; 2],
    removed: [u64; 2],
}

const BYTES: usize = 0;
const BLOCKS: usize = 1;

/// Bytes, and blocks.
type Scope = [Span; 2];

/// What all shards together said when a scope began, and the highest level since.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    added: u64,
    level: i64,
    peak: i64,
}

impl Default for Ledger {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self { shards, scopes: Mutex::new(vec![Scope::default()]) }
    }
}

/// All shards, locked.
type AllBooks<'l> = Vec<TinyGuard<'l, Books>>;

impl Ledger {
    /// The calling thread's shard.
    #[inline]
    fn own(&self) -> usize {
        own! {
            static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        shared! {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
        }
        NUMBER.with(|number| {
            if number.get() == usize::MAX {
                number.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
            }
            number.get()
        })
    }

    /// A block came.
    #[inline]
    pub(super) fn add(&self, bytes: usize) {
        let own = self.own();
        let mut books = self.shards[own].0.lock();
        if books.room[BYTES] >= bytes as i64 && books.room[BLOCKS] >= 1 {
            books.add(bytes);
            return;
        }
        drop(books);
        self.add_with_room(own, bytes);
    }

    /// A block went.
    #[inline]
    pub(super) fn remove(&self, bytes: usize) {
        self.shards[self.own()].0.lock().remove(bytes);
    }

    #[cold]
    #[inline(never)]
    fn add_with_room(&self, own: usize, bytes: usize) {
        let mut scopes = self.scopes.lock();
        let mut all = self.lock_all();
        for (of, amount) in [(BYTES, bytes as i64), (BLOCKS, 1)] {
            let lacking = find_room(&mut all, own, of, amount);
            if let Some(innermost) = scopes.last_mut() {
                innermost[of].peak += lacking;
            }
        }
        all[own].add(bytes);
    }

    fn lock_all(&self) -> AllBooks<'_> {
        self.shards.iter().map(|shard| shard.0.lock()).collect()
    }

    /// What happened in the innermost scope so far.
    pub(super) fn statistics(&self) -> Statistics {
        let scopes = self.scopes.lock();
        let scope = scopes.last().copied().unwrap_or_default();
        answer(&scope, &self.lock_all())
    }

    /// Begins a scope: its peak is the level there is, so nobody has any room.
    pub(super) fn push(&self) {
        let mut scopes = self.scopes.lock();
        let mut all = self.lock_all();
        scopes.push([BYTES, BLOCKS].map(|of| {
            let (added, level) = sums(&all, of);
            Span { added, level, peak: level }
        }));
        all.iter_mut().for_each(|books| books.room = [0; 2]);
    }

    /// Ends the innermost scope, and answers what happened in it; `None` if none was begun.
    pub(super) fn pop(&self) -> Option<Statistics> {
        let mut scopes = self.scopes.lock();
        if scopes.len() == 1 {
            return None;
        }
        let mut all = self.lock_all();
        let (ended, outer) = (scopes.pop()?, scopes.last_mut()?);
        let answer = answer(&ended, &all);
        all.iter_mut().for_each(|books| books.room = [0; 2]);
        for of in [BYTES, BLOCKS] {
            outer[of].peak = outer[of].peak.max(ended[of].peak);
            // What is left below the enclosing scope's peak is room again, for whoever asks first.
            all[0].room[of] = outer[of].peak - sums(&all, of).1;
        }
        Some(answer)
    }
}

impl Books {
    #[inline]
    fn add(&mut self, bytes: usize) {
        self.room = [self.room[BYTES] - bytes as i64, self.room[BLOCKS] - 1];
        self.added = [self.added[BYTES].wrapping_add(bytes as u64), self.added[BLOCKS] + 1];
    }

    #[inline]
    fn remove(&mut self, bytes: usize) {
        self.room = [self.room[BYTES] + bytes as i64, self.room[BLOCKS] + 1];
        self.removed = [self.removed[BYTES].wrapping_add(bytes as u64), self.removed[BLOCKS] + 1];
    }
}

/// Makes room for `amount` in one shard, out of what the others have. Answers how much there was
/// not: by so much the peak rises.
fn find_room(all: &mut AllBooks<'_>, own: usize, of: usize, amount: i64) -> i64 {
    for other in (0..all.len()).filter(|other| *other != own) {
        let lacking = amount - all[own].room[of];
        let lent = all[other].room[of].clamp(0, lacking.max(0));
        all[other].room[of] -= lent;
        all[own].room[of] += lent;
    }
    let lacking = (amount - all[own].room[of]).max(0);
    all[own].room[of] += lacking;
    lacking
}

/// What was added in all, and the level.
fn sums(all: &AllBooks<'_>, of: usize) -> (u64, i64) {
    let sum = |part: fn(&Books) -> &[u64; 2]| {
        all.iter().fold(0, |sum: u64, books| sum.wrapping_add(part(books)[of]))
    };
    let (added, removed) = (sum(|books| &books.added), sum(|books| &books.removed));
    (added, added.wrapping_sub(removed) as i64)
}

fn answer(scope: &Scope, all: &AllBooks<'_>) -> Statistics {
    let [bytes, blocks] = [BYTES, BLOCKS].map(|of| {
        let (span, (added, level)) = (&scope[of], sums(all, of));
        Counter {
            current: level - span.level,
            peak: (span.peak - span.level) as u64,
            total: added.wrapping_sub(span.added),
        }
    });
    Statistics { bytes, blocks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(current: i64, peak: u64, total: u64) -> Counter {
        Counter { current, peak, total }
    }

    #[test]
    fn a_scope_starts_at_zero_and_the_enclosing_one_sees_it_too() {
        let ledger = Ledger::default();
        ledger.add(100);
        ledger.push();
        assert_eq!(ledger.statistics(), Statistics::default());
        ledger.add(30);
        ledger.remove(30);
        ledger.add(10);
        let scope = ledger.pop().expect("a scope was begun");
        assert_eq!((scope.bytes, scope.blocks), (counter(10, 30, 40), counter(1, 1, 2)));
        let whole = ledger.statistics();
        assert_eq!((whole.bytes, whole.blocks), (counter(110, 130, 140), counter(2, 2, 3)));
    }

    #[test]
    fn a_scope_that_frees_older_blocks_goes_below_zero() {
        let ledger = Ledger::default();
        ledger.add(100);
        ledger.push();
        ledger.remove(100);
        ledger.add(40);
        assert_eq!(ledger.statistics().bytes, counter(-60, 0, 40));
        assert_eq!(ledger.pop().map(|scope| scope.blocks), Some(counter(0, 0, 1)));
        assert_eq!(ledger.statistics().bytes, counter(40, 100, 140));
    }

    #[test]
    fn a_peak_of_the_enclosing_scope_does_not_hide_that_of_the_inner_one() {
        let ledger = Ledger::default();
        ledger.add(1000);
        ledger.remove(1000);
        ledger.push();
        ledger.add(10);
        ledger.push();
        ledger.add(5);
        assert_eq!(ledger.pop().map(|scope| scope.bytes), Some(counter(5, 5, 5)));
        ledger.remove(5);
        ledger.add(3);
        assert_eq!(ledger.pop().map(|scope| scope.bytes), Some(counter(13, 15, 18)));
        assert_eq!(ledger.statistics().bytes, counter(13, 1000, 1018));
        // The whole life is no scope to end, however often somebody tries.
        assert_eq!((ledger.pop(), ledger.pop()), (None, None));
        assert_eq!(ledger.statistics().bytes, counter(13, 1000, 1018));
    }

    #[test]
    fn a_peak_that_threads_reach_together_is_exact() {
        let ledger = Ledger::default();
        let together = |bytes: [usize; 3]| {
            let ledger = &ledger;
            std::thread::scope(|scope| {
                for bytes in bytes {
                    scope.spawn(move || ledger.add(bytes)).join().expect("a thread");
                }
                for bytes in bytes {
                    scope.spawn(move || ledger.remove(bytes)).join().expect("a thread");
                }
            });
            ledger.statistics().bytes.peak
        };
        assert_eq!(together([10, 20, 30]), 60);
        assert_eq!(together([5, 5, 5]), 60, "what one thread gave back another may use");
        assert_eq!(together([30, 30, 1]), 61);
        ledger.push();
        assert_eq!(together([7, 7, 7]), 21);
        assert_eq!(ledger.pop().map(|scope| scope.bytes), Some(counter(0, 21, 21)));
        assert_eq!((together([20, 20, 21]), together([40, 40, 40])), (61, 120));
    }

    #[test]
    fn sums_are_exact_whatever_the_threads_do() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 20_000;
        let ledger = Ledger::default();
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let ledger = &ledger;
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        ledger.add(thread as usize);
                        ledger.remove(thread as usize);
                    }
                });
            }
            // A look at any time is a level that was there, never above the most there can be.
            for _ in 0..1_000 {
                ledger.push();
                let seen = ledger.statistics().bytes;
                assert!(seen.current <= 10 && seen.peak <= 10, "{seen:?}");
                let seen = ledger.pop().expect("a scope was begun").bytes;
                assert!(seen.peak <= 10 && seen.current <= seen.peak as i64, "{seen:?}");
            }
        });
        let (bytes, blocks) = (ledger.statistics().bytes, ledger.statistics().blocks);
        assert_eq!((bytes.current, bytes.total), (0, ROUNDS * 10));
        assert_eq!((blocks.current, blocks.total), (0, ROUNDS * THREADS));
        assert!((4..=10).contains(&bytes.peak) && (1..=4).contains(&blocks.peak), "{bytes:?}");
    }
}
