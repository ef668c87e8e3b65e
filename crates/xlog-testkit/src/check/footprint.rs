//! What a turn has to do with: two turns that have nothing in common may change places.
//!
//! Turns *commute* if either order leads to the same state and neither lets or keeps the other from
//! being taken. They do unless they have one of these in common:
//!
//! - a **variable**: its block, the claims on it, and what it must hold;
//! - a **lane**: a stream's place in the runtime's books. Work that is enqueued on one moves it; a
//!   free looks at those of all streams, and so does a pool's allocation. A launch also follows
//!   points of other lanes, but a point and its event never change once they are there, except for
//!   what the host learns;
//! - **memory**: allocations, frees and staging buffers all take from the same stores;
//! - **what the host knows** of the device's progress, which changes only where it asks, and which
//!   every turn of a thread may look at;
//! - a stream's **progress**: an operation of the device moves it, and who asks sees it. Asking is
//!   seen by the simulated device itself, which says after each turn whose progress decided
//!   anything; nothing runs on it by itself.
//!
//! So two operations of the device on different streams commute. Operations that touch the same
//! bytes and could go in either order do not; but that is the race that the oracle reports in
//! whichever order they go, and there the exploration ends. An operation and a thread's turn
//! commute unless the turn asks: what is enqueued goes to the back of a queue, what runs comes from
//! its front.

use xlog_driver::host::{Streams, Touched};

use super::{
    Stack,
    program::{Program, Step, Stream, Variable, Way},
    run::Run,
};

const ALL: Streams = Streams::MAX;

/// What a turn, or several, have to do with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    variables: u64,
    lanes: Streams,
    memory: bool,
    /// Whether it is a thread's, and whether that may learn of progress.
    by_thread: bool,
    learns: bool,
    sees_progress: Streams,
    makes_progress: Streams,
}

impl Footprint {
    /// One operation of a stream.
    pub(super) fn of_operation(stream: usize) -> Self {
        Self { makes_progress: 1 << stream.min(63), ..Self::default() }
    }

    /// Whether the two have something in common.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.variables & other.variables != 0
            || self.lanes & other.lanes != 0
            || (self.memory && other.memory)
            || (self.learns && other.by_thread)
            || (other.learns && self.by_thread)
            || self.makes_progress & (other.sees_progress | other.makes_progress) != 0
            || other.makes_progress & self.sees_progress != 0
    }

    /// Whether the device's progress may make a difference to it.
    pub(super) fn asks(&self) -> bool {
        self.sees_progress | self.makes_progress != 0
    }

    fn and(self, other: Self) -> Self {
        Self {
            variables: self.variables | other.variables,
            lanes: self.lanes | other.lanes,
            memory: self.memory || other.memory,
            by_thread: self.by_thread || other.by_thread,
            learns: self.learns || other.learns,
            sees_progress: self.sees_progress | other.sees_progress,
            makes_progress: self.makes_progress | other.makes_progress,
        }
    }

    /// This forecast with what came true of it; `None` if there was more than forecast.
    pub(super) fn with(self, touched: &Touched) -> Option<Self> {
        let progress = touched.asked | touched.ran;
        let foreseen = touched.enqueued & !self.lanes == 0
            && progress & !(self.sees_progress | self.makes_progress) == 0
            && (self.memory || !touched.memory);
        let seen = Self {
            lanes: self.lanes | progress,
            learns: progress != 0,
            sees_progress: touched.asked,
            makes_progress: touched.ran,
            ..self
        };
        foreseen.then_some(seen)
    }

    fn on(variables: &[Variable], lanes: Streams) -> Self {
        let bits = variables.iter().fold(0, |bits, variable| bits | 1 << (*variable).min(63));
        Self { variables: bits, lanes, by_thread: true, ..Self::default() }
    }

    fn and_memory(self) -> Self {
        Self { memory: true, ..self }
    }

    fn and_free(self) -> Self {
        Self { lanes: ALL, memory: true, ..self }
    }

    fn and_asks(self) -> Self {
        Self { learns: true, sees_progress: ALL, makes_progress: ALL, ..self }
    }

    fn everything() -> Self {
        Self::on(&[], ALL).and_memory().and_asks()
    }
}

/// Says what turns will have to do with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forecast<'p> {
    program: &'p Program,
    /// Whether nothing is taken for granted: every turn of a thread may do everything.
    pub(super) careful: bool,
    /// Whether the program frees anything before its end.
    frees: bool,
    /// Whether it gives memory back to the device before its end.
    trims: bool,
}

impl<'p> Forecast<'p> {
    pub(super) fn new(program: &'p Program, careful: bool) -> Self {
        let steps = || program.threads.iter().flatten();
        let allocated = |variable| {
            let is_it =
                |step: &&Step| matches!(step, Step::Allocate { block, .. } if *block == variable);
            steps().filter(is_it).count()
        };
        let frees = |step: &Step| match step {
            Step::Free { .. } | Step::Trim => true,
            Step::Allocate { block, .. } => allocated(*block) > 1,
            _ => false,
        };
        let trims = steps().any(|step| matches!(step, Step::Trim));
        Self { program, careful, frees: steps().any(frees), trims }
    }

    /// What a thread's next turn may have to do with.
    pub(super) fn next(&self, run: &Run<'_>, thread: usize) -> Footprint {
        if self.careful {
            return Footprint::everything();
        }
        let (state, steps) = (&run.threads[thread], &self.program.threads[thread]);
        let footprint = match &state.open {
            Some(open) => {
                // The step it came from names its variables. If one of its blocks was freed
                // meanwhile, its end is the block's too.
                let step = state.next.checked_sub(1).map(|last| self.step(&steps[last]));
                let footprint = step.unwrap_or_else(Footprint::everything);
                let freed = |generation| !run.world.variables.holds(generation);
                let ends = open.claims.iter().any(|(generation, _)| freed(*generation));
                if ends { footprint.and_free() } else { footprint }
            }
            None => steps.get(state.next).map_or(Footprint::on(&[], 0), |step| self.step(step)),
        };
        // A result is taken before a step that has to wait: so that hangs on the step's blocks.
        if state.downloads.is_empty() { footprint } else { footprint.and_memory().and_asks() }
    }

    /// What all that a thread has left to do may have to do with; `None` if it is done.
    pub(super) fn rest(&self, run: &Run<'_>, thread: usize) -> Option<Footprint> {
        let (state, steps) = (&run.threads[thread], &self.program.threads[thread]);
        // An open launch is still the step before.
        let from = state.next - usize::from(state.open.is_some());
        let whole = |step: &Step| {
            let by_recorder = matches!(step, Step::Launch { way, .. } if *way != Way::Builder);
            let footprint = self.step(step);
            if by_recorder && self.frees { footprint.and_free() } else { footprint }
        };
        let downloads = Footprint::on(&[], 0).and_memory().and_asks();
        let downloads = (!state.downloads.is_empty()).then_some(downloads);
        let all = steps[from..].iter().map(whole).chain(downloads).reduce(Footprint::and)?;
        Some(if self.careful { Footprint::everything() } else { all })
    }

    /// A stream as the device numbers it: in the order in which they were created. The default one
    /// comes when it is first used, after the others.
    fn lane(&self, stream: Stream) -> Streams {
        let number = stream.checked_sub(1).unwrap_or(self.program.streams);
        1 << number.min(63)
    }

    fn step(&self, step: &Step) -> Footprint {
        let lane = |stream| self.lane(stream);
        let stack = self.program.stack;
        match *step {
            Step::Allocate { block, stream, first_use, .. } => {
                let lanes = if stack.is_pooled() || self.frees {
                    ALL
                } else {
                    lane(stream) | lane(first_use)
                };
                let footprint = Footprint::on(&[block], lanes).and_memory();
                // Whether a range that was freed elsewhere can be had depends on who got how far.
                let asks = match stack {
                    Stack::Tight | Stack::Cramped => true,
                    _ if stack.is_pooled() => self.trims,
                    _ => self.frees,
                };
                if asks { footprint.and_asks() } else { footprint }
            }
            Step::Free { block } | Step::FreeAgain { block } => {
                Footprint::on(&[block], ALL).and_free()
            }
            Step::Launch { work, stream, .. } => {
                let variables: Vec<_> = work.uses().into_iter().map(|(block, _)| block).collect();
                Footprint::on(&variables, lane(stream))
            }
            Step::Upload { block, stream, .. } | Step::Download { block, stream } => {
                Footprint::on(&[block], lane(stream)).and_memory().and_asks()
            }
            Step::CopyBlock { from, to, stream } => Footprint::on(&[from, to], lane(stream)),
            Step::Memset { block, stream, .. }
            | Step::UseAgain { block, stream }
            | Step::BareWrite { block, stream } => Footprint::on(&[block], lane(stream)),
            Step::Synchronize { .. } | Step::Reap | Step::TryReap | Step::Trim => {
                Footprint::everything()
            }
        }
    }
}
