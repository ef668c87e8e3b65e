//! `xlog replay`: a recorded log, run again.
//!
//! The log is read and checked first, without a device: what is wrong with it is an error before
//! anything runs. Then it runs once, call by call in the order of the log, on one thread.

pub(crate) mod plan;
mod report;
mod run;
mod stack;

use std::{fs::File, io::BufReader, path::PathBuf, sync::Arc};

use clap::Args;
use xlog_cuda::{
    CudaDevice,
    device_runtime::{StreamPool, read_log},
};

use self::{plan::Plan, stack::Stack};
use crate::{
    BadInput, Failure,
    device::{DeviceChoice, label},
    trace::CheckedTraceOptions,
};

/// How `xlog replay` runs.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  xlog replay allocations.csv --device host --stack async

The log is what LoggingResource wrote with CsvSink or JsonLinesSink, or RMM with its
logging_resource_adaptor. Calls run in the order of the log, on one thread. Allocations that failed
when the log was made, or asked for nothing, are left out; so are frees of memory the log does not
allocate. What the log never frees is freed at the end. Unless the log has reaps of its own, done
frees are accounted for every 256 calls, outside of what is timed.

Ends with 0 if every call worked, 1 if one failed, and 2 if the log is bad.")]
pub(crate) struct ReplayOptions {
    /// The log: RMM's CSV, or JSON lines
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// The device to run on: host, cuda:N, or auto (the first GPU, else the host)
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    /// The stack of resources to run against
    #[arg(long, value_enum, default_value_t = Stack::Default)]
    stack: Stack,
    /// Run on at most this many streams: streams of the log share them in turn
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=62))]
    streams: Option<u32>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    trace: CheckedTraceOptions,
}

/// Reads, checks and runs a log.
pub(crate) fn run(options: &ReplayOptions) -> Result<(), Failure> {
    let name = options.log.display();
    let bad = |what: String| BadInput(format!("{name}: {what}"));
    let file = File::open(&options.log).map_err(|error| {
        bad(format!("the log could not be opened: {error}; check the path and its permissions"))
    })?;
    let calls = read_log(BufReader::new(file)).map_err(|error| {
        bad(format!("{error}\n  mend the line or take it out, and run the replay again"))
    })?;
    let plan = Plan::new(&calls, options.streams).map_err(|error| bad(error.to_string()))?;
    if plan.steps.is_empty() {
        Err(bad("the log has no call to run; record one with LoggingResource".into()))?;
    }

    let traced = options.trace.open(options.device)?;
    let device = Arc::new(CudaDevice::with_driver(Arc::clone(&traced.driver)));
    let pool = StreamPool::with_capacity(Arc::clone(&device), plan.streams)?;
    let stack = options.stack.build(Arc::clone(&device), Arc::new(pool))?;
    let outcome = run::run(&plan, &stack.runtime)?;
    let heading = report::Heading {
        log: name.to_string(),
        device: label(&device),
        stack: options.stack.to_string(),
        pool_bytes: stack.pool.as_ref().map(|pool| pool.report().slab_bytes),
    };
    report::print(&heading, &plan, &outcome, options.json);
    traced.finish()?;
    match outcome.first_failure {
        None => Ok(()),
        Some((line, error)) => Err(format!(
            "{} of {} calls failed, the first at line {line} of {name}: {error}",
            outcome.failures,
            plan.steps.len(),
        ))?,
    }
}
