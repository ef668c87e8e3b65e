//! Ranges of validity bits, copied from any place to any other.

use xlog_core::ScalarType::{U32, U64};
use xlog_cuda::{
    LaunchDims,
    device_runtime::{ResourceResult, StreamId},
    memory::TrackedCudaSlice,
};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use crate::Engine;

static MODULE: KernelModule =
    KernelModule { name: "bits", ptx: include_str!("../../kernels/bits.ptx") };

/// Bits of `in`, from one place on, to another place of `out`.
static COPY: KernelDefinition = KernelDefinition {
    name: "xlog_bits_copy",
    module: &MODULE,
    parameters: &[
        Parameter::input("in", U32).counted_by(2),
        Parameter::in_out("out", U32).counted_by(3),
        Parameter::value("in_words", U64),
        Parameter::value("out_words", U64),
        Parameter::value("from", U64),
        Parameter::value("start", U64),
        Parameter::value("count", U64),
    ],
    host: HostKernel::of::<Copy>(),
};

/// Ones, from a place of `out` on.
static SET: KernelDefinition = KernelDefinition {
    name: "xlog_bits_set",
    module: &MODULE,
    parameters: &[
        Parameter::in_out("out", U32).counted_by(1),
        Parameter::value("out_words", U64),
        Parameter::value("start", U64),
        Parameter::value("count", U64),
    ],
    host: HostKernel::of::<Set>(),
};

/// Copies `count` bits of `from`, beginning at bit `first`, to bit `start` of `to` and behind.
/// The bits around them stay, so `to` must have been written before.
#[track_caller]
pub(super) fn copy_bits(
    engine: &Engine,
    stream: StreamId,
    (from, first): (&TrackedCudaSlice<u32>, u64),
    (to, start): (&TrackedCudaSlice<u32>, u64),
    count: u64,
) -> ResourceResult<()> {
    if count == 0 {
        return Ok(());
    }
    engine
        .launch(&COPY, stream)?
        .input(from)
        .in_out(to)
        .value((first + count).div_ceil(32))
        .value((start + count).div_ceil(32))
        .value(first)
        .value(start)
        .value(count)
        .launch(dims(count))
}

/// Sets `count` bits from bit `start` of `to` on; otherwise as [`copy_bits`].
#[track_caller]
pub(super) fn set_bits(
    engine: &Engine,
    stream: StreamId,
    (to, start): (&TrackedCudaSlice<u32>, u64),
    count: u64,
) -> ResourceResult<()> {
    if count == 0 {
        return Ok(());
    }
    engine
        .launch(&SET, stream)?
        .in_out(to)
        .value((start + count).div_ceil(32))
        .value(start)
        .value(count)
        .launch(dims(count))
}

/// A thread for every word that the range can touch.
fn dims(count: u64) -> LaunchDims {
    LaunchDims::for_elements(usize::try_from(count.div_ceil(32) + 1).unwrap_or(usize::MAX))
}

struct Copy;

impl KernelBody for Copy {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let from: u64 = call.value(4)?;
        let input = call.input::<u32>(0, length(call.value(2)?)?)?;
        place(call, 1, 3, (call.value(5)?, call.value(6)?), |offset, bits| {
            let at = from + offset;
            let (word, shift) = ((at / 32) as usize, (at % 32) as u32);
            let low = input.get(word) >> shift;
            if shift + bits > 32 { low | input.get(word + 1) << (32 - shift) } else { low }
        })
    }
}

struct Set;

impl KernelBody for Set {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        place(call, 0, 1, (call.value(2)?, call.value(3)?), |_, _| !0)
    }
}

fn length(n: u64) -> Result<usize, KernelFault> {
    usize::try_from(n).map_err(|_| KernelFault(format!("{n} words do not fit this machine")))
}

/// Writes a range of bits, word by word. `source` is told the offset in the range and how many bits
/// of the word belong to it.
fn place<M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    out: usize,
    out_words: usize,
    (start, count): (u64, u64),
    source: impl Fn(u64, u32) -> u32,
) -> Result<(), KernelFault> {
    let words = length(call.value(out_words)?)?;
    let (before, after) = (call.input::<u32>(out, words)?, call.output::<u32>(out, words)?);
    for word in start / 32..(start + count).div_ceil(32) {
        let (first, end) = (start.max(word * 32), (start + count).min(word * 32 + 32));
        let (bits, shift) = ((end - first) as u32, (first % 32) as u32);
        let mask = u32::MAX >> (32 - bits);
        let value = (source(first - start, bits) & mask) << shift;
        after.set(word as usize, before.get(word as usize) & !(mask << shift) | value);
    }
    Ok(())
}
