//! The device-wide steps, each against what the host makes of the same values.

use libtest_mimic::Trial;
use xlog_relational::Engine;

mod gather;
mod scan;
mod select;
mod sort;
pub mod support;
mod unique;

/// Every test of the steps without a hash table.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(gather::tests(engine));
    trials.extend(scan::tests(engine));
    trials.extend(select::tests(engine));
    trials.extend(sort::tests(engine));
    trials.extend(unique::tests(engine));
    trials
}
