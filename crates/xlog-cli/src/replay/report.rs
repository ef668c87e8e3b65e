//! What a replay came to, for people and for programs.

use serde_json::{Value, json};

use super::{plan::Plan, run::Outcome};

/// What was run, and on what.
#[derive(Debug)]
pub(super) struct Heading {
    pub(super) log: String,
    pub(super) device: String,
    pub(super) stack: String,
    /// Bytes the stack's pool took from the driver, if it has one.
    pub(super) pool_bytes: Option<usize>,
}

impl Heading {
    /// The part of the pool's memory that was in nobody's use even at the peak.
    fn fragmentation(&self, peak_live_bytes: usize) -> Option<f64> {
        let pool = self.pool_bytes.filter(|bytes| *bytes > 0)?;
        Some(1.0 - (peak_live_bytes as f64 / pool as f64).min(1.0))
    }
}

/// The times of one kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    calls: usize,
    total_ns: u64,
    median_ns: u64,
    p99_ns: u64,
}

impl Times {
    fn of(mut each: Vec<u64>) -> Self {
        each.sort_unstable();
        // The smallest time that so many of a hundred calls did not exceed.
        let rank = |percent: usize| each.len() * percent / 100;
        let at = |percent| each.get(rank(percent)).or(each.last()).copied().unwrap_or_default();
        Self {
            calls: each.len(),
            total_ns: each.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns)),
            median_ns: at(50),
            p99_ns: at(99),
        }
    }

    fn json(self) -> Value {
        json!({
            "calls": self.calls,
            "total_ns": self.total_ns,
            "median_ns": self.median_ns,
            "p99_ns": self.p99_ns,
        })
    }
}

/// Prints all of it.
pub(super) fn print(heading: &Heading, plan: &Plan, outcome: &Outcome, as_json: bool) {
    let all = [&outcome.allocations[..], &outcome.frees, &outcome.others].concat();
    let rows = [
        ("allocate", Times::of(outcome.allocations.clone())),
        ("free", Times::of(outcome.frees.clone())),
        ("other", Times::of(outcome.others.clone())),
        ("all", Times::of(all)),
    ];
    if as_json {
        print_json(heading, plan, outcome, &rows);
    } else {
        print_table(heading, plan, outcome, &rows);
    }
}

fn print_json(heading: &Heading, plan: &Plan, outcome: &Outcome, rows: &[(&str, Times)]) {
    let mut object = json!({
        "replay": heading.log,
        "device": heading.device,
        "stack": heading.stack,
        "streams": plan.streams + 1,
        "failures": outcome.failures,
        "peak_live_bytes": outcome.peak_live_bytes,
        "peak_outstanding_bytes": outcome.peak_outstanding_bytes,
        "pool_bytes": heading.pool_bytes,
        "fragmentation": heading.fragmentation(outcome.peak_live_bytes),
        "unknown_frees": plan.unknown_frees,
        "never_freed": plan.never_freed,
        "left_out": plan.left_out + outcome.skipped,
    });
    for (name, times) in rows {
        object[*name] = times.json();
    }
    crate::say!("{object}");
}

fn print_table(heading: &Heading, plan: &Plan, outcome: &Outcome, rows: &[(&str, Times)]) {
    crate::say!(
        "replayed {} on {}, stack {}, {} streams; nanoseconds\n",
        heading.log,
        heading.device,
        heading.stack,
        plan.streams + 1
    );
    crate::say!("{:<9} {:>9} {:>13} {:>9} {:>9}", "call", "calls", "total", "median", "p99");
    for (name, times) in rows.iter().filter(|(_, times)| times.calls > 0) {
        crate::say!(
            "{name:<9} {:>9} {:>13} {:>9} {:>9}",
            times.calls,
            times.total_ns,
            times.median_ns,
            times.p99_ns
        );
    }
    crate::say!("\npeak bytes live         {}", outcome.peak_live_bytes);
    crate::say!("peak bytes outstanding  {}", outcome.peak_outstanding_bytes);
    if let (Some(bytes), Some(lost)) =
        (heading.pool_bytes, heading.fragmentation(outcome.peak_live_bytes))
    {
        crate::say!("bytes the pool took     {bytes}, {:.0} % unused at the peak", 100.0 * lost);
    }
    crate::say!("failures                {}", outcome.failures);
    if plan.never_freed > 0 {
        crate::say!("never freed by the log  {} (freed at the end)", plan.never_freed);
    }
    if let Some(line) = plan.first_unknown_free {
        crate::say!(
            "unknown frees           {} (the first at line {line}): the log began after those \
             allocations, or lost them",
            plan.unknown_frees
        );
    }
    let left_out = plan.left_out + outcome.skipped;
    if left_out > 0 {
        crate::say!("left out                {left_out} (see xlog replay --help)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragmentation_is_what_nobody_used_at_the_peak() {
        let of = |pool_bytes| Heading {
            log: String::new(),
            device: String::new(),
            stack: String::new(),
            pool_bytes,
        };
        assert_eq!(of(Some(400)).fragmentation(100), Some(0.75));
        assert_eq!(of(Some(0)).fragmentation(0), None);
        assert_eq!(of(None).fragmentation(100), None);
    }

    #[test]
    fn times_are_ranked() {
        let times = Times::of((1..=100).rev().collect());
        assert_eq!((times.calls, times.total_ns), (100, 5050));
        assert_eq!((times.median_ns, times.p99_ns), (51, 100));
        assert_eq!(Times::of(vec![7]).p99_ns, 7);
        assert_eq!(Times::of(vec![]).median_ns, 0);
    }
}
