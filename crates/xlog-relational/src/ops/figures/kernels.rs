//! The kernels of `figures.cu`.

use std::marker::PhantomData;

use bytemuck::Pod;
use xlog_core::ScalarType::{U8, U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use crate::ops::keys::host_length;

static MODULE: KernelModule =
    KernelModule { name: "figures", ptx: include_str!("../../../kernels/figures.ptx") };

/// What a sum is a sum of; as in the CUDA source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum SumKind {
    Unsigned = 0,
    Signed = 1,
    UnsignedWide = 2,
    SignedWide = 3,
    Float = 4,
}

macro_rules! narrow {
    ($static:ident, $name:literal, $scalar:expr, $value:ty) => {
        pub(super) static $static: KernelDefinition = KernelDefinition {
            name: $name,
            module: &MODULE,
            parameters: &[
                Parameter::input("words", U64).counted_by(2),
                Parameter::output("values", $scalar).counted_by(2),
                Parameter::value("n", U64),
            ],
            host: HostKernel::of::<Narrow<$value>>(),
        };
    };
}

narrow!(NARROW_8, "xlog_figure_narrow_8", U8, u8);
narrow!(NARROW_32, "xlog_figure_narrow_32", U32, u32);

pub(super) static COUNTED: KernelDefinition = KernelDefinition {
    name: "xlog_figure_counted",
    module: &MODULE,
    parameters: &[
        Parameter::input("counts", U64).counted_by(2),
        Parameter::output("bits", U32).counted_by(3),
        Parameter::value("n", U64),
        Parameter::value("words", U64),
    ],
    host: HostKernel::of::<Counted>(),
};

pub(super) static MEAN: KernelDefinition = KernelDefinition {
    name: "xlog_figure_mean",
    module: &MODULE,
    parameters: &[
        Parameter::input("low", U64).counted_by(5),
        Parameter::input("high", U64).counted_by(5),
        Parameter::input("counts", U64).counted_by(5),
        Parameter::output("means", U64).counted_by(5),
        Parameter::value("kind", U32),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Mean>(),
};

pub(super) static OVERFLOW: KernelDefinition = KernelDefinition {
    name: "xlog_figure_overflow",
    module: &MODULE,
    parameters: &[
        Parameter::input("low", U64).counted_by(4),
        Parameter::input("high", U64).counted_by(4),
        Parameter::in_out("overflow", U32).elements(1),
        Parameter::value("is_signed", U32),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Overflow>(),
};

/// A value in the low bits of a word.
trait Low: Pod + Send + Sync {
    fn low(word: u64) -> Self;
}

impl Low for u8 {
    fn low(word: u64) -> Self {
        word as Self
    }
}

impl Low for u32 {
    fn low(word: u64) -> Self {
        word as Self
    }
}

struct Narrow<T>(PhantomData<T>);

impl<T: Low> KernelBody for Narrow<T> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = host_length(call.value(2)?)?;
        let (words, values) = (call.input::<u64>(0, n)?, call.output::<T>(1, n)?);
        call.in_parts(n, call.threads_for(n), 1, |_, range| {
            range.for_each(|i| values.set(i, T::low(words.get(i))));
        });
        Ok(())
    }
}

struct Counted;

impl KernelBody for Counted {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (n, words) = (host_length(call.value(2)?)?, host_length(call.value(3)?)?);
        let (counts, bits) = (call.input::<u64>(0, n)?, call.output::<u32>(1, words)?);
        call.in_parts(words, call.threads_for(n), 1, |_, range| {
            for word in range {
                let groups = word * 32..n.min(word * 32 + 32);
                let set = groups
                    .fold(0, |set, group| set | u32::from(counts.get(group) != 0) << (group % 32));
                bits.set(word, set);
            }
        });
        Ok(())
    }
}

struct Mean;

impl KernelBody for Mean {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        use SumKind::{Signed, SignedWide, Unsigned, UnsignedWide};
        let (kind, n) = (call.value::<u32>(4)?, host_length(call.value(5)?)?);
        let wide = [UnsignedWide, SignedWide].iter().any(|one| *one as u32 == kind);
        let (low, high) = (call.input::<u64>(0, n)?, call.input::<u64>(1, n)?);
        let (counts, means) = (call.input::<u64>(2, n)?, call.output::<u64>(3, n)?);
        call.in_parts(n, call.threads_for(n), 1, |_, range| {
            for i in range {
                let low = low.get(i);
                let both = if wide { u128::from(high.get(i)) << 64 | u128::from(low) } else { 0 };
                let sum = match kind {
                    k if k == Unsigned as u32 => low as f64,
                    k if k == Signed as u32 => low as i64 as f64,
                    k if k == UnsignedWide as u32 => both as f64,
                    k if k == SignedWide as u32 => both as i128 as f64,
                    _ => f64::from_bits(low),
                };
                means.set(i, (sum / counts.get(i) as f64).to_bits());
            }
        });
        Ok(())
    }
}

struct Overflow;

impl KernelBody for Overflow {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (is_signed, n) = (call.value::<u32>(3)? != 0, host_length(call.value(4)?)?);
        let (low, high) = (call.input::<u64>(0, n)?, call.input::<u64>(1, n)?);
        let fits = |i: usize| {
            let sign = if is_signed { low.get(i) as i64 >> 63 } else { 0 };
            high.get(i) == sign as u64
        };
        if !(0..n).all(fits) {
            call.output::<u32>(2, 1)?.set(0, 1);
        }
        Ok(())
    }
}
