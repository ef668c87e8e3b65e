//! The suites, one source for both devices.

#![allow(clippy::panic)] // that is how a test fails

use libtest_mimic::{Arguments, Trial};
use xlog_relational::Engine;

mod gather;
mod ops_cases;
mod ops_group;
mod ops_join;
mod ops_property;
mod ops_rounds;
mod ops_sets;
mod ops_threads;
mod scan;
mod select;
mod sort;
mod support;
mod unique;

/// Runs every suite as an ordinary test program.
pub fn run(engine: &Engine) -> ! {
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(gather::tests(engine));
    trials.extend(ops_group::tests(engine));
    trials.extend(ops_join::tests(engine));
    trials.extend(ops_sets::tests(engine));
    trials.extend(ops_threads::tests(engine));
    trials.extend(scan::tests(engine));
    trials.extend(select::tests(engine));
    trials.extend(sort::tests(engine));
    trials.extend(unique::tests(engine));
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}
