//! The two resources and the stream pool.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
