//! Which rows of two small tables a set operation keeps.
//!
//! One launch for all of it: every key that is kept has a left row, so that what it yields are
//! numbers of left rows, or their words where the key is all there is.

use xlog_core::ScalarType::{U32, U64};
use xlog_cuda::{
    device_runtime::{ResourceError, ResourceResult, StreamId},
    memory::TrackedCudaSlice,
};
use xlog_driver::{
    KernelDefinition, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{
    group::small::{MODULE, MOST_ROWS},
    hash::{
        FirstRows, Keys, ONE_BLOCK, Purpose, SideKeys, SmallKey, Tuning, length, long_keys,
        or_none, prepare, word_keys,
    },
    pending::{Pending, PendingCount},
    rows::{checked_rows, room},
};
use crate::Engine;

/// How often a set operation keeps a row; as in the CUDA sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Keep {
    Intersect = 0,
    IntersectAll = 1,
    Except = 2,
    ExceptAll = 3,
}

impl Keep {
    /// The one with this number; the last for all above.
    pub(crate) fn of(number: u32) -> Self {
        match number {
            0 => Self::Intersect,
            1 => Self::IntersectAll,
            2 => Self::Except,
            _ => Self::ExceptAll,
        }
    }

    /// How often a row is kept that one table has `left` times and the other `right` times.
    pub(crate) fn times(self, left: u32, right: u32) -> u32 {
        match self {
            Self::Intersect => u32::from(left > 0 && right > 0),
            Self::IntersectAll => left.min(right),
            Self::Except => u32::from(left > 0 && right == 0),
            Self::ExceptAll => left.saturating_sub(right),
        }
    }
}

/// Whether one block takes two tables of these many rows.
pub(crate) fn is_small_set(left: u64, right: u64, tuning: Tuning) -> bool {
    tuning.one_block && left.saturating_add(right) <= MOST_ROWS
}

/// The numbers of the left rows that are kept, a row that is kept several times as often as that.
/// Nulls are equal to each other. Both tables together are small: see [`is_small_set`].
pub(crate) fn keep_rows(
    engine: &Engine,
    stream: StreamId,
    [left, right]: [&Keys<'_>; 2],
    keep: Keep,
    tuning: Tuning,
) -> ResourceResult<Pending<u32>> {
    left.check("the left table")?;
    right.check("the right table")?;
    let mask = tuning.hash_mask;
    let sides = prepare(engine, stream, [left, right], Purpose::Group, mask)?;
    let out = engine.alloc::<u32>(room(left.rows as usize), stream, "rows kept")?;
    let count = match [&sides[0].keys, &sides[1].keys] {
        [SideKeys::Words(a), SideKeys::Words(b)] => engine
            .launch(&SMALL_U32, stream)?
            .input(&a.view())
            .input(&b.view())
            .value(mask)
            .value(keep as u32)
            .value(0u32)
            .output(&out)
            .report::<u64>(1)
            .value(left.rows)
            .value(right.rows)
            .launch_reporting(ONE_BLOCK)?,
        [
            SideKeys::Longs { keys: a, extra: a_extra },
            SideKeys::Longs { keys: b, extra: b_extra },
        ] => {
            let (a_extra, has_extra) = or_none(a_extra.as_ref());
            let (b_extra, _) = or_none(b_extra.as_ref());
            engine
                .launch(&SMALL_U64, stream)?
                .input(&a.view())
                .input(&a_extra)
                .input(&b.view())
                .input(&b_extra)
                .value(has_extra)
                .value(mask)
                .value(keep as u32)
                .output(&out)
                .report::<u64>(1)
                .value(left.rows)
                .value(right.rows)
                .launch_reporting(ONE_BLOCK)?
        }
        _ => return Err(ResourceError::from("both tables have keys of one size")),
    };
    Ok(Pending::new(out, PendingCount::reported(count)))
}

/// Words of one width that are kept as they are.
pub(crate) trait SetWord: xlog_cuda::launch::DeviceElement {
    /// The kernel for them, and whether it is to be told that words are wanted.
    const KERNEL: (&'static KernelDefinition, bool);
}

impl SetWord for u32 {
    const KERNEL: (&'static KernelDefinition, bool) = (&SMALL_U32, true);
}

impl SetWord for u64 {
    const KERNEL: (&'static KernelDefinition, bool) = (&SMALL_LONGS, false);
}

/// The words that are kept of the first ones of `left`, given the first ones of `right`: of each
/// side memory, and how many words it has. Both together are small: see [`is_small_set`].
pub(crate) fn keep_words<W: SetWord>(
    engine: &Engine,
    stream: StreamId,
    (left, left_rows): (&TrackedCudaSlice<W>, u64),
    (right, right_rows): (&TrackedCudaSlice<W>, u64),
    keep: Keep,
    tuning: Tuning,
) -> ResourceResult<Pending<W>> {
    let most = checked_rows(left_rows, left.len(), "the left table")?;
    checked_rows(right_rows, right.len(), "the right table")?;
    let out = engine.alloc::<W>(room(most), stream, "rows kept")?;
    let (kernel, is_told) = W::KERNEL;
    let mut launch = engine.launch(kernel, stream)?;
    launch.input(left).input(right).value(tuning.hash_mask).value(keep as u32);
    if is_told {
        launch.value(1u32);
    }
    launch.output(&out).report::<u64>(1).value(left_rows).value(right_rows);
    let count = launch.launch_reporting(ONE_BLOCK)?;
    Ok(Pending::new(out, PendingCount::reported(count)))
}

/// The rows that are kept by 32-bit keys, as numbers or as words.
static SMALL_U32: KernelDefinition = KernelDefinition {
    name: "xlog_set_small_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("left", U32).counted_by(7),
        Parameter::input("right", U32).counted_by(8),
        Parameter::value("mask", U32),
        Parameter::value("operation", U32),
        Parameter::value("as_words", U32),
        Parameter::output("out", U32).counted_by(7),
        Parameter::output("count", U64).elements(1),
        Parameter::value("left_rows", U64),
        Parameter::value("right_rows", U64),
    ],
    host: HostKernel::of::<SmallWords>(),
};

/// The rows that are kept by 64-bit keys, as numbers.
static SMALL_U64: KernelDefinition = KernelDefinition {
    name: "xlog_set_small_u64",
    module: &MODULE,
    parameters: &[
        Parameter::input("left", U64).counted_by(9),
        Parameter::input("left_extra", U32).optional(),
        Parameter::input("right", U64).counted_by(10),
        Parameter::input("right_extra", U32).optional(),
        Parameter::value("has_extra", U32),
        Parameter::value("mask", U32),
        Parameter::value("operation", U32),
        Parameter::output("out", U32).counted_by(9),
        Parameter::output("count", U64).elements(1),
        Parameter::value("left_rows", U64),
        Parameter::value("right_rows", U64),
    ],
    host: HostKernel::of::<SmallLongs>(),
};

/// The 64-bit words that are kept.
static SMALL_LONGS: KernelDefinition = KernelDefinition {
    name: "xlog_set_small_longs",
    module: &MODULE,
    parameters: &[
        Parameter::input("left", U64).counted_by(6),
        Parameter::input("right", U64).counted_by(7),
        Parameter::value("mask", U32),
        Parameter::value("operation", U32),
        Parameter::output("out", U64).counted_by(6),
        Parameter::output("count", U64).elements(1),
        Parameter::value("left_rows", U64),
        Parameter::value("right_rows", U64),
    ],
    host: HostKernel::of::<SmallLongWords>(),
};

/// The left rows that are kept, in the order of first rows.
fn kept(left: &[SmallKey], right: &[SmallKey], operation: u32) -> Vec<usize> {
    let mut table = FirstRows::new(left.len() + right.len());
    let mut counts = vec![(0u32, 0u32); left.len()];
    for (row, key) in left.iter().enumerate() {
        counts[table.insert(*key, row as u32) as usize].0 += 1;
    }
    for key in right {
        if let Some(first) = table.find(*key) {
            counts[first as usize].1 += 1;
        }
    }
    let keep = Keep::of(operation);
    let times = counts.into_iter().map(|(left, right)| match left {
        0 => 0,
        _ => keep.times(left, right) as usize,
    });
    times.enumerate().flat_map(|(row, times)| std::iter::repeat_n(row, times)).collect()
}

struct SmallWords;

impl KernelBody for SmallWords {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (above, below) = (length(call.value(7)?)?, length(call.value(8)?)?);
        let (left, right) = (word_keys(call, 0, above)?, word_keys(call, 1, below)?);
        let as_words = call.value::<u32>(4)? != 0;
        let (rows, out) = (kept(&left, &right, call.value(3)?), call.output::<u32>(5, above)?);
        for (to, row) in rows.iter().enumerate() {
            out.set(to, if as_words { left[*row].0 as u32 } else { *row as u32 });
        }
        call.output::<u64>(6, 1)?.set(0, rows.len() as u64);
        Ok(())
    }
}

struct SmallLongs;

impl KernelBody for SmallLongs {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (above, below) = (length(call.value(9)?)?, length(call.value(10)?)?);
        let extra = call.value::<u32>(4)? != 0;
        let left = long_keys(call, 0, extra.then_some(1), above)?;
        let right = long_keys(call, 2, extra.then_some(3), below)?;
        let (rows, out) = (kept(&left, &right, call.value(6)?), call.output::<u32>(7, above)?);
        rows.iter().enumerate().for_each(|(to, row)| out.set(to, *row as u32));
        call.output::<u64>(8, 1)?.set(0, rows.len() as u64);
        Ok(())
    }
}

struct SmallLongWords;

impl KernelBody for SmallLongWords {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (above, below) = (length(call.value(6)?)?, length(call.value(7)?)?);
        let (left, right) = (long_keys(call, 0, None, above)?, long_keys(call, 1, None, below)?);
        let (rows, out) = (kept(&left, &right, call.value(3)?), call.output::<u64>(4, above)?);
        rows.iter().enumerate().for_each(|(to, row)| out.set(to, left[*row].0));
        call.output::<u64>(5, 1)?.set(0, rows.len() as u64);
        Ok(())
    }
}
