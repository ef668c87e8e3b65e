//! Pending frees under failures and races.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
