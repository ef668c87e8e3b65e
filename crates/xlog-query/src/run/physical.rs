//! Which pipelines a query is cut into.

use std::{collections::HashMap, sync::Arc};

use xlog_relational::{Aggregate, Expr, JoinKind, Schema, SortKey};

use super::Source;
use crate::plan::{JoinSpec, LogicalPlan, Operation, SetKind};

/// The most rows that are kept of an order batch by batch; above, everything is sorted once.
const MOST_FIRST: u64 = 1 << 20;

/// Workers on the rows of one scan, at most.
const MOST_WORKERS: usize = 4;

/// All pipelines, each after those whose tables it reads.
pub(super) struct Physical {
    pub(super) pipelines: Vec<Pipeline>,
}

/// Rows from their origin to their end.
pub(super) struct Pipeline {
    /// What it is called in messages.
    pub(super) name: String,
    /// Pipelines whose tables it reads.
    pub(super) inputs: Vec<usize>,
    pub(super) origin: Origin,
    pub(super) stages: Vec<Stage>,
    pub(super) end: End,
    /// The columns that reach the end.
    pub(super) schema: Schema,
}

/// Where rows come from.
pub(super) enum Origin {
    /// An input, of which some columns are read.
    Scan { source: usize, columns: Vec<String> },
    /// The table of an input pipeline.
    Table(usize),
}

/// What is done to rows as they come.
pub(super) enum Stage {
    Filter(Expr),
    Project(Vec<(String, Expr)>),
    Probe(Probe),
    Limit { offset: u64, count: u64 },
}

/// A join with a table that is there as a whole.
pub(super) struct Probe {
    /// The input pipeline whose table it is.
    pub(super) build: usize,
    /// Whether that is the left side.
    pub(super) builds_left: bool,
    pub(super) spec: JoinSpec,
}

/// What takes all rows.
pub(super) enum End {
    /// All of them as one table.
    Collect,
    /// In an order.
    Sort(Vec<SortKey>),
    /// The first ones in an order.
    First(Vec<SortKey>, u64),
    /// Figures of groups.
    Group { keys: Vec<String>, aggregates: Vec<Aggregate> },
    /// Every different one once.
    Distinct,
    /// With those of an input pipeline, as sets.
    Set { other: usize, kind: SetKind },
    /// To a sink.
    Write(usize),
}

impl Pipeline {
    /// How many may do its work at the same time on different rows. Several where the order of
    /// rows means nothing: groups, and different rows.
    pub(super) fn workers(&self, threads: usize) -> usize {
        let unordered = matches!(self.end, End::Group { .. } | End::Distinct)
            && matches!(self.origin, Origin::Scan { .. })
            && self.stages.iter().all(|stage| match stage {
                Stage::Filter(_) | Stage::Project(_) => true,
                Stage::Probe(probe) => probe.spec.kind != JoinKind::Full,
                Stage::Limit { .. } => false,
            });
        if unordered { threads.clamp(1, MOST_WORKERS) } else { 1 }
    }

    pub(super) fn is_output(&self) -> bool {
        matches!(self.end, End::Write(_))
    }
}

impl Physical {
    pub(super) fn of(plan: &LogicalPlan, sources: &[Arc<dyn Source>]) -> Self {
        let mut readers = vec![0usize; plan.nodes.len()];
        let mut read = vec![false; plan.nodes.len()];
        for output in &plan.outputs {
            readers[*output] += 1;
            read[*output] = true;
        }
        for index in (0..plan.nodes.len()).rev() {
            if read[index] {
                for input in &plan.nodes[index].inputs {
                    readers[*input] += 1;
                    read[*input] = true;
                }
            }
        }
        let mut cutter =
            Cutter { plan, sources, readers, tables: HashMap::new(), pipelines: Vec::new() };
        for (sink, output) in plan.outputs.iter().enumerate() {
            let flow = cutter.flow(*output);
            cutter.end(*output, flow, End::Write(sink), "write");
        }
        Self { pipelines: cutter.pipelines }
    }
}

/// The beginning of a pipeline.
struct Flow {
    inputs: Vec<usize>,
    origin: Origin,
    stages: Vec<Stage>,
}

impl Flow {
    fn of_table(pipeline: usize) -> Self {
        Self { inputs: vec![pipeline], origin: Origin::Table(0), stages: Vec::new() }
    }

    fn with(mut self, stage: Stage) -> Self {
        self.stages.push(stage);
        self
    }

    /// Reads one more pipeline; answers its place among the inputs.
    fn read(&mut self, pipeline: usize) -> usize {
        self.inputs.push(pipeline);
        self.inputs.len() - 1
    }
}

struct Cutter<'c> {
    plan: &'c LogicalPlan,
    sources: &'c [Arc<dyn Source>],
    /// How often each node is read.
    readers: Vec<usize>,
    /// Nodes that are there as a whole, and the pipelines that make them.
    tables: HashMap<usize, usize>,
    pipelines: Vec<Pipeline>,
}

impl Cutter<'_> {
    /// The rows of a node, as they come.
    fn flow(&mut self, node: usize) -> Flow {
        let rereadable = match self.plan.nodes[node].operation {
            Operation::Scan { source } => self.sources[source].is_rereadable(),
            _ => false,
        };
        if self.readers[node] > 1 && !rereadable {
            return Flow::of_table(self.table(node));
        }
        self.begin(node)
    }

    /// The pipeline that makes a node's table as a whole.
    fn table(&mut self, node: usize) -> usize {
        if let Some(pipeline) = self.tables.get(&node) {
            return *pipeline;
        }
        let flow = self.begin(node);
        let pipeline = match (&flow.origin, flow.stages.is_empty()) {
            // It ended in a table already.
            (Origin::Table(input), true) => flow.inputs[*input],
            _ => self.end(node, flow, End::Collect, "collect"),
        };
        self.tables.insert(node, pipeline);
        pipeline
    }

    fn begin(&mut self, node: usize) -> Flow {
        let logical = &self.plan.nodes[node];
        let input = |place: usize| logical.inputs[place];
        match &logical.operation {
            Operation::Scan { source } => {
                let fields = logical.schema.fields().iter();
                let columns = fields.map(|field| field.name.clone()).collect();
                let origin = Origin::Scan { source: *source, columns };
                Flow { inputs: Vec::new(), origin, stages: Vec::new() }
            }
            Operation::Filter(expr) => self.flow(input(0)).with(Stage::Filter(expr.clone())),
            Operation::Project(columns) => {
                self.flow(input(0)).with(Stage::Project(columns.clone()))
            }
            Operation::Limit { offset, count } => {
                self.flow(input(0)).with(Stage::Limit { offset: *offset, count: *count })
            }
            Operation::Join(spec) => self.join(input(0), input(1), spec),
            Operation::Sort { keys, first } => {
                let end = match first {
                    Some(first) if *first <= MOST_FIRST => End::First(keys.clone(), *first),
                    _ => End::Sort(keys.clone()),
                };
                self.broken(input(0), end, "sort")
            }
            Operation::Group { keys, aggregates } => {
                let (keys, aggregates) = (keys.clone(), aggregates.clone());
                self.broken(input(0), End::Group { keys, aggregates }, "group")
            }
            Operation::Distinct => self.broken(input(0), End::Distinct, "distinct"),
            Operation::Set(kind) => {
                let other = self.table(input(1));
                let mut flow = self.flow(input(0));
                let other = flow.read(other);
                let end = End::Set { other, kind: *kind };
                Flow::of_table(self.end(input(0), flow, end, "set"))
            }
        }
    }

    /// A join: one side as a whole, the rows of the other as they come.
    fn join(&mut self, left: usize, right: usize, spec: &JoinSpec) -> Flow {
        let builds_left = match spec.kind {
            JoinKind::Inner => match (self.bytes(left), self.bytes(right)) {
                (Some(left), Some(right)) => left < right,
                _ => false,
            },
            JoinKind::Right => true,
            _ => false,
        };
        let (build, probe) = if builds_left { (left, right) } else { (right, left) };
        let table = self.table(build);
        let mut flow = self.flow(probe);
        let build = flow.read(table);
        flow.with(Stage::Probe(Probe { build, builds_left, spec: spec.clone() }))
    }

    /// How large the inputs are that a node is made of.
    fn bytes(&self, node: usize) -> Option<u64> {
        let node = &self.plan.nodes[node];
        match node.operation {
            Operation::Scan { source } => self.sources[source].bytes(),
            _ => node.inputs.iter().map(|input| self.bytes(*input)).sum(),
        }
    }

    /// A pipeline that ends here, and the rows of its table.
    fn broken(&mut self, input: usize, end: End, name: &str) -> Flow {
        let flow = self.flow(input);
        Flow::of_table(self.end(input, flow, end, name))
    }

    fn end(&mut self, node: usize, flow: Flow, end: End, name: &str) -> usize {
        let logical = &self.plan.nodes[node];
        let name = match logical.step.as_str() {
            "" => name.to_owned(),
            step => format!("{step}: {name}"),
        };
        let Flow { inputs, origin, stages } = flow;
        let schema = logical.schema.clone();
        self.pipelines.push(Pipeline { name, inputs, origin, stages, end, schema });
        self.pipelines.len() - 1
    }
}
