//! The words of the runtime.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
