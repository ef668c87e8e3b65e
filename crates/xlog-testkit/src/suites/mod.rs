//! The conformance suites. Each test is a function of the device it runs on, and names the rule it
//! shows.

// A suite is test code: it fails by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

mod batches;
mod builder;
mod defects;
mod endurance;
mod hazards;
mod memory;
mod misuse;
mod reaping;
mod recorder;
mod reports;
mod resources;
mod rules;
mod support;
mod threads;
mod vocabulary;

use crate::TestCase;

/// Every suite: its name and its tests.
pub fn all() -> impl Iterator<Item = (&'static str, &'static [TestCase])> {
    [
        ("vocabulary", vocabulary::CASES),
        ("aligned", resources::aligned::CASES),
        ("allocation", resources::allocation::CASES),
        ("deallocation", resources::deallocation::CASES),
        ("direct", resources::direct::CASES),
        ("decorators", resources::decorators::CASES),
        ("adaptors", resources::adaptors::CASES),
        ("logging", resources::logging::CASES),
        ("log_order", resources::log_order::CASES),
        ("pinned", resources::pinned::CASES),
        ("pool", resources::pool::CASES),
        ("suballocation", resources::suballocation::CASES),
        ("suballocation", resources::suballocation_crowd::CASES),
        ("programs", resources::programs::CASES),
        ("conformance", resources::conformance::CASES),
        ("budget", resources::budget::CASES),
        ("guard", resources::guard::CASES),
        ("facade", resources::facade::CASES),
        ("order", rules::order::CASES),
        ("economy", rules::economy::CASES),
        ("refusals", rules::refusals::CASES),
        ("hazards", hazards::CASES),
        ("recorder", recorder::CASES),
        ("builder", builder::CASES),
        ("reports", reports::CASES),
        ("batches", batches::CASES),
        ("memory", memory::CASES),
        ("misuse", misuse::CASES),
        ("reaping", reaping::CASES),
        ("threads", threads::CASES),
        ("defects", defects::CASES),
        ("endurance", endurance::CASES),
    ]
    .into_iter()
}
