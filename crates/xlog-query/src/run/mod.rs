//! Queries, run.
//!
//! A query becomes *pipelines*: an input or a table, operators that take rows as they come, and an
//! end that takes them all (a sort, the groups, a file). Rows go through a pipeline in batches, so
//! that an input may be larger than the device; what an end keeps has to fit. Pipelines that do not
//! depend on each other run at the same time, on streams of their own; the runtime orders what
//! they share. A thread of its own reads ahead for each input.

mod accumulate;
mod chain;
mod groups;
mod monitor;
mod physical;
mod probe;
mod scan;
mod schema;
#[cfg(test)]
mod tests;
mod write;

pub use monitor::Monitor;
pub use schema::{arrow_schema, table_schema};

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use xlog_cuda::device_runtime::StreamId;
use xlog_io::{BatchReader, FileResult};
use xlog_relational::{
    Engine, RelationalError, Table,
    exec::{CancelToken, Executor, NodeId, Plan},
};

use crate::{
    error::{QueryError, QueryResult},
    plan::{LogicalPlan, Query},
};
use accumulate::Crew;
use chain::{Chain, Parts};
use physical::{Physical, Pipeline};
use probe::Build;

/// Memory with which several may work on the same rows' groups.
const PLENTY: u64 = 64 << 20;

/// A table that can be read.
pub trait Source: Send + Sync {
    /// What the query calls it.
    fn name(&self) -> &str;

    /// Its columns.
    fn schema(&self) -> SchemaRef;

    /// Starts reading some of its columns. The reader may hand out others too.
    fn open(&self, columns: &[String]) -> FileResult<Box<dyn BatchReader>>;

    /// How large it is, if that is known: the smaller side of a join is kept.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Whether it can be read more than once.
    fn is_rereadable(&self) -> bool {
        true
    }
}

/// Where a result goes.
pub trait Sink: Send {
    /// Told once, before the first batch: the columns of all of them.
    fn begin(&mut self, schema: SchemaRef) -> FileResult<()>;

    /// Takes the next rows. `Ok(false)` asks for no more.
    fn write(&mut self, batch: &RecordBatch) -> FileResult<bool>;

    /// There are no more rows: what is left to be written is, so that little can fail from here on.
    fn complete(&mut self) -> FileResult<()> {
        Ok(())
    }

    /// This sink is complete, and so is every other of the query: the result appears. A sink that
    /// is dropped before leaves nothing behind.
    fn finish(self: Box<Self>) -> FileResult<()>;
}

/// How a query runs.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Bytes of device memory that there are.
    pub memory: u64,
    /// Streams at most.
    pub streams: usize,
    /// Threads that call operators at most.
    pub threads: usize,
    /// Rows of a batch; without it, what readers hand out, within reason.
    pub batch_rows: Option<usize>,
}

/// Runs a query: each of its outputs goes to the sink of that place. Nothing is finished unless
/// everything went well.
pub fn run(
    engine: &Engine,
    query: &Query,
    sources: &[Arc<dyn Source>],
    sinks: Vec<Box<dyn Sink>>,
    options: &RunOptions,
    cancel: &CancelToken,
    monitor: &Arc<Monitor>,
) -> QueryResult<()> {
    let mut schemas = Vec::with_capacity(sources.len());
    for source in sources {
        schemas.push((source.name().to_owned(), table_schema(&source.schema())?));
    }
    let logical = LogicalPlan::of(query, &schemas)?;
    let physical = Physical::of(&logical, sources);
    let shared = Arc::new(Shared {
        sources: sources.to_vec(),
        sinks: sinks.into_iter().map(|sink| Mutex::new(Some(sink))).collect(),
        options: options.clone(),
        cancel: cancel.clone(),
        monitor: Arc::clone(monitor),
        failure: Mutex::new(None),
    });
    let mut plan = Plan::new();
    let (mut nodes, mut outputs): (Vec<NodeId>, Vec<NodeId>) = (Vec::new(), Vec::new());
    for pipeline in physical.pipelines {
        let inputs: Vec<NodeId> = pipeline.inputs.iter().map(|input| nodes[*input]).collect();
        let (name, is_output) = (pipeline.name.clone(), pipeline.is_output());
        let shared = Arc::clone(&shared);
        let node = plan.node(name, &inputs, move |step, tables| {
            let (engine, stream) = (step.engine(), step.stream());
            // Each keeps its own part of the result: with little memory, one does the work.
            let threads = if shared.options.memory < PLENTY { 1 } else { shared.options.threads };
            let workers = pipeline.workers(threads);
            let context = Context { engine, stream, workers, shared: &shared };
            context.run(&pipeline, tables).map_err(|error| shared.fail(error))
        });
        nodes.push(node);
        if is_output {
            outputs.push(node);
        }
    }
    let executor = Executor::new(engine)
        .with_streams(options.streams)
        .with_threads(options.threads)
        .with_cancel(cancel);
    let ran = executor.run(&plan, &outputs);
    drop(plan);
    if let Some(failure) = shared.failure.lock().take() {
        return Err(failure);
    }
    ran?;
    let mut sinks: Vec<_> = shared.sinks.iter().filter_map(|sink| sink.lock().take()).collect();
    sinks.iter_mut().try_for_each(|sink| sink.complete())?;
    sinks.into_iter().try_for_each(Sink::finish)?;
    Ok(())
}

/// What all pipelines of a run share.
struct Shared {
    sources: Vec<Arc<dyn Source>>,
    sinks: Vec<Mutex<Option<Box<dyn Sink>>>>,
    options: RunOptions,
    cancel: CancelToken,
    monitor: Arc<Monitor>,
    /// What went wrong first; operators of a plan can only say what relational errors can.
    failure: Mutex<Option<QueryError>>,
}

impl Shared {
    fn fail(&self, error: QueryError) -> RelationalError {
        self.failure.lock().get_or_insert(error);
        RelationalError::Cancelled
    }
}

/// What one pipeline works with.
struct Context<'c> {
    engine: &'c Engine,
    stream: StreamId,
    /// How many do the same work on other rows, this one included.
    workers: usize,
    shared: &'c Shared,
}

impl Context<'_> {
    /// The share of the memory that there is for each worker.
    fn memory(&self) -> u64 {
        self.shared.options.memory / self.workers as u64
    }

    fn run(&self, pipeline: &Pipeline, tables: &[Table]) -> QueryResult<Table> {
        let builds = chain::builds(self, pipeline, tables)?;
        let mut chain = Chain::new(self, pipeline, tables, &builds)?;
        let ran = self.feed(pipeline, tables, &builds, &mut chain).and_then(|()| chain.finish());
        ran.map_err(|error| match error {
            QueryError::Relational(error) if error.is_out_of_memory() => {
                chain.too_large(pipeline, error)
            }
            error => error,
        })
    }

    /// Pushes every batch of the origin through the chain.
    fn feed(
        &self,
        pipeline: &Pipeline,
        tables: &[Table],
        builds: &[Build],
        chain: &mut Chain<'_>,
    ) -> QueryResult<()> {
        match &pipeline.origin {
            physical::Origin::Table(input) => {
                for window in self.windows(&tables[*input])? {
                    self.shared.cancel.check()?;
                    if !chain.push(window?)? {
                        break;
                    }
                }
            }
            physical::Origin::Scan { source, columns } => {
                let source = &self.shared.sources[*source];
                let scan = Mutex::new(scan::Scan::open(self.shared, source, columns)?);
                self.work(pipeline, (tables, builds), &scan, chain)?;
            }
        }
        Ok(())
    }

    /// This worker and those beside it. Fewer streams than workers are fewer workers.
    fn crew(&self) -> QueryResult<Crew<'_>> {
        let mut streams = vec![self.stream];
        if self.workers > 1 {
            // Beside those of the plan itself.
            let own = self.shared.options.streams;
            let all = self.engine.worker_streams(own + self.workers - 1);
            let all = all.map_err(RelationalError::from)?;
            streams.extend(all.into_iter().skip(own));
        }
        Ok(Crew { streams, cancel: &self.shared.cancel })
    }

    /// Takes turns with other workers at the rows of a scan; what those made becomes the chain's.
    fn work(
        &self,
        pipeline: &Pipeline,
        (tables, builds): (&[Table], &[Build]),
        scan: &Mutex<scan::Scan<'_>>,
        chain: &mut Chain<'_>,
    ) -> QueryResult<()> {
        let Crew { streams, .. } = self.crew()?;
        // Who fails leaves nothing to do for others.
        let failed = AtomicBool::new(false);
        let drain = |context: &Context<'_>, chain: &mut Chain<'_>| {
            let drained = context.drain(scan, chain, &failed);
            drained.inspect_err(|_| failed.store(true, Ordering::Relaxed))
        };
        let worked: QueryResult<Vec<Option<Parts>>> = std::thread::scope(|scope| {
            let others: Vec<_> = streams[1..]
                .iter()
                .map(|stream| {
                    scope.spawn(|| {
                        let context = Context { stream: *stream, ..*self };
                        let mut chain = Chain::new(&context, pipeline, tables, builds)?;
                        drain(&context, &mut chain)?;
                        chain.into_parts()
                    })
                })
                .collect();
            let own = drain(self, chain);
            let panicked = |_| Err(QueryError::plan("a worker panicked; please report it"));
            let parts = others.into_iter().map(|other| other.join().unwrap_or_else(panicked));
            let parts: QueryResult<Vec<_>> = parts.collect();
            own.and(parts)
        });
        for parts in worked?.into_iter().flatten() {
            chain.absorb(parts);
        }
        Ok(())
    }

    /// Pushes rows of a scan through a chain until there are none, or none are wanted.
    fn drain(
        &self,
        scan: &Mutex<scan::Scan<'_>>,
        chain: &mut Chain<'_>,
        failed: &AtomicBool,
    ) -> QueryResult<()> {
        loop {
            if failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let (batches, fraction) = {
                let mut scan = scan.lock();
                (scan.next()?, scan.fraction())
            };
            let Some(batches) = batches else { return Ok(()) };
            chain.seen(fraction);
            if !chain.push(scan::table_of(self, &batches)?)? {
                return Ok(());
            }
        }
    }

    /// A table in parts that are small enough to work on.
    fn windows<'t>(
        &self,
        table: &'t Table,
    ) -> QueryResult<impl Iterator<Item = QueryResult<Table>> + use<'t>> {
        let row = schema::row_bytes(&table.schema());
        let part = self.shared.options.memory / 16 / row.max(1);
        let part = part.clamp(1 << 12, 1 << 22);
        let part = self.shared.options.batch_rows.map_or(part, |rows| rows as u64).max(1);
        let (rows, stream) = (table.rows(), self.stream);
        let starts = (0..rows.max(1)).step_by(usize::try_from(part).unwrap_or(usize::MAX));
        Ok(starts.map(move |start| Ok(xlog_relational::ops::limit(table, start, part, stream)?)))
    }
}
