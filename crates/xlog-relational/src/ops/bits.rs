//! Bits of rows: validity that moves from any place to any other, and masks of comparisons.

use std::marker::PhantomData;

use xlog_core::ScalarType::{U32, U64};
use xlog_cuda::{
    LaunchDims,
    device_runtime::{ResourceResult, StreamId},
    memory::TrackedCudaSlice,
};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{
        BitRange, HostKernel, KernelBody, KernelCall, KernelFault, Markable, MemoryPolicy, mark,
    },
};

use crate::{
    Engine,
    primitives::{BitCondition, order::Bits},
};

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

macro_rules! mark {
    ($name:ident, $entry:literal, $bits:expr, $type:ty, $out:expr, $and:literal) => {
        static $name: KernelDefinition = KernelDefinition {
            name: $entry,
            module: &MODULE,
            parameters: &[
                Parameter::input("values", $bits).counted_by(2),
                $out.counted_by(3),
                Parameter::value("rows", U64),
                Parameter::value("words", U64),
                Parameter::value("magnitude", $bits),
                Parameter::value("flip", $bits),
                Parameter::value("least", $bits),
                Parameter::value("span", $bits),
                Parameter::value("outside", U32),
            ],
            host: HostKernel::of::<Mark<$type, $and>>(),
        };
    };
}

mark!(MARK_32, "xlog_bits_mark_32", U32, u32, Parameter::output("out", U32), false);
mark!(MARK_64, "xlog_bits_mark_64", U64, u64, Parameter::output("out", U32), false);
mark!(MARK_AND_32, "xlog_bits_mark_and_32", U32, u32, Parameter::in_out("out", U32), true);
mark!(MARK_AND_64, "xlog_bits_mark_and_64", U64, u64, Parameter::in_out("out", U32), true);

/// Clears the bits of `out` that are not set in `in`.
static AND: KernelDefinition = KernelDefinition {
    name: "xlog_bits_and",
    module: &MODULE,
    parameters: &[
        Parameter::input("in", U32).counted_by(2),
        Parameter::in_out("out", U32).counted_by(2),
        Parameter::value("words", U64),
    ],
    host: HostKernel::of::<And>(),
};

/// Bits that can be compared to a mask.
pub(super) trait Marked: Bits + Markable {
    /// The kernel that makes a mask, and the one that narrows it.
    const KERNELS: [&'static KernelDefinition; 2];
}

impl Marked for u32 {
    const KERNELS: [&'static KernelDefinition; 2] = [&MARK_32, &MARK_AND_32];
}

impl Marked for u64 {
    const KERNELS: [&'static KernelDefinition; 2] = [&MARK_64, &MARK_AND_64];
}

/// Sets the bits of `mask` for the values that meet the condition, and clears the others. With
/// `narrow`, a bit that is not set stays so.
#[track_caller]
pub(super) fn mark_if<B: Marked>(
    engine: &Engine,
    stream: StreamId,
    (values, rows): (&TrackedCudaSlice<B>, usize),
    condition: &BitCondition<B>,
    mask: &TrackedCudaSlice<u32>,
    narrow: bool,
) -> ResourceResult<()> {
    if rows == 0 {
        return Ok(());
    }
    let mut launch = engine.launch(B::KERNELS[usize::from(narrow)], stream)?;
    launch.input(values);
    if narrow {
        launch.in_out(mask);
    } else {
        launch.output(mask);
    }
    launch
        .value(rows as u64)
        .value(rows.div_ceil(32) as u64)
        .value(condition.order.magnitude)
        .value(condition.order.flip)
        .value(condition.least)
        .value(condition.span)
        .value(u32::from(condition.outside))
        .launch(LaunchDims::for_elements(rows))
}

/// Clears the bits of `mask` that are not set in `bits`.
#[track_caller]
pub(super) fn narrow_mask(
    engine: &Engine,
    stream: StreamId,
    bits: &TrackedCudaSlice<u32>,
    mask: &TrackedCudaSlice<u32>,
    rows: usize,
) -> ResourceResult<()> {
    let words = rows.div_ceil(32);
    if words == 0 {
        return Ok(());
    }
    engine
        .launch(&AND, stream)?
        .input(bits)
        .in_out(mask)
        .value(words as u64)
        .launch(LaunchDims::for_elements(words))
}

/// Copies `count` bits of `from`, beginning at bit `first`, to bit `start` of `to` and what follows.
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

struct Mark<B, const AND: bool>(PhantomData<B>);

impl<B: Bits + Markable, const AND: bool> KernelBody for Mark<B, AND> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        /// Rows at a time: they stay in the fastest cache.
        const PIECE: usize = 1024;
        let (rows, words) = (length(call.value(2)?)?, length(call.value(3)?)?);
        let range = BitRange::<B> {
            magnitude: call.value(4)?,
            flip: call.value(5)?,
            least: call.value(6)?,
            span: call.value(7)?,
            outside: call.value::<u32>(8)? != 0,
        };
        let (values, out) = (call.input::<B>(0, rows)?, call.output::<u32>(1, words)?);
        let before = if AND { Some(call.input::<u32>(1, words)?) } else { None };
        call.in_parts(rows, call.threads_for(rows), PIECE, |_, part| {
            let (mut piece, mut words) = ([B::default(); PIECE], [0u32; PIECE / 32]);
            let mut old = [0u32; PIECE / 32];
            for start in part.clone().step_by(PIECE) {
                let len = (part.end - start).min(PIECE);
                let (piece, words) = (&mut piece[..len], &mut words[..len.div_ceil(32)]);
                values.read_into(start, piece);
                mark(piece, &range, words);
                if let Some(before) = &before {
                    let old = &mut old[..words.len()];
                    before.read_into(start / 32, old);
                    words.iter_mut().zip(old).for_each(|(word, old)| *word &= *old);
                }
                out.write_from(start / 32, words);
            }
        });
        Ok(())
    }
}

struct And;

impl KernelBody for And {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let words = length(call.value(2)?)?;
        let (bits, out) = (call.input::<u32>(0, words)?, call.output::<u32>(1, words)?);
        let before = call.input::<u32>(1, words)?;
        let mut old = vec![0u32; 2048];
        bits.for_each_piece(|start, bits| {
            let old = &mut old[..bits.len()];
            before.read_into(start, old);
            old.iter_mut().zip(bits).for_each(|(word, bits)| *word &= bits);
            out.write_from(start, old);
        });
        Ok(())
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
