//! `xlog run`: plans of several steps.

use std::sync::Arc;

use clap::Args;
use xlog_io::FileError;
use xlog_query::{QueryError, plan::PlanFile, run::Source};

use super::{
    WorkOptions, execute,
    inputs::{FileSource, InputOptions},
    outputs,
};

/// Help on what a plan is.
pub(super) const HELP: &str = r#"A plan names its inputs and the steps made of them, in any order:

  [input.orders]
  files = "orders.csv"                # a name, a pattern, or a list of them
  types = { amount = "f64" }          # also: format, delimiter, quote, header, null

  [input.customers]
  files = "customers.csv"

  [step.large]
  from = "orders"
  where = "amount > 100"

  [step.totals]
  from = "large"
  join = "customers"                  # or union, intersect, except; with all = true
  on = "customer_id=id"
  kind = "left"
  group = "region"
  agg = "sum(amount) as total"
  sort = "total:desc"
  limit = 10                          # also: having, select, distinct, offset
  write = "totals.parquet"            # also: format

A step that nobody reads and that writes no file goes to standard output. Steps that do not depend
on each other run at the same time, on streams of their own. Files are looked for in the folder that
the command is started in.

Examples:
  xlog run totals.toml
  xlog run totals.toml --device host --memory 4GiB"#;

/// A plan from a file.
#[derive(Debug, Args)]
pub(crate) struct PlanCommand {
    /// The plan's file, or - for standard input
    #[arg(value_name = "PLAN")]
    plan: String,
    #[command(flatten)]
    work: WorkOptions,
}

pub(super) fn run(command: &PlanCommand) -> Result<(), QueryError> {
    let name = if command.plan == "-" { "standard input" } else { &command.plan };
    let read = match command.plan.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()),
        file => std::fs::read_to_string(file),
    };
    let text = read.map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => FileError::new(name, "it is not UTF-8 text"),
        _ => FileError::from_io(name, "read", &error),
    })?;
    let plan = PlanFile::read(name, &text)?;
    let files = plan.inputs.iter().flat_map(|input| &input.files);
    if files.chain([&command.plan]).filter(|file| *file == "-").count() > 1 {
        let message = "standard input can be one table, or the plan, and no more";
        return Err(QueryError::Plan { message: message.to_owned() });
    }
    let mut sources: Vec<Arc<dyn Source>> = Vec::with_capacity(plan.inputs.len());
    for input in &plan.inputs {
        let options = InputOptions::of_plan(input)?;
        let threads = command.work.device.reading_threads();
        sources.push(Arc::new(FileSource::open(&input.name, &input.files, &options, threads)?));
    }
    let sinks: Result<Vec<_>, _> = plan.outputs.iter().map(outputs::of_plan).collect();
    execute(&plan.query, &sources, sinks?, &command.work)
}
