//! `xlog bench`: the runtime beside the raw driver, in one run.
//!
//! Raw and recorded launches alternate batch by batch, so that whatever the machine is doing hits
//! both; what is reported of the difference is the median of the paired differences. Every pattern
//! also checks that its launches did what they should.

mod alloc;
mod bookkeeping;
mod compare;
mod fan;
mod idle_driver;
mod lab;
mod measure;
#[cfg(feature = "ops")]
mod ops;
mod pairs;
mod quiet_core;
mod reads;
mod report;
mod task_bench;
mod threads;

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use serde_json::Value;
use xlog_driver::DeviceKind;

pub(crate) use self::alloc::run_alloc;
#[cfg(feature = "ops")]
pub(crate) use self::ops::{OpsOptions, run_ops};
use self::{compare::Earlier, lab::Lab, quiet_core::QuietCore, report::Report};
use crate::{
    BadInput, Failure,
    device::{DeviceChoice, label},
};

/// How a benchmark runs.
#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// The device to measure: host, cuda:N, or auto (the first GPU, else the host)
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// Measure a tenth as long: to see that it works, not to quote
    #[arg(long)]
    quick: bool,
    /// Measure only what has this in its name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Show every figure beside the same one of an earlier run: a file that --json made
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
}

impl BenchOptions {
    /// The run to compare with, read before anything is measured.
    fn earlier(&self) -> Result<Option<Earlier>, BadInput> {
        self.compare.as_deref().map(Earlier::read).transpose()
    }

    /// Compares what was measured with an earlier run, if there is one.
    fn compare(&self, earlier: Option<&Earlier>, rows: &[Value]) -> Result<(), Failure> {
        earlier.map_or(Ok(()), |earlier| earlier.print(rows, self.json))
    }

    /// The groups that `--only` names, all without it.
    fn choose<'g, G>(&self, groups: &'g [G], name: fn(&G) -> &str) -> Result<Vec<&'g G>, Failure> {
        let wanted = |group: &&G| self.only.as_ref().is_none_or(|only| name(group).contains(only));
        let chosen: Vec<_> = groups.iter().filter(wanted).collect();
        if chosen.is_empty() {
            let names: Vec<_> = groups.iter().map(name).collect();
            Err(format!("nothing has that in its name; there are: {}", names.join(", ")))?;
        }
        Ok(chosen)
    }
}

/// A group of patterns: measures on a fresh lab, and reports rows.
type Group = fn(&Lab, &mut Report) -> Result<(), Failure>;

/// Every pattern, by the name it reports.
const GROUPS: &[(&str, Where, Group)] = &[
    ("bookkeeping", Where::OneCore, bookkeeping::run),
    ("single-stream", Where::OneCoreBesideGpu, pairs::single_stream),
    ("one-of-several", Where::OneCoreBesideGpu, pairs::one_of_several),
    ("ping-pong", Where::OneCoreBesideGpu, pairs::ping_pong),
    ("fan", Where::OneCoreBesideGpu, fan::run),
    ("many-reads", Where::OneCoreBesideGpu, reads::run),
    ("task-bench", Where::OneCoreBesideGpu, task_bench::run),
    ("threads", Where::AllCores, threads::run),
];

/// Where a group of patterns runs.
#[derive(Clone, Copy)]
enum Where {
    /// On the quietest core.
    OneCore,
    /// There too on a GPU. The host device's streams are threads of their own, and a thread takes
    /// the place of the one that makes it.
    OneCoreBesideGpu,
    /// Wherever its threads are put.
    AllCores,
}

/// Runs the launch benchmark.
pub(crate) fn run_launch(options: &BenchOptions) -> Result<(), Failure> {
    let chosen = options.choose(GROUPS, |(name, ..)| name)?;
    let earlier = options.earlier()?;
    let device = Arc::new(options.device.open()?);
    let mut report = Report::new(label(&device), options.json);
    report.open(&device.info().name);
    measure::wake_up(options.quick);
    for (_, place, group) in chosen {
        // Looked for again each time: who is busy changes.
        let one_core = match place {
            Where::OneCore => true,
            Where::OneCoreBesideGpu => device.info().kind == DeviceKind::Cuda,
            Where::AllCores => false,
        };
        let core = if one_core { QuietCore::find() } else { QuietCore::anywhere() };
        // A lab of its own for each: how many streams a pool has decides what is measured.
        let lab = Lab::new(Arc::clone(&device), Arc::new(core), options.quick);
        group(&lab, &mut report)?;
    }
    report.close();
    options.compare(earlier.as_ref(), report.rows())
}
