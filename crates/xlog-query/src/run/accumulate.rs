//! Rows that are made fewer as they come: groups, and different rows.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use xlog_cuda::device_runtime::StreamId;
use xlog_driver::DeviceKind;
use xlog_relational::{
    DataType, RelationalResult, Schema, Table,
    exec::CancelToken,
    ops::{self, Partitioned},
};

use super::{Context, chain::all, schema::row_bytes};
use crate::error::{QueryError, QueryResult};

/// Tables of few rows that wait to be put together, at most.
const MOST_TABLES: usize = 64;
/// Parts that rows are split into.
const PARTS: usize = 32;
/// Rows of which more than a quarter that is left tells that nearly every row is a group of its
/// own, and rows from which on it pays to split them; in half batches and in batches where somebody
/// chose how large those are.
const TELLING: u64 = 1 << 12;
const SPLIT_FROM: u64 = 1 << 20;

/// Makes the rows of a table fewer.
pub(super) trait Reduce: Sync {
    /// Rows as they came.
    fn first(&self, table: &Table, stream: StreamId) -> RelationalResult<Table>;

    /// Rows that were made fewer before, of several tables.
    fn again(&self, table: &Table, stream: StreamId) -> RelationalResult<Table>;
}

/// Leaves different rows.
pub(super) struct Different;

impl Reduce for Different {
    fn first(&self, table: &Table, stream: StreamId) -> RelationalResult<Table> {
        ops::distinct(table, None, stream)
    }

    fn again(&self, table: &Table, stream: StreamId) -> RelationalResult<Table> {
        self.first(table, stream)
    }
}

/// Who works on rows that all came: the streams of several threads.
pub(super) struct Crew<'c> {
    pub(super) streams: Vec<StreamId>,
    pub(super) cancel: &'c CancelToken,
}

/// Makes rows fewer batch by batch if that makes them much fewer, and many at a time otherwise:
/// where nearly every row is a group of its own, doing it twice is twice the work.
///
/// On the host, many rows are kept in parts by their keys, and each part is made fewer by itself:
/// its groups are then in the processor's caches, and threads share the parts without anything to
/// put together. A GPU is faster with all of them at once.
#[derive(Debug)]
pub(super) struct Accumulator {
    kept: Kept,
    raw_rows: u64,
    reduced_rows: u64,
    /// Rows there were when all of them were last put together.
    merged_rows: u64,
    /// Whether every batch is made smaller by itself.
    eager: bool,
    /// Rows that are worked on at a time, at most, and rows that wait in parts, of which one at a
    /// time is worked on.
    chunk_rows: u64,
    split_rows: u64,
    /// The keys that rows are split by; none if they are not.
    keys: Vec<String>,
    telling: u64,
    split_from: u64,
}

/// Rows that wait.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Rows as they came, and those in parts.
    raw: Vec<Table>,
    split: Vec<Partitioned>,
    /// Rows made fewer; the same ones may be in several tables.
    reduced: Vec<Table>,
    /// The same of every part, if there are parts.
    settled: Vec<Vec<Table>>,
}

impl Accumulator {
    /// For rows of a schema of which those with equal `keys` become one.
    pub(super) fn new<'k>(
        context: &Context<'_>,
        schema: &Schema,
        keys: impl IntoIterator<Item = &'k str>,
    ) -> Self {
        let (row, memory) = (row_bytes(schema), context.memory());
        let chunk_rows = (memory / 4 / (3 * row + 96)).clamp(1 << 10, 1 << 25);
        let split_rows = (memory / 3 / row.max(1)).max(chunk_rows);
        let is_host = context.engine.runtime().device().info().kind == DeviceKind::Host;
        let batch = context.shared.options.batch_rows.map(|rows| rows as u64);
        let splits = |key: &&str| {
            is_host && schema.field(key).is_ok_and(|field| field.data_type != DataType::Utf8)
        };
        let keys = keys.into_iter().filter(splits).map(str::to_owned).collect();
        Self {
            kept: Kept::default(),
            raw_rows: 0,
            reduced_rows: 0,
            merged_rows: 0,
            eager: true,
            chunk_rows,
            split_rows,
            keys,
            telling: batch.map_or(TELLING, |rows| rows / 2),
            split_from: batch.map_or(SPLIT_FROM, |rows| 4 * rows),
        }
    }

    /// Takes rows.
    pub(super) fn push(
        &mut self,
        table: Table,
        stream: StreamId,
        how: &dyn Reduce,
    ) -> QueryResult<()> {
        if !self.eager {
            return self.keep(table, stream, how);
        }
        let reduced = how.first(&table, stream)?;
        if table.rows() > self.telling && reduced.rows() * 4 > table.rows() {
            self.eager = false;
            if self.kept.reduced.is_empty() {
                return self.keep(table, stream, how);
            }
        }
        self.add(reduced, stream, how)
    }

    /// Keeps rows as they came until there are as many as there may be.
    fn keep(&mut self, table: Table, stream: StreamId, how: &dyn Reduce) -> QueryResult<()> {
        self.raw_rows += table.rows();
        self.kept.raw.push(table);
        if self.keys.is_empty() {
            if self.raw_rows < self.chunk_rows {
                return Ok(());
            }
            self.raw_rows = 0;
            let together = all(&std::mem::take(&mut self.kept.raw), stream)?;
            return self.add(how.first(&together, stream)?, stream, how);
        }
        if self.raw_rows >= self.split_from.min(self.chunk_rows) {
            self.split(stream)?;
        }
        if self.raw_rows < self.split_rows {
            return Ok(());
        }
        self.raw_rows = 0;
        let alone = Crew { streams: vec![stream], cancel: &CancelToken::new() };
        let tables = self.settle(&alone, how)?;
        self.kept.settled = tables.into_iter().map(|table| vec![table]).collect();
        Ok(())
    }

    /// Makes the rows of every part fewer.
    fn settle(&mut self, crew: &Crew<'_>, how: &dyn Reduce) -> QueryResult<Vec<Table>> {
        let Kept { split, reduced, settled, .. } = std::mem::take(&mut self.kept);
        let stream = crew.streams[0];
        let before = reduced.iter().map(|table| parts_of(table, &self.keys, stream));
        let before: Vec<_> = before.collect::<QueryResult<_>>()?;
        drop(reduced);
        crew.each_part(|part, stream| {
            let mut tables = settled.get(part).cloned().unwrap_or_default();
            if !before.is_empty() {
                tables.push(part_of(&before, part, stream)?);
            }
            if !split.is_empty() {
                tables.push(how.first(&part_of(&split, part, stream)?, stream)?);
            }
            match &tables[..] {
                [only] => Ok(only.clone()),
                _ => how.again(&ops::concat(&tables.iter().collect::<Vec<_>>(), stream)?, stream),
            }
        })
    }

    /// Puts rows as they came into the order of parts.
    fn split(&mut self, stream: StreamId) -> QueryResult<()> {
        if !self.keys.is_empty() {
            for table in std::mem::take(&mut self.kept.raw) {
                self.kept.split.push(parts_of(&table, &self.keys, stream)?);
            }
        }
        Ok(())
    }

    /// Takes rows that were made fewer, and puts them together with others when it is time.
    fn add(&mut self, reduced: Table, stream: StreamId, how: &dyn Reduce) -> QueryResult<()> {
        self.reduced_rows += reduced.rows();
        let tables = &mut self.kept.reduced;
        if reduced.rows() > 0 || tables.is_empty() {
            tables.push(reduced);
        }
        let most = self.chunk_rows.max(2 * self.merged_rows);
        if tables.len() > 1 && (self.reduced_rows > most || tables.len() >= MOST_TABLES) {
            self.merge(stream, how)?;
        }
        Ok(())
    }

    fn merge(&mut self, stream: StreamId, how: &dyn Reduce) -> QueryResult<()> {
        let together = all(&self.kept.reduced, stream)?;
        self.kept.reduced.clear();
        let merged = how.again(&together, stream)?;
        self.merged_rows = merged.rows();
        self.reduced_rows = merged.rows();
        self.kept.reduced.push(merged);
        Ok(())
    }

    /// Everything so far, for another to take over.
    pub(super) fn take(&mut self, stream: StreamId, how: &dyn Reduce) -> QueryResult<Kept> {
        if self.kept.reduced.len() > 1 {
            self.merge(stream, how)?;
        }
        Ok(std::mem::take(&mut self.kept))
    }

    /// Takes over what another kept.
    pub(super) fn absorb(&mut self, other: Kept) {
        self.raw_rows += other.raw.iter().map(Table::rows).sum::<u64>();
        self.raw_rows += other.split.iter().map(|split| split.table().rows()).sum::<u64>();
        self.kept.raw.extend(other.raw);
        self.kept.split.extend(other.split);
        self.kept.reduced.extend(other.reduced);
        self.kept.settled.resize(self.kept.settled.len().max(other.settled.len()), Vec::new());
        for (own, others) in self.kept.settled.iter_mut().zip(other.settled) {
            own.extend(others);
        }
    }

    /// Everything, made as few as it gets.
    pub(super) fn finish(&mut self, crew: &Crew<'_>, how: &dyn Reduce) -> QueryResult<Table> {
        let stream = crew.streams[0];
        let in_parts = !self.kept.split.is_empty() || !self.kept.settled.is_empty();
        if in_parts || (self.raw_rows >= self.split_from && !self.keys.is_empty()) {
            self.split(stream)?;
            return all(&self.settle(crew, how)?, stream);
        }
        if !self.kept.raw.is_empty() {
            let together = all(&std::mem::take(&mut self.kept.raw), stream)?;
            self.kept.reduced.push(how.first(&together, stream)?);
        }
        if self.kept.reduced.len() > 1 {
            self.merge(stream, how)?;
        }
        all(&self.kept.reduced, stream)
    }
}

impl Crew<'_> {
    /// What `work` makes of each part, in their order. Threads take the next part when they are
    /// done with one.
    fn each_part(
        &self,
        work: impl Fn(usize, StreamId) -> RelationalResult<Table> + Sync,
    ) -> QueryResult<Vec<Table>> {
        let next = AtomicUsize::new(0);
        let tables: Mutex<Vec<Option<Table>>> = Mutex::new(vec![None; PARTS]);
        let run = |stream: StreamId| -> RelationalResult<()> {
            loop {
                let part = next.fetch_add(1, Ordering::Relaxed);
                if part >= PARTS {
                    return Ok(());
                }
                self.cancel.check()?;
                // Somebody who failed leaves nothing to do for others.
                let table =
                    work(part, stream).inspect_err(|_| next.store(PARTS, Ordering::Relaxed))?;
                tables.lock()[part] = Some(table);
            }
        };
        let (own, others) = (self.streams[0], &self.streams[1..]);
        std::thread::scope(|scope| {
            let run = &run;
            let running: Vec<_> =
                others.iter().map(|stream| scope.spawn(move || run(*stream))).collect();
            let mut done = run(own).map_err(QueryError::from);
            for other in running {
                let panicked = |_| Err(QueryError::plan("a worker panicked; please report it"));
                let other = other.join().map_or_else(panicked, |ran| ran.map_err(QueryError::from));
                done = done.and(other);
            }
            done
        })?;
        Ok(tables.into_inner().into_iter().flatten().collect())
    }
}

/// A table in parts by the keys that rows are split by.
fn parts_of(table: &Table, keys: &[String], stream: StreamId) -> QueryResult<Partitioned> {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    Ok(ops::partition(table, &keys, PARTS, stream)?)
}

/// One part of several tables.
fn part_of(split: &[Partitioned], part: usize, stream: StreamId) -> RelationalResult<Table> {
    Partitioned::part(&split.iter().collect::<Vec<_>>(), part, stream)
}
