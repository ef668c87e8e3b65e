//! Joins on equal keys.

use std::sync::Arc;

use xlog_cuda::{
    device_runtime::StreamId,
    memory::{SliceView, TrackedCudaSlice},
};

use super::{
    keys::{Key, refuse_foreign, refuse_too_many, validity},
    rows::{Missing, host_count, is_mostly_unused, take_column, trimmed},
};
use crate::{
    column::{Column, ColumnParts, Values},
    error::{RelationalError, RelationalResult},
    join_kind::JoinKind,
    primitives::{self, JoinRows, Keys, Tuning, join_payloads, join_tuned},
    table::Table,
    types::DataType,
};

/// Left and right rows whose keys are equal: `on` names each key on both sides. [`JoinKind`] says
/// which rows and columns the result has; the order of the rows is not specified.
///
/// Both columns of a key have the same type; nothing is converted. −0.0 is 0.0, and NaN is NaN.
///
/// Waits for the device once, to learn the number of rows; twice if keys of the side that is
/// looked up repeat, unless that side has at most 2,048 rows and the other at most 4,096. The side
/// that is looked up is the smaller one of inner and full joins, and the right one of left, semi
/// and anti joins.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, Engine, JoinKind, RelationalError, Table, ops::hash_join};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let column = |values: &[u32]| Column::from_slice(&engine, values, StreamId::DEFAULT);
/// let left = Table::new(&engine, [("id", column(&[1, 2, 3])?), ("a", column(&[7, 8, 9])?)])?;
/// let right = Table::new(&engine, [("id", column(&[3, 1, 5])?), ("b", column(&[4, 5, 6])?)])?;
/// let joined = hash_join(&left, &right, &[("id", "id")], JoinKind::Inner, StreamId::DEFAULT)?;
/// assert_eq!(joined.rows(), 2);
/// assert_eq!(joined.schema().to_string(), "id: u32, a: u32, id_right: u32, b: u32");
/// # Ok::<(), RelationalError>(())
/// ```
pub fn hash_join(
    left: &Table,
    right: &Table,
    on: &[(&str, &str)],
    kind: JoinKind,
    stream: StreamId,
) -> RelationalResult<Table> {
    hash_join_tuned(left, right, on, kind, Tuning::default(), stream)
}

/// [`hash_join`], tuned by hand. The rows are the same.
pub fn hash_join_tuned(
    left: &Table,
    right: &Table,
    on: &[(&str, &str)],
    kind: JoinKind,
    tuning: Tuning,
    stream: StreamId,
) -> RelationalResult<Table> {
    let join = Join::checked(left, right, on, kind, tuning)?;
    let result = match join.single_words() {
        Some(words) => join.fused(words, stream),
        None => join.by_rows(stream),
    };
    result.map_err(|error| {
        let what = format!("{kind} join of {} and {} rows", left.rows(), right.rows());
        error.needing(&what, Some(join.needed()))
    })
}

/// A join that can be run.
pub(super) struct Join<'j> {
    left: &'j Table,
    right: &'j Table,
    keys: Vec<(&'j str, &'j str)>,
    kind: JoinKind,
    tuning: Tuning,
    /// Names of the result's columns.
    names: Vec<String>,
}

/// One side of a join that needs no row numbers: a key and a payload.
type SingleWords<'j> = [SliceView<'j, u32>; 2];

impl<'j> Join<'j> {
    pub(super) fn checked(
        left: &'j Table,
        right: &'j Table,
        on: &[(&'j str, &'j str)],
        kind: JoinKind,
        tuning: Tuning,
    ) -> RelationalResult<Self> {
        refuse_foreign(left, right)?;
        if on.is_empty() {
            return Err(RelationalError::UnsupportedExpression {
                expression: format!("{kind} join"),
                reason: "it has no keys; name a column of each table".to_owned(),
            });
        }
        for (a, b) in on {
            let (expected, found) = (left.column(a)?.data_type(), right.column(b)?.data_type());
            if expected != found {
                let column = format!("join key {b:?} of the right table");
                return Err(RelationalError::type_mismatch(column, expected, found));
            }
        }
        refuse_too_many(left.rows(), "the left table")?;
        refuse_too_many(right.rows(), "the right table")?;
        let right_names = right.columns().map(|(name, _)| name);
        let right_names = right_names.filter(|_| !kind.is_left_only()).map(|name| {
            let is_left = left.columns().any(|(other, _)| other == name);
            format!("{name}{}", if is_left { "_right" } else { "" })
        });
        let left_names = left.columns().map(|(name, _)| name.to_owned());
        let names: Vec<String> = left_names.chain(right_names).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                return Err(RelationalError::DuplicateColumn { name: name.clone() });
            }
        }
        Ok(Self { left, right, keys: on.to_vec(), kind, tuning, names })
    }

    /// The result, whose columns are these.
    fn table(&self, columns: Vec<Column>) -> RelationalResult<Table> {
        Table::new(self.left.engine(), self.names.iter().cloned().zip(columns))
    }

    /// Whether the left table is the one that is looked up.
    fn builds_left(&self) -> bool {
        match self.kind {
            JoinKind::Inner | JoinKind::Full => self.left.rows() < self.right.rows(),
            JoinKind::Right => true,
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti => false,
        }
    }

    /// Bytes that a join in which every row has one partner takes, beside its inputs.
    pub(super) fn needed(&self) -> u64 {
        let (build, probe) = match self.builds_left() {
            true => (self.left.rows(), self.right.rows()),
            false => (self.right.rows(), self.left.rows()),
        };
        let out = probe + if self.kind == JoinKind::Full { build } else { 0 };
        let width = |table: &Table| -> u64 {
            table.columns().map(|(_, column)| column.data_type().size() as u64).sum()
        };
        let right = if self.kind.is_left_only() { 0 } else { width(self.right) };
        let packed = if self.keys.len() > 1 { 12 * (build + probe) } else { 0 };
        16 * build + packed + out * (8 + width(self.left) + right)
    }

    /// The sides of an inner join on one key of four bytes in which each table has one further
    /// column of four bytes at most, and nothing is missing.
    fn single_words(&self) -> Option<[SingleWords<'j>; 2]> {
        let [(left, right)] = self.keys[..] else { return None };
        let (left, right) = (self.left.column(left).ok()?, self.right.column(right).ok()?);
        let sides = [(self.left, left), (self.right, right)];
        if self.kind != JoinKind::Inner || !are_words_alike(left, right) {
            return None;
        }
        let words = |column: &'j Column| match column.values() {
            Values::Words(words) if validity(column).is_none() => words.view(..column.len()).ok(),
            _ => None,
        };
        let side = |(table, key): (&'j Table, &'j Column)| {
            if table.width() > 2 || table.rows() == 0 {
                return None;
            }
            Some([words(key)?, words(payload(table, key).unwrap_or(key))?])
        };
        Some([side(sides[0])?, side(sides[1])?])
    }

    /// The join whose payloads are written where the pair is found.
    fn fused(
        &self,
        [left, right]: [SingleWords<'_>; 2],
        stream: StreamId,
    ) -> RelationalResult<Table> {
        let (engine, builds_left) = (self.left.engine(), self.builds_left());
        let sides = if builds_left { [left, right] } else { [right, left] };
        // The table is made without rows: how many it has is known last.
        let (count, made) = join_payloads(engine, stream, sides, self.tuning, |columns| {
            let [keys, build, probe] = columns.map(Arc::new);
            let columns = if builds_left { [keys, build, probe] } else { [keys, probe, build] };
            (self.fused_table(&columns), columns)
        })?;
        let (mut table, mut columns) = (made.0?, made.1);
        let rows = host_count(count, "rows of the join")?;
        if is_mostly_unused(&columns[0], rows) {
            for words in &mut columns {
                *words = Arc::new(trimmed(engine, words, rows, stream)?);
            }
            table = self.fused_table(&columns)?;
        }
        table.with_rows(rows)
    }

    /// The table of a join of single words (keys, left payloads, right payloads), without rows.
    fn fused_table(
        &self,
        [keys, left, right]: &[Arc<TrackedCudaSlice<u32>>; 3],
    ) -> RelationalResult<Table> {
        let mut columns = Vec::with_capacity(self.names.len());
        let (left_key, right_key) = self.keys[0];
        for (table, key, payload) in [(self.left, left_key, left), (self.right, right_key, right)] {
            for (name, column) in table.columns() {
                let words = if name == key { keys } else { payload };
                let values = Values::Words(Arc::clone(words));
                columns.push(column_of(column, values)?);
            }
        }
        self.table(columns)
    }

    /// The join by row numbers, and then every column by those.
    fn by_rows(&self, stream: StreamId) -> RelationalResult<Table> {
        let engine = self.left.engine();
        let [left, right] = self.side_keys(stream)?;
        let (left, right) = (Key::columns(&left), Key::columns(&right));
        let left = Keys { columns: &left, rows: self.left.rows() };
        let right = Keys { columns: &right, rows: self.right.rows() };
        let builds_left = self.builds_left();
        let (build, probe) = if builds_left { (&left, &right) } else { (&right, &left) };
        let rows = join_tuned(engine, stream, by_probe(self.kind), build, probe, self.tuning)?;
        self.table_of(&rows, builds_left, stream)
    }

    /// The columns of both sides by row numbers.
    pub(super) fn table_of(
        &self,
        rows: &JoinRows,
        builds_left: bool,
        stream: StreamId,
    ) -> RelationalResult<Table> {
        let engine = self.left.engine();
        host_count(rows.count, "rows of the join")?;
        let (left, right) = match builds_left {
            true => (rows.build.as_ref(), Some(&rows.probe)),
            false => (Some(&rows.probe), rows.build.as_ref()),
        };
        let mut batch = engine.batch(stream);
        let mut columns = Vec::with_capacity(self.names.len());
        if let Some(numbers) = left {
            let missing = self.kind.keeps_right();
            for (name, column) in self.left.columns() {
                let missing = self.missing(missing, self.keys.iter().any(|(a, _)| *a == name));
                columns.push(take_column(column, numbers, rows.count, missing, &mut batch)?);
            }
        }
        if let Some(numbers) = right.filter(|_| !self.kind.is_left_only()) {
            let missing = self.kind.keeps_left();
            for (name, column) in self.right.columns() {
                if let Some(same) = self.same_as_left(name, column) {
                    columns.push(columns[same].clone());
                    continue;
                }
                let missing = self.missing(missing, self.keys.iter().any(|(_, b)| *b == name));
                columns.push(take_column(column, numbers, rows.count, missing, &mut batch)?);
            }
        }
        batch.submit()?;
        self.table(columns)
    }

    /// What the row numbers of a side may name, for one of its columns.
    fn missing(&self, rows: bool, is_key: bool) -> Missing {
        match self.kind {
            _ if rows => Missing::Rows,
            // Who has a partner has a key.
            JoinKind::Inner | JoinKind::Semi if is_key => Missing::NoNulls,
            _ => Missing::Never,
        }
    }

    /// The left column that a right one is the same as in the result: keys of the same words, in
    /// joins in which every row has both.
    fn same_as_left(&self, name: &str, column: &Column) -> Option<usize> {
        let (left, _) = self.keys.iter().find(|(_, right)| *right == name)?;
        let same =
            self.kind == JoinKind::Inner && are_words_alike(self.left.column(left).ok()?, column);
        let index = self.left.columns().position(|(other, _)| other == *left);
        index.filter(|_| same)
    }

    /// The key words of both sides, comparable with each other.
    fn side_keys(&self, stream: StreamId) -> RelationalResult<[Vec<Key>; 2]> {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (a, b) in &self.keys {
            let (a, b) = (self.left.column(a)?, self.right.column(b)?);
            let [a, b] = Key::both(a, b, stream)?;
            left.push(a);
            right.push(b);
        }
        Ok([left, right])
    }
}

/// The one column of a table of two that is not its key.
fn payload<'t>(table: &'t Table, key: &Column) -> Option<&'t Column> {
    let mut others = table.columns().filter(|(_, column)| !std::ptr::eq(*column, key));
    others.next().map(|(_, column)| column)
}

/// Whether equal keys of two columns of one type are the same words with the same meaning.
fn are_words_alike(left: &Column, right: &Column) -> bool {
    match left.data_type() {
        DataType::F32 | DataType::F64 => false,
        DataType::Utf8 => match (left.dictionary(), right.dictionary()) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        },
        _ => true,
    }
}

/// The kind of join whose probe side is the left table, or the right one of a right join.
pub(super) fn by_probe(kind: JoinKind) -> primitives::JoinKind {
    match kind {
        JoinKind::Inner => primitives::JoinKind::Inner,
        JoinKind::Left | JoinKind::Right => primitives::JoinKind::Left,
        JoinKind::Full => primitives::JoinKind::Full,
        JoinKind::Semi => primitives::JoinKind::Semi,
        JoinKind::Anti => primitives::JoinKind::Anti,
    }
}

/// A column of none of other values, in which nothing is missing, that is `like` another one
/// otherwise.
fn column_of(like: &Column, values: Values) -> RelationalResult<Column> {
    let (data_type, dictionary) = (like.data_type(), like.dictionary().cloned());
    let parts =
        ColumnParts { data_type, len: 0, values, validity: None, null_count: None, dictionary };
    Column::from_parts(like.engine(), parts)
}
