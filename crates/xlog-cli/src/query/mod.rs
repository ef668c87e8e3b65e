//! The relational commands: from files to answers.
//!
//! Every command becomes one query (`xlog_query`), whose inputs are files and whose result is a
//! file, standard output, or a table for people. The clauses that a command takes are the same
//! everywhere and apply in one order: join, where, group and agg, having, select, distinct, sort,
//! offset and limit.

mod cells;
mod clauses;
mod device;
mod inputs;
mod interrupt;
mod outputs;
mod plan;
mod progress;
mod schema;
mod shell;
mod size;
mod table;

use std::sync::Arc;

use clap::{Args, Subcommand};
use xlog_query::{
    QueryError,
    plan::{Clause, Combination, Query, Step},
    run::{self, Monitor, Sink, Source},
};
use xlog_relational::{JoinKind, exec::CancelToken};

use self::{
    clauses::{By, Clauses, JoinChoice},
    device::DeviceOptions,
    inputs::{FileSource, InputOptions},
    interrupt::Interrupts,
    outputs::OutputOptions,
    progress::{ProgressBar, ProgressOptions},
};
use crate::{BadInput, Failure, Interrupted};

/// Examples for the help of `xlog` itself.
pub(crate) const EXAMPLES: &str = "\
Examples:
  xlog head orders.csv
  xlog filter orders.csv --where \"amount > 100\" -o large.parquet
  xlog join orders.csv customers.csv --on customer_id=id --where \"amount > 100\" \\
      --group region --agg \"sum(amount) as total\" --sort total:desc
  xlog doctor";

/// What is done with the tables in files.
#[derive(Debug, Subcommand)]
pub(crate) enum QueryCommand {
    /// Sort the rows of files
    #[command(after_help = "\
Examples:
  xlog sort orders.csv --by amount:desc,customer_id
  xlog sort orders.csv --by amount:desc --limit 10
  xlog sort 'orders-*.parquet' --by ordered -o sorted.parquet

A key is a column, with :desc for the largest first and :nulls-first for missing values first.
All rows have to fit into memory, unless --limit asks for the first ones only.")]
    #[command(mut_arg("sort", |arg| arg.required(true).visible_alias("by")))]
    Sort(FilesCommand),
    /// Keep the rows for which an expression holds
    #[command(after_help = "\
Examples:
  xlog filter orders.csv --where \"amount > 100 and status in ('open', 'paid')\"
  xlog filter orders.csv --where \"ordered >= '2024-06-01' and note is null\" --select order_id
  cat orders.csv | xlog filter - --where \"not (amount between 10 and 20)\" > some.csv

Text stands in 'single quotes', names with spaces or capitals of keywords in \"double quotes\".
Operators: = <> < <= > >= + - * / % and or not, in (...), between ... and ..., is [not] null.")]
    #[command(mut_arg("filter", |arg| arg.required(true)))]
    Filter(FilesCommand),
    /// Join two tables by equal keys
    #[command(after_help = "\
Examples:
  xlog join orders.csv customers.csv --on customer_id=id
  xlog join orders.csv customers.csv --on customer_id=id --kind left --select \"order_id, name\"
  xlog join orders.csv customers.csv --on customer_id=id --where \"amount > 100\" \\
      --group region --agg \"sum(amount) as total\" --sort total:desc

A key of one name on both sides is one column of the result. Another column of the right table
whose name the left one has too gets _right appended. Missing keys match nothing.
One side is kept in memory: the smaller one of an inner join, the right one otherwise (the left one
of a right join, both of a full one). The other is read as it comes, however large it is.")]
    Join(JoinCommand),
    /// Sum up groups of rows
    #[command(after_help = "\
Examples:
  xlog group orders.csv --by status --agg \"count(*), sum(amount) as total\" --sort total:desc
  xlog group orders.csv --by \"customer_id, amount / 100 as hundreds\" --agg \"mean(amount)\"
  xlog group orders.csv --agg \"count(distinct customer_id) as customers\"

Aggregates: count(*), count(x), count(distinct x), sum, mean (or avg), min, max, of columns or
expressions. Missing values are left out of all but count(*). Without --by all rows are one
group.")]
    #[command(mut_arg("group", |arg| arg.visible_alias("by")))]
    Group(FilesCommand),
    /// Keep every different row once
    #[command(after_help = "\
Examples:
  xlog distinct orders.csv --select status
  xlog distinct orders.csv --select \"customer_id, status\" --sort customer_id")]
    Distinct(FilesCommand),
    /// Show the first rows
    #[command(after_help = "\
Examples:
  xlog head orders.csv
  xlog head orders.parquet -n 3 --select \"order_id, amount\"")]
    #[command(mut_arg("limit", |arg| arg.short('n').default_value("10")))]
    Head(FilesCommand),
    /// Show the columns of files and their types
    #[command(after_help = "\
Examples:
  xlog schema orders.csv
  xlog schema 'orders-*.parquet' --format jsonl")]
    Schema(schema::SchemaCommand),
    /// Write files in another format
    #[command(after_help = "\
Examples:
  xlog convert orders.csv -o orders.parquet
  xlog convert 'orders-*.csv' --type amount=f64 -o orders.arrow
  xlog convert orders.parquet --format jsonl | head")]
    Convert(FilesCommand),
    /// Put the rows of two tables together, or compare them
    #[command(after_help = "\
Examples:
  xlog combine a.csv b.csv --as union
  xlog combine today.csv yesterday.csv --as except --all

Columns are matched by their place, and called as in the first table.")]
    Combine(CombineCommand),
    /// Run a plan of several steps from a file
    #[command(after_help = plan::HELP)]
    Run(plan::PlanCommand),
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  xlog completions bash > ~/.local/share/bash-completion/completions/xlog
  xlog completions zsh > ~/.zfunc/_xlog
  xlog completions fish > ~/.config/fish/completions/xlog.fish")]
    Completions(shell::CompletionsCommand),
    /// Print the manual page
    #[command(after_help = "\
Examples:
  xlog man | man -l -
  xlog man join > xlog-join.1")]
    Man(shell::ManCommand),
}

/// A command over one table.
#[derive(Debug, Args)]
pub(crate) struct FilesCommand {
    /// Files with the same columns: names, patterns such as 'orders-*.csv', or - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    asked: Asked,
}

/// A join.
#[derive(Debug, Args)]
pub(crate) struct JoinCommand {
    /// The left table: a file, a pattern, or - for standard input
    #[arg(value_name = "LEFT")]
    left: String,
    /// The right table
    #[arg(value_name = "RIGHT")]
    right: String,
    /// The keys: columns of both tables, as region, or of each, as customer_id=id
    #[arg(long, value_name = "KEYS")]
    on: String,
    /// Which rows are kept: those with a partner, or also those of one side or both without one
    #[arg(long, value_name = "KIND", default_value = "inner")]
    kind: JoinChoice,
    #[command(flatten)]
    asked: Asked,
}

/// Two tables as sets of rows.
#[derive(Debug, Args)]
pub(crate) struct CombineCommand {
    /// The first table: a file, a pattern, or - for standard input
    #[arg(value_name = "FIRST")]
    first: String,
    /// The second table
    #[arg(value_name = "SECOND")]
    second: String,
    /// Rows of either, of both, or of the first that are not in the second
    #[arg(long = "as", value_name = "SET", default_value = "union")]
    set: clauses::SetChoice,
    /// Keep rows as often as they are there, not once
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    asked: Asked,
}

/// What every command over tables can be asked for.
#[derive(Debug, Args)]
struct Asked {
    #[command(flatten)]
    clauses: Clauses,
    #[command(flatten)]
    inputs: InputOptions,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    work: WorkOptions,
}

/// How the work is done.
#[derive(Debug, Args)]
pub(crate) struct WorkOptions {
    #[command(flatten)]
    device: DeviceOptions,
    #[command(flatten)]
    progress: ProgressOptions,
}

/// Passes over panics that become errors: those of the crates that read damaged files.
pub(crate) fn keep_damaged_files_quiet() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !xlog_io::takes_panics_as_errors() {
            others(panic);
        }
    }));
}

/// Batches come and go by the megabyte: memory that one gave back is kept for the next, instead of
/// going to the system and coming back page by page.
fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets numbers of the allocator, which is asked to do so at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 20);
    }
}

/// Runs a command. `cli` is the definition of them all, for what is printed about them.
pub(crate) fn run(command: QueryCommand, cli: fn() -> clap::Command) -> Result<(), Failure> {
    keep_freed_memory();
    let answer = match command {
        QueryCommand::Sort(command) => over_files(&command, By::Sort),
        QueryCommand::Filter(command)
        | QueryCommand::Head(command)
        | QueryCommand::Convert(command) => over_files(&command, By::Neither),
        QueryCommand::Group(command) => {
            if command.asked.clauses.group.is_none() && command.asked.clauses.aggregates.is_none() {
                let message = "nothing to group by: give --by, --agg, or both";
                return Err(BadInput(message.to_owned()).into());
            }
            over_files(&command, By::Group)
        }
        QueryCommand::Distinct(mut command) => {
            command.asked.clauses.distinct = true;
            over_files(&command, By::Neither)
        }
        QueryCommand::Join(command) => join(&command),
        QueryCommand::Combine(command) => combine(&command),
        QueryCommand::Schema(command) => schema::run(&command),
        QueryCommand::Run(command) => plan::run(&command),
        QueryCommand::Completions(command) => return shell::completions(&command, cli()),
        QueryCommand::Man(command) => return shell::man(&command, cli()),
    };
    match answer {
        Ok(()) => Ok(()),
        // Whoever read the output has enough, and nothing is wrong.
        Err(QueryError::File(error)) if error.is_broken_pipe() => Ok(()),
        Err(QueryError::Cancelled) => Err(Interrupted.into()),
        Err(error) if error.is_bad_input() => Err(BadInput(error.to_string()).into()),
        Err(error) => Err(error.into()),
    }
}

fn over_files(command: &FilesCommand, by: By) -> Result<(), QueryError> {
    let step = command.asked.clauses.step("input", by)?;
    let Asked { inputs, work, .. } = &command.asked;
    let source = FileSource::open("input", &command.files, inputs, work.device.reading_threads())?;
    one_step(step, vec![Arc::new(source)], &command.asked)
}

fn join(command: &JoinCommand) -> Result<(), QueryError> {
    let mut step = command.asked.clauses.step("left", By::Neither)?;
    let on = Clause::read("--on", &command.on, xlog_query::parse::join_keys)?;
    let kind = JoinKind::from(command.kind);
    step.combination = Some(Combination::Join { with: "right".to_owned(), on, kind });
    let sides = [&command.left, &command.right];
    two_tables(step, ["left", "right"], sides, &command.asked)
}

fn combine(command: &CombineCommand) -> Result<(), QueryError> {
    let mut step = command.asked.clauses.step("first", By::Neither)?;
    let kind = command.set.kind(command.all);
    step.combination = Some(Combination::Set { with: "second".to_owned(), kind });
    let sides = [&command.first, &command.second];
    two_tables(step, ["first", "second"], sides, &command.asked)
}

fn two_tables(
    step: Step,
    names: [&str; 2],
    files: [&String; 2],
    asked: &Asked,
) -> Result<(), QueryError> {
    if files.iter().all(|file| *file == "-") {
        let message = "standard input can be one table, not both".to_owned();
        return Err(QueryError::Plan { message });
    }
    let mut sources: Vec<Arc<dyn Source>> = Vec::new();
    let inputs = asked.inputs.shared_by(&files)?;
    for ((name, file), inputs) in names.iter().zip(files).zip(&inputs) {
        let files = std::slice::from_ref(file);
        let threads = asked.work.device.reading_threads();
        sources.push(Arc::new(FileSource::open(name, files, inputs, threads)?));
    }
    one_step(step, sources, asked)
}

fn one_step(step: Step, sources: Vec<Arc<dyn Source>>, asked: &Asked) -> Result<(), QueryError> {
    let query = Query { outputs: vec![step.name.clone()], steps: vec![step] };
    let sink = asked.output.sink()?;
    execute(&query, &sources, vec![sink], &asked.work)
}

/// Runs a query on the device that was asked for, watched and interruptible.
fn execute(
    query: &Query,
    sources: &[Arc<dyn Source>],
    sinks: Vec<Box<dyn Sink>>,
    work: &WorkOptions,
) -> Result<(), QueryError> {
    let interrupts = Interrupts::listen()?;
    let cancel = CancelToken::from(interrupts.flag());
    let device = work.device.open()?;
    let monitor = Arc::new(Monitor::default());
    let bar = ProgressBar::start(&work.progress, &monitor);
    let options = &device.options;
    let ran = run::run(&device.engine, query, sources, sinks, options, &cancel, &monitor)
        .map_err(|error| device.explain(error));
    drop(bar);
    // Of a run that failed too: that is when it is looked at.
    ran.and(device.finish())
}
