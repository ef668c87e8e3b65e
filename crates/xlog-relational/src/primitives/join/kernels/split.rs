//! Splitting a side into 256 parts by the top of its hash.

use xlog_core::ScalarType::{U32, U64};
use xlog_driver::{
    KernelDefinition, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy, Output},
};

use super::{MODULE, Values};
use crate::primitives::hash::{Bits, HostKeys, Longs, Words, length};

/// Parts a side is split into.
const PARTS: usize = 256;

macro_rules! split_definitions {
    ($histogram:ident, $histogram_name:literal, $scatter:ident, $scatter_name:literal, $scalar:expr,
     $histogram_body:ty, $scatter_body:ty) => {
        /// How many rows each part has, and behind them how many all have.
        pub(in super::super) static $histogram: KernelDefinition = KernelDefinition {
            name: $histogram_name,
            module: &MODULE,
            parameters: &[
                Parameter::input("keys", $scalar).counted_by(5),
                Parameter::input("valid", U32).optional(),
                Parameter::value("has_valid", U32),
                Parameter::value("mask", U32),
                Parameter::in_out("counts", U32).elements(257),
                Parameter::value("n", U64),
            ],
            host: HostKernel::of::<$histogram_body>(),
        };

        /// Keys and values in the order of parts.
        pub(in super::super) static $scatter: KernelDefinition = KernelDefinition {
            name: $scatter_name,
            module: &MODULE,
            parameters: &[
                Parameter::input("keys", $scalar).counted_by(10),
                Parameter::input("values", U32).optional(),
                Parameter::value("has_values", U32),
                Parameter::input("valid", U32).optional(),
                Parameter::value("has_valid", U32),
                Parameter::value("mask", U32),
                Parameter::input("counts", U32).elements(257),
                Parameter::in_out("cursors", U32).elements(256),
                Parameter::output("out_keys", $scalar).counted_by(10),
                Parameter::output("out_values", U32).counted_by(10),
                Parameter::value("n", U64),
            ],
            host: HostKernel::of::<$scatter_body>(),
        };
    };
}

split_definitions!(
    HISTOGRAM_U32,
    "xlog_join_histogram_u32",
    SCATTER_U32,
    "xlog_join_scatter_u32",
    U32,
    HistogramWords,
    ScatterWords
);
split_definitions!(
    HISTOGRAM_U64,
    "xlog_join_histogram_u64",
    SCATTER_U64,
    "xlog_join_scatter_u64",
    U64,
    HistogramLongs,
    ScatterLongs
);

struct HistogramWords;

impl KernelBody for HistogramWords {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(5)?)?;
        histogram(call, &Words { keys: call.input(0, n)?, mask: call.value(3)? }, n)
    }
}

struct HistogramLongs;

impl KernelBody for HistogramLongs {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(5)?)?;
        histogram(call, &Longs { keys: call.input(0, n)?, extra: None, mask: call.value(3)? }, n)
    }
}

fn histogram<K: HostKeys, M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    keys: &K,
    n: usize,
) -> Result<(), KernelFault> {
    let valid = Bits::of(call, 1, n)?;
    let mut counts = [0u32; PARTS + 1];
    call.input::<u32>(4, PARTS + 1)?.read_into(0, &mut counts);
    for at in (0..n).filter(|&at| valid.get(at)) {
        counts[(keys.hash(keys.key(at)) >> 24) as usize] += 1;
        counts[PARTS] += 1;
    }
    call.output::<u32>(4, PARTS + 1)?.write_from(0, &counts);
    Ok(())
}

struct ScatterWords;

impl KernelBody for ScatterWords {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(10)?)?;
        let keys = Words { keys: call.input(0, n)?, mask: call.value(5)? };
        let out: Output<'_, u32, M> = call.output(8, n)?;
        scatter(call, &keys, n, |to, key| out.set(to, key))
    }
}

struct ScatterLongs;

impl KernelBody for ScatterLongs {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(10)?)?;
        let keys = Longs { keys: call.input(0, n)?, extra: None, mask: call.value(5)? };
        let out: Output<'_, u64, M> = call.output(8, n)?;
        scatter(call, &keys, n, |to, key| out.set(to, key.word))
    }
}

fn scatter<K: HostKeys, M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    keys: &K,
    n: usize,
    write_key: impl Fn(usize, K::Key),
) -> Result<(), KernelFault> {
    let (values, valid) = (Values::of(call, 1, n)?, Bits::of(call, 3, n)?);
    let mut counts = [0u32; PARTS + 1];
    call.input::<u32>(6, PARTS + 1)?.read_into(0, &mut counts);
    let mut cursors = [0u32; PARTS];
    call.input::<u32>(7, PARTS)?.read_into(0, &mut cursors);
    let mut next = [0usize; PARTS];
    let mut start = 0;
    for part in 0..PARTS {
        next[part] = start + cursors[part] as usize;
        start += counts[part] as usize;
    }
    let out_values = call.output::<u32>(9, n)?;
    for at in (0..n).filter(|&at| valid.get(at)) {
        let key = keys.key(at);
        let part = (keys.hash(key) >> 24) as usize;
        write_key(next[part], key);
        out_values.set(next[part], values.get(at));
        next[part] += 1;
        cursors[part] += 1;
    }
    call.output::<u32>(7, PARTS)?.write_from(0, &cursors);
    Ok(())
}
