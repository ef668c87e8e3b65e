//! The dependency rules, one by one: which waits there are, and that there are no others.

pub(super) mod economy;
pub(super) mod order;
pub(super) mod refusals;
