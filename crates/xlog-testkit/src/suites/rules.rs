//! The dependency rules, one by one.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
