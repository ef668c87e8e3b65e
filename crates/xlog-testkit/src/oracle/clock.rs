//! Vector clocks: who follows whom.
//!
//! Every stream counts what is enqueued on it, and knows, for every other stream, how much of that
//! its own tail follows. So one thing happens before another exactly if the other's clock has
//! reached its count. The host has a clock too: what it knows to be done, everything enqueued later
//! follows.

/// The stream of what the host did.
const HOST: u32 = u32::MAX;

/// Something that has its place in the order: the `tick`-th thing on `stream`, with the clock as
/// it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) stream: u32,
    pub(super) tick: u32,
    /// Where in the clocks' store the rest of its clock begins.
    snapshot: u32,
}

#[derive(Debug, Default)]
struct StreamClock {
    tick: u32,
    follows: Vec<u32>,
    /// The snapshot of `follows`, if it was taken since the last change.
    snapshot: Option<u32>,
    host_seen: u32,
}

/// The clocks of every stream and of the host.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    streams: Vec<StreamClock>,
    host: Vec<u32>,
    host_version: u32,
    /// Snapshots one behind the other: how long each is, and its ticks. Most things on a stream
    /// share one with the thing before, since only a join makes a new one.
    store: Vec<u32>,
}

impl Clocks {
    pub(super) fn add_stream(&mut self) -> u32 {
        self.streams.push(StreamClock::default());
        (self.streams.len() - 1) as u32
    }

    pub(super) fn streams(&self) -> u32 {
        self.streams.len() as u32
    }

    /// The next thing on `stream`.
    pub(super) fn advance(&mut self, stream: u32) -> Point {
        self.join_host(stream);
        self.streams[stream as usize].tick += 1;
        self.tail(stream)
    }

    /// Everything on `stream` so far.
    pub(super) fn tail(&mut self, stream: u32) -> Point {
        let clock = &mut self.streams[stream as usize];
        let store = &mut self.store;
        let snapshot = *clock.snapshot.get_or_insert_with(|| push(store, &clock.follows));
        Point { stream, tick: clock.tick, snapshot }
    }

    /// What the host knows now.
    pub(super) fn host_point(&mut self) -> Point {
        Point { stream: HOST, tick: 0, snapshot: push(&mut self.store, &self.host) }
    }

    /// Whether `later` follows what `earlier` stands for.
    #[inline]
    pub(super) fn follows(&self, later: Point, earlier: Point) -> bool {
        self.reached(later, earlier.stream) >= earlier.tick
    }

    /// How much of `stream` is before `later`.
    #[inline]
    pub(super) fn reached(&self, later: Point, stream: u32) -> u32 {
        if later.stream == stream {
            return later.tick;
        }
        self.ticks(later).get(stream as usize).copied().unwrap_or(0)
    }

    #[inline]
    fn ticks(&self, point: Point) -> &[u32] {
        let start = point.snapshot as usize;
        let len = self.store[start] as usize;
        &self.store[start + 1..start + 1 + len]
    }

    /// From here on, `stream` follows `point`.
    pub(super) fn join(&mut self, stream: u32, point: Point) {
        let start = point.snapshot as usize;
        let len = self.store[start] as usize;
        let clock = &mut self.streams[stream as usize];
        let mut changed = raise_all(&mut clock.follows, &self.store[start + 1..start + 1 + len]);
        changed |= raise(&mut clock.follows, point.stream, point.tick);
        if changed {
            clock.snapshot = None;
        }
    }

    /// From here on, everything that is enqueued follows `point`.
    pub(super) fn host_learns(&mut self, point: Point) {
        let start = point.snapshot as usize;
        let len = self.store[start] as usize;
        let mut changed = raise_all(&mut self.host, &self.store[start + 1..start + 1 + len]);
        changed |= raise(&mut self.host, point.stream, point.tick);
        self.host_version += u32::from(changed);
    }

    fn join_host(&mut self, stream: u32) {
        let clock = &mut self.streams[stream as usize];
        if clock.host_seen == self.host_version {
            return;
        }
        clock.host_seen = self.host_version;
        if raise_all(&mut clock.follows, &self.host) {
            clock.snapshot = None;
        }
    }
}

fn push(store: &mut Vec<u32>, ticks: &[u32]) -> u32 {
    let snapshot = store.len() as u32;
    store.push(ticks.len() as u32);
    store.extend_from_slice(ticks);
    snapshot
}

fn raise(clock: &mut Vec<u32>, stream: u32, tick: u32) -> bool {
    if stream == HOST {
        return false;
    }
    let index = stream as usize;
    if clock.len() <= index {
        clock.resize(index + 1, 0);
    }
    let behind = clock[index] < tick;
    clock[index] = clock[index].max(tick);
    behind
}

fn raise_all(clock: &mut Vec<u32>, other: &[u32]) -> bool {
    if clock.len() < other.len() {
        clock.resize(other.len(), 0);
    }
    let mut changed = false;
    for (mine, theirs) in clock.iter_mut().zip(other) {
        changed |= *mine < *theirs;
        *mine = (*mine).max(*theirs);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_brings_what_the_event_stood_for_and_nothing_later() {
        let mut clocks = Clocks::default();
        let (a, b) = (clocks.add_stream(), clocks.add_stream());
        let first = clocks.advance(a);
        let event = clocks.tail(a);
        let second = clocks.advance(a);
        clocks.join(b, event);
        let reader = clocks.advance(b);
        assert!(clocks.follows(reader, first));
        assert!(!clocks.follows(reader, second));
        assert_eq!(clocks.reached(reader, a), 1);
    }

    #[test]
    fn what_the_host_learnt_is_followed_by_all_that_comes_later() {
        let mut clocks = Clocks::default();
        let (a, b) = (clocks.add_stream(), clocks.add_stream());
        let early = clocks.advance(b);
        let work = clocks.advance(a);
        let tail = clocks.tail(a);
        clocks.host_learns(tail);
        assert!(!clocks.follows(early, work));
        let late = clocks.advance(b);
        assert!(clocks.follows(late, work));
        let host = clocks.host_point();
        assert!(clocks.follows(host, work) && !clocks.follows(host, late));
    }
}
