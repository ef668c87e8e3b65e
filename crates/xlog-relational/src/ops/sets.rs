//! Rows as sets and as bags. Missing values are equal to each other here.
//!
//! Both tables become one, whose rows are grouped by all columns; how many rows of each table a
//! group has says how often it is in the result. For small tables one launch finds that, and all
//! that is left is to take the rows; of a single column without nulls it writes the values at once.

use xlog_core::ScalarType::{U32, U64};
use xlog_cuda::{LaunchDims, device_runtime::StreamId};
use xlog_driver::{
    KernelDefinition, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{
    distinct::{distinct_rows, needed, single},
    group::representatives_at_most,
    keys::{Key, Words, host_length, refuse_foreign, refuse_too_many},
    rows::{host_count, take_rows},
    stack::{MODULE, refuse_unlike, stacked},
};
use crate::{
    column::{Column, ColumnParts, Values},
    error::{RelationalError, RelationalResult},
    primitives::{Keep, Keys, Tuning, exclusive_sum, is_small_set, keep_rows, keep_words},
    table::Table,
};

/// Every different row of either table once: SQL's `union`. Columns are matched by place, and
/// called as in the left table; their types must be the same. The order of the rows is not
/// specified.
///
/// Waits for the device once, to learn the number of rows; a second time if there are millions of
/// different rows of several columns.
pub fn union(left: &Table, right: &Table, stream: StreamId) -> RelationalResult<Table> {
    refuse(left, right)?;
    let run = || distinct_rows(&stacked(left, right, stream)?, stream);
    run().map_err(|error| {
        let what = format!("union of {} and {} rows", left.rows(), right.rows());
        error.needing(&what, Some(2 * (needed(left) + needed(right))))
    })
}

/// Every different row that is in both tables; with `all`, as often as in the one that has it less
/// often. Columns are matched as [`union`] does.
///
/// Waits for the device once, to learn the number of rows kept. More than two million rows take a
/// second wait, for the number of different rows, and a third if those are millions.
pub fn intersect(
    left: &Table,
    right: &Table,
    all: bool,
    stream: StreamId,
) -> RelationalResult<Table> {
    intersect_tuned(left, right, all, Tuning::default(), stream)
}

/// [`intersect`], tuned by hand. The rows are the same.
pub fn intersect_tuned(
    left: &Table,
    right: &Table,
    all: bool,
    tuning: Tuning,
    stream: StreamId,
) -> RelationalResult<Table> {
    let keep = if all { Keep::IntersectAll } else { Keep::Intersect };
    kept(left, right, keep, tuning, stream)
}

/// Every different row of the left table that is not in the right one; with `all`, as often as the
/// left one has it more often. Columns are matched as [`union`] does.
///
/// Waits for the device as [`intersect`] does.
pub fn except(left: &Table, right: &Table, all: bool, stream: StreamId) -> RelationalResult<Table> {
    except_tuned(left, right, all, Tuning::default(), stream)
}

/// [`except`], tuned by hand. The rows are the same.
pub fn except_tuned(
    left: &Table,
    right: &Table,
    all: bool,
    tuning: Tuning,
    stream: StreamId,
) -> RelationalResult<Table> {
    kept(left, right, if all { Keep::ExceptAll } else { Keep::Except }, tuning, stream)
}

fn refuse(left: &Table, right: &Table) -> RelationalResult<()> {
    refuse_foreign(left, right)?;
    refuse_unlike(left, right)?;
    refuse_too_many(left.rows().saturating_add(right.rows()), "both tables together")
}

fn kept(
    left: &Table,
    right: &Table,
    keep: Keep,
    tuning: Tuning,
    stream: StreamId,
) -> RelationalResult<Table> {
    refuse(left, right)?;
    if left.width() == 0 {
        return Ok(left.clone());
    }
    let result = match is_small_set(left.rows(), right.rows(), tuning) {
        true => run_small(left, right, keep, tuning, stream),
        false => run(left, right, keep, stream),
    };
    result.map_err(|error| {
        let what = match keep {
            Keep::Intersect | Keep::IntersectAll => "intersect",
            Keep::Except | Keep::ExceptAll => "except",
        };
        let what = format!("{what} of {} and {} rows", left.rows(), right.rows());
        error.needing(&what, Some(2 * (needed(left) + needed(right))))
    })
}

/// Both tables are small. The rows of the result are left ones.
fn run_small(
    left: &Table,
    right: &Table,
    keep: Keep,
    tuning: Tuning,
    stream: StreamId,
) -> RelationalResult<Table> {
    let engine = left.engine();
    if let (Some((name, column)), Some((_, other))) = (single(left), single(right)) {
        let column = kept_values(column, other, keep, tuning, stream)?;
        return Table::new(engine, [(name, column)]);
    }
    let (mut above, mut below) = (Vec::new(), Vec::new());
    for ((_, a), (_, b)) in left.columns().zip(right.columns()) {
        let [a, b] = Key::both(a, b, stream)?;
        above.push(a);
        below.push(b);
    }
    let (above, below) = (Key::columns(&above), Key::columns(&below));
    let above = Keys { columns: &above, rows: left.rows() };
    let below = Keys { columns: &below, rows: right.rows() };
    let (rows, count) = keep_rows(engine, stream, [&above, &below], keep, tuning)?.wait()?;
    take_rows(left, &rows, count, stream)
}

/// The same for columns that are all of their tables, never missing and not of single bytes.
fn kept_values(
    left: &Column,
    right: &Column,
    keep: Keep,
    tuning: Tuning,
    stream: StreamId,
) -> RelationalResult<Column> {
    let (engine, above, below) = (left.engine(), left.len() as u64, right.len() as u64);
    let [a, b] = Key::both(left, right, stream)?;
    let (values, count): (Values, u64) = match (&a.words, &b.words) {
        (Words::Short(a), Words::Short(b)) => {
            let kept = keep_words(engine, stream, (a, above), (b, below), keep, tuning)?;
            let (words, count) = kept.wait()?;
            (words.into(), count)
        }
        (Words::Long(a), Words::Long(b)) => {
            let kept = keep_words(engine, stream, (a, above), (b, below), keep, tuning)?;
            let (words, count) = kept.wait()?;
            (words.into(), count)
        }
        _ => {
            let (expected, found) = (left.data_type(), right.data_type());
            return Err(RelationalError::type_mismatch("the right column", expected, found));
        }
    };
    let len = host_count(count, "rows kept")?;
    let parts =
        ColumnParts { len, values, validity: None, null_count: None, ..left.parts().clone() };
    Column::from_parts(engine, parts)
}

fn run(left: &Table, right: &Table, keep: Keep, stream: StreamId) -> RelationalResult<Table> {
    let (engine, both) = (left.engine(), stacked(left, right, stream)?);
    let groups = representatives_at_most(&both, stream)?;
    let count = groups.count();
    let len = host_count(count, "different rows")?;
    if len == 0 {
        return take_rows(&both, groups.rows(), 0, stream);
    }
    let (slots, numbers) = groups.slots();
    let mut sides = engine.alloc::<u64>(len, stream, "rows of each table")?;
    sides.fill_bytes(0, stream)?;
    engine
        .launch(&SIDES, stream)?
        .input(slots)
        .input(numbers)
        .in_out(&sides)
        .value(left.rows())
        .value(count)
        .value(both.rows())
        .launch(LaunchDims::for_elements(host_count(both.rows(), "rows")?))?;
    let copies = engine.alloc::<u32>(len, stream, "rows kept")?;
    engine
        .launch(&KEPT, stream)?
        .input(&sides)
        .output(&copies)
        .value(keep as u32)
        .value(count)
        .launch(LaunchDims::for_elements(len))?;
    let starts = exclusive_sum(engine, stream, &copies, count)?;
    let kept = starts.view(len..len + 1)?.start_download(stream)?.wait()?;
    let kept = kept.first().copied().unwrap_or(0);
    let places = host_count(kept, "rows kept")?;
    let rows = engine.alloc::<u32>(places.max(1), stream, "rows kept")?;
    if places > 0 {
        engine
            .launch(&EXPAND, stream)?
            .input(&starts)
            .input(groups.rows())
            .output(&rows)
            .value(count)
            .value(count + 1)
            .value(kept)
            .launch(LaunchDims::for_elements(places))?;
    }
    take_rows(&both, &rows, kept, stream)
}

static SIDES: KernelDefinition = KernelDefinition {
    name: "xlog_set_sides",
    module: &MODULE,
    parameters: &[
        Parameter::input("slots", U32).counted_by(5),
        Parameter::input("numbers", U32),
        Parameter::in_out("sides", U64).counted_by(4),
        Parameter::value("left_rows", U64),
        Parameter::value("groups", U64),
        Parameter::value("rows", U64),
    ],
    host: HostKernel::of::<Sides>(),
};

static KEPT: KernelDefinition = KernelDefinition {
    name: "xlog_set_kept",
    module: &MODULE,
    parameters: &[
        Parameter::input("sides", U64).counted_by(3),
        Parameter::output("copies", U32).counted_by(3),
        Parameter::value("operation", U32),
        Parameter::value("groups", U64),
    ],
    host: HostKernel::of::<Kept>(),
};

static EXPAND: KernelDefinition = KernelDefinition {
    name: "xlog_set_expand",
    module: &MODULE,
    parameters: &[
        Parameter::input("starts", U64).counted_by(4),
        Parameter::input("rows", U32).counted_by(3),
        Parameter::output("out", U32).counted_by(5),
        Parameter::value("groups", U64),
        Parameter::value("places", U64),
        Parameter::value("count", U64),
    ],
    host: HostKernel::of::<Expand>(),
};

struct Sides;

impl KernelBody for Sides {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (above, groups) = (host_length(call.value(3)?)?, host_length(call.value(4)?)?);
        let rows = host_length(call.value(5)?)?;
        let slots = call.input::<u32>(0, rows)?;
        let numbers = call.input::<u32>(1, u32::MAX as usize)?;
        let (sides, out) = (call.input::<u64>(2, groups)?, call.output::<u64>(2, groups)?);
        slots.for_each_piece(|first, piece| {
            for (row, slot) in (first..).zip(piece) {
                let group = numbers.get(*slot as usize) as usize;
                let one = if row < above { 1 } else { 1 << 32 };
                out.set(group, sides.get(group) + one);
            }
        });
        Ok(())
    }
}

struct Kept;

impl KernelBody for Kept {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (keep, groups) = (Keep::of(call.value(2)?), host_length(call.value(3)?)?);
        let (sides, copies) = (call.input::<u64>(0, groups)?, call.output::<u32>(1, groups)?);
        call.in_parts(groups, call.threads_for(groups), 1, |_, range| {
            for group in range {
                let word = sides.get(group);
                copies.set(group, keep.times(word as u32, (word >> 32) as u32));
            }
        });
        Ok(())
    }
}

struct Expand;

impl KernelBody for Expand {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (groups, count) = (host_length(call.value(3)?)?, host_length(call.value(5)?)?);
        let starts = call.input::<u64>(0, host_length(call.value(4)?)?)?;
        let (rows, out) = (call.input::<u32>(1, groups)?, call.output::<u32>(2, count)?);
        call.in_parts(groups, call.threads_for(groups), 1, |_, range| {
            for group in range {
                let copies = starts.get(group)..starts.get(group + 1);
                copies.for_each(|copy| out.set(copy as usize, rows.get(group)));
            }
        });
        Ok(())
    }
}
