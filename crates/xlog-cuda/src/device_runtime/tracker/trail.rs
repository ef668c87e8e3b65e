//! The recorded events of one lane, oldest first, and what the lane had followed at each.

use std::collections::VecDeque;

use xlog_driver::RawEvent;

use super::point::Point;
use crate::sync::{
    Counted,
    atomic::{AtomicU64, Ordering},
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

/// Events in tick order. Clocks change less often than events are recorded, so they are kept
/// beside them, one row a change, as long as there were lanes in use, and an event names its row.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    entries: VecDeque<Entry>,
    words: VecDeque<u64>,
    first_word: u64,
    current: Row,
}

impl Trail {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends an event with the clock as it is now.
    pub(crate) fn push(&mut self, tick: u64, event: HeldEvent) {
        self.entries.push_back(Entry { tick, event, clock: self.current });
    }

    /// From here on, events are recorded after this much of every lane.
    pub(crate) fn push_clock(&mut self, clock: &[u64]) {
        if self.entries.back().is_none_or(|entry| entry.clock != self.current) {
            // No event names the newest row: the new one takes its place.
            self.words.truncate((self.current.start() - self.first_word) as usize);
        }
        let start = self.first_word + self.words.len() as u64;
        self.words.extend(clock);
        self.current = Row::new(start, clock.len());
    }

    /// The first event at or after `tick`, with the clock it was recorded under.
    pub(crate) fn find(&self, tick: u64, clock: &mut [u64]) -> Option<Found> {
        let entry = self.entries.get(self.index_of(tick))?;
        let row = (entry.clock.start() - self.first_word) as usize;
        for (lane, to) in clock.iter_mut().enumerate() {
            // Lanes that came later were not followed yet.
            *to = if lane < entry.clock.len() { self.words[row + lane] } else { 0 };
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
            _ => self.entries.partition_point(|entry| entry.tick < tick),
        }
    }

    /// The event `back` entries before the newest.
    pub(crate) fn nth_newest(&self, back: usize) -> Option<Found> {
        let index = self.entries.len().checked_sub(back + 1)?;
        let entry = &self.entries[index];
        Some(Found { tick: entry.tick, event: HeldEvent::clone(&entry.event) })
    }

    /// Drops every entry up to `tick`, all of them done, into `recycled`.
    pub(crate) fn prune(&mut self, tick: u64, recycled: &mut Vec<HeldEvent>) {
        let done = self.entries.partition_point(|entry| entry.tick <= tick);
        recycled.extend(self.entries.drain(..done).map(|entry| entry.event));
        let oldest = self.entries.front().map_or(self.current, |entry| entry.clock);
        self.words.drain(..(oldest.start() - self.first_word) as usize);
        self.first_word = oldest.start();
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
        trail.push_clock(&[0, 5, 0]);
        trail.push_clock(&[0, 6, 0]);
        trail.push(2, event(20));
        trail.push(4, event(40));
        trail.push_clock(&[0, 6, 8]);
        assert_eq!(look(&trail, 1), Some((1, 10, vec![0, 0, 0])));
        assert_eq!(look(&trail, 2), Some((2, 20, vec![0, 6, 0])));
        assert_eq!(look(&trail, 3), Some((4, 40, vec![0, 6, 0])), "the first one after it");
        assert_eq!(look(&trail, 5), None);
        trail.push(5, event(50));
        assert_eq!(look(&trail, 5), Some((5, 50, vec![0, 6, 8])));
    }

    #[test]
    fn pruning_keeps_what_is_left_findable() {
        let mut trail = Trail::default();
        for tick in 1..=100 {
            trail.push(tick, event(tick));
            trail.push_clock(&[tick, 0, 0]);
        }
        let mut recycled = Vec::new();
        trail.prune(60, &mut recycled);
        assert_eq!(recycled.len(), 60);
        assert_eq!(look(&trail, 1), Some((61, 61, vec![60, 0, 0])));
        assert_eq!(look(&trail, 90), Some((90, 90, vec![89, 0, 0])));
        trail.prune(100, &mut recycled);
        assert_eq!((trail.len(), trail.words.len()), (0, 3), "one clock stays: the current one");
        trail.push_clock(&[100, 7, 0]);
        trail.push(101, event(101));
        assert_eq!(look(&trail, 101), Some((101, 101, vec![100, 7, 0])));
        trail.push_clock(&[101]);
        trail.push(102, event(102));
        assert_eq!(look(&trail, 102), Some((102, 102, vec![101, 0, 0])), "a shorter clock");
    }
}
