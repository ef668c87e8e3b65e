//! `xlog bench ops`: relational operators through the default stack, every result verified.
//!
//! A time is the median of several runs by the host's clock, from the call of the operator until
//! its stream is done, sizes read back where the operator needs them, with a pool that already has
//! its memory. Where something is measured beside it (`peer`), the two take turns.

mod data;
mod join;
mod report;
mod scans;
mod small;
mod streams;
mod tape;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use xlog_cuda::{CudaDevice, device_runtime::StreamId};
use xlog_driver::DeviceKind;
use xlog_relational::{Engine, RelationalResult, Table, Values};

use self::{
    report::{Report, Row},
    tape::TapeDriver,
};
use super::{BenchOptions, measure};
use crate::{Failure, device::label, trace::TraceOptions};

/// What a group of cases needs.
struct Lab {
    engine: Engine,
    driver: Arc<TapeDriver>,
    stream: StreamId,
    gpu: bool,
    quick: bool,
}

/// A group of cases: measures, and reports rows.
type Group = fn(&Lab, &mut Report) -> Result<(), Failure>;

/// Every group, by the name of its operator or of what it is about.
const GROUPS: &[(&str, Group)] = &[
    ("sort", scans::sort),
    ("filter", scans::filter),
    ("distinct", scans::distinct),
    ("group_by", scans::group_by),
    ("join", join::run),
    ("nullable", join::nullable),
    ("small", small::run),
    ("streams", streams::run),
];

/// How the benchmark of operators runs.
#[derive(Debug, Args)]
pub(crate) struct OpsOptions {
    #[command(flatten)]
    bench: BenchOptions,
    #[command(flatten)]
    trace: TraceOptions,
}

/// Runs the benchmark of operators.
pub(crate) fn run_ops(OpsOptions { bench: options, trace }: &OpsOptions) -> Result<(), Failure> {
    let chosen = options.choose(GROUPS, |(name, _)| name)?;
    let earlier = options.earlier()?;
    let traced = trace.open(options.device)?;
    let driver = Arc::new(TapeDriver::new(Arc::clone(&traced.driver)));
    let device = Arc::new(CudaDevice::with_driver(Arc::clone(&driver) as _));
    let engine = Engine::new(Arc::clone(&device))?;
    let stream = engine.runtime().stream_pool().acquire()?;
    let gpu = device.info().kind == DeviceKind::Cuda;
    let lab = Lab { engine, driver, stream, gpu, quick: options.quick };
    let mut report = Report::new(label(&device), options.json);
    report.open(&device.info().name);
    measure::wake_up(options.quick);
    for (_, group) in chosen {
        group(&lab, &mut report)?;
        // What one group has freed is not what the next one starts with.
        lab.engine.runtime().reap_pending()?;
    }
    report.close();
    traced.finish()?;
    options.compare(earlier.as_ref(), report.rows())
}

impl Lab {
    /// The numbers of rows that large cases run over.
    fn sizes(&self) -> &'static [u64] {
        match (self.gpu, self.quick) {
            (true, false) => &[1 << 28, 1 << 24],
            (true, true) => &[1 << 24],
            (false, false) => &[10_000_000],
            (false, true) => &[200_000],
        }
    }

    /// The number of rows of joins, and of whatever is compared at ten million rows.
    fn millions(&self) -> u64 {
        if self.quick { 200_000 } else { 10_000_000 }
    }

    /// Milliseconds that `operator` takes, and the table of its last run.
    fn time(
        &self,
        mut operator: impl FnMut(StreamId) -> RelationalResult<Table>,
    ) -> Result<(f64, Table), Failure> {
        let [(ms, table)] = self.time_in_turn([&mut operator])?;
        Ok((ms, table))
    }

    /// The same for several that take turns.
    fn time_in_turn<const N: usize>(
        &self,
        mut operators: [&mut dyn FnMut(StreamId) -> RelationalResult<Table>; N],
    ) -> Result<[(f64, Table); N], Failure> {
        let mut times: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
        let mut tables: [Option<Table>; N] = std::array::from_fn(|_| None);
        let (warm_up, begun) = (3, Instant::now());
        for round in 0.. {
            for ((operator, times), last) in operators.iter_mut().zip(&mut times).zip(&mut tables) {
                *last = None;
                self.engine.runtime().synchronize(self.stream)?;
                let start = Instant::now();
                let table = operator(self.stream)?;
                self.engine.runtime().synchronize(self.stream)?;
                if round >= warm_up {
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                }
                *last = Some(table);
            }
            let enough = times[0].len() >= if self.quick { 3 } else { 101 };
            let long = begun.elapsed() > Duration::from_millis(1500) && times[0].len() >= 5;
            if enough || long {
                break;
            }
        }
        let mut answers = times.map(measure::median).into_iter().zip(tables);
        let mut next = || match answers.next() {
            Some((ms, Some(table))) => Ok((ms, table)),
            _ => Err(Failure::from("an operator was not run")),
        };
        let answers: Vec<_> = (0..N).map(|_| next()).collect::<Result<_, _>>()?;
        answers.try_into().map_err(|_| Failure::from("an operator was not run"))
    }
}

/// The values of a column of four bytes.
fn words(table: &Table, name: &str) -> Result<Vec<u32>, Failure> {
    let column = table.column(name)?;
    match column.values() {
        _ if column.is_empty() => Ok(Vec::new()),
        Values::Words(words) => Ok(words.view(..column.len())?.download()?),
        _ => Err(format!("column {name} has values of another width").into()),
    }
}

/// The values of a column of eight bytes.
fn longs(table: &Table, name: &str) -> Result<Vec<u64>, Failure> {
    let column = table.column(name)?;
    match column.values() {
        _ if column.is_empty() => Ok(Vec::new()),
        Values::Longs(longs) => Ok(longs.view(..column.len())?.download()?),
        _ => Err(format!("column {name} has values of another width").into()),
    }
}

/// Fails unless a result is what it must be.
fn verify(holds: bool, what: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(format!("wrong result: {what}").into()) }
}

/// A row without anything beside it.
fn row(op: &'static str, kind: impl Into<String>, rows: u64, ms: f64, table: &Table) -> Row {
    Row { op, kind: kind.into(), rows, output_rows: table.rows(), ms, peer: None, launches: None }
}
