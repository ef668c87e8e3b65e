//! `xlog`: questions about files answered, what device there is, how fast the runtime is on it,
//! recorded logs run again, and programs checked under simulation.

/// Prints a line; a reader that went away ends the program quietly, as pipes expect.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        if writeln!(std::io::stdout(), $($text)*).is_err() {
            std::process::exit(0);
        }
    }};
}
pub(crate) use say;

mod bench;
mod check;
mod device;
mod doctor;
#[cfg(test)]
mod fuzz;
#[cfg(feature = "ops")]
mod query;
mod replay;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::device::DeviceChoice;

/// Sort, filter, join and group files on a GPU, or without one; look at the device, measure the
/// runtime, replay logs, check programs.
#[derive(Debug, Parser)]
#[command(name = "xlog", version, arg_required_else_help = true, max_term_width = 100)]
#[cfg_attr(feature = "ops", command(after_help = query::EXAMPLES))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "ops")]
    #[command(flatten)]
    Query(Box<query::QueryCommand>),
    /// Say what device there is, which features work, and what to do about what does not
    Doctor {
        /// The device to look at: host, cuda:N, or auto (the first GPU, else the host)
        #[arg(long, default_value = "auto", value_name = "DEVICE")]
        device: DeviceChoice,
    },
    /// Measure the runtime beside the raw driver
    #[command(subcommand)]
    Bench(Bench),
    /// Run a recorded log of allocations and frees again, and time it
    Replay(replay::ReplayOptions),
    /// Look for hazards: random programs, or a recorded log, under simulation and an oracle
    Check(Box<check::CheckOptions>),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The cost of a recorded launch above a raw one, and what events and waits it took
    Launch(bench::BenchOptions),
    /// The cost of an allocation and its free, through the default stack and by the driver alone
    Alloc(bench::BenchOptions),
    /// Relational operators: how long they take, every result verified
    #[cfg(feature = "ops")]
    Ops(bench::OpsOptions),
}

fn main() -> ExitCode {
    #[cfg(feature = "ops")]
    query::keep_damaged_files_quiet();
    let answer = match Cli::parse().command {
        #[cfg(feature = "ops")]
        Command::Query(command) => query::run(*command, <Cli as clap::CommandFactory>::command),
        Command::Doctor { device } => doctor::run(&device),
        Command::Bench(Bench::Launch(options)) => bench::run_launch(&options),
        Command::Bench(Bench::Alloc(options)) => bench::run_alloc(&options),
        #[cfg(feature = "ops")]
        Command::Bench(Bench::Ops(options)) => bench::run_ops(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Check(options) => check::run_check(&options),
    };
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xlog: {error}");
            // The code for a wrong command line, which is what a bad file on it is; that of a
            // program that Ctrl-C ended; and that of everything else.
            match () {
                () if error.is::<BadInput>() => ExitCode::from(2),
                () if error.is::<Interrupted>() => ExitCode::from(130),
                () => ExitCode::FAILURE,
            }
        }
    }
}

/// What is wrong with what the user gave, as opposed to what went wrong on the way.
#[derive(Debug)]
pub(crate) struct BadInput(pub(crate) String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// The user ended the command.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted; nothing was written")
    }
}

impl std::error::Error for Interrupted {}

/// What a command ends with when it fails: one message for the person who called it.
type Failure = Box<dyn std::error::Error>;
