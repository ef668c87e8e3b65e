//! What a recording is written as.

use xlog_testkit::{TestCase, cases};

pub(crate) const CASES: &[TestCase] = cases![];
