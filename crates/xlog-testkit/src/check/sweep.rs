//! Many seeds, one after the other, on several threads.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use xlog_cuda::mutant::{self, Mutant};

use super::{
    program::{Program, Shape},
    run::{Counts, Scrutiny, run},
    shrink::Culprit,
};

/// What to check.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the programs look like.
    pub shape: Shape,
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds.
    pub seeds: u64,
    /// How closely to look.
    pub scrutiny: Scrutiny,
    /// Threads that work on it.
    pub workers: usize,
}

/// What was checked, and what was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Programs that were run.
    pub programs: u64,
    /// How much they did, all together.
    pub counts: Counts,
    /// How long it took.
    pub elapsed: Duration,
    /// The first seed that goes wrong, its program as it was generated.
    pub culprit: Option<Culprit>,
}

/// The seed of a program's turns, from the seed it was generated from.
#[must_use]
pub fn turns_of(seed: u64) -> u64 {
    seed ^ 0x7421_5eed
}

/// Runs the program of one seed.
#[must_use]
pub fn check_seed(shape: &Shape, seed: u64, scrutiny: Scrutiny) -> Culprit {
    let program = Program::generate(shape, seed);
    let outcome = run(&program, turns_of(seed), scrutiny);
    Culprit { program, seed: turns_of(seed), outcome }
}

/// Runs the programs of all seeds, up to the first that goes wrong. `progress` is told the number
/// of programs now and then; if it answers false, this ends early.
#[must_use]
pub fn sweep(plan: &Plan, progress: &(dyn Fn(u64) -> bool + Sync)) -> Report {
    let start = Instant::now();
    if mutant::is(Mutant::NothingChecked) {
        return Report::default();
    }
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let report = Mutex::new((Report::default(), u64::MAX));
    let work = || {
        let (mut programs, mut counts) = (0, Counts::default());
        while !stop.load(Ordering::Relaxed) {
            let offset = next.fetch_add(1, Ordering::Relaxed);
            if offset >= plan.seeds {
                break;
            }
            let seed = plan.first_seed.wrapping_add(offset);
            let culprit = check_seed(&plan.shape, seed, plan.scrutiny);
            programs += 1;
            counts.add(culprit.outcome.counts);
            if !culprit.outcome.failures.is_empty() {
                let mut report = report.lock();
                // Of several, the first seed: the same, whoever was faster.
                if offset < report.1 {
                    *report = (Report { culprit: Some(culprit), ..report.0.clone() }, offset);
                }
                stop.store(true, Ordering::Relaxed);
            }
            if !progress(offset + 1) {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let mut report = report.lock();
        report.0.programs += programs;
        report.0.counts.add(counts);
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.workers.max(1) {
            scope.spawn(work);
        }
    });
    let (report, _) = report.into_inner();
    Report { elapsed: start.elapsed(), ..report }
}
