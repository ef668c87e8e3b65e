//! The recorded events of one lane, by tick, and what the lane had followed at each.

use xlog_driver::RawEvent;

use super::point::Point;
use crate::sync::{
    Counted, Step,
    atomic::{AtomicU64, Ordering},
    leaves_out, sized,
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

    /// How many more there is room for.
    #[inline]
    fn room(&self) -> usize {
        self.ring.len() - (self.next - self.first) as usize
    }

    #[inline]
    fn push(&mut self, word: u64) {
        let place = self.place(self.next);
        self.ring[place] = word;
        self.next += 1;
    }

    fn grow(&mut self) {
        let mut ring = vec![0; (2 * self.ring.len()).max(WORDS)];
        let mask = ring.len() - 1;
        for number in self.first..self.next {
            ring[number as usize & mask] = self.get(number);
        }
        self.ring = ring;
    }
}

/// Events in a ring: that of tick `t` stands at `t` modulo their number, and is recorded again, in
/// the same place, once the device is known to have passed it. Clocks change less often than events
/// are recorded, so they are kept beside them, one row a change, as long as there were lanes in
/// use, and an event names its row.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    lane: usize,
    /// As many as a power of two, or none.
    ring: Vec<Entry>,
    newest: u64,
    words: Words,
    current: Row,
    /// Some event names the current row.
    named: bool,
}

/// A place for the event of a tick.
#[derive(Debug)]
struct Entry {
    /// What the event stands for; 0 for nothing that anybody may wait for.
    tick: u64,
    event: Option<HeldEvent>,
    /// That event's own, so that what is behind it is only looked at where somebody may hold it.
    raw: RawEvent,
    lent: bool,
    clock: Row,
}

impl Entry {
    fn new(event: Option<HeldEvent>) -> Self {
        let raw = event.as_ref().map_or(RawEvent(0), |event| event.raw);
        Self { tick: 0, event, raw, lent: false, clock: Row::default() }
    }

    /// Whether somebody holds the event. With the trail locked nobody can begin to.
    #[inline(always)]
    fn is_held(&mut self) -> bool {
        self.lent = self.lent
            && self.event.as_ref().is_some_and(|event| HeldEvent::strong_count(event) > 1)
            && !leaves_out(Step::HeldEvent);
        self.lent
    }

    /// A hold on the event, which stands for its tick of a lane.
    #[inline]
    fn lend(&mut self, lane: usize) -> Option<HeldEvent> {
        let event = self.event.as_ref()?;
        event.stand_for(Point::new(lane, self.tick));
        self.lent = true;
        Some(HeldEvent::clone(event))
    }
}

/// Why the event of a tick cannot be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupied {
    /// There is none.
    Empty,
    /// It may stand for work that is not done.
    NotDone,
    /// Somebody holds it.
    Held,
}

impl Trail {
    /// A lane's, with no events yet.
    pub(crate) fn new(lane: usize) -> Self {
        Self { lane, ..Self::default() }
    }

    /// Events there are.
    pub(crate) fn len(&self) -> usize {
        self.ring.iter().filter(|entry| entry.event.is_some()).count()
    }

    /// Events of ticks after `done`.
    pub(crate) fn len_after(&self, done: u64) -> usize {
        self.ring.iter().filter(|entry| entry.tick > done).count()
    }

    /// Ticks that have a place.
    pub(crate) fn room(&self) -> usize {
        self.ring.len()
    }

    #[inline(always)]
    fn place(&self, tick: u64) -> usize {
        tick as usize & self.ring.len().wrapping_sub(1)
    }

    /// From here on, events are recorded after this much of every lane.
    #[inline]
    pub(crate) fn push_clock(&mut self, clock: impl ExactSizeIterator<Item = u64>) {
        if !std::mem::take(&mut self.named) {
            // The new row takes the place of one that no event needs.
            self.words.next = self.current.start();
        }
        if self.words.room() < clock.len() {
            self.make_room_for_words();
        }
        let (start, len) = (self.words.next, clock.len());
        clock.for_each(|word| self.words.push(word));
        self.current = Row::new(start, len);
    }

    /// Forgets rows that no event names any more, and makes more room unless that gave plenty.
    #[cold]
    #[inline(never)]
    fn make_room_for_words(&mut self) {
        let standing = self.ring.iter().filter(|entry| entry.tick != 0);
        let named = standing.filter(|entry| entry.clock.len() > 0);
        let oldest = named.map(|entry| entry.clock.start()).min();
        self.words.first = oldest.unwrap_or(u64::MAX).min(self.current.start());
        if self.words.room() < self.words.ring.len() / 2 || self.words.room() < 1 << LEN_BITS {
            self.words.grow();
        }
    }

    /// The event at the place of a tick, if it can be recorded to stand for that. From here on it
    /// stands for nothing.
    #[inline(always)]
    pub(crate) fn vacate(&mut self, tick: u64, done: u64) -> Result<RawEvent, Occupied> {
        let place = self.place(tick);
        let Some(entry) = self.ring.get_mut(place).filter(|entry| entry.event.is_some()) else {
            return Err(Occupied::Empty);
        };
        if entry.tick > done {
            return Err(Occupied::NotDone);
        }
        if entry.is_held() {
            return Err(Occupied::Held);
        }
        entry.tick = 0;
        Ok(entry.raw)
    }

    /// Notes that the event of a vacated place was recorded to stand for a tick, under the clock as
    /// it is now.
    #[inline(always)]
    pub(crate) fn stand(&mut self, tick: u64) {
        let clock = self.current;
        self.newest = self.newest.max(tick);
        self.named = true;
        let place = self.place(tick);
        if let Some(entry) = self.ring.get_mut(place) {
            (entry.tick, entry.clock) = (tick, clock);
        }
    }

    /// Lets the event of `dead`, which nobody will ask for, change places with that of `next`, a
    /// vacated one: it was recorded a moment ago, and is near the processor.
    #[inline(always)]
    pub(crate) fn reuse(&mut self, dead: u64, next: u64) -> Option<RawEvent> {
        self.entry(dead)?;
        let (dead, next) = (self.place(dead), self.place(next));
        if dead == next || self.ring[dead].is_held() {
            return None;
        }
        let [dead, next] = self.ring.get_disjoint_mut([dead, next]).ok()?;
        dead.tick = 0;
        std::mem::swap(&mut dead.event, &mut next.event);
        std::mem::swap(&mut dead.raw, &mut next.raw);
        Some(next.raw)
    }

    /// The entry of exactly this tick.
    #[inline]
    fn entry(&self, tick: u64) -> Option<&Entry> {
        self.ring.get(self.place(tick)).filter(|entry| entry.tick == tick && tick != 0)
    }

    /// The first event at or after `tick`.
    #[inline]
    pub(crate) fn find(&mut self, tick: u64) -> Option<Found> {
        let tick = if self.entry(tick).is_some() { tick } else { self.next_after(tick)? };
        let place = self.place(tick);
        Some(Found { tick, event: self.ring.get_mut(place)?.lend(self.lane)? })
    }

    /// What the event of exactly this tick was recorded after, lane by lane; lanes that came later
    /// were not followed yet. Nothing if there is none, or none any more.
    #[inline]
    pub(crate) fn clock(&self, tick: u64) -> impl Iterator<Item = u64> {
        let clock = self.entry(tick).map_or_else(Row::default, |entry| entry.clock);
        (clock.start()..).take(clock.len()).map(|word| self.words.get(word))
    }

    /// Ticks are left out where a record failed, and gone where they are done.
    #[cold]
    #[inline(never)]
    fn next_after(&self, tick: u64) -> Option<u64> {
        let kept = (self.newest + 1).saturating_sub(self.ring.len() as u64);
        (tick.max(kept)..=self.newest).find(|tick| self.entry(*tick).is_some())
    }

    /// The newest event.
    pub(crate) fn newest(&mut self) -> Option<Found> {
        self.find(self.newest)
    }

    /// Places that have no event.
    pub(crate) fn empty(&self) -> usize {
        self.ring.len() - self.len()
    }

    /// Makes places for twice as many ticks, or for the first.
    pub(crate) fn grow(&mut self, first: usize) {
        let room = (2 * self.ring.len()).max(first);
        let old = std::mem::take(&mut self.ring);
        self.ring.resize_with(room, || Entry::new(None));
        let (standing, at_rest): (Vec<_>, Vec<_>) = old.into_iter().partition(|e| e.tick != 0);
        for entry in standing {
            let place = self.place(entry.tick);
            self.ring[place] = entry;
        }
        self.fill(&mut at_rest.into_iter().filter_map(|entry| entry.event));
    }

    /// Gives places that have none events, from that of the next tick on.
    pub(crate) fn fill(&mut self, events: &mut dyn Iterator<Item = HeldEvent>) {
        let room = self.ring.len() as u64;
        for tick in self.newest + 1..=self.newest + room {
            let place = self.place(tick);
            if self.ring[place].event.is_none() {
                let Some(event) = events.next() else { return };
                self.ring[place] = Entry::new(Some(event));
            }
        }
    }

    /// Takes the event out that is at the place of a tick.
    pub(crate) fn take(&mut self, tick: u64) -> Option<HeldEvent> {
        let place = self.place(tick);
        let entry = self.ring.get_mut(place)?;
        entry.tick = 0;
        entry.event.take()
    }

    /// Takes every event out that stands for nothing after `done`.
    pub(crate) fn take_done(&mut self, done: u64) -> Vec<HeldEvent> {
        let over = self.ring.iter_mut().filter(|entry| entry.tick <= done);
        let take = |entry: &mut Entry| {
            entry.tick = 0;
            entry.event.take()
        };
        over.filter_map(take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> HeldEvent {
        HeldEvent::new(RecordedEvent::new(RawEvent(number)))
    }

    /// A trail with places for that many ticks, and events 1, 2, 3 in them, from tick 1 on.
    fn trail(room: usize) -> Trail {
        let mut trail = Trail::new(2);
        trail.grow(room);
        trail.fill(&mut (1..).map(event));
        trail
    }

    /// Records a tick; answers the event that stands for it.
    fn record(trail: &mut Trail, tick: u64, done: u64) -> Result<u64, Occupied> {
        let event = trail.vacate(tick, done)?;
        trail.stand(tick);
        Ok(event.0)
    }

    fn look(trail: &mut Trail, tick: u64) -> Option<(u64, u64, Vec<u64>)> {
        let found = trail.find(tick)?;
        assert_eq!(found.event.point(), Point::new(2, found.tick));
        Some((found.tick, found.event.raw.0, trail.clock(found.tick).collect()))
    }

    #[test]
    fn an_event_keeps_the_clock_of_its_record() {
        let mut trail = trail(8);
        assert_eq!(record(&mut trail, 1, 0), Ok(1));
        trail.push_clock([0, 5, 0].into_iter());
        trail.push_clock([0, 6, 0].into_iter());
        assert_eq!(record(&mut trail, 2, 0), Ok(2));
        assert_eq!(record(&mut trail, 4, 0), Ok(4));
        trail.push_clock([0, 6, 8].into_iter());
        assert_eq!(look(&mut trail, 1), Some((1, 1, vec![])));
        assert_eq!(look(&mut trail, 2), Some((2, 2, vec![0, 6, 0])));
        assert_eq!(look(&mut trail, 3), Some((4, 4, vec![0, 6, 0])), "the first one after it");
        assert_eq!((look(&mut trail, 5), look(&mut trail, 12)), (None, None));
        assert_eq!((trail.clock(3).count(), trail.clock(0).count()), (0, 0), "no event's");
        assert_eq!(record(&mut trail, 5, 0), Ok(5));
        assert_eq!(look(&mut trail, 5), Some((5, 5, vec![0, 6, 8])));
        assert_eq!(trail.newest().map(|found| found.tick), Some(5));
        assert_eq!((trail.len(), trail.len_after(0), trail.len_after(2)), (8, 4, 2));
    }

    #[test]
    fn an_event_is_recorded_again_once_it_is_done_and_clocks_go_with_it() {
        let mut trail = trail(512);
        // More words than there is room for at first, and many times round.
        for tick in 1..=4_000u64 {
            let done = tick.saturating_sub(400);
            trail.push_clock([tick, 0, tick].into_iter());
            assert_eq!(record(&mut trail, tick, done), Ok((tick - 1) % 512 + 1), "round and round");
            let next = done + 1;
            assert_eq!(
                look(&mut trail, next).map(|(_, _, clock)| clock),
                Some(vec![next, 0, next])
            );
        }
        assert_eq!(record(&mut trail, 4_001, 4_000 - 512), Err(Occupied::NotDone));
        assert_eq!(look(&mut trail, 3), Some((3_489, 417, vec![3_489, 0, 3_489])), "the oldest");
        assert!(trail.words.ring.len() <= 4096, "the room is used again");
        trail.push_clock([4_000].into_iter());
        assert_eq!(record(&mut trail, 4_001, 4_000), Ok(417));
        assert_eq!(look(&mut trail, 4_001), Some((4_001, 417, vec![4_000])), "a shorter clock");
    }

    #[test]
    fn what_is_held_or_missing_is_not_recorded() {
        let mut trail = trail(2);
        assert_eq!((record(&mut trail, 1, 0), record(&mut trail, 2, 0)), (Ok(1), Ok(2)));
        let hold = trail.find(1).expect("there");
        assert_eq!(trail.vacate(3, 1), Err(Occupied::Held));
        assert_eq!(look(&mut trail, 1).map(|(tick, ..)| tick), Some(1), "nothing is changed");
        let taken = trail.take(3).expect("the one that is held");
        assert_eq!((taken.raw.0, trail.empty(), trail.vacate(3, 1)), (1, 1, Err(Occupied::Empty)));
        assert_eq!(look(&mut trail, 1).map(|(tick, ..)| tick), Some(2), "only a later one");
        drop(hold);
        trail.fill(&mut std::iter::once(event(7)));
        assert_eq!((record(&mut trail, 3, 1), trail.empty()), (Ok(7), 0));
        assert_eq!(trail.vacate(9, 0), Err(Occupied::NotDone));
        assert_eq!(Trail::default().vacate(1, 0), Err(Occupied::Empty));
        assert!(Trail::default().find(0).is_none());
    }

    #[test]
    fn a_dead_event_changes_places_with_the_next_unless_it_is_held() {
        let mut trail = trail(8);
        for tick in 1..=3 {
            assert_eq!(record(&mut trail, tick, 0), Ok(tick));
        }
        assert_eq!(trail.vacate(4, 0), Ok(RawEvent(4)));
        let hold = trail.find(1).expect("there");
        assert_eq!(trail.reuse(1, 4), None, "somebody is about to wait for it");
        assert_eq!(look(&mut trail, 1).map(|(tick, ..)| tick), Some(1));
        drop(hold);
        assert_eq!(trail.reuse(1, 4), Some(RawEvent(1)), "done or not");
        trail.stand(4);
        assert_eq!(look(&mut trail, 4).map(|(tick, event, _)| (tick, event)), Some((4, 1)));
        assert_eq!(look(&mut trail, 1).map(|(tick, ..)| tick), Some(2), "nobody asks for it");
        assert_eq!(trail.vacate(9, 0), Ok(RawEvent(4)), "what it changed places with");
        assert_eq!((trail.reuse(0, 9), trail.reuse(1, 9)), (None, None), "none, and gone already");
        assert_eq!(trail.len(), 8);
    }

    #[test]
    fn a_trail_grows_and_keeps_what_it_has() {
        let mut trail = trail(4);
        for tick in 1..=6 {
            record(&mut trail, tick, tick - 1).expect("done");
        }
        let vacated = trail.vacate(7, 3).expect("done");
        assert_eq!(trail.vacate(8, 3), Err(Occupied::NotDone));
        trail.grow(4);
        assert_eq!((trail.room(), trail.len(), trail.empty()), (8, 4, 4));
        for tick in 4..=6 {
            assert_eq!(look(&mut trail, tick).map(|(tick, ..)| tick), Some(tick));
        }
        assert_eq!(trail.vacate(7, 3), Ok(vacated), "what was at rest is next");
        trail.fill(&mut (10..).map(event));
        for (tick, event) in [(7, vacated.0), (8, 10), (9, 11), (10, 12), (11, 13)] {
            assert_eq!(record(&mut trail, tick, 3), Ok(event));
        }
        assert_eq!(trail.vacate(12, 3), Err(Occupied::NotDone));
        let done: Vec<u64> = trail.take_done(8).iter().map(|event| event.raw.0).collect();
        assert_eq!((done.len(), trail.len(), trail.len_after(8)), (5, 3, 3));
        assert_eq!(look(&mut trail, 1).map(|(tick, ..)| tick), Some(9));
    }
}
