//! The recorded events of one lane, oldest first, and what the lane had followed at each.

use std::collections::VecDeque;

use xlog_driver::RawEvent;

use super::point::Point;
use crate::sync::{
    Counted,
    atomic::{AtomicU64, Ordering},
    sized,
};

/// An event that stands for a point of a stream. It is only ever made by recording: an event that
/// stands for nothing has no value of this type.
#[derive(Debug)]
pub(crate) struct RecordedEvent {
    pub(crate) raw: RawEvent,
    /// The point it stands for, packed. It stands for no other while somebody holds it.
    point: AtomicU64,
}

impl RecordedEvent {
    /// An event of the driver, about to be recorded.
    pub(super) fn new(raw: RawEvent) -> Self {
        Self { raw, point: AtomicU64::default() }
    }

    /// Says what it stands for, before anybody else can hold it.
    #[inline]
    pub(super) fn stand_for(&self, point: Point) {
        self.point.store(point.pack(), Ordering::Relaxed);
    }

    pub(super) fn point(&self) -> Point {
        Point::unpack(self.point.load(Ordering::Relaxed))
    }
}

/// A hold on an event: while there is one, the event is not recorded again.
pub(crate) type HeldEvent = Counted<RecordedEvent>;

#[derive(Debug)]
struct Entry {
    tick: u64,
    event: HeldEvent,
    clock: Row,
}

/// Where a clock is kept: its first word, counted from the beginning of time, and how many there
/// are. One word itself, so that it is never copied in halves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row(u64);

/// A clock has at most `MAX_LANES` words.
const LEN_BITS: u32 = 6;

impl Row {
    #[inline]
    fn new(start: u64, len: usize) -> Self {
        debug_assert!(len < 1 << LEN_BITS);
        Self(start << LEN_BITS | len as u64)
    }

    #[inline]
    fn start(self) -> u64 {
        self.0 >> LEN_BITS
    }

    #[inline]
    fn len(self) -> usize {
        (self.0 & ((1 << LEN_BITS) - 1)) as usize
    }
}

/// What waiting for an entry of a trail needs.
#[derive(Debug)]
pub(crate) struct Found {
    /// The tick the event stands for: the one asked for, or the first recorded after it.
    pub(crate) tick: u64,
    pub(crate) event: HeldEvent,
}

/// Words in a row, oldest first, by the number each got when it came. Whatever goes at the front
/// costs nothing, and nothing is allocated until there are more than ever.
#[derive(Debug, Default)]
struct Words {
    /// As many as a power of two, or none.
    ring: Vec<u64>,
    /// The numbers of the oldest and of the next.
    first: u64,
    next: u64,
}

/// Words there is room for from the first on.
const WORDS: usize = sized(1 << 10, 1 << 3);

impl Words {
    #[inline]
    fn place(&self, number: u64) -> usize {
        number as usize & self.ring.len().wrapping_sub(1)
    }

    #[inline]
    fn get(&self, number: u64) -> u64 {
        self.ring[self.place(number)]
    }

    #[inline]
    fn push(&mut self, word: u64) {
        if self.next - self.first == self.ring.len() as u64 {
            self.grow();
        }
        let place = self.place(self.next);
        self.ring[place] = word;
        self.next += 1;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let mut ring = vec![0; (2 * self.ring.len()).max(WORDS)];
        let mask = ring.len() - 1;
        for number in self.first..self.next {
            ring[number as usize & mask] = self.get(number);
        }
        self.ring = ring;
    }
}

/// Events in tick order. Clocks change less often than events are recorded, so they are kept
/// beside them, one row a change, as long as there were lanes in use, and an event names its row.
///
/// An event stays when it is known to be done, until the lane needs one to record.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    entries: VecDeque<Entry>,
    words: Words,
    current: Row,
}

impl Trail {
    /// Events of ticks after `done`.
    pub(crate) fn len_after(&self, done: u64) -> usize {
        self.entries.len() - self.len_until(done)
    }

    /// Events of ticks up to `done`.
    pub(crate) fn len_until(&self, done: u64) -> usize {
        self.entries.partition_point(|entry| entry.tick <= done)
    }

    /// Makes room for that many more events.
    pub(crate) fn reserve(&mut self, events: usize) {
        self.entries.reserve(events);
    }

    /// Appends an event with the clock as it is now.
    #[inline]
    pub(crate) fn push(&mut self, tick: u64, event: HeldEvent) {
        self.entries.push_back(Entry { tick, event, clock: self.current });
    }

    /// From here on, events are recorded after this much of every lane.
    #[inline]
    pub(crate) fn push_clock(&mut self, clock: impl ExactSizeIterator<Item = u64>) {
        if self.entries.back().is_none_or(|entry| entry.clock != self.current) {
            // No event names the newest row: the new one takes its place.
            self.words.next = self.current.start();
        }
        let (start, len) = (self.words.next, clock.len());
        clock.for_each(|word| self.words.push(word));
        self.current = Row::new(start, len);
    }

    /// The first event at or after `tick`, with the clock it was recorded under.
    #[inline]
    pub(crate) fn find(&self, tick: u64, clock: &mut [u64]) -> Option<Found> {
        let entry = self.entries.get(self.index_of(tick))?;
        for (lane, to) in (0..).zip(clock) {
            // Lanes that came later were not followed yet.
            let known = lane < entry.clock.len() as u64;
            *to = if known { self.words.get(entry.clock.start() + lane) } else { 0 };
        }
        Some(Found { tick: entry.tick, event: HeldEvent::clone(&entry.event) })
    }

    /// Where the first event at or after `tick` stands. Ticks seldom skip, so the first guess is
    /// nearly always right.
    #[inline]
    fn index_of(&self, tick: u64) -> usize {
        let Some(front) = self.entries.front() else { return 0 };
        let guess = tick.saturating_sub(front.tick) as usize;
        match self.entries.get(guess) {
            Some(entry) if entry.tick == tick => guess,
            _ => self.index_between(tick),
        }
    }

    #[cold]
    #[inline(never)]
    fn index_between(&self, tick: u64) -> usize {
        self.entries.partition_point(|entry| entry.tick < tick)
    }

    /// The event `back` entries before the newest.
    pub(crate) fn nth_newest(&self, back: usize) -> Option<Found> {
        let index = self.entries.len().checked_sub(back + 1)?;
        let entry = &self.entries[index];
        Some(Found { tick: entry.tick, event: HeldEvent::clone(&entry.event) })
    }

    /// Takes the oldest event out, if it stands for nothing after `done`.
    #[inline]
    pub(crate) fn take_done(&mut self, done: u64) -> Option<HeldEvent> {
        if self.entries.front()?.tick > done {
            return None;
        }
        let oldest = self.entries.pop_front()?;
        let row = self.entries.front().map_or(self.current, |entry| entry.clock);
        self.words.first = row.start();
        Some(oldest.event)
    }

    /// Takes every event up to `tick` out, all of them done, into `recycled`.
    pub(crate) fn prune(&mut self, tick: u64, recycled: &mut Vec<HeldEvent>) {
        recycled.extend(std::iter::from_fn(|| self.take_done(tick)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> HeldEvent {
        HeldEvent::new(RecordedEvent::new(RawEvent(number)))
    }

    fn look(trail: &Trail, tick: u64) -> Option<(u64, u64, Vec<u64>)> {
        let mut clock = vec![99; 3];
        let found = trail.find(tick, &mut clock)?;
        Some((found.tick, found.event.raw.0, clock))
    }

    #[test]
    fn an_event_keeps_the_clock_of_its_record() {
        let mut trail = Trail::default();
        trail.push(1, event(10));
        trail.push_clock([0, 5, 0].into_iter());
        trail.push_clock([0, 6, 0].into_iter());
        trail.push(2, event(20));
        trail.push(4, event(40));
        trail.push_clock([0, 6, 8].into_iter());
        assert_eq!(look(&trail, 1), Some((1, 10, vec![0, 0, 0])));
        assert_eq!(look(&trail, 2), Some((2, 20, vec![0, 6, 0])));
        assert_eq!(look(&trail, 3), Some((4, 40, vec![0, 6, 0])), "the first one after it");
        assert_eq!(look(&trail, 5), None);
        trail.push(5, event(50));
        assert_eq!(look(&trail, 5), Some((5, 50, vec![0, 6, 8])));
    }

    #[test]
    fn done_events_are_taken_one_by_one_and_clocks_go_with_them() {
        let mut trail = Trail::default();
        // More words than there is room for at first, and many times round.
        for tick in 1..=4_000u64 {
            trail.push_clock([tick, 0, tick].into_iter());
            trail.push(tick, event(tick));
            let done = tick.saturating_sub(700);
            let taken = trail.take_done(done).map(|event| event.raw.0);
            assert_eq!(taken, (done > 0).then_some(done), "the oldest, once it is done");
            assert_eq!(trail.take_done(done).map(|event| event.raw.0), None);
            assert_eq!(
                look(&trail, done + 1),
                Some((done + 1, done + 1, vec![done + 1, 0, done + 1]))
            );
            assert_eq!((trail.len_until(done), trail.len_after(tick)), (0, 0));
        }
        assert_eq!((trail.len_until(3_500), trail.len_after(3_500)), (200, 500));
        assert!(trail.words.ring.len() <= 4096, "the room is used again");
    }

    #[test]
    fn pruning_keeps_what_is_left_findable() {
        let mut trail = Trail::default();
        for tick in 1..=100 {
            trail.push(tick, event(tick));
            trail.push_clock([tick, 0, 0].into_iter());
        }
        let mut recycled = Vec::new();
        trail.prune(60, &mut recycled);
        assert_eq!(recycled.len(), 60);
        assert_eq!(look(&trail, 1), Some((61, 61, vec![60, 0, 0])));
        assert_eq!(look(&trail, 90), Some((90, 90, vec![89, 0, 0])));
        trail.prune(100, &mut recycled);
        let words = trail.words.next - trail.words.first;
        assert_eq!((trail.len_after(0), words), (0, 3), "one clock stays: the current one");
        trail.push_clock([100, 7, 0].into_iter());
        trail.push(101, event(101));
        assert_eq!(look(&trail, 101), Some((101, 101, vec![100, 7, 0])));
        trail.push_clock([101].into_iter());
        trail.push(102, event(102));
        assert_eq!(look(&trail, 102), Some((102, 102, vec![101, 0, 0])), "a shorter clock");
    }
}
