//! The launch builder: arguments are uses, and mistakes are errors.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
