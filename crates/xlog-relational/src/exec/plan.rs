//! Which operator reads what.

use std::fmt;

use super::Step;
use crate::{RelationalResult, Table};

/// An operator of a plan: makes a table of the tables it reads, on the stream of the step.
pub(super) type Operator =
    Box<dyn Fn(&Step<'_>, &[Table]) -> RelationalResult<Table> + Send + Sync>;

/// A node of a plan. It means something to the plan that made it, and to no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(super) usize);

/// What a node is.
pub(super) enum Work {
    /// A table that is there.
    Source(Table),
    /// A table to be made of others.
    Operator(Operator),
}

/// One node.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) inputs: Vec<NodeId>,
    pub(super) work: Work,
}

/// Operators and what they read. A node reads nodes that were added before it, so there is no plan
/// that goes in circles.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, Engine, Table, exec::{Executor, Plan}};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let ids = Column::from_slice(&engine, &[3u32, 1, 2], StreamId::DEFAULT)?;
/// let mut plan = Plan::new();
/// let source = plan.source("ids", Table::new(&engine, [("id", ids)])?);
/// let renamed = plan.node("rename", &[source], |_, tables| tables[0].rename("id", "key"));
/// let tables = Executor::new(&engine).run(&plan, &[renamed])?;
/// assert_eq!((tables[0].rows(), tables[0].column("key")?.len()), (3, 3));
/// # Ok::<(), xlog_relational::RelationalError>(())
/// ```
#[derive(Default)]
pub struct Plan {
    pub(super) nodes: Vec<Node>,
}

impl Plan {
    /// A plan with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a table that others read.
    pub fn source(&mut self, name: impl Into<String>, table: Table) -> NodeId {
        self.add(name.into(), Vec::new(), Work::Source(table))
    }

    /// Adds an operator over nodes of this plan. It is called once, when its inputs are there, and
    /// works on the stream of its [`Step`].
    pub fn node(
        &mut self,
        name: impl Into<String>,
        inputs: &[NodeId],
        operator: impl Fn(&Step<'_>, &[Table]) -> RelationalResult<Table> + Send + Sync + 'static,
    ) -> NodeId {
        self.add(name.into(), inputs.to_vec(), Work::Operator(Box::new(operator)))
    }

    fn add(&mut self, name: String, inputs: Vec<NodeId>, work: Work) -> NodeId {
        self.nodes.push(Node { name, inputs, work });
        NodeId(self.nodes.len() - 1)
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The name a node was given.
    #[must_use]
    pub fn name(&self, node: NodeId) -> Option<&str> {
        self.nodes.get(node.0).map(|node| node.name.as_str())
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes.iter().map(|node| (&node.name, &node.inputs));
        f.debug_map().entries(nodes).finish()
    }
}
