//! `xlog check`: random programs, or a recorded log, under simulation and an independent oracle.

mod log;
mod mutants;
mod progress;
mod report;
mod torture;

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;
use xlog_cuda::mutant::{self, Mutant};
use xlog_testkit::check::{
    Culprit, Outcome, Plan, Plant, Program, Scrutiny, Shape, Stack, Workload, check_seed, run,
    shrink, sweep,
};

use self::progress::Progress;
use crate::{Failure, device::DeviceChoice};

/// How `xlog check` runs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  xlog check --seeds 1000 --streams 8 --threads 4 --faults
  xlog check launches.jsonl                      a log of LoggingResource with JsonLinesSink
  xlog check --torture --device cuda:0           real threads on a real device

Each seed is a program: threads that allocate, launch, copy, drop and free on several streams. It
runs on a simulated device, one turn after the other, in an interleaving that follows from the
seed. Looked at are every byte (against a serial run), every access (by an oracle that knows only
driver calls and what kernels touch), every wait (taken out, it must let two operations race), every
refusal that is due, and every counter. A program that goes wrong is made as short as it can be, and
printed with the command that runs it again.

Ends with 0 if nothing was found, 1 if something was, 2 if the command line or the log is bad.")]
pub(crate) struct CheckOptions {
    /// A recorded log of uses to check, instead of random programs
    #[arg(value_name = "LOG")]
    log: Option<PathBuf>,
    /// How many programs; for a log, how many interleavings
    #[arg(long, default_value_t = 1000, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed; the others follow it
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    first_seed: u64,
    /// Run this one seed again, and show its program
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "first_seed"])]
    replay: Option<u64>,
    /// What programs do most: random, hand-over, fan, churn or recorders
    #[arg(long, default_value = "random", value_name = "NAME")]
    workload: Workload,
    /// Streams besides the default one [default: 3; 15 with --torture]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(0..=62))]
    streams: Option<u8>,
    /// Threads that take turns [default: 3; 8 with --torture]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// Blocks a program has at most at a time
    #[arg(long, default_value_t = 6, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(4..=1000))]
    blocks: u16,
    /// Steps of a program
    #[arg(long, default_value_t = 40, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// Let driver calls fail now and then
    #[arg(long)]
    faults: bool,
    /// One stack of resources for all programs: async, pool, production, tracked, logged,
    /// tight, cramped or plain
    #[arg(long, value_name = "NAME")]
    stack: Option<Stack>,
    /// Waits of a program that are taken out to see the race each prevents
    #[arg(long, default_value_t = 24, value_name = "COUNT")]
    waits: usize,
    /// Programs that run at the same time [default: one for each core]
    #[arg(long, value_name = "COUNT")]
    workers: Option<NonZeroUsize>,
    /// Switch a known defect on, by number, and see that it is found (needs a build with the
    /// feature `mutants`)
    #[arg(long, value_name = "NUMBER")]
    mutant: Option<u32>,
    /// Switch every known defect on in turn, and print what finds it
    #[arg(long, conflicts_with_all = ["mutant", "log", "replay", "torture"])]
    mutants: bool,
    /// Real threads on a real device instead of simulated ones
    #[arg(long, conflicts_with_all = ["log", "replay", "faults"])]
    torture: bool,
    /// The device of --torture: host, cuda:N, or auto (the first GPU, else the host)
    #[arg(long, default_value = "auto", value_name = "DEVICE", requires = "torture")]
    device: DeviceChoice,
    /// Launches and copies of --torture, of all threads together
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT", requires = "torture")]
    launches: u64,
    /// With --torture: let every wait between streams do nothing, and see that it is found
    #[arg(long, requires = "torture")]
    deaf: bool,
    /// With --torture: follow every "it is done" that the device answers by a wait for it, for a
    /// memory checker that learns from waits alone
    #[arg(long, requires = "torture", hide = true)]
    spell_out: bool,
    /// Make a mistake on the device on purpose, for a memory checker to find: out-of-bounds or
    /// out-of-life; or none with the same calls: nothing, asked, waited, drained or roundabout
    #[arg(long, value_name = "MISTAKE", requires = "torture", hide = true)]
    plant: Option<Plant>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Something was found: the message says what, and it has been printed.
#[derive(Debug)]
pub(crate) struct Found(String);

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Found {}

impl CheckOptions {
    fn shape(&self) -> Shape {
        Shape {
            workload: self.workload,
            streams: usize::from(self.streams.unwrap_or(3)),
            threads: usize::from(self.threads.unwrap_or(3)),
            blocks: usize::from(self.blocks),
            steps: self.steps as usize,
            faults: self.faults,
            stack: self.stack,
        }
    }

    fn scrutiny(&self) -> Scrutiny {
        Scrutiny { waits: self.waits }
    }

    fn plan(&self) -> Plan {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Plan {
            shape: self.shape(),
            first_seed: self.first_seed,
            seeds: self.seeds,
            scrutiny: self.scrutiny(),
            workers: self.workers.map_or_else(cores, NonZeroUsize::get),
        }
    }

    /// The command that runs one seed again.
    fn replay_command(&self, seed: u64) -> String {
        let mut command = format!("xlog check --replay {seed}");
        let mut add = |flag: &str, value: String, default: &str| {
            if value != default {
                command.push_str(&format!(" --{flag} {value}"));
            }
        };
        add("workload", self.workload.name().into(), "random");
        add("streams", self.streams.map_or_else(String::new, |count| count.to_string()), "");
        add("threads", self.threads.map_or_else(String::new, |count| count.to_string()), "");
        add("blocks", self.blocks.to_string(), "6");
        add("steps", self.steps.to_string(), "40");
        add("waits", self.waits.to_string(), "24");
        add("stack", self.stack.map_or_else(String::new, |stack| stack.to_string()), "");
        add("mutant", self.mutant.map_or_else(String::new, |number| number.to_string()), "");
        if self.faults {
            command.push_str(" --faults");
        }
        command
    }
}

/// Runs what was asked for.
pub(crate) fn run_check(options: &CheckOptions) -> Result<(), Failure> {
    if let Some(number) = options.mutant {
        switch_on(number)?;
    }
    if options.mutants {
        return mutants::run(options);
    }
    if options.torture {
        return torture::run(options);
    }
    if let Some(path) = &options.log {
        return log::run(options, path);
    }
    if let Some(seed) = options.replay {
        return replay(options, seed);
    }
    let plan = options.plan();
    let progress = Progress::new("programs", plan.seeds);
    let report = sweep(&plan, &|done| progress.show(done));
    progress.clear();
    if let Some(culprit) = &report.culprit {
        let seed = xlog_testkit::check::turns_of(culprit.seed);
        report::print(options, &report);
        return Err(tell(options, culprit, &options.replay_command(seed)));
    }
    // A check that did nothing has found nothing, and says nothing.
    if report.programs < plan.seeds {
        let done = report.programs;
        let text = format!("only {done} of {} programs were run, so nothing is shown", plan.seeds);
        return Err(Box::new(Found(text)));
    }
    report::print(options, &report);
    Ok(())
}

fn switch_on(number: u32) -> Result<(), Failure> {
    let Some(defect) = Mutant::numbered(number) else {
        let last = Mutant::ALL.len();
        Err(crate::BadInput(format!("there is no defect {number}; they are numbered 1 to {last}")))?
    };
    if !mutant::switch_on(Some(defect)) {
        Err(crate::BadInput(
            "this build has no defects built in; build one that has, and never use it for anything \
             else:\n  cargo run --release -p xlog-cli --features mutants -- check --mutants"
                .into(),
        ))?;
    }
    eprintln!("defect {number} is on: {}", defect.what());
    Ok(())
}

/// One seed again, with its program.
fn replay(options: &CheckOptions, seed: u64) -> Result<(), Failure> {
    let culprit = check_seed(&options.shape(), seed, options.scrutiny());
    say!("seed {seed}\n{}", culprit.program);
    if culprit.outcome.failures.is_empty() {
        say!("nothing is wrong with it");
        return Ok(());
    }
    Err(tell(options, &culprit, &options.replay_command(seed)))
}

/// Says what is wrong with a program, as short as it can be made.
fn tell(options: &CheckOptions, culprit: &Culprit, command: &str) -> Failure {
    let Outcome { failures, .. } = &culprit.outcome;
    let kinds: Vec<_> = failures.iter().map(xlog_testkit::check::Failure::kind).collect();
    eprintln!("making the program shorter...");
    let shorter = shrink(culprit.clone(), options.scrutiny());
    if options.json {
        say!("{}", report::finding_json(&shorter, command));
    } else {
        say!("found: {}\n", kinds.join(", "));
        say!("the shortest program that still goes wrong:\n{}", shorter.program);
        for failure in &shorter.outcome.failures {
            say!("{failure}\n");
        }
        say!("the whole program again:\n  {command}");
    }
    Box::new(Found(format!("{} found", failures.len())))
}

/// Runs one program in many interleavings.
fn check_program(options: &CheckOptions, program: &Program) -> Result<Outcome, Failure> {
    let progress = Progress::new("interleavings", options.seeds);
    let mut all = Outcome::default();
    for done in 0..options.seeds {
        let seed = options.first_seed.wrapping_add(done);
        let outcome = run(program, seed, options.scrutiny());
        all.counts.add(outcome.counts);
        if !outcome.failures.is_empty() {
            progress.clear();
            let culprit = Culprit { program: program.clone(), seed, outcome };
            let log =
                options.log.as_ref().map_or_else(String::new, |log| log.display().to_string());
            let command = format!("xlog check {log} --first-seed {seed} --seeds 1");
            return Err(tell(options, &culprit, &command));
        }
        progress.show(done + 1);
    }
    progress.clear();
    Ok(all)
}
