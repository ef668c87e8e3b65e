//! Every known defect in turn: what finds it, and after how many programs.

use serde_json::json;
use xlog_cuda::mutant::{self, Mutant};
use xlog_testkit::check::{Plan, sweep};

use super::{CheckOptions, Found};
use crate::{BadInput, Failure};

/// Trials of each defect, with fresh seeds.
const TRIALS: u64 = 11;

pub(super) fn run(options: &CheckOptions) -> Result<(), Failure> {
    if !mutant::switch_on(Some(Mutant::OneReader)) {
        Err(BadInput(
            "this build has no defects built in; build one that has, and never use it for anything \
             else:\n  cargo run --release -p xlog-cli --features mutants -- check --mutants"
                .into(),
        ))?;
    }
    if !options.json {
        say!("{:>2}  {:<70} {:<20} {:>9}", "", "defect", "found by", "programs");
    }
    let mut survivors = Vec::new();
    for defect in Mutant::ALL {
        let _ = mutant::switch_on(Some(defect));
        let trials: Vec<_> = (0..TRIALS).filter_map(|trial| find(options, trial)).collect();
        let number = defect as u32;
        if trials.len() < TRIALS as usize {
            survivors.push(number);
        }
        let mut programs: Vec<u64> = trials.iter().map(|(programs, _)| *programs).collect();
        programs.sort_unstable();
        let median = programs.get(programs.len() / 2).copied();
        let mut kinds: Vec<&str> = trials.iter().map(|(_, kind)| *kind).collect();
        kinds.sort_unstable();
        let most = kinds.iter().max_by_key(|kind| kinds.iter().filter(|k| k == kind).count());
        let by = most.copied().unwrap_or("nothing: it survives");
        if options.json {
            let object = json!({
                "check": "mutant", "number": number, "defect": defect.what(), "found_by": by,
                "trials": TRIALS, "found": trials.len(), "median_programs": median,
            });
            say!("{object}");
        } else {
            let median = median.map_or_else(|| "-".to_owned(), |median| median.to_string());
            say!("{number:>2}  {:<70} {by:<20} {median:>9}", defect.what());
        }
    }
    let _ = mutant::switch_on(None);
    match survivors.as_slice() {
        [] => Ok(()),
        numbers => Err(Box::new(Found(format!(
            "not every trial found the defects numbered {numbers:?} within {} programs",
            options.seeds
        )))),
    }
}

/// How many programs it took to find the defect that is on, and what found it. Every other program
/// has faults.
fn find(options: &CheckOptions, trial: u64) -> Option<(u64, &'static str)> {
    let first_seed = options.first_seed.wrapping_add((trial + 1) << 32);
    let mut programs = 0;
    for batch in 0..options.seeds.div_ceil(16) {
        for faults in [false, true] {
            let shape = xlog_testkit::check::Shape { faults, ..options.shape() };
            let first_seed = first_seed.wrapping_add(batch * 16);
            let plan = Plan { shape, first_seed, seeds: 8, workers: 1, ..options.plan() };
            let report = sweep(&plan, &|_| true);
            if report.programs == 0 {
                return Some((1, "nothing was run"));
            }
            programs += report.programs;
            if let Some(culprit) = report.culprit {
                return culprit.outcome.failures.first().map(|first| (programs, first.kind()));
            }
        }
    }
    None
}
