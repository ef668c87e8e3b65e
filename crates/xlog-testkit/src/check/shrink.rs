//! Makes a program that goes wrong as short as it can be.

use super::{
    program::{Program, Step},
    run::{Outcome, Scrutiny, run},
};

/// A program that goes wrong, and the seed of the turns with which it does.
#[derive(Clone, Debug)]
pub struct Culprit {
    /// The program.
    pub program: Program,
    /// The seed of its turns.
    pub seed: u64,
    /// What goes wrong.
    pub outcome: Outcome,
}

/// Seeds of turns a shorter program is tried with: with steps gone, the old ones mean other turns.
const TRIES: u64 = 12;

/// Runs that shrinking may take.
const MOST_RUNS: u64 = 20_000;

/// Leaves out of a program what it does not need to go wrong in the same way.
#[must_use]
pub fn shrink(mut culprit: Culprit, scrutiny: Scrutiny) -> Culprit {
    let Some(kind) = culprit.outcome.failures.first().map(super::Failure::kind) else {
        return culprit;
    };
    let mut runs = 0;
    let mut try_it = |program: Program, old_seed: u64| -> Option<Culprit> {
        for seed in std::iter::once(old_seed).chain(0..TRIES) {
            runs += 1;
            if runs > MOST_RUNS {
                return None;
            }
            let outcome = run(&program, seed, scrutiny);
            if outcome.failures.iter().any(|failure| failure.kind() == kind) {
                return Some(Culprit { program, seed, outcome });
            }
        }
        None
    };
    loop {
        let before = culprit.program.clone();
        let mut length = culprit.program.steps().div_ceil(2);
        while length > 0 {
            let mut start = 0;
            while start < culprit.program.steps() {
                match try_it(without(&culprit.program, start, length), culprit.seed) {
                    Some(shorter) => culprit = shorter,
                    None => start += length,
                }
            }
            length /= 2;
        }
        for simpler in simpler_programs(&culprit.program) {
            if let Some(found) = try_it(simpler, culprit.seed) {
                culprit = found;
                break;
            }
        }
        if culprit.program == before {
            return culprit;
        }
    }
}

/// The program without `length` steps from `start` on, counted through all threads.
fn without(program: &Program, start: usize, length: usize) -> Program {
    let (mut shorter, mut number) = (program.clone(), 0);
    for thread in &mut shorter.threads {
        thread.retain(|_| {
            number += 1;
            !(start..start + length).contains(&(number - 1))
        });
    }
    shorter
}

/// The program with one thing simpler: fewer threads, the plain stack, shorter blocks.
fn simpler_programs(program: &Program) -> Vec<Program> {
    let mut simpler = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Program)| {
        let mut other = program.clone();
        change(&mut other);
        if other != *program {
            simpler.push(other);
        }
    };
    offer(&|program| program.threads.retain(|thread| !thread.is_empty()));
    offer(&|program| {
        let steps = std::mem::take(&mut program.threads).concat();
        program.threads = vec![steps];
    });
    offer(&|program| program.stack = super::Stack::Async);
    offer(&|program| program.stack = super::Stack::Pool);
    offer(&|program| {
        for step in program.threads.iter_mut().flatten() {
            if let Step::Allocate { words, .. } = step {
                *words = 1;
            }
        }
    });
    offer(&|program| {
        for step in program.threads.iter_mut().flatten() {
            if let Step::Allocate { stream, first_use, .. } = step {
                *first_use = *stream;
            }
        }
    });
    simpler
}
