//! Counters with a peak and nested scopes, for threads that only bump a few atomics.
//!
//! Of bytes and of blocks there are two sums each, what was added and what was removed; both only
//! grow. A scope is what they were when it began. So a free is two additions, and an allocation is
//! two additions and a comparison with the peak; only one that sets a new peak takes the lock.
//!
//! # How a peak is right under concurrency
//!
//! An allocation adds its bytes, reads what was removed, and takes the difference for the level it
//! reached. Removals it overlaps may be in that or not, but the largest of all those levels is the
//! peak of an order in which every call happens at one moment between its begin and its end.
//!
//! The sum of what was added, as it was after an allocation, also says which scopes the allocation
//! belongs to: those that began with a smaller one. A scope that begins first makes every
//! allocation look at the lock, then reads the sums; so an allocation that finds an old, higher
//! peak to compare with is one that the scope does not contain.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

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

/// The books of one resource.
#[derive(Debug)]
#[repr(align(64))] // what every call touches on one cache line
pub(super) struct Ledger {
    bytes: Gauge,
    blocks: Gauge,
    /// The open scopes, the innermost last; the first is the whole life of the ledger.
    scopes: Mutex<Vec<Scope>>,
}

#[derive(Debug, Default)]
struct Gauge {
    added: AtomicU64,
    removed: AtomicU64,
    /// The innermost scope's peak: a level above it is to be noted under the lock.
    threshold: AtomicI64,
}

/// A level that may be a new peak, and the sum of what was added when it was reached.
#[derive(Clone, Copy, Debug)]
struct Mark {
    added: u64,
    level: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Scope {
    bytes: Span,
    blocks: Span,
}

/// What a gauge said when a scope began, and the highest level since.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    added: u64,
    level: i64,
    peak: i64,
}

impl Default for Ledger {
    fn default() -> Self {
        let scopes = Mutex::new(vec![Scope::default()]);
        Self { bytes: Gauge::default(), blocks: Gauge::default(), scopes }
    }
}

impl Ledger {
    /// A block came.
    #[inline]
    pub(super) fn add(&self, bytes: usize) {
        let (bytes, blocks) = (self.bytes.add(bytes as u64), self.blocks.add(1));
        if bytes.is_some() || blocks.is_some() {
            self.raise(bytes, blocks);
        }
    }

    /// A block went.
    #[inline]
    pub(super) fn remove(&self, bytes: usize) {
        self.bytes.removed.fetch_add(bytes as u64, Ordering::SeqCst);
        self.blocks.removed.fetch_add(1, Ordering::SeqCst);
    }

    #[cold]
    fn raise(&self, bytes: Option<Mark>, blocks: Option<Mark>) {
        let mut scopes = self.scopes.lock();
        self.bytes.raise(bytes, scopes.iter_mut().rev().map(|scope| &mut scope.bytes));
        self.blocks.raise(blocks, scopes.iter_mut().rev().map(|scope| &mut scope.blocks));
    }

    /// What happened in the innermost scope so far.
    pub(super) fn statistics(&self) -> Statistics {
        let scopes = self.scopes.lock();
        self.answer(&scopes.last().copied().unwrap_or_default())
    }

    fn answer(&self, scope: &Scope) -> Statistics {
        Statistics {
            bytes: self.bytes.since(&scope.bytes),
            blocks: self.blocks.since(&scope.blocks),
        }
    }

    /// Begins a scope.
    pub(super) fn push(&self) {
        let mut scopes = self.scopes.lock();
        scopes.push(Scope { bytes: self.bytes.begin(), blocks: self.blocks.begin() });
    }

    /// Ends the innermost scope, and answers what happened in it; `None` if none was begun.
    pub(super) fn pop(&self) -> Option<Statistics> {
        let mut scopes = self.scopes.lock();
        if scopes.len() == 1 {
            return None;
        }
        let (ended, outer) = (scopes.pop()?, scopes.last_mut()?);
        let answer = self.answer(&ended);
        self.bytes.end(&ended.bytes, &mut outer.bytes);
        self.blocks.end(&ended.blocks, &mut outer.blocks);
        Some(answer)
    }
}

impl Gauge {
    #[inline]
    fn add(&self, amount: u64) -> Option<Mark> {
        let added = self.added.fetch_add(amount, Ordering::SeqCst).wrapping_add(amount);
        let level = added.wrapping_sub(self.removed.load(Ordering::SeqCst)) as i64;
        (level > self.threshold.load(Ordering::SeqCst)).then_some(Mark { added, level })
    }

    /// Notes a level with the innermost scope that contains it.
    fn raise<'a>(
        &self,
        mark: Option<Mark>,
        mut innermost_first: impl Iterator<Item = &'a mut Span>,
    ) {
        let (Some(mark), Some(innermost)) = (mark, innermost_first.next()) else {
            return;
        };
        if innermost.added < mark.added {
            innermost.peak = innermost.peak.max(mark.level);
            self.threshold.store(innermost.peak, Ordering::SeqCst);
        } else if let Some(outer) = innermost_first.find(|span| span.added < mark.added) {
            outer.peak = outer.peak.max(mark.level);
        }
    }

    /// The sum of what was added, and the level, at one moment.
    fn now(&self) -> (u64, i64) {
        loop {
            let removed = self.removed.load(Ordering::SeqCst);
            let added = self.added.load(Ordering::SeqCst);
            if self.removed.load(Ordering::SeqCst) == removed {
                return (added, added.wrapping_sub(removed) as i64);
            }
        }
    }

    fn begin(&self) -> Span {
        // First: whoever adds after the look at the sums sees this, and comes for the lock.
        self.threshold.store(i64::MIN, Ordering::SeqCst);
        let (added, level) = self.now();
        self.threshold.store(level, Ordering::SeqCst);
        Span { added, level, peak: level }
    }

    fn end(&self, ended: &Span, outer: &mut Span) {
        outer.peak = outer.peak.max(ended.peak);
        self.threshold.store(outer.peak, Ordering::SeqCst);
    }

    fn since(&self, span: &Span) -> Counter {
        let (added, level) = self.now();
        Counter {
            current: level.wrapping_sub(span.level),
            // The allocation that reached this level may still be on its way to the lock.
            peak: span.peak.max(level).wrapping_sub(span.level) as u64,
            total: added.wrapping_sub(span.added),
        }
    }
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

    /// An allocation reached a level and is on its way to the lock when a scope begins.
    #[test]
    fn a_peak_from_before_a_scope_is_noted_with_the_enclosing_one() {
        let ledger = Ledger::default();
        let late = ledger.bytes.add(80).expect("a new peak");
        ledger.bytes.removed.fetch_add(80, Ordering::SeqCst);
        ledger.push();
        ledger.raise(Some(late), None);
        assert_eq!(ledger.statistics().bytes, counter(0, 0, 0));
        ledger.add(20);
        assert_eq!(ledger.pop().map(|scope| scope.bytes), Some(counter(20, 20, 20)));
        assert_eq!(ledger.statistics().bytes, counter(20, 80, 100));
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
