//! Long runs: nothing grows.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
