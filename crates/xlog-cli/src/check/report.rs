//! What a check says at its end.

use serde_json::json;
use xlog_testkit::check::{Culprit, Report};

use super::CheckOptions;

/// Prints how much was checked.
pub(super) fn print(options: &CheckOptions, report: &Report) {
    let (counts, seconds) = (report.counts, report.elapsed.as_secs_f64());
    let a_second = |count: u64| count as f64 / seconds.max(1e-9);
    let found = report.culprit.is_some();
    if options.json {
        let object = json!({
            "check": "programs",
            "programs": report.programs,
            "turns": counts.turns,
            "launches": counts.launches,
            "waits": counts.waits,
            "waits_taken_out": counts.waits_checked,
            "waits_superfluous": if found { None } else { Some(0) },
            "refusals": counts.refusals,
            "faults": counts.faults,
            "seconds": seconds,
            "launches_per_second": a_second(counts.launches),
            "interleavings_per_second": a_second(report.programs),
            "found": found,
        });
        say!("{object}");
        return;
    }
    say!(
        "{} programs, each in one interleaving: {} turns, {} launches and copies, {} waits",
        report.programs,
        counts.turns,
        counts.launches,
        counts.waits
    );
    if counts.faults > 0 {
        say!("{} driver calls were made to fail", counts.faults);
    }
    if !found {
        say!(
            "{} waits were taken out, one at a time: each lets two operations race, 0 are \
             superfluous",
            counts.waits_checked
        );
        say!("{} conflicting preflights were refused, and none that was not", counts.refusals);
    }
    say!(
        "{:.1} s: {:.0} launches a second, {:.0} interleavings a second",
        seconds,
        a_second(counts.launches),
        a_second(report.programs)
    );
    if !found {
        say!("nothing was found");
    }
}

/// A finding as one JSON object.
pub(super) fn finding_json(culprit: &Culprit, command: &str) -> serde_json::Value {
    let failures: Vec<_> = culprit.outcome.failures.iter().collect();
    json!({
        "check": "finding",
        "kinds": failures.iter().map(|failure| failure.kind()).collect::<Vec<_>>(),
        "findings": failures.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "program": culprit.program.to_string(),
        "replay": command,
    })
}
