//! Rows that are made fewer as they come: groups, and different rows.

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{RelationalResult, Schema, Table, ops};

use super::{chain::all, schema::row_bytes};
use crate::error::QueryResult;

/// Tables of few rows that wait to be put together, at most.
const MOST_TABLES: usize = 64;

/// Makes rows fewer batch by batch if that makes them much fewer, and many at a time otherwise:
/// where nearly every row is a group of its own, doing it twice is twice the work.
#[derive(Debug)]
pub(super) struct Accumulator {
    /// Rows as they came.
    raw: Vec<Table>,
    raw_rows: u64,
    /// Rows made fewer; the same ones may be in several tables.
    reduced: Vec<Table>,
    reduced_rows: u64,
    /// Rows there were when all of them were last put together.
    merged_rows: u64,
    /// Whether every batch is made smaller by itself.
    eager: bool,
    /// Rows that are worked on at a time, at most.
    chunk_rows: u64,
}

/// Makes the rows of a table fewer. Doing so again, to several results together, is the same.
pub(super) type Reduce<'r> = &'r mut dyn FnMut(&Table) -> RelationalResult<Table>;

impl Accumulator {
    pub(super) fn new(schema: &Schema, memory: u64) -> Self {
        let row = 3 * row_bytes(schema) + 96;
        let chunk_rows = (memory / 4 / row).clamp(1 << 10, 1 << 25);
        Self {
            raw: Vec::new(),
            raw_rows: 0,
            reduced: Vec::new(),
            reduced_rows: 0,
            merged_rows: 0,
            eager: true,
            chunk_rows,
        }
    }

    /// Takes rows, where one function makes them fewer at first and again.
    pub(super) fn push(
        &mut self,
        table: Table,
        stream: StreamId,
        reduce: Reduce<'_>,
    ) -> QueryResult<()> {
        if let Some(chunk) = self.chunk(table, stream)? {
            let rows = chunk.rows();
            let reduced = reduce(&chunk)?;
            drop(chunk);
            if self.add(rows, reduced) {
                self.merge(stream, reduce)?;
            }
        }
        Ok(())
    }

    /// Everything, made as few as it gets.
    pub(super) fn finish(&mut self, stream: StreamId, reduce: Reduce<'_>) -> QueryResult<Table> {
        if let Some(rest) = self.rest(stream)? {
            let reduced = reduce(&rest)?;
            self.add(rest.rows(), reduced);
        }
        if self.reduced.len() > 1 {
            self.merge(stream, reduce)?;
        }
        all(&self.reduced, stream)
    }

    /// Takes rows as they came; answers those to be made fewer now.
    pub(super) fn chunk(&mut self, table: Table, stream: StreamId) -> QueryResult<Option<Table>> {
        if self.eager {
            return Ok(Some(table));
        }
        self.raw_rows += table.rows();
        self.raw.push(table);
        if self.raw_rows < self.chunk_rows { Ok(None) } else { self.rest(stream) }
    }

    /// The rows as they came that nobody made fewer yet.
    pub(super) fn rest(&mut self, stream: StreamId) -> QueryResult<Option<Table>> {
        if self.raw.is_empty() {
            return Ok(None);
        }
        let rest = all(&self.raw, stream)?;
        self.raw.clear();
        self.raw_rows = 0;
        Ok(Some(rest))
    }

    /// Takes what became of `rows` rows; answers whether it is time to put results together.
    pub(super) fn add(&mut self, rows: u64, reduced: Table) -> bool {
        if rows > 4096 && reduced.rows() * 4 > rows {
            self.eager = false;
        }
        self.reduced_rows += reduced.rows();
        if reduced.rows() > 0 || self.reduced.is_empty() {
            self.reduced.push(reduced);
        }
        let most = self.chunk_rows.max(2 * self.merged_rows);
        self.reduced.len() > 1 && (self.reduced_rows > most || self.reduced.len() >= MOST_TABLES)
    }

    /// All results, which the caller makes one of.
    pub(super) fn take(&mut self, stream: StreamId) -> QueryResult<Table> {
        let table = all(&self.reduced, stream)?;
        self.reduced.clear();
        self.reduced_rows = 0;
        Ok(table)
    }

    /// Takes over what others made fewer.
    pub(super) fn absorb(&mut self, tables: Vec<Table>) {
        self.reduced_rows += tables.iter().map(Table::rows).sum::<u64>();
        self.reduced.extend(tables);
    }

    /// Takes back what the results were made to.
    pub(super) fn put_back(&mut self, merged: Table) {
        self.merged_rows = merged.rows();
        self.reduced_rows = merged.rows();
        self.reduced.push(merged);
    }

    /// How many tables of results there are.
    pub(super) fn tables(&self) -> usize {
        self.reduced.len()
    }

    fn merge(&mut self, stream: StreamId, reduce: Reduce<'_>) -> QueryResult<()> {
        let together = self.take(stream)?;
        let merged = reduce(&together)?;
        self.put_back(merged);
        Ok(())
    }
}

/// Rows one behind the other.
pub(super) fn stacked(tables: &[Table], stream: StreamId) -> QueryResult<Table> {
    Ok(ops::concat(&tables.iter().collect::<Vec<_>>(), stream)?)
}
