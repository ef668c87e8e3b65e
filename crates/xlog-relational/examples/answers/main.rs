//! Runs operators on a device and holds their results against answers from elsewhere.
//!
//! `answers --folder FOLDER [--device host|checked|cuda:N|auto]`: the folder is what
//! `ci/check-answers` writes: tables, operators over them, and DuckDB's results. Prints a line for
//! each case that differs, and fails if there is one or if there are no cases at all. On `checked`,
//! the checked host device, a hazard counts as a difference.

mod compare;
mod expression;
mod operation;
mod table;

use std::{
    collections::HashMap,
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use serde_json::Value;
use xlog_cuda::{CudaDevice, device_runtime::StreamId};
use xlog_relational::{Engine, RelationalError, Table, reference::Relation};
use xlog_testkit::CheckedDevice;

/// Why something could not be run at all.
type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("answers: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Whether every case agreed.
fn run() -> Result<bool, Failure> {
    let (folder, device) = arguments()?;
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let mut tally = Tally::default();
    match device.as_str() {
        "checked" => {
            for (seed, file) in (0..).zip(&files) {
                let checked = CheckedDevice::new(seed);
                {
                    let engine = Engine::over(&checked.production_stack()?);
                    let stream = engine.runtime().stream_pool().acquire()?;
                    tally.file(&engine, stream, file)?;
                }
                let mut findings: Vec<_> =
                    checked.finish().iter().map(ToString::to_string).collect();
                findings.extend(checked.driver.deadlock());
                for finding in findings {
                    tally.differs(file, "hazard", &finding);
                }
            }
        }
        name => {
            let device = match (name, name.strip_prefix("cuda:").map(str::parse)) {
                ("host", _) => CudaDevice::host(),
                ("auto", _) => CudaDevice::auto(),
                (_, Some(Ok(ordinal))) => CudaDevice::new(ordinal)?,
                _ => return Err(format!("{name:?} is no device: {USAGE}").into()),
            };
            let engine = Engine::new(Arc::new(device))?;
            let stream = engine.runtime().stream_pool().acquire()?;
            for file in &files {
                tally.file(&engine, stream, file)?;
            }
        }
    }
    if tally.cases == 0 {
        let folder = folder.display();
        return Err(format!("no cases in {folder}; write some: ci/check-answers --write").into());
    }
    println!("{} cases on {device}, {} differ", tally.cases, tally.differences);
    Ok(tally.differences == 0)
}

const USAGE: &str = "answers --folder FOLDER [--device host|checked|cuda:N|auto]";

fn arguments() -> Result<(PathBuf, String), Failure> {
    let (mut folder, mut device) = (None, "host".to_owned());
    let mut arguments = env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value: {USAGE}"))?;
        match name.as_str() {
            "--folder" => folder = Some(PathBuf::from(value)),
            "--device" => device = value,
            _ => return Err(format!("unknown argument {name}: {USAGE}").into()),
        }
    }
    Ok((folder.ok_or_else(|| format!("which folder? {USAGE}"))?, device))
}

/// How many cases there were.
#[derive(Default)]
struct Tally {
    cases: usize,
    differences: usize,
}

impl Tally {
    /// Runs the cases of one file, over the tables in front of them.
    fn file(&mut self, engine: &Engine, stream: StreamId, file: &Path) -> Result<(), Failure> {
        let text = fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let mut tables = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let at = |failure: Failure| format!("{}:{number}: {failure}", file.display());
            let line: Value = serde_json::from_str(line).map_err(|error| at(error.into()))?;
            match line.get("case").and_then(Value::as_str) {
                None => {
                    let name = text_of(&line["table"]).map_err(at)?;
                    let relation = table::relation(&line["columns"]).map_err(at)?;
                    let table = Table::from_batch(engine, &relation.to_batch()?, stream)?;
                    tables.insert(name.to_owned(), table);
                }
                Some(name) => {
                    self.cases += 1;
                    if let Some(difference) = case(&line, &tables, stream).map_err(at)? {
                        self.differs(file, name, &difference);
                    }
                }
            }
        }
        Ok(())
    }

    fn differs(&mut self, file: &Path, case: &str, how: &str) {
        self.differences += 1;
        println!("DIFFERS {}, {case}: {how}", file.display());
    }
}

/// How the result of a case differs from its answer, if it does.
fn case(
    case: &Value,
    tables: &HashMap<String, Table>,
    stream: StreamId,
) -> Result<Option<String>, Failure> {
    let operation = &case["operation"];
    let found = operation::run(operation, &case["inputs"], tables, stream)?;
    let expected = &case["expected"];
    let difference = match (found, expected["error"].as_str()) {
        (Err(RelationalError::Overflow { .. }), Some("overflow")) => None,
        (Err(error), Some("overflow")) => Some(format!("{error}, where an overflow is expected")),
        (Err(error), _) => Some(error.to_string()),
        (Ok(_), Some(error)) => Some(format!("a result, where an error is expected: {error}")),
        (Ok(found), None) => {
            let found = Relation::from_batch(&found.download(stream)?)?;
            compare::difference(&found, expected)?
        }
    };
    Ok(difference.map(|difference| format!("{difference}\n  in {operation}")))
}

fn text_of(value: &Value) -> Result<&str, Failure> {
    value.as_str().ok_or_else(|| format!("{value} should be a text").into())
}

fn list_of(value: &Value) -> Result<&[Value], Failure> {
    let list = value.as_array().ok_or_else(|| format!("{value} should be a list"))?;
    Ok(list)
}
