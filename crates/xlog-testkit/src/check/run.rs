//! Runs a program under simulation: one turn after the other, a thread's or the device's, as a
//! chooser says.

use std::panic::{AssertUnwindSafe, catch_unwind};

use xlog_cuda::{
    LoadedKernel,
    device_runtime::{Generation, VirtualThread},
    launch::LaunchRecorder,
    memory::Download,
};
use xlog_driver::{
    Arguments,
    host::{SimulatedDriver, Streams},
};

use super::{
    bench::{Claim, Stale},
    failure::Failure,
    judge,
    program::{Program, Step, Stream, Variable, Way, Work},
    random::Draw,
    world::World,
};

/// Whose turn it is: a thread's, or a stream's of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Turn {
    /// The next thing this thread does.
    Thread(usize),
    /// The next operation of this stream.
    Stream(Stream),
}

/// Decides whose turn it is.
pub(super) trait Chooser {
    /// One of the threads that are `ready`, or of the streams that are `runnable`; none, to end the
    /// run here.
    fn choose(&mut self, run: &Run<'_>, ready: &[usize], runnable: Streams) -> Option<Turn>;
    /// Everything is set up.
    fn begin(&mut self, _run: &Run<'_>) {}
    /// The turn was taken.
    fn took(&mut self, _run: &Run<'_>) {}
    /// The device that the program runs on, which is made like this unless the chooser has reasons.
    fn device(&self, device: SimulatedDriver) -> SimulatedDriver {
        device
    }
}

impl Chooser for Draw {
    fn choose(&mut self, run: &Run<'_>, ready: &[usize], runnable: Streams) -> Option<Turn> {
        let device = runnable != 0 && (ready.is_empty() || self.chance(run.program.device_turns));
        if !device {
            return ready.get(self.below(ready.len())).map(|thread| Turn::Thread(*thread));
        }
        let choice = self.below(runnable.count_ones() as usize);
        streams_of(runnable).nth(choice).map(Turn::Stream)
    }
}

/// The streams that are set.
pub(super) fn streams_of(mut streams: Streams) -> impl Iterator<Item = Stream> {
    std::iter::from_fn(move || {
        let stream = (streams != 0).then(|| streams.trailing_zeros() as usize);
        streams &= streams.wrapping_sub(1);
        stream
    })
}

/// How much a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Turns taken, by threads and by the device.
    pub turns: u64,
    /// Launches and copies that were enqueued.
    pub launches: u64,
    /// Waits that were queued.
    pub waits: u64,
    /// Waits that were taken out, one at a time, to see the race that each prevents.
    pub waits_checked: u64,
    /// Driver calls that were made to fail.
    pub faults: u64,
    /// Preflights that were refused because of another thread's claim.
    pub refusals: u64,
}

impl Counts {
    /// Adds another run's.
    pub fn add(&mut self, other: Self) {
        self.turns += other.turns;
        self.launches += other.launches;
        self.waits += other.waits;
        self.waits_checked += other.waits_checked;
        self.faults += other.faults;
        self.refusals += other.refusals;
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was wrong; empty if nothing was.
    pub failures: Vec<Failure>,
    /// How much it did.
    pub counts: Counts,
}

/// How closely a run is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrutiny {
    /// The most waits of a run that are taken out to see the race they prevent.
    pub waits: usize,
}

impl Default for Scrutiny {
    fn default() -> Self {
        Self { waits: 24 }
    }
}

/// Faults a program meets at most.
const MOST_FAULTS: u64 = 3;

/// One driver call in so many fails, until there were enough.
const ONE_FAULT_IN: u64 = 40;

/// Runs a program with the turns, the device's choices and the faults of a seed.
#[must_use]
pub fn run(program: &Program, seed: u64, scrutiny: Scrutiny) -> Outcome {
    let mut draw = Draw::new(seed ^ 0x5ced_01e5);
    run_with(program, seed, &mut draw, scrutiny)
}

/// The same with another chooser of turns.
pub(super) fn run_with(
    program: &Program,
    seed: u64,
    chooser: &mut dyn Chooser,
    scrutiny: Scrutiny,
) -> Outcome {
    let mut outcome = Outcome::default();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let device = chooser.device(SimulatedDriver::new(0, seed));
        let mut run = match World::new(program, device) {
            Ok(world) => Run::new(program, world),
            Err(error) => {
                let failure = Failure::UnexpectedError(format!("setting up: {error}"));
                return Outcome { failures: vec![failure], ..Outcome::default() };
            }
        };
        if program.faults {
            run.world.driver.fail_randomly(seed, ONE_FAULT_IN, MOST_FAULTS);
        }
        chooser.begin(&run);
        run.take_turns(chooser);
        judge::judge(run, Draw::new(seed), scrutiny)
    }));
    match ran {
        Ok(ended) => outcome = ended,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(ToString::to_string)
                .or_else(|| panic.downcast_ref::<String>().cloned());
            outcome.failures.push(Failure::Panic(text.unwrap_or_default()));
        }
    }
    outcome
}

/// A recorder between its preflight and its commit.
pub(super) struct Open {
    pub(super) recorder: LaunchRecorder,
    pub(super) claims: Vec<Claim>,
    /// How long the claimed blocks are.
    pub(super) claimed: Vec<(Generation, usize)>,
    pub(super) launch: (LoadedKernel, Arguments),
    pub(super) work: Work,
    pub(super) stream: Stream,
    pub(super) salt: u32,
    pub(super) enqueue: bool,
    pub(super) commit: bool,
}

/// A thread of the program.
pub(super) struct Thread {
    pub(super) itself: VirtualThread,
    pub(super) next: usize,
    pub(super) open: Option<Open>,
    pub(super) downloads: Vec<(Download<u32>, Vec<u32>, Variable)>,
}

/// A program on its way.
pub(super) struct Run<'p> {
    pub(super) program: &'p Program,
    pub(super) world: World,
    pub(super) failures: Vec<Failure>,
    pub(super) counts: Counts,
    pub(super) threads: Vec<Thread>,
    /// The last block each variable held before the one it holds.
    pub(super) stale: Vec<Option<Stale>>,
}

impl<'p> Run<'p> {
    fn new(program: &'p Program, world: World) -> Self {
        let thread =
            |_| Thread { itself: VirtualThread::new(), next: 0, open: None, downloads: Vec::new() };
        let threads = program.threads.iter().map(thread).collect();
        let (failures, counts) = (Vec::new(), Counts::default());
        let stale = std::iter::repeat_with(|| None).take(program.blocks).collect();
        Self { program, world, failures, counts, threads, stale }
    }

    fn take_turns(&mut self, chooser: &mut dyn Chooser) {
        loop {
            let ready: Vec<usize> =
                (0..self.threads.len()).filter(|thread| self.is_ready(*thread)).collect();
            let runnable = self.world.simulation.runnable_streams();
            self.counts.turns += 1;
            match chooser.choose(self, &ready, runnable) {
                Some(Turn::Stream(stream)) => {
                    self.world.simulation.step_stream(stream);
                }
                Some(Turn::Thread(thread)) => self.take_turn(thread),
                None => break,
            }
            chooser.took(self);
            if !self.failures.is_empty() || self.world.simulation.deadlock().is_some() {
                break;
            }
        }
        let mut threads = self.threads.iter().zip(&self.program.threads);
        if threads.any(|(thread, steps)| thread.next < steps.len()) && self.failures.is_empty() {
            let waiting = "threads wait for each other's claims";
            let deadlock = self.world.simulation.deadlock();
            self.failures.push(Failure::Deadlock(deadlock.unwrap_or_else(|| waiting.into())));
        }
        self.world.driver.heal();
        // What is still in hand goes in the order of the threads.
        for thread in 0..self.threads.len() {
            let Thread { open, downloads, .. } = &mut self.threads[thread];
            let (open, downloads) = (open.take(), std::mem::take(downloads));
            if let Some(open) = open {
                self.abandon(thread, open);
            }
            for (download, expected, variable) in downloads {
                self.finish_download(download, &expected, variable);
            }
        }
    }

    /// Whether a thread can go on: it has something left to do, and would not wait for another's
    /// claims.
    fn is_ready(&self, thread: usize) -> bool {
        let state = &self.threads[thread];
        state.open.is_some() || !state.downloads.is_empty() || self.may_step(thread)
    }

    /// Whether a thread can take its next step.
    fn may_step(&self, thread: usize) -> bool {
        let next = self.threads[thread].next;
        let Some(step) = self.program.threads[thread].get(next) else { return false };
        match *step {
            // Refused at once, so it need not wait.
            Step::Launch { way: Way::Builder, work, stream, .. } => {
                !self.is_held(&self.world.variables.claims_of(work, stream), thread)
            }
            Step::Launch { .. } => true,
            _ => !self.is_held(&self.world.variables.claims(&step.uses()), thread),
        }
    }

    /// Whether another thread's open launch claims one of these in a way that conflicts.
    pub(super) fn is_held(&self, claims: &[Claim], thread: usize) -> bool {
        let others = self.threads.iter().enumerate().filter(|(other, _)| *other != thread);
        let mut held = others.filter_map(|(_, other)| other.open.as_ref()).flat_map(|o| &o.claims);
        held.any(|(generation, access)| {
            let conflicts = |(mine, my_access): &Claim| {
                mine == generation && (access.writes() || my_access.writes())
            };
            claims.iter().any(conflicts)
        })
    }

    fn take_turn(&mut self, thread: usize) {
        if let Some(open) = self.threads[thread].open.take() {
            return self.go_on(thread, open);
        }
        let may_step = self.may_step(thread);
        let state = &mut self.threads[thread];
        let step = self.program.threads[thread].get(state.next).copied();
        // Results are asked for some steps after the copy was started, or at the end.
        if !may_step || state.downloads.len() > 1 {
            if !state.downloads.is_empty() {
                let (download, expected, variable) = state.downloads.remove(0);
                self.finish_download(download, &expected, variable);
            }
            return;
        }
        state.next += 1;
        if let Some(step) = step
            && self.world.variables.has(&step.uses())
        {
            self.take_step(thread, step);
        }
    }
}
