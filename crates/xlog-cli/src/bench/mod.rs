//! `xlog bench`: the runtime beside the raw driver, in one run.
//!
//! Raw and recorded launches alternate batch by batch, so that whatever the machine is doing hits
//! both; what is reported of the difference is the median of the paired differences. Every pattern
//! also checks that its launches did what they should.

mod bookkeeping;
mod fan;
mod idle_driver;
mod lab;
mod measure;
mod pairs;
mod reads;
mod report;
mod task_bench;
mod threads;

use std::sync::Arc;

use clap::Args;

use self::{lab::Lab, report::Report};
use crate::{
    Failure,
    device::{DeviceChoice, label},
};

/// How `xlog bench launch` runs.
#[derive(Debug, Args)]
pub(crate) struct LaunchOptions {
    /// The device to measure: host, cuda:N, or auto (the first GPU, else the host)
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// Measure a tenth as long: to see that it works, not to quote
    #[arg(long)]
    quick: bool,
    /// Measure only patterns whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// A group of patterns: measures on a fresh lab, and reports rows.
type Group = fn(&Lab, &mut Report) -> Result<(), Failure>;

/// Every pattern, by the name it reports.
const GROUPS: &[(&str, Group)] = &[
    ("bookkeeping", bookkeeping::run),
    ("single-stream", pairs::single_stream),
    ("one-of-several", pairs::one_of_several),
    ("ping-pong", pairs::ping_pong),
    ("fan", fan::run),
    ("many-reads", reads::run),
    ("task-bench", task_bench::run),
    ("threads", threads::run),
];

/// Runs the launch benchmark.
pub(crate) fn run_launch(options: &LaunchOptions) -> Result<(), Failure> {
    let only = options.only.as_deref();
    let chosen: Vec<_> =
        GROUPS.iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only))).collect();
    if chosen.is_empty() {
        let names: Vec<_> = GROUPS.iter().map(|(name, _)| *name).collect();
        Err(format!("no pattern has that in its name; there are: {}", names.join(", ")))?;
    }
    let device = Arc::new(options.device.open()?);
    let mut report = Report::new(label(&device), options.json);
    report.open(&device.info().name);
    measure::wake_up(options.quick);
    for (_, group) in chosen {
        // A lab of its own for each: how many streams a pool has decides what is measured.
        group(&Lab::new(Arc::clone(&device), options.quick), &mut report)?;
    }
    report.close();
    Ok(())
}
