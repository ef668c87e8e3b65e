//! Every misuse gets its error and changes nothing.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
