//! Slices, views, columns, copies.

use crate::TestCase;

pub(super) const CASES: &[TestCase] = &[];
