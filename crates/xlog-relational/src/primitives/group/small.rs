//! Groups of small tables: one launch gives every row the number of its group.

use xlog_core::ScalarType::{U32, U64};
use xlog_cuda::device_runtime::{ResourceResult, StreamId};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{
    super::hash::{
        FirstRows, ONE_BLOCK, Prepared, SideKeys, SmallKey, length, long_keys, or_none, word_keys,
    },
    Numbered,
};
use crate::Engine;

pub(in crate::primitives) static MODULE: KernelModule =
    KernelModule { name: "small_groups", ptx: include_str!("../../../kernels/small_groups.ptx") };

/// The most rows: what the kernel's shared memory holds.
pub(in crate::primitives) const MOST_ROWS: u64 = 4096;

/// The groups of a side of at most [`MOST_ROWS`] rows, in the order of their first rows. Waits for
/// the device once.
pub(super) fn number(
    engine: &Engine,
    stream: StreamId,
    side: &Prepared<'_>,
    mask: u32,
) -> ResourceResult<Numbered> {
    let len = (side.rows as usize).max(1);
    let slots = engine.alloc::<u32>(len, stream, "group slots")?;
    let numbers = engine.alloc::<u32>(len, stream, "group numbers")?;
    let rows = engine.alloc::<u32>(len, stream, "group rows")?;
    let mut launch;
    match &side.keys {
        SideKeys::Words(keys) => {
            launch = engine.launch(&SMALL_U32, stream)?;
            launch.input(&keys.view());
        }
        SideKeys::Longs { keys, extra } => {
            let (extra, has_extra) = or_none(extra.as_ref());
            launch = engine.launch(&SMALL_U64, stream)?;
            launch.input(&keys.view()).input(&extra).value(has_extra);
        }
    }
    launch
        .value(mask)
        .output(&slots)
        .output(&numbers)
        .output(&rows)
        .report::<u32>(2)
        .value(side.rows);
    let count = u64::from(launch.launch_reporting::<u32>(ONE_BLOCK)?.wait()?[0]);
    Ok(Numbered { slots, numbers, rows, count })
}

/// The group of each row with a 32-bit key.
static SMALL_U32: KernelDefinition = KernelDefinition {
    name: "xlog_group_small_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U32).counted_by(6),
        Parameter::value("mask", U32),
        Parameter::output("slots", U32).counted_by(6),
        Parameter::output("numbers", U32).counted_by(6),
        Parameter::output("rows_of", U32).counted_by(6),
        Parameter::output("state", U32).elements(2),
        Parameter::value("rows", U64),
    ],
    host: HostKernel::of::<SmallWords>(),
};

struct SmallWords;

impl KernelBody for SmallWords {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let rows = length(call.value(6)?)?;
        group(call, &word_keys(call, 0, rows)?, 2)
    }
}

/// The group of each row with a 64-bit key.
static SMALL_U64: KernelDefinition = KernelDefinition {
    name: "xlog_group_small_u64",
    module: &MODULE,
    parameters: &[
        Parameter::input("keys", U64).counted_by(8),
        Parameter::input("extra", U32).optional(),
        Parameter::value("has_extra", U32),
        Parameter::value("mask", U32),
        Parameter::output("slots", U32).counted_by(8),
        Parameter::output("numbers", U32).counted_by(8),
        Parameter::output("rows_of", U32).counted_by(8),
        Parameter::output("state", U32).elements(2),
        Parameter::value("rows", U64),
    ],
    host: HostKernel::of::<SmallLongs>(),
};

struct SmallLongs;

impl KernelBody for SmallLongs {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let rows = length(call.value(8)?)?;
        let extra = (call.value::<u32>(2)? != 0).then_some(1);
        group(call, &long_keys(call, 0, extra, rows)?, 4)
    }
}

/// `index` is where the first parameter that is written stands.
fn group<M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    keys: &[SmallKey],
    index: usize,
) -> Result<(), KernelFault> {
    let slots = call.output::<u32>(index, keys.len())?;
    let numbers = call.output::<u32>(index + 1, keys.len())?;
    let rows_of = call.output::<u32>(index + 2, keys.len())?;
    let mut table = FirstRows::new(keys.len());
    // By first rows; those of other rows are never asked for.
    let mut number_of = vec![0u32; keys.len()];
    let mut count = 0u32;
    for (row, key) in keys.iter().enumerate() {
        let first = table.insert(*key, row as u32) as usize;
        if first == row {
            number_of[row] = count;
            numbers.set(count as usize, count);
            rows_of.set(count as usize, row as u32);
            count += 1;
        }
        slots.set(row, number_of[first]);
    }
    let state = call.output::<u32>(index + 3, 2)?;
    state.set(0, count);
    state.set(1, 0);
    Ok(())
}
