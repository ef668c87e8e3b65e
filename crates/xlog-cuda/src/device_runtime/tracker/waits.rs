//! Which waits a stream needs, and queueing exactly those.

use smallvec::SmallVec;

use super::{
    UseTracker,
    lane::Lane,
    point::{Frontier, Point},
    slot::Follows,
    trail::{Found, HeldEvent},
};
use crate::{
    device_runtime::ResourceResult,
    mutant::{self, Mutant},
    sync::{Step, leaves_out},
};

/// Room for the clock of a small pool without a heap allocation.
type Clock = SmallVec<[u64; 8]>;

/// A wait that may be needed: the event, and what following it brings along.
struct Candidate {
    point: Point,
    tick: u64,
    event: HeldEvent,
    clock: Clock,
}

impl UseTracker {
    /// Makes the tail of `lane` follow every point of `needed`, with as few waits as do that.
    ///
    /// The lane's submit lock is held throughout, so that two threads on one stream do not queue
    /// the same wait twice, and the clock says "followed" only once the wait stands in the stream.
    pub(super) fn queue_waits(&self, lane: &Lane, needed: &Frontier) -> ResourceResult<()> {
        if let [point] = *needed.points() {
            return self.queue_wait(lane, point);
        }
        let device = self.device();
        let raw = lane.raw(device)?;
        let mut submit = lane.submit();
        let mut candidates: SmallVec<[Candidate; 4]> = SmallVec::new();
        for &point in needed.points() {
            // Another thread may have queued the wait since the point was found.
            if lane.follows(point) {
                continue;
            }
            match self.find_event(point) {
                Some(Found { tick, event }) => {
                    let clock = self.lanes()[point.lane()].trail().lock().clock(tick).collect();
                    candidates.push(Candidate { point, tick, event, clock });
                }
                None => self.settle(point)?,
            }
        }
        drop_implied(&mut candidates);
        for candidate in &candidates {
            // SAFETY: the event is held by the candidate, the stream by the tracker.
            device.note(unsafe { device.driver().wait_event(raw, candidate.event.raw) })?;
            let source = &self.lanes()[candidate.point.lane()];
            lane.join(&mut submit, source, candidate.tick);
        }
        Ok(())
    }

    /// The same for a single point, the commonest case. Kept short, and in one piece: a launch that
    /// has to wait comes after many that had not to, and finds what it needs far from the
    /// processor, code above all, line by line.
    #[inline(never)]
    pub(super) fn queue_wait(&self, lane: &Lane, point: Point) -> ResourceResult<()> {
        let device = self.device();
        let raw = lane.raw(device)?;
        let mut submit = lane.submit();
        // Another thread may have queued the wait since the point was found.
        if lane.follows(point) {
            return Ok(());
        }
        let Some(found) = self.find_event(point) else {
            return self.settle(point);
        };
        // SAFETY: the event is held by `found`, the stream by the tracker.
        let wait = || device.note(unsafe { device.driver().wait_event(raw, found.event.raw) });
        if !mutant::is(Mutant::SynchronisedTooSoon) {
            wait()?;
        }
        lane.join(&mut submit, &self.lanes()[point.lane()], found.tick);
        if mutant::is(Mutant::SynchronisedTooSoon) { wait() } else { Ok(()) }
    }

    #[inline(always)]
    fn find_event(&self, point: Point) -> Option<Found> {
        let source = &self.lanes()[point.lane()];
        let late = mutant::is(Mutant::LateWait).then(|| source.trail().lock().newest());
        let tick = late.flatten().map_or(point.tick(), |newest| newest.tick);
        let found = source.trail().lock().find(tick)?;
        // Pruned since the caller looked: it is done, and what was found is a later event, which
        // nothing may wait for in its place.
        let later = found.tick != point.tick() && !leaves_out(Step::LaterEvent);
        (!later || !source.is_done(point)).then_some(found)
    }

    /// A point without an event: its lane was pruned since, so it is done. Otherwise the books are
    /// wrong, and waiting on this thread is what is always right.
    #[cold]
    fn settle(&self, point: Point) -> ResourceResult<()> {
        let source = &self.lanes()[point.lane()];
        if source.is_done(point) {
            return Ok(());
        }
        let Some(raw) = source.created_raw() else { return Ok(()) };
        log::warn!("no event for tick {} of lane {}: waiting for it", point.tick(), point.lane());
        self.synchronize_raw(raw)
    }
}

/// Drops every candidate that another one's event already follows.
fn drop_implied(candidates: &mut SmallVec<[Candidate; 4]>) {
    let mut index = 0;
    while index < candidates.len() {
        let point = candidates[index].point;
        let implied = candidates.iter().enumerate().any(|(other, candidate)| {
            other != index
                && candidate.clock.get(point.lane()).is_some_and(|tick| *tick >= point.tick())
        });
        if implied {
            candidates.swap_remove(index);
        } else {
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::trail::RecordedEvent, *};
    use xlog_driver::RawEvent;

    fn candidate(lane: usize, tick: u64, clock: [u64; 4]) -> Candidate {
        Candidate {
            point: Point::new(lane, tick),
            tick,
            event: HeldEvent::new(RecordedEvent::new(RawEvent(0))),
            clock: Clock::from_slice(&clock),
        }
    }

    #[test]
    fn a_wait_that_another_implies_is_not_queued() {
        // Lane 3's event already follows tick 5 of lane 1, but only tick 6 of lane 2.
        let mut candidates = SmallVec::new();
        candidates.push(candidate(1, 5, [0, 0, 0, 0]));
        candidates.push(candidate(2, 7, [0, 2, 0, 0]));
        candidates.push(candidate(3, 4, [0, 5, 6, 0]));
        drop_implied(&mut candidates);
        let mut left: Vec<_> = candidates.iter().map(|c| c.point.lane()).collect();
        left.sort_unstable();
        assert_eq!(left, [2, 3]);
    }
}
