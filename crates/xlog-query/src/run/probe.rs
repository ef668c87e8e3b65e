//! Joins with a table that is there as a whole, batch by batch.

use xlog_relational::{JoinKind, Table, ops};

use super::{Context, chain::all, physical::Probe, schema::row_bytes};
use crate::error::QueryResult;

/// A join that is under way.
///
/// Every call of the operator looks at the whole table again, so rows of the other side are put
/// together until there are as many, as far as memory allows.
pub(super) struct ProbeState<'c> {
    context: &'c Context<'c>,
    probe: &'c Probe,
    build: Table,
    pending: Vec<Table>,
    rows: u64,
    joined: bool,
}

impl<'c> ProbeState<'c> {
    pub(super) fn new(
        context: &'c Context<'c>,
        probe: &'c Probe,
        build: &Table,
    ) -> QueryResult<Self> {
        let build = side(build, probe, probe.builds_left)?;
        Ok(Self { context, probe, build, pending: Vec::new(), rows: 0, joined: false })
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
        let row = row_bytes(&table.schema()) + row_bytes(&self.build.schema()) + 32;
        let fitting = self.context.memory() / 8 / row;
        // Twice as many: looking at the whole table is a third of the work then.
        self.build.rows().saturating_mul(2).min(fitting).max(1)
    }

    fn join(&mut self) -> QueryResult<Table> {
        let stream = self.context.stream;
        let probed = all(&self.pending, stream)?;
        self.pending.clear();
        (self.rows, self.joined) = (0, true);
        let spec = &self.probe.spec;
        let names: Vec<(String, String)> = (0..spec.on.len())
            .map(|key| (key_name(self.probe, true, key), key_name(self.probe, false, key)))
            .collect();
        let on: Vec<(&str, &str)> = names.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let (left, right) =
            if self.probe.builds_left { (&self.build, &probed) } else { (&probed, &self.build) };
        let joined = ops::hash_join(left, right, &on, spec.kind, stream)?;
        let outputs = spec.left.iter().chain(&spec.right).map(|(_, output)| output.as_str());
        Ok(joined.select(&outputs.collect::<Vec<_>>())?)
    }
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
