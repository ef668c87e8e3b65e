//! The rows for which a predicate is true.

use std::sync::Arc;

use bytemuck::Pod;
use xlog_cuda::{
    device_runtime::{ResourceResult, StreamId},
    memory::TrackedCudaSlice,
};
use xlog_driver::DeviceKind;

use super::{
    limit::copy,
    rows::take_once,
    sizes::{column_bytes, numbered_rows},
};
use crate::{
    Engine,
    column::{Column, ColumnParts, Values},
    error::RelationalResult,
    expr::{Checked, Comparison, Expr, Mask, Node, Program},
    primitives::{
        BitCondition, Condition, Pending, PendingCount, gather_bits, select_bits_if,
        select_by_mask, select_rows_by_mask, select_rows_if_bits,
    },
    scalar::Scalar,
    table::Table,
    types::DataType,
};

/// The rows of `table` for which `predicate` is true, in their order; not those for which it is
/// missing. Waits for the device once, to learn how many there are.
///
/// One comparison of a column without nulls with a literal is part of the kernel that selects. Any
/// other predicate becomes a bit a row first, and values of four and eight bytes are selected by
/// those. Everything else is fetched by row number.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, Engine, Table, col, ops};
///
/// let (engine, stream) = (Engine::new(Arc::new(CudaDevice::host()))?, StreamId::DEFAULT);
/// let age = Column::from_options(&engine, &[Some(17u32), None, Some(44)], stream)?;
/// let table = Table::new(&engine, [("age", age)])?;
/// assert_eq!(ops::filter(&table, &col("age").gt_eq(18), stream)?.rows(), 1);
/// # Ok::<(), xlog_relational::RelationalError>(())
/// ```
pub fn filter(table: &Table, predicate: &Expr, stream: StreamId) -> RelationalResult<Table> {
    filter_tuned(table, predicate, FilterBy::default(), stream)
}

/// How a filter by one comparison selects from a table of several columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterBy {
    /// As suits the device. The host streams through whole columns faster than it fetches rows one
    /// by one, and takes a mask; a GPU takes row numbers, which pays where few rows are kept.
    #[default]
    Device,
    /// By row numbers, which the kernel that compares selects.
    Rows,
    /// By a mask.
    Mask,
}

/// As [`filter`], with the choice made by the caller. The result is the same.
pub fn filter_tuned(
    table: &Table,
    predicate: &Expr,
    by: FilterBy,
    stream: StreamId,
) -> RelationalResult<Table> {
    let checked = predicate.check_predicate(&table.schema())?;
    let rows = numbered_rows(table)?;
    let plan = Plan::of(table, predicate, &checked, by)?;
    if rows == 0 {
        return Ok(table.clone());
    }
    plan.run(table, stream).map_err(|error| {
        let needed = rows as u64 * plan.row_bytes(table);
        error.needing(&format!("a filter of {rows} rows"), Some(needed))
    })
}

/// How rows are selected.
enum Plan<'t> {
    /// By one comparison, in the kernel that selects.
    Fused(Fused<'t>),
    /// By a mask.
    Masked(Program),
}

impl<'t> Plan<'t> {
    fn of(
        table: &'t Table,
        predicate: &Expr,
        checked: &Checked,
        by: FilterBy,
    ) -> RelationalResult<Self> {
        let on_host = table.engine().runtime().device().info().kind == DeviceKind::Host;
        let by_mask = by == FilterBy::Mask || (by == FilterBy::Device && on_host);
        let fused = Fused::of(table, checked).filter(|_| !by_mask || table.width() == 1);
        Ok(match fused {
            Some(fused) => Self::Fused(fused),
            None => Self::Masked(predicate.compile_checked(checked, table)?),
        })
    }
}

/// A comparison with a literal that the selecting kernel does itself.
struct Fused<'t> {
    /// The column's place.
    index: usize,
    condition: FusedCondition<'t>,
}

enum FusedCondition<'t> {
    Words(&'t TrackedCudaSlice<u32>, BitCondition<u32>),
    Longs(&'t TrackedCudaSlice<u64>, BitCondition<u64>),
}

impl<'t> Fused<'t> {
    fn of(table: &'t Table, checked: &Checked) -> Option<Self> {
        let Node::Compare(comparison, left, right) = &checked.node else { return None };
        let (index, literal, comparison) = match (&left.node, &right.node) {
            (Node::Column(index), Node::Literal(literal)) => (*index, literal, *comparison),
            (Node::Literal(literal), Node::Column(index)) => {
                (*index, literal, comparison.flipped())
            }
            _ => return None,
        };
        let (_, column) = table.columns().nth(index)?;
        let condition = match column.values() {
            _ if column.is_nullable() => return None,
            Values::Bytes(_) => return None,
            Values::Words(memory) => {
                FusedCondition::Words(memory, word_condition(column, comparison, literal)?)
            }
            Values::Longs(memory) => {
                FusedCondition::Longs(memory, long_condition(column, comparison, literal)?)
            }
        };
        Some(Self { index, condition })
    }
}

fn word_condition(
    column: &Column,
    comparison: Comparison,
    literal: &Scalar,
) -> Option<BitCondition<u32>> {
    Some(match (column.data_type(), literal) {
        (DataType::U32, Scalar::U32(v)) => Condition::comparing(comparison, *v).on_bits(),
        (DataType::I32, Scalar::I32(v)) => Condition::comparing(comparison, *v).on_bits(),
        (DataType::Date32, Scalar::Date32(v)) => Condition::comparing(comparison, *v).on_bits(),
        (DataType::F32, Scalar::F32(v)) => Condition::comparing(comparison, *v).on_bits(),
        // A text has one code, or none that a row could have; an order is not one of codes.
        (DataType::Utf8, Scalar::Utf8(text))
            if matches!(comparison, Comparison::Equal | Comparison::NotEqual) =>
        {
            let code = column.dictionary()?.code_of(text)?;
            Condition::comparing(comparison, code).on_bits()
        }
        _ => return None,
    })
}

fn long_condition(
    column: &Column,
    comparison: Comparison,
    literal: &Scalar,
) -> Option<BitCondition<u64>> {
    Some(match (column.data_type(), literal) {
        (DataType::U64, Scalar::U64(v)) => Condition::comparing(comparison, *v).on_bits(),
        (DataType::I64, Scalar::I64(v)) => Condition::comparing(comparison, *v).on_bits(),
        (DataType::Timestamp, Scalar::Timestamp(v)) => {
            Condition::comparing(comparison, *v).on_bits()
        }
        (DataType::F64, Scalar::F64(v)) => Condition::comparing(comparison, *v).on_bits(),
        _ => return None,
    })
}

/// What becomes of one column: memory that its selected values are written to.
enum Selected {
    Words(TrackedCudaSlice<u32>),
    Longs(TrackedCudaSlice<u64>),
    /// Fetched by row number, once it is known how many there are.
    ByRows,
}

impl Plan<'_> {
    fn run(&self, table: &Table, stream: StreamId) -> RelationalResult<Table> {
        let (engine, len) = (table.engine(), table.rows());
        let mask = match self {
            Self::Fused(_) => None,
            Self::Masked(program) => Some(program.mask(table, stream)?),
        };
        // Every selection reports the same count; the first one to be known is waited for.
        let (mut selected, mut count) = (Vec::with_capacity(table.width()), None);
        for (index, (_, column)) in table.columns().enumerate() {
            let (one, reported) = self.select(index, column, mask.as_ref(), stream)?;
            selected.push(one);
            count = count.or(reported);
        }
        let needs_rows = |(one, (_, column)): (&Selected, (&str, &Column))| {
            matches!(one, Selected::ByRows) || column.is_nullable()
        };
        let rows = match selected.iter().zip(table.columns()).any(needs_rows) {
            true => {
                let rows = self.select_rows(engine, mask.as_ref(), len, stream)?;
                let (rows, reported) = rows.into_parts();
                count = count.or(Some(reported));
                Some(rows)
            }
            false => None,
        };
        let overflow = mask.as_ref().and_then(Mask::overflow);
        let overflow = overflow.map(|flags| flags.start_download(stream)).transpose()?;
        // The one wait: the count, and whether the predicate overflowed.
        let Some(count) = count else { return Ok(table.clone()) };
        let count = count.wait()?;
        if let Some(flags) = overflow {
            Mask::refuse(flags.wait()?.first().copied().unwrap_or(0))?;
        }
        if count == len {
            return Ok(table.clone());
        }
        let count = count as usize;
        let mut columns = Vec::with_capacity(table.width());
        let mut batch = engine.batch(stream);
        for ((name, column), selected) in table.columns().zip(selected) {
            let column = match (selected, &rows) {
                (Selected::Words(values), rows) => {
                    kept(column, values, rows.as_ref(), count, stream)?
                }
                (Selected::Longs(values), rows) => {
                    kept(column, values, rows.as_ref(), count, stream)?
                }
                (Selected::ByRows, Some(rows)) => {
                    take_once(column, rows, count as u64, &mut batch)?
                }
                (Selected::ByRows, None) => column.clone(),
            };
            columns.push((name, column));
        }
        batch.submit()?;
        Table::new(engine, columns)
    }

    /// Starts to select the values of a column, if that goes without row numbers.
    fn select(
        &self,
        index: usize,
        column: &Column,
        mask: Option<&Mask>,
        stream: StreamId,
    ) -> ResourceResult<(Selected, Option<PendingCount>)> {
        let (engine, len) = (column.engine(), column.len() as u64);
        Ok(match (self, mask) {
            (Self::Fused(fused), _) if fused.index == index => match &fused.condition {
                FusedCondition::Words(memory, condition) => {
                    words(select_bits_if(engine, stream, memory, len, condition)?)
                }
                FusedCondition::Longs(memory, condition) => {
                    longs(select_bits_if(engine, stream, memory, len, condition)?)
                }
            },
            (Self::Masked(_), Some(mask)) => match column.values() {
                Values::Bytes(_) => (Selected::ByRows, None),
                Values::Words(memory) => {
                    words(select_by_mask(engine, stream, memory, mask.words(), len)?)
                }
                Values::Longs(memory) => {
                    longs(select_by_mask(engine, stream, memory, mask.words(), len)?)
                }
            },
            _ => (Selected::ByRows, None),
        })
    }

    fn select_rows(
        &self,
        engine: &Engine,
        mask: Option<&Mask>,
        len: u64,
        stream: StreamId,
    ) -> ResourceResult<Pending<u32>> {
        match (self, mask) {
            (Self::Fused(fused), _) => match &fused.condition {
                FusedCondition::Words(memory, condition) => {
                    select_rows_if_bits(engine, stream, memory, len, condition)
                }
                FusedCondition::Longs(memory, condition) => {
                    select_rows_if_bits(engine, stream, memory, len, condition)
                }
            },
            (_, Some(mask)) => select_rows_by_mask(engine, stream, mask.words(), len),
            (_, None) => Err("a filter lost its mask".into()),
        }
    }

    /// Bytes a row that are needed at most: every row may be selected.
    fn row_bytes(&self, table: &Table) -> u64 {
        let columns: u64 = table.columns().map(|(_, column)| column_bytes(column)).sum();
        // Row numbers, and a byte for the mask.
        columns + 4 + 1
    }
}

fn words(pending: Pending<u32>) -> (Selected, Option<PendingCount>) {
    let (values, count) = pending.into_parts();
    (Selected::Words(values), Some(count))
}

fn longs(pending: Pending<u64>) -> (Selected, Option<PendingCount>) {
    let (values, count) = pending.into_parts();
    (Selected::Longs(values), Some(count))
}

/// Selected values as a column; which of them are there is looked up by row number. Memory that
/// would be mostly empty is exchanged for some that fits.
fn kept<T: Pod>(
    column: &Column,
    values: TrackedCudaSlice<T>,
    rows: Option<&TrackedCudaSlice<u32>>,
    count: usize,
    stream: StreamId,
) -> RelationalResult<Column>
where
    Values: From<TrackedCudaSlice<T>>,
{
    /// Below this many bytes it does not matter.
    const SMALL: usize = 1 << 16;
    let bytes = values.len() * size_of::<T>();
    let values = if 4 * count < values.len() && bytes > SMALL {
        copy(column.engine(), &values, 0..count, stream)?
    } else {
        values
    };
    let (engine, len) = (column.engine(), column.len() as u64);
    let validity = match (column.validity(), rows) {
        (Some(bits), Some(rows)) => {
            Some(Arc::new(gather_bits(engine, stream, bits, len, rows, count as u64)?))
        }
        _ => None,
    };
    let values = values.into();
    let null_count = None;
    let parts = ColumnParts { len: count, values, validity, null_count, ..column.parts().clone() };
    Column::from_parts(engine, parts)
}
