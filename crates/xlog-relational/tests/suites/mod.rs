//! The suites, one source for both devices.

use libtest_mimic::{Arguments, Trial};
use xlog_relational::Engine;

mod sort;
mod support;

/// Runs every suite as an ordinary test program.
pub fn run(engine: &Engine) -> ! {
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(sort::tests(engine));
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}
