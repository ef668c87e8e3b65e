//! The launch recorder, step by step.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
