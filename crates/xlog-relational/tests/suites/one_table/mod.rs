//! Operators of one table, and `concat`, each against the oracle.

use libtest_mimic::Trial;
use xlog_relational::Engine;

mod faults;
mod filter;
mod rows;
mod sort;
mod support;

/// Every test of these operators.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(faults::tests(engine));
    trials.extend(filter::tests(engine));
    trials.extend(rows::tests(engine));
    trials.extend(sort::tests(engine));
    trials
}
