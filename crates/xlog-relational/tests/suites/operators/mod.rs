//! Joins, groups and sets of rows, each against the reference.

#![allow(clippy::panic)] // that is how a test fails

use libtest_mimic::Trial;
use xlog_relational::Engine;

mod cases;
mod group;
mod join;
mod parts;
mod property;
mod rounds;
mod sets;
mod threads;

/// Every test of these operators.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    let mut trials = group::tests(engine);
    trials.extend(join::tests(engine));
    trials.extend(parts::tests(engine));
    trials.extend(sets::tests(engine));
    trials.extend(threads::tests(engine));
    trials
}
