//! The contract of memory resources, the stream pool, and the facade over both.

pub(super) mod adaptors;
pub(super) mod aligned;
pub(super) mod allocation;
pub(super) mod budget;
pub(super) mod conformance;
pub(super) mod deallocation;
pub(super) mod decorators;
pub(super) mod direct;
pub(super) mod facade;
pub(super) mod guard;
pub(super) mod log_order;
pub(super) mod logging;
pub(super) mod pinned;
pub(super) mod pool;
pub(super) mod programs;
pub(super) mod suballocation;
pub(super) mod suballocation_crowd;
