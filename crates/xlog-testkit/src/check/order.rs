//! What has to come before what in a run, and how many orders there are that keep to it.

use rustc_hash::FxHashMap;
use xlog_driver::host::SimulatedDriver;

use super::{footprint::Footprint, run::Turn};

/// Sets of turns that are looked at before counting is given up.
const MOST_SETS: usize = 2_000_000;

/// Threads and streams with turns that are counted.
const ACTORS: usize = 8;

/// One turn of a run.
#[derive(Debug)]
struct Event {
    /// The number of the thread or stream among all of the run.
    actor: usize,
    footprint: Footprint,
    /// How many turns of each actor have to come before.
    after: Vec<u8>,
}

/// The turns of a run, each with those that it has to come after.
#[derive(Debug, Default)]
pub(super) struct Order {
    actors: Vec<Turn>,
    events: Vec<Event>,
    /// How far each stream was filled and done before the first turn, and after each.
    progress: Vec<Vec<(u64, u64)>>,
}

impl Order {
    /// Adds the turn that was taken last.
    pub(super) fn add(&mut self, turn: Turn, footprint: Footprint, device: &SimulatedDriver) {
        let actor = self.actors.iter().position(|other| *other == turn).unwrap_or_else(|| {
            self.actors.push(turn);
            self.actors.len() - 1
        });
        let mut causes = Vec::new();
        if let Turn::Stream(own) = turn {
            for (stream, number) in device.last_causes() {
                // Its own entry had to be enqueued, those of others had to be over.
                let reached = |progress: &Vec<(u64, u64)>| {
                    let (enqueued, finished) = progress.get(stream).copied().unwrap_or_default();
                    number <= if stream == own { enqueued } else { finished }
                };
                causes.extend(self.progress.iter().position(reached));
            }
        }
        let earlier = self.events.iter().enumerate().filter(|(number, event)| {
            event.actor == actor || event.footprint.meets(&footprint) || causes.contains(number)
        });
        let mut after = Vec::new();
        for (number, event) in earlier {
            let place = self.events[..=number].iter().filter(|other| other.actor == event.actor);
            let place = u8::try_from(place.count()).unwrap_or(u8::MAX);
            after.resize(after.len().max(event.actor + 1), 0);
            after[event.actor] = after[event.actor].max(place);
        }
        self.events.push(Event { actor, footprint, after });
        self.progress.push(device.progress());
    }

    /// How many orders of the same turns there are in which each comes after those it has to; the
    /// largest number there is if they are too many to count.
    pub(super) fn count(&self) -> u128 {
        let of = |actor| self.events.iter().filter(move |event| event.actor == actor);
        let turns: Vec<Vec<&Event>> = (0..self.actors.len()).map(|a| of(a).collect()).collect();
        if turns.len() > ACTORS || turns.iter().any(|turns| turns.len() > usize::from(u8::MAX)) {
            return u128::MAX;
        }
        // Sets of turns that can come first, as how many of each actor; and their orders.
        let mut sets: FxHashMap<[u8; ACTORS], u128> = FxHashMap::default();
        sets.insert([0; ACTORS], 1);
        let mut looked_at = 0;
        for _ in 0..self.events.len() {
            looked_at += sets.len();
            if looked_at > MOST_SETS {
                return u128::MAX;
            }
            let mut longer = FxHashMap::default();
            longer.reserve(sets.len());
            for (set, orders) in sets {
                for (actor, turns) in turns.iter().enumerate() {
                    let Some(next) = turns.get(usize::from(set[actor])) else { continue };
                    if next.after.iter().zip(&set).all(|(needed, taken)| needed <= taken) {
                        let mut set = set;
                        set[actor] += 1;
                        let count: &mut u128 = longer.entry(set).or_default();
                        *count = count.saturating_add(orders);
                    }
                }
            }
            sets = longer;
        }
        sets.into_values().fold(0, u128::saturating_add)
    }
}
