//! Joins whose one side stays the same.

use std::sync::Arc;

use xlog_cuda::device_runtime::StreamId;

use super::{
    join::{Join, by_probe},
    keys::{Key, refuse_too_many},
};
use crate::{
    column::Column,
    error::{RelationalError, RelationalResult},
    join_kind::JoinKind,
    primitives::{BuiltSide, Keys, Tuning},
    table::Table,
};

/// The side of a join that is looked up, made once and joined with one table after the other: with
/// parts of a table that is too large to be there as a whole, say.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, Engine, JoinKind, RelationalError, Table, ops::JoinBuild};
///
/// let (engine, stream) = (Engine::new(Arc::new(CudaDevice::host()))?, StreamId::DEFAULT);
/// let column = |values: &[u32]| Column::from_slice(&engine, values, stream);
/// let names = Table::new(&engine, [("id", column(&[1, 2, 3])?), ("name", column(&[7, 8, 9])?)])?;
/// let names = JoinBuild::new(&names, &["id"], JoinKind::Inner, false, stream)?;
/// let names = names.expect("whole numbers that do not repeat");
/// for part in [[1, 2], [3, 4]] {
///     let orders = Table::new(&engine, [("customer", column(&part)?)])?;
///     let joined = names.join(&orders, &["customer"], stream)?;
///     assert_eq!(joined.schema().to_string(), "customer: u32, id: u32, name: u32");
///     assert_eq!(joined.rows(), if part[0] == 1 { 2 } else { 1 });
/// }
/// # Ok::<(), RelationalError>(())
/// ```
#[derive(Debug)]
pub struct JoinBuild {
    table: Table,
    columns: Vec<String>,
    kind: JoinKind,
    is_left: bool,
    keys: Vec<Key>,
    side: BuiltSide,
}

impl JoinBuild {
    /// The left or the right table of joins of a kind, to be looked up by its keys.
    ///
    /// `None` where [`hash_join`](super::hash_join) has to see both tables at once: keys repeat
    /// (which semi and anti joins do not mind), they have more than 96 bits (text has 32), or the
    /// kind keeps rows of this table that no other has a partner for.
    ///
    /// Waits for the device once.
    pub fn new(
        table: &Table,
        keys: &[&str],
        kind: JoinKind,
        is_left: bool,
        stream: StreamId,
    ) -> RelationalResult<Option<Self>> {
        refuse_too_many(table.rows(), "the table")?;
        let mut columns = Vec::with_capacity(keys.len());
        for key in keys {
            columns.push(table.column(key)?);
        }
        let keeps_own = if is_left { kind.keeps_left() } else { kind.keeps_right() };
        if keeps_own || columns.is_empty() || (is_left && kind.is_left_only()) {
            return Ok(None);
        }
        let words = Key::all(columns, stream)?;
        let side = {
            let columns = Key::columns(&words);
            let keys = Keys { columns: &columns, rows: table.rows() };
            let side = BuiltSide::new(table.engine(), stream, by_probe(kind), &keys);
            side.map_err(|error| {
                let what = format!("the side of a join with {} rows", table.rows());
                RelationalError::from(error).needing(&what, Some(16 * table.rows()))
            })?
        };
        let columns = keys.iter().map(|key| (*key).to_owned()).collect();
        let table = table.clone();
        Ok(side.map(|side| Self { table, columns, kind, is_left, keys: words, side }))
    }

    /// Joins it with another table: what [`hash_join`](super::hash_join) of both would be.
    ///
    /// Waits for the device once, to learn the number of rows.
    pub fn join(&self, other: &Table, keys: &[&str], stream: StreamId) -> RelationalResult<Table> {
        let own = self.columns.iter().map(String::as_str);
        if keys.len() != self.columns.len() {
            return Err(RelationalError::WidthMismatch {
                expected: self.columns.len(),
                found: keys.len(),
            });
        }
        let theirs = keys.iter().copied();
        let (left, right, on): (_, _, Vec<_>) = match self.is_left {
            true => (&self.table, other, own.zip(theirs).collect()),
            false => (other, &self.table, theirs.zip(own).collect()),
        };
        let join = Join::checked(left, right, &on, self.kind, Tuning::default())?;
        let result = self.joined(&join, other, keys, stream);
        result.map_err(|error| {
            let what = format!("{} join of {} and {} rows", self.kind, left.rows(), right.rows());
            error.needing(&what, Some(join.needed()))
        })
    }

    fn joined(
        &self,
        join: &Join<'_>,
        other: &Table,
        keys: &[&str],
        stream: StreamId,
    ) -> RelationalResult<Table> {
        let theirs = keys
            .iter()
            .zip(&self.columns)
            .map(|(key, own)| comparable(other.column(key)?, self.table.column(own)?, stream));
        let theirs: Vec<Key> = theirs.collect::<RelationalResult<_>>()?;
        let (own, theirs) = (Key::columns(&self.keys), Key::columns(&theirs));
        let build = Keys { columns: &own, rows: self.table.rows() };
        let probe = Keys { columns: &theirs, rows: other.rows() };
        let rows = self.side.probe(self.table.engine(), stream, &build, &probe)?;
        join.table_of(&rows, self.is_left, stream)
    }
}

/// The words of a key column, comparable with those of `own`: text by the codes of its dictionary.
fn comparable(column: &Column, own: &Column, stream: StreamId) -> RelationalResult<Key> {
    let (Some(strings), Some(known)) = (column.dictionary(), own.dictionary()) else {
        return Key::of(column, stream);
    };
    if Arc::ptr_eq(strings, known) {
        return Key::of(column, stream);
    }
    // What the other side does not have gets a code that nobody has.
    let code = |code| strings.get(code).and_then(|string| known.code_of(string));
    let codes = (0..strings.len() as u32).map(|own| code(own).unwrap_or(u32::MAX));
    Key::mapped(column, &codes.collect::<Vec<_>>(), stream)
}
