//! Adaptors: resources that wrap another one, and do one thing more.
//!
//! Each takes the resource below it as a `Box<dyn DeviceMemoryResource + Send + Sync>`, passes on
//! what it does not change, errors included, and leaves every check of blocks and streams to that
//! resource. None of them orders anything: the order of uses is the tracker's, below.
//!
//! To ask an adaptor about itself while a runtime owns it, share it: an `Arc` of a resource is a
//! resource too.

mod failed_frees;
mod failure_callback;
mod fault_injection;
mod fault_plan;
mod holding;
mod ledger;
#[cfg(all(test, loom))]
mod models;
mod statistics;
mod tracking;

pub use failure_callback::{Failure, FailureCallbackResource};
pub use fault_injection::FaultInjectionResource;
pub use fault_plan::{FaultPlan, Operation};
pub use holding::Holding;
pub use ledger::{Counter, Statistics};
pub use statistics::StatisticsResource;
pub use tracking::TrackingResource;

use super::DeviceMemoryResource;

/// The resource below an adaptor.
type Inner = Box<dyn DeviceMemoryResource + Send + Sync>;
