//! Threads that share a runtime and its blocks.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
