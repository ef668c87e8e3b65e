//! Rows in the order of keys.

use std::ops::Range;

use xlog_cuda::{device_runtime::StreamId, memory::TrackedCudaSlice};

use super::{
    encode::{Encoded, KeyWord, PlainKey, key_words},
    rows::{take_once, take_rows},
    sizes::{numbered_rows, row_bytes},
};
use crate::{
    Engine,
    column::{Column, ColumnParts, Values},
    error::RelationalResult,
    primitives::{self, iota, order::Order, sort_bit_pairs, sort_bits},
    sort_key::SortKey,
    table::Table,
};

/// The rows of `table` in the order of `keys`, the first key first; equal ones as they stood. Never
/// waits for the device.
///
/// A number that is never missing is sorted as it lies in memory, and one more such column beside
/// it is carried along. Otherwise keys are packed into words, row numbers are sorted by those, and
/// every column is fetched once.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, Engine, Scalar, SortKey, Table, ops, reference::Relation};
///
/// let (engine, stream) = (Engine::new(Arc::new(CudaDevice::host()))?, StreamId::DEFAULT);
/// let price = Column::from_options(&engine, &[Some(2.5), None, Some(-1.0)], stream)?;
/// let id = Column::from_slice(&engine, &[1u32, 2, 3], stream)?;
/// let table = Table::new(&engine, [("price", price), ("id", id)])?;
/// let sorted = ops::sort(&table, &[SortKey::new("price").nulls_first()], stream)?;
/// let sorted = Relation::from_batch(&sorted.download(stream)?)?;
/// assert_eq!(sorted.row(0), [None, Some(Scalar::U32(2))]);
/// assert_eq!(sorted.row(1), [Some(Scalar::F64(-1.0)), Some(Scalar::U32(3))]);
/// # Ok::<(), xlog_relational::RelationalError>(())
/// ```
pub fn sort(table: &Table, keys: &[SortKey], stream: StreamId) -> RelationalResult<Table> {
    let keys = Keys::of(table, keys)?;
    let rows = numbered_rows(table)?;
    if keys.columns.is_empty() || rows < 2 {
        return Ok(table.clone());
    }
    let sorted = match keys.plain() {
        Some((index, PlainKey::Words(memory, order))) => {
            sort_plain(table, index, memory, order, stream)
        }
        Some((index, PlainKey::Longs(memory, order))) => {
            sort_plain(table, index, memory, order, stream)
        }
        None => keys
            .sorted_rows(table.engine(), rows, stream)
            .and_then(|order| take_rows(table, &order, rows as u64, stream)),
    };
    sorted.map_err(|error| {
        let needed = rows as u64 * (row_bytes(table) + keys.row_bytes());
        error.needing(&format!("a sort of {rows} rows"), Some(needed))
    })
}

/// The keys of a sort, held against a table.
pub(super) struct Keys<'t> {
    /// Where each stands in the table, the column, and how it is ordered.
    columns: Vec<(usize, &'t Column, SortKey)>,
}

impl<'t> Keys<'t> {
    /// The columns that `keys` name. A column that was named before decides nothing any more.
    pub(super) fn of(table: &'t Table, keys: &[SortKey]) -> RelationalResult<Self> {
        let mut columns: Vec<(usize, &Column, SortKey)> = Vec::with_capacity(keys.len());
        for key in keys {
            let column = table.column(&key.column)?;
            let index = table.columns().position(|(name, _)| name == key.column).unwrap_or(0);
            if columns.iter().all(|(other, ..)| *other != index) {
                columns.push((index, column, key.clone()));
            }
        }
        Ok(Self { columns })
    }

    /// The one key there is, if its memory can be sorted as it is.
    fn plain(&self) -> Option<(usize, PlainKey<'t>)> {
        match &self.columns[..] {
            [(index, column, key)] => Some((*index, PlainKey::of(column, key.descending)?)),
            _ => None,
        }
    }

    fn words(&self) -> Vec<KeyWord<'t>> {
        let columns: Vec<_> = self.columns.iter().map(|(_, column, key)| (*column, key)).collect();
        key_words(&columns)
    }

    /// Bytes a row that temporaries take: keys and row numbers, encoded, sorted and in between.
    pub(super) fn row_bytes(&self) -> u64 {
        3 * (4 + self.words().iter().map(KeyWord::bytes).max().unwrap_or(0))
    }

    /// The numbers of all rows, in the order of the keys.
    pub(super) fn sorted_rows(
        &self,
        engine: &Engine,
        rows: usize,
        stream: StreamId,
    ) -> RelationalResult<TrackedCudaSlice<u32>> {
        let mut order: Option<TrackedCudaSlice<u32>> = None;
        // From the word that decides last to the first: every sort keeps what the one before made.
        for word in self.words().iter().rev().filter(|word| word.bits() > 0) {
            let sorted = match (word.plain(), &order) {
                (Some(PlainKey::Words(keys, change)), None) => {
                    let numbers = iota(engine, stream, 0, rows as u64)?;
                    by_key(engine, keys, change, 0..32, &numbers, rows, stream)?
                }
                (Some(PlainKey::Longs(keys, change)), None) => {
                    let numbers = iota(engine, stream, 0, rows as u64)?;
                    by_key(engine, keys, change, 0..64, &numbers, rows, stream)?
                }
                _ => {
                    let encoded = word.encode(engine, rows, order.as_ref(), stream)?;
                    let numbers = match order.take() {
                        Some(numbers) => numbers,
                        None => iota(engine, stream, 0, rows as u64)?,
                    };
                    let (bits, none) = (0..word.bits(), Order::default());
                    match &encoded {
                        Encoded::Words(keys) => {
                            by_key(engine, keys, none, bits, &numbers, rows, stream)?
                        }
                        Encoded::Longs(keys) => {
                            let none = Order::default();
                            by_key(engine, keys, none, bits, &numbers, rows, stream)?
                        }
                    }
                }
            };
            order = Some(sorted);
        }
        match order {
            Some(order) => Ok(order),
            // Keys that tell nothing apart.
            None => Ok(iota(engine, stream, 0, rows as u64)?),
        }
    }
}

/// Row numbers in the order of the keys beside them.
fn by_key<B: primitives::SortKey<Bits = B>>(
    engine: &Engine,
    keys: &TrackedCudaSlice<B>,
    order: Order<B>,
    bits: Range<u32>,
    numbers: &TrackedCudaSlice<u32>,
    rows: usize,
    stream: StreamId,
) -> RelationalResult<TrackedCudaSlice<u32>> {
    Ok(sort_bit_pairs(engine, stream, keys, numbers, rows as u64, &bits, order)?.1)
}

/// The table sorted by the column at `index`, whose memory and its order are given.
fn sort_plain<B: primitives::SortKey<Bits = B>>(
    table: &Table,
    index: usize,
    keys: &TrackedCudaSlice<B>,
    order: Order<B>,
    stream: StreamId,
) -> RelationalResult<Table>
where
    Values: From<TrackedCudaSlice<B>>,
{
    let (engine, rows) = (table.engine(), table.rows());
    let bits = 0..8 * size_of::<B>() as u32;
    let others: Vec<&Column> =
        table.columns().enumerate().filter(|(i, _)| *i != index).map(|(_, c)| c.1).collect();
    let carried = match others[..] {
        [other] if !other.is_nullable() => Some((other, other.values())),
        _ => None,
    };
    let (sorted, others): (Values, Vec<Column>) = match carried {
        _ if others.is_empty() => (sort_bits(engine, stream, keys, rows, order)?.into(), vec![]),
        Some((other, Values::Words(values))) => {
            let pairs = sort_bit_pairs(engine, stream, keys, values, rows, &bits, order)?;
            (pairs.0.into(), vec![with_values(other, pairs.1.into())?])
        }
        Some((other, Values::Longs(values))) => {
            let pairs = sort_bit_pairs(engine, stream, keys, values, rows, &bits, order)?;
            (pairs.0.into(), vec![with_values(other, pairs.1.into())?])
        }
        _ => {
            let numbers = iota(engine, stream, 0u32, rows)?;
            let pairs = sort_bit_pairs(engine, stream, keys, &numbers, rows, &bits, order)?;
            let mut batch = engine.batch(stream);
            let fetched = others.iter().map(|other| take_once(other, &pairs.1, rows, &mut batch));
            let fetched = fetched.collect::<RelationalResult<_>>()?;
            batch.submit()?;
            (pairs.0.into(), fetched)
        }
    };
    let mut others = others.into_iter();
    let columns: RelationalResult<Vec<_>> = table
        .columns()
        .enumerate()
        .map(|(place, (name, column))| {
            let other = if place == index { None } else { others.next() };
            Ok((name, other.map_or_else(|| with_values(column, sorted.clone()), Ok)?))
        })
        .collect();
    Table::new(engine, columns?)
}

/// The same column with other values.
fn with_values(column: &Column, values: Values) -> RelationalResult<Column> {
    Column::from_parts(column.engine(), ColumnParts { values, ..column.parts().clone() })
}
