//! The suites, one source for both devices.

use libtest_mimic::{Arguments, Trial};
use xlog_relational::Engine;

mod gather;
mod ops_faults;
mod ops_filter;
mod ops_rows;
mod ops_sort;
mod ops_support;
mod scan;
mod select;
mod sort;
mod support;
mod unique;

/// Runs every suite as an ordinary test program.
pub fn run(engine: &Engine) -> ! {
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(gather::tests(engine));
    trials.extend(ops_faults::tests(engine));
    trials.extend(ops_filter::tests(engine));
    trials.extend(ops_rows::tests(engine));
    trials.extend(ops_sort::tests(engine));
    trials.extend(scan::tests(engine));
    trials.extend(select::tests(engine));
    trials.extend(sort::tests(engine));
    trials.extend(unique::tests(engine));
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}
