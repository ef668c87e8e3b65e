//! Known defects are found by exploring small programs, each in an order that can be followed
//! again.

#[path = "explore/programs.rs"]
mod programs;

use xlog_cuda::mutant::{Mutant, switch_on};
use xlog_testkit::check::{Limits, Program, explore, follow};

use self::programs::*;

fn all_programs() -> [(&'static str, Program); 9] {
    [
        ("hand-over chain", hand_over_chain()),
        ("fan-out and fan-in", fan_out_and_in()),
        ("free while read", free_while_read()),
        ("two recorders", two_recorders()),
        ("dropped recorders", dropped_recorders()),
        ("pool reuse", pool_reuse()),
        ("pool steal", pool_steal()),
        ("claim conflict", claim_conflict()),
        ("waits and reaps", waits_and_reaps()),
    ]
}

/// The kind of what exploring finds with a defect switched on.
fn found(mutant: Mutant) -> Option<&'static str> {
    assert!(switch_on(Some(mutant)), "built without the feature `mutants`");
    let limits = Limits { runs: 5_000, ..Limits::default() };
    let mut kind = None;
    for (name, program) in all_programs() {
        let explored = explore(&program, limits);
        let Some(culprit) = explored.culprit else { continue };
        kind = culprit.outcome.failures.first().map(|failure| failure.kind());
        let again = follow(&program, &culprit.turns, limits.scrutiny);
        assert_eq!(again.failures.first().map(|failure| failure.kind()), kind, "{mutant:?}");
        let runs = explored.interleavings + explored.cut_short;
        println!("{mutant:?}: {}, in {name}, in run {runs}", kind.unwrap_or_default());
        break;
    }
    assert!(switch_on(None));
    kind
}

/// What exploring these programs finds. The others need a call that fails, a stale handle, a
/// budget, a use past the recorder, two threads inside one call, more launches, or no check at all.
const FOUND: [Mutant; 17] = [
    Mutant::OneReader,
    Mutant::ReadersPileUp,
    Mutant::NumberedTooSoon,
    Mutant::NeighbourForgotten,
    Mutant::RemainderForgotten,
    Mutant::NoClaims,
    Mutant::NoBirthInSlabs,
    Mutant::ReadElsewhere,
    Mutant::ReadSkipsWrite,
    Mutant::WriteSkipsWrite,
    Mutant::WriteSkipsReads,
    Mutant::WaitsForItself,
    Mutant::NoBirth,
    Mutant::WriteKeepsReads,
    Mutant::FreeSkipsUses,
    Mutant::CarvedFresh,
    Mutant::LateWait,
];

/// One test, since a defect is on for the whole process.
#[test]
fn defects_are_found_in_some_interleaving() {
    for mutant in FOUND {
        assert!(found(mutant).is_some(), "{mutant:?}: {}", mutant.what());
    }
    for (name, program) in all_programs() {
        let limits = Limits { runs: 200, ..Limits::default() };
        assert!(explore(&program, limits).culprit.is_none(), "{name} with all defects off");
    }
}
