//! Runs plans.

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use parking_lot::{Condvar, Mutex};
use xlog_cuda::device_runtime::StreamId;

use super::{CancelToken, NodeId, Plan, plan::Work};
use crate::{Engine, RelationalError, RelationalResult, Table};

/// Streams and threads an executor uses unless told otherwise.
const STREAMS: usize = 8;
const THREADS: usize = 8;

/// What an operator of a plan works with.
#[derive(Debug)]
pub struct Step<'s> {
    engine: &'s Engine,
    stream: StreamId,
    cancel: &'s CancelToken,
}

impl Step<'_> {
    /// The engine of the plan.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// The stream to work on.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// An error once the plan was cancelled: for operators of several parts, between them.
    pub fn check(&self) -> RelationalResult<()> {
        self.cancel.check()
    }
}

/// A node has been called.
///
/// Its work may still be running on the device: nobody waits for it here.
#[derive(Debug)]
#[non_exhaustive]
pub struct Progress<'p> {
    /// The node's name.
    pub node: &'p str,
    /// Rows of its table.
    pub rows: u64,
    /// Nodes called so far, this one included.
    pub done: usize,
    /// Nodes there are to call.
    pub total: usize,
}

type OnProgress = Box<dyn Fn(&Progress<'_>) + Send + Sync>;

/// Runs plans on an engine, across streams and threads.
///
/// A node that reads what the last node on a stream made stays on that stream, and no event is
/// waited for between them; others go to the stream with the least on it. Tables that nobody reads
/// any more are dropped as soon as that is so. A node that fails ends the plan: those under way
/// are finished, no others begun, and everything the plan made is freed.
pub struct Executor {
    engine: Engine,
    streams: usize,
    threads: usize,
    cancel: CancelToken,
    on_progress: Option<OnProgress>,
}

impl Executor {
    /// An executor with up to eight streams, and as many threads as there are cores, up to eight.
    #[must_use]
    pub fn new(engine: &Engine) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            engine: engine.clone(),
            streams: STREAMS,
            threads: cores.min(THREADS),
            cancel: CancelToken::new(),
            on_progress: None,
        }
    }

    /// The same with that many streams; one at least.
    #[must_use]
    pub fn with_streams(mut self, streams: usize) -> Self {
        self.streams = streams.max(1);
        self
    }

    /// The same with that many threads, the calling one included; one at least.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// The same, ended early when `token` is cancelled.
    #[must_use]
    pub fn with_cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = token.clone();
        self
    }

    /// The same, telling `told` of every node, from whichever thread called it.
    #[must_use]
    pub fn with_progress(mut self, told: impl Fn(&Progress<'_>) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Box::new(told));
        self
    }

    /// Runs what `outputs` need of `plan`, and answers their tables, whose last work may still be
    /// running on the device.
    pub fn run(&self, plan: &Plan, outputs: &[NodeId]) -> RelationalResult<Vec<Table>> {
        let mut state = State::new(plan, outputs)?;
        let streams = self.engine.worker_streams(self.streams)?;
        state.streams = streams.iter().map(|_| Tail::default()).collect();
        let threads = self.threads.min(state.total);
        let run = Run {
            executor: self,
            plan,
            streams: &streams,
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(|| run.work())));
            run.work();
        });
        let mut state = run.state.into_inner();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let table = |node: &NodeId| match &state.nodes[node.0].table {
            Some(table) => Ok(table.clone()),
            None => Err(RelationalError::Cancelled),
        };
        outputs.iter().map(table).collect()
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("streams", &self.streams)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// One run of one plan.
struct Run<'r> {
    executor: &'r Executor,
    plan: &'r Plan,
    streams: &'r [StreamId],
    state: Mutex<State>,
    changed: Condvar,
}

/// How far a run has come.
struct State {
    nodes: Vec<NodeState>,
    /// Nodes whose inputs are all there, in the order in which that came to be.
    ready: VecDeque<usize>,
    running: usize,
    done: usize,
    total: usize,
    streams: Vec<Tail>,
    failure: Option<RelationalError>,
}

#[derive(Default)]
struct NodeState {
    /// Nodes that read this one, each as often as it does.
    readers: Vec<usize>,
    /// Inputs that are not there yet.
    missing: usize,
    /// Reads of its table that are still to come, one for each time it is asked for.
    reads_left: usize,
    table: Option<Table>,
}

/// What a stream of the run has on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tail {
    nodes: usize,
    last: Option<usize>,
}

impl State {
    fn new(plan: &Plan, outputs: &[NodeId]) -> RelationalResult<Self> {
        let invalid = |reason: String| RelationalError::InvalidPlan { reason };
        let mut nodes: Vec<_> = plan.nodes.iter().map(|_| NodeState::default()).collect();
        let mut needed = vec![false; nodes.len()];
        for output in outputs {
            let Some(node) = nodes.get_mut(output.0) else {
                return Err(invalid(format!(
                    "output {} is no node of it; it has {}",
                    output.0,
                    plan.nodes.len()
                )));
            };
            node.reads_left += 1;
            needed[output.0] = true;
        }
        // A node comes after what it reads: from the last to the first, need spreads in one pass.
        for (index, node) in plan.nodes.iter().enumerate().rev() {
            for input in &node.inputs {
                if input.0 >= index {
                    return Err(invalid(format!(
                        "{:?} reads node {}, which was not added before it; nodes of another plan \
                         mean nothing here",
                        node.name, input.0
                    )));
                }
                if needed[index] {
                    needed[input.0] = true;
                    nodes[input.0].readers.push(index);
                    nodes[input.0].reads_left += 1;
                    nodes[index].missing += 1;
                }
            }
        }
        let ready: VecDeque<usize> =
            (0..nodes.len()).filter(|node| needed[*node] && nodes[*node].missing == 0).collect();
        let total = needed.iter().filter(|needed| **needed).count();
        Ok(Self { nodes, ready, running: 0, done: 0, total, streams: Vec::new(), failure: None })
    }

    /// The stream for a node: that of an input with nothing behind it, or the one with least on it.
    fn stream_for(&mut self, plan: &Plan, node: usize) -> usize {
        let follows = |stream: &Tail| {
            stream.last.is_some_and(|last| plan.nodes[node].inputs.contains(&NodeId(last)))
        };
        let least = || (0..self.streams.len()).min_by_key(|stream| self.streams[*stream].nodes);
        let stream = self.streams.iter().position(follows).or_else(least).unwrap_or(0);
        if let Some(tail) = self.streams.get_mut(stream) {
            *tail = Tail { nodes: tail.nodes + 1, last: Some(node) };
        }
        stream
    }

    /// Notes a table, and answers the tables that nobody reads any more.
    fn finish(&mut self, plan: &Plan, node: usize, table: Table) -> Vec<Table> {
        self.nodes[node].table = Some(table);
        for reader in self.nodes[node].readers.clone() {
            self.nodes[reader].missing -= 1;
            if self.nodes[reader].missing == 0 {
                self.ready.push_back(reader);
            }
        }
        let mut over = Vec::new();
        for input in &plan.nodes[node].inputs {
            let input = &mut self.nodes[input.0];
            input.reads_left -= 1;
            if input.reads_left == 0 {
                over.extend(input.table.take());
            }
        }
        over
    }
}

impl Run<'_> {
    /// Calls one node after the other until there are none left.
    fn work(&self) {
        while let Some((node, stream, inputs)) = self.next() {
            let called = self.call(node, stream, &inputs);
            drop(inputs);
            let (over, told) = {
                let mut state = self.state.lock();
                state.running -= 1;
                let told = match called {
                    Ok(table) => {
                        state.done += 1;
                        let rows = table.rows();
                        let over = state.finish(self.plan, node, table);
                        (over, Some((rows, state.done, state.total)))
                    }
                    Err(error) => {
                        state.failure.get_or_insert(error);
                        (Vec::new(), None)
                    }
                };
                self.changed.notify_all();
                told
            };
            // Outside the lock: dropping a table frees memory, and the caller's code is anything.
            drop(over);
            if let (Some((rows, done, total)), Some(tell)) = (told, &self.executor.on_progress) {
                tell(&Progress { node: &self.plan.nodes[node].name, rows, done, total });
            }
        }
    }

    /// The next node to call, its stream, and the tables it reads; waits for one that others have
    /// to make way for.
    fn next(&self) -> Option<(usize, StreamId, Vec<Table>)> {
        let mut state = self.state.lock();
        loop {
            if state.failure.is_none() && self.executor.cancel.is_cancelled() {
                state.failure = Some(RelationalError::Cancelled);
            }
            if state.failure.is_some() {
                self.changed.notify_all();
                return None;
            }
            if let Some(node) = state.ready.pop_front() {
                state.running += 1;
                let stream = state.stream_for(self.plan, node);
                let inputs = &self.plan.nodes[node].inputs;
                let tables = inputs.iter().filter_map(|input| state.nodes[input.0].table.clone());
                let tables = tables.collect();
                return Some((node, self.streams[stream], tables));
            }
            if state.running == 0 {
                self.changed.notify_all();
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn call(&self, node: usize, stream: StreamId, inputs: &[Table]) -> RelationalResult<Table> {
        let Executor { engine, cancel, .. } = self.executor;
        let step = Step { engine, stream, cancel };
        let node = &self.plan.nodes[node];
        let called = match &node.work {
            Work::Source(table) => Ok(table.clone()),
            // The state a panic leaves behind is the operator's own, which nobody calls again.
            Work::Operator(operator) => catch_unwind(AssertUnwindSafe(|| operator(&step, inputs)))
                .unwrap_or_else(|panic| {
                    let reason = format!("it panicked: {}", words_of(&*panic));
                    Err(RelationalError::InvalidPlan { reason })
                }),
        };
        called.map_err(|error| match error {
            RelationalError::Cancelled => error,
            error => RelationalError::InPlan { node: node.name.clone(), source: Box::new(error) },
        })
    }
}

/// What a panic said.
fn words_of(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

#[cfg(test)]
mod tests;
