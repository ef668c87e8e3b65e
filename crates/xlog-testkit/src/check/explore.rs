//! Every order in which a small program's turns can be taken.
//!
//! The same program is run again and again, each time with the first turns given and the last of
//! them another one, depth first, until no choice is left: nothing has to be saved and restored.
//! Two orders that differ only in turns that commute (see [`Footprint`]) lead to the same state, so
//! only one of them is run. Two rules leave out the others, and neither loses a state at the end:
//!
//! - *Persistent sets.* If whatever the rest of the program may do before a few of the possible
//!   turns commutes with those, it is enough to go on with these few: a stream's next operation if
//!   nobody will ask the device any more, or the turns of threads that meet each other and nobody
//!   else. What threads will do is forecast from their steps, and each turn is held against its
//!   forecast; if one did more, all starts again with a forecast of everything.
//! - *Sleep sets.* Once a turn was tried from a state, it is left alone behind that state's other
//!   turns until one is taken that does not commute with it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use xlog_driver::host::{SimulatedDriver, Streams};

use super::{
    footprint::{Footprint, Forecast},
    order::Order,
    program::Program,
    run::{Chooser, Counts, Outcome, Run, Scrutiny, Turn, run_with, streams_of},
};
use crate::oracle::{Oracle, Trace};

/// How far an exploration goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most runs, those that were cut short included.
    pub runs: u64,
    /// Whether orders that come to the same are left out.
    pub reduced: bool,
    /// How closely each run is looked at.
    pub scrutiny: Scrutiny,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 100_000, reduced: true, scrutiny: Scrutiny { waits: usize::MAX } }
    }
}

/// What was explored, and what was found.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Interleavings that were run to their end and judged: no two of them come to the same.
    pub interleavings: u64,
    /// Interleavings that these stand for, themselves included: all there are, if `complete`. A
    /// number too large to count is the largest there is.
    pub total: u128,
    /// Runs that were cut short, because whatever could follow had been run before.
    pub cut_short: u64,
    /// Whether there is none that was left out for want of runs, or after a finding.
    pub complete: bool,
    /// Whether a turn did more than was forecast, so that nothing was taken for granted.
    pub careful: bool,
    /// How much the runs did, all together.
    pub counts: Counts,
    /// How long it took.
    pub elapsed: Duration,
    /// The first interleaving that goes wrong.
    pub culprit: Option<Interleaving>,
}

/// One order of turns, and what came of it.
#[derive(Clone, Debug)]
pub struct Interleaving {
    /// Whose turn it was, one after the other.
    pub turns: Vec<Turn>,
    /// What went wrong, if anything did.
    pub outcome: Outcome,
}

impl Explored {
    /// Interleavings that were not run, since another one comes to the same.
    #[must_use]
    pub fn pruned(&self) -> u128 {
        self.total.saturating_sub(u128::from(self.interleavings))
    }
}

/// Runs a program in every order its turns can be taken, up to the first that goes wrong. The
/// program starts on a device at rest, and no driver call fails.
///
/// ```
/// use xlog_testkit::check::{Limits, Program, Stack, Step, Way, Work, explore};
///
/// let allocate = |block, stream| Step::Allocate { block, words: 4, stream, first_use: stream };
/// let work = Work::Copy { from: 0, to: 1 };
/// let program = Program {
///     stack: Stack::Async,
///     streams: 1,
///     blocks: 2,
///     device_turns: 128,
///     faults: false,
///     threads: vec![
///         vec![allocate(0, 0), Step::Launch { way: Way::Strict, work, stream: 1, salt: 0 }],
///         vec![allocate(1, 1)],
///     ],
/// };
/// let explored = explore(&program, Limits::default());
/// assert!(explored.complete && explored.culprit.is_none());
/// assert!(explored.total > u128::from(explored.interleavings));
/// ```
#[must_use]
pub fn explore(program: &Program, limits: Limits) -> Explored {
    explore_with(program, limits, &mut |_| {})
}

/// The same; `seen` is told the trace of every interleaving that is run to its end.
#[must_use]
pub fn explore_with(program: &Program, limits: Limits, seen: &mut dyn FnMut(&Trace)) -> Explored {
    let start = Instant::now();
    let program = Program { faults: false, ..program.clone() };
    let mut explored = Explored::default();
    for careful in [false, true] {
        let mut explorer = Explorer::new(Forecast::new(&program, careful), limits);
        explored = explorer.explore(&program, seen);
        if !explorer.surprised {
            break;
        }
    }
    Explored { elapsed: start.elapsed(), ..explored }
}

/// Runs a program with these turns; where they end, or cannot be taken, the run does too.
#[must_use]
pub fn follow(program: &Program, turns: &[Turn], scrutiny: Scrutiny) -> Outcome {
    let mut follower = Follower { turns, at: 0 };
    run_with(program, 0, &mut follower, scrutiny)
}

struct Follower<'t> {
    turns: &'t [Turn],
    at: usize,
}

impl Chooser for Follower<'_> {
    fn choose(&mut self, _run: &Run<'_>, ready: &[usize], runnable: Streams) -> Option<Turn> {
        self.at += 1;
        let turn = self.turns.get(self.at - 1).copied();
        turn.filter(|turn| match turn {
            Turn::Thread(thread) => ready.contains(thread),
            Turn::Stream(stream) => streams_of(runnable).any(|other| other == *stream),
        })
    }

    fn device(&self, device: SimulatedDriver) -> SimulatedDriver {
        device.never_ahead()
    }

    fn begin(&mut self, run: &Run<'_>) {
        run.world.simulation.drain();
    }
}

/// A state on the way, and the turn that was taken there.
struct State {
    turn: Turn,
    footprint: Footprint,
    /// Turns that are still to be tried from here.
    left: Vec<Turn>,
    /// Turns that need not be tried from here, nor behind it before one that does not commute.
    asleep: Vec<(Turn, Footprint)>,
}

/// Takes the turns of the path, and then the first of those that are left, again and again.
struct Explorer<'p> {
    forecast: Forecast<'p>,
    limits: Limits,
    path: Vec<State>,
    /// How many turns of the path were taken in this run.
    depth: usize,
    order: Order,
    oracle: Option<Arc<Oracle>>,
    was_cut_short: bool,
    /// Whether a turn did more than was forecast.
    surprised: bool,
}

impl<'p> Explorer<'p> {
    fn new(forecast: Forecast<'p>, limits: Limits) -> Self {
        Self {
            forecast,
            limits,
            path: Vec::new(),
            depth: 0,
            order: Order::default(),
            oracle: None,
            was_cut_short: false,
            surprised: false,
        }
    }

    fn explore(&mut self, program: &Program, seen: &mut dyn FnMut(&Trace)) -> Explored {
        let mut explored = Explored { careful: self.forecast.careful, ..Explored::default() };
        for _ in 0..self.limits.runs {
            (self.depth, self.was_cut_short) = (0, false);
            self.order = Order::default();
            let scrutiny = self.limits.scrutiny;
            let outcome = run_with(program, 0, self, scrutiny);
            if self.surprised {
                return explored;
            }
            if self.was_cut_short {
                explored.cut_short += 1;
            } else {
                explored.interleavings += 1;
                explored.counts.add(outcome.counts);
                if !outcome.failures.is_empty() {
                    let turns = self.path.iter().map(|state| state.turn).collect();
                    explored.culprit = Some(Interleaving { turns, outcome });
                    return explored;
                }
                let alike = if self.limits.reduced { self.order.count() } else { 1 };
                explored.total = explored.total.saturating_add(alike);
                if let Some(oracle) = &self.oracle {
                    seen(&oracle.trace());
                }
            }
            if !self.turn_back() {
                explored.complete = true;
                return explored;
            }
        }
        explored
    }

    /// Goes back to the last state with a turn that was not tried, and chooses that. False if there
    /// is none.
    fn turn_back(&mut self) -> bool {
        while let Some(state) = self.path.last_mut() {
            if state.left.is_empty() {
                self.path.pop();
                continue;
            }
            let next = state.left.remove(0);
            let tried = (std::mem::replace(&mut state.turn, next), state.footprint);
            if self.limits.reduced {
                state.asleep.push(tried);
            }
            return true;
        }
        false
    }

    /// The turns of which one has to come next, whatever else does.
    fn persistent(&self, run: &Run<'_>, ready: &[usize], runnable: Streams) -> Vec<Turn> {
        let threads = ready.iter().map(|thread| Turn::Thread(*thread));
        let all = threads.chain(streams_of(runnable).map(Turn::Stream));
        if !self.limits.reduced {
            return all.collect();
        }
        let rests: Vec<Option<Footprint>> =
            (0..run.threads.len()).map(|thread| self.forecast.rest(run, thread)).collect();
        let nobody_asks = !rests.iter().flatten().any(Footprint::asks);
        if let Some(stream) = streams_of(runnable).next().filter(|_| nobody_asks) {
            return vec![Turn::Stream(stream)];
        }
        let clusters = ready.iter().filter_map(|thread| self.cluster(run, *thread, &rests));
        let smallest = clusters.min_by_key(Vec::len);
        let Some(cluster) = smallest else { return all.collect() };
        let able = ready.iter().filter(|thread| cluster.contains(thread));
        able.map(|thread| Turn::Thread(*thread)).collect()
    }

    /// The threads whose next turns nobody else's turns ever meet, with this one among them; none
    /// if the device's would.
    fn cluster(
        &self,
        run: &Run<'_>,
        thread: usize,
        rests: &[Option<Footprint>],
    ) -> Option<Vec<usize>> {
        let mut cluster = vec![thread];
        let mut looked_at = 0;
        while let Some(member) = cluster.get(looked_at) {
            looked_at += 1;
            let next = self.forecast.next(run, *member);
            if next.asks() {
                return None;
            }
            for (other, rest) in rests.iter().enumerate() {
                let meets = rest.as_ref().is_some_and(|rest| next.meets(rest));
                if meets && !cluster.contains(&other) {
                    cluster.push(other);
                }
            }
        }
        Some(cluster)
    }
}

impl Chooser for Explorer<'_> {
    fn choose(&mut self, run: &Run<'_>, ready: &[usize], runnable: Streams) -> Option<Turn> {
        if let Some(state) = self.path.get_mut(self.depth) {
            if let Turn::Thread(thread) = state.turn {
                state.footprint = self.forecast.next(run, thread);
            }
            return Some(state.turn);
        }
        let mut left = self.persistent(run, ready, runnable);
        let asleep: Vec<_> = self.path.last().map_or_else(Vec::new, |last| {
            let commutes = |(_, other): &&(Turn, Footprint)| !other.meets(&last.footprint);
            last.asleep.iter().filter(commutes).copied().collect()
        });
        let nothing_left = left.is_empty();
        left.retain(|turn| !asleep.iter().any(|(other, _)| other == turn));
        if left.is_empty() {
            self.was_cut_short = !nothing_left;
            return None;
        }
        let turn = left.remove(0);
        let footprint = match turn {
            Turn::Thread(thread) => self.forecast.next(run, thread),
            Turn::Stream(_) => Footprint::default(),
        };
        self.path.push(State { turn, footprint, left, asleep });
        Some(turn)
    }

    fn took(&mut self, run: &Run<'_>) {
        let touched = run.world.simulation.take_touched();
        let Some(state) = self.path.get_mut(self.depth) else { return };
        state.footprint = match state.turn {
            Turn::Stream(stream) => Footprint::of_operation(stream),
            Turn::Thread(_) => state.footprint.with(&touched).unwrap_or_else(|| {
                self.surprised = self.limits.reduced;
                state.footprint
            }),
        };
        self.order.add(state.turn, state.footprint, &run.world.simulation);
        self.depth += 1;
    }

    fn device(&self, device: SimulatedDriver) -> SimulatedDriver {
        device.never_ahead()
    }

    fn begin(&mut self, run: &Run<'_>) {
        run.world.simulation.drain();
        run.world.simulation.take_touched();
        self.oracle = Some(Arc::clone(&run.world.oracle));
    }
}
