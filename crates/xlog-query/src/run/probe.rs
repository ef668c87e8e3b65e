//! Joins with a table that is there as a whole, batch by batch.

use std::sync::Arc;

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{JoinKind, Table, ops, ops::JoinBuild};

use super::{Context, chain::all, physical::Probe, schema::row_bytes};
use crate::error::QueryResult;

/// The side of a join that is there as a whole, shared by all who look it up.
#[derive(Clone)]
pub(super) enum Build {
    /// Ready to be looked up by one batch after the other.
    Ready(Arc<JoinBuild>),
    /// Every call of the operator looks at the whole table again.
    Whole(Table),
}

impl Build {
    pub(super) fn new(probe: &Probe, table: &Table, stream: StreamId) -> QueryResult<Self> {
        let table = side(table, probe, probe.builds_left)?;
        let names = key_names(probe, probe.builds_left);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let kind = probe.spec.kind;
        match JoinBuild::new(&table, &names, kind, probe.builds_left, stream) {
            Ok(Some(ready)) => Ok(Self::Ready(Arc::new(ready))),
            Ok(None) => Ok(Self::Whole(table)),
            // The operator takes as much; if that does not fit either, it says what would do.
            Err(error) if error.is_out_of_memory() => Ok(Self::Whole(table)),
            Err(error) => Err(error.into()),
        }
    }
}

/// A join that is under way.
///
/// Where every call of the operator looks at the whole table again, rows of the other side are put
/// together until there are as many, as far as memory allows.
pub(super) struct ProbeState<'c> {
    context: &'c Context<'c>,
    probe: &'c Probe,
    build: Build,
    pending: Vec<Table>,
    rows: u64,
    joined: bool,
}

impl<'c> ProbeState<'c> {
    pub(super) fn new(context: &'c Context<'c>, probe: &'c Probe, build: Build) -> Self {
        Self { context, probe, build, pending: Vec::new(), rows: 0, joined: false }
    }

    /// Takes rows; answers joined ones if there were enough.
    pub(super) fn push(&mut self, table: Table) -> QueryResult<Option<Table>> {
        let table = side(&table, self.probe, !self.probe.builds_left)?;
        let most = self.most_rows(&table);
        self.rows += table.rows();
        self.pending.push(table);
        // Which rows of both sides have no partner is known at the end.
        if self.rows < most || self.probe.spec.kind == JoinKind::Full {
            return Ok(None);
        }
        self.join().map(Some)
    }

    /// Joins what is left; there is one result at least, if need be without rows.
    pub(super) fn finish(&mut self) -> QueryResult<Option<Table>> {
        if self.pending.is_empty() || (self.rows == 0 && self.joined) {
            return Ok(None);
        }
        self.join().map(Some)
    }

    fn most_rows(&self, table: &Table) -> u64 {
        let Build::Whole(build) = &self.build else { return 1 };
        let row = row_bytes(&table.schema()) + row_bytes(&build.schema()) + 32;
        let fitting = self.context.memory() / 8 / row;
        // Twice as many: looking at the whole table is a third of the work then.
        build.rows().saturating_mul(2).min(fitting).max(1)
    }

    fn join(&mut self) -> QueryResult<Table> {
        let stream = self.context.stream;
        let probed = all(&self.pending, stream)?;
        self.pending.clear();
        (self.rows, self.joined) = (0, true);
        let (spec, builds_left) = (&self.probe.spec, self.probe.builds_left);
        let joined = match &self.build {
            Build::Ready(build) => {
                let names = key_names(self.probe, !builds_left);
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                build.join(&probed, &names, stream)?
            }
            Build::Whole(build) => {
                let (left, right) = if builds_left { (build, &probed) } else { (&probed, build) };
                let (of_left, of_right) =
                    (key_names(self.probe, true), key_names(self.probe, false));
                let on = of_left.iter().zip(&of_right);
                let on: Vec<(&str, &str)> = on.map(|(a, b)| (a.as_str(), b.as_str())).collect();
                ops::hash_join(left, right, &on, spec.kind, stream)?
            }
        };
        let outputs = spec.left.iter().chain(&spec.right).map(|(_, output)| output.as_str());
        Ok(joined.select(&outputs.collect::<Vec<_>>())?)
    }
}

/// What the keys of one side are called while the join runs.
fn key_names(probe: &Probe, of_left: bool) -> Vec<String> {
    (0..probe.spec.on.len()).map(|key| key_name(probe, of_left, key)).collect()
}

/// What a key is called while the join runs: as in the result, or by a name that no column has.
fn key_name(probe: &Probe, of_left: bool, key: usize) -> String {
    let (left, right) = &probe.spec.on[key];
    let (own, columns) =
        if of_left { (left, &probe.spec.left) } else { (right, &probe.spec.right) };
    match columns.iter().find(|(name, _)| name == own) {
        Some((_, output)) => output.clone(),
        // Two keys of one column have one name.
        None => format!("\u{1}{}{own}", if of_left { "left " } else { "right " }),
    }
}

/// One side with its columns called as in the result, and the keys that are not in it.
fn side(table: &Table, probe: &Probe, of_left: bool) -> QueryResult<Table> {
    let spec = &probe.spec;
    let columns = if of_left { &spec.left } else { &spec.right };
    let mut named = Vec::with_capacity(columns.len() + spec.on.len());
    for (name, output) in columns {
        named.push((output.clone(), table.column(name)?.clone()));
    }
    for (key, (left, right)) in spec.on.iter().enumerate() {
        let name = key_name(probe, of_left, key);
        if named.iter().all(|(other, _)| *other != name) {
            let own = if of_left { left } else { right };
            named.push((name, table.column(own)?.clone()));
        }
    }
    Ok(Table::new(table.engine(), named)?)
}
