//! The defects seen in systems of this kind, one test each.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
