//! A recorded log as a program to check.

use std::{fs::File, io::BufReader, path::Path};

use xlog_core::Access;
use xlog_cuda::device_runtime::read_log;
use xlog_testkit::check::{Program, Stack, Step, Way, Work};

use super::{CheckOptions, check_program};
use crate::{
    BadInput, Failure,
    replay::plan::{Call, Plan},
};

/// Words of a block in simulation, at most: what is declared decides, not what is in it.
const MOST_WORDS: usize = 1000;

pub(super) fn run(options: &CheckOptions, path: &Path) -> Result<(), Failure> {
    let name = path.display();
    let bad = |what: String| BadInput(format!("{name}: {what}"));
    let file = File::open(path).map_err(|error| {
        bad(format!("the log could not be opened: {error}; check the path and its permissions"))
    })?;
    let calls = read_log(BufReader::new(file)).map_err(|error| {
        bad(format!("{error}\n  mend the line or take it out, and check it again"))
    })?;
    let plan = Plan::new(&calls, None).map_err(|error| bad(error.to_string()))?;
    let program = program_of(&plan, options.stack.unwrap_or(Stack::Production), options.faults);
    let uses = program.threads.iter().flatten().filter(|step| matches!(step, Step::Launch { .. }));
    let uses = uses.count();
    if uses == 0 {
        Err(bad("the log has no uses to check; record one with LoggingResource::new and \
                 JsonLinesSink, which writes them down"
            .into()))?;
    }
    let outcome = check_program(options, &program)?;
    say!(
        "{name}: {} blocks and {uses} uses on {} streams, in {} interleavings: {} waits, {} of \
         them taken out, each prevents a race",
        plan.blocks,
        plan.streams + 1,
        options.seeds,
        outcome.counts.waits,
        outcome.counts.waits_checked
    );
    say!("nothing was found");
    Ok(())
}

/// The log's calls in their order, as one thread makes them.
fn program_of(plan: &Plan, stack: Stack, faults: bool) -> Program {
    let mut steps = Vec::new();
    for (salt, step) in (1..).zip(&plan.steps) {
        let way = Way::Builder;
        steps.push(match step.call {
            Call::Allocate { block, bytes, stream } => {
                let words = bytes.div_ceil(4).clamp(1, MOST_WORDS);
                Step::Allocate { block, words, stream, first_use: stream }
            }
            Call::Free { block } => Step::Free { block },
            Call::Reap => Step::Reap,
            Call::TryReap => Step::TryReap,
            // The launch prepares by itself.
            Call::Prepare { .. } => continue,
            Call::Finish { block, stream, access } => {
                let work = match access {
                    Access::Read => Work::Read { input: block },
                    Access::Write => Work::Fill { out: block },
                    Access::ReadWrite => Work::Increment { data: block },
                };
                Step::Launch { way, work, stream, salt }
            }
        });
    }
    Program {
        stack,
        streams: plan.streams,
        blocks: plan.blocks.max(1),
        device_turns: 96,
        faults,
        threads: vec![steps],
    }
}
