//! The kernel that tests a range: a value becomes a key, an unsigned number of its width that
//! orders as the values compare, and a range of values is a range of keys.

use xlog_core::ScalarType::{U8, U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::bits;
use crate::types::DataType;

/// Flag of a launch: the column has a validity.
pub(super) const NULLABLE: u32 = 1;
/// Flag of a launch: there is a mask before it, whose rows alone are kept.
pub(super) const LATER: u32 = 2;

static MODULE: KernelModule =
    KernelModule { name: "range", ptx: include_str!("../../kernels/range.ptx") };

macro_rules! parameters {
    ($key:expr) => {
        &[
            Parameter::input("values", $key).counted_by(8),
            Parameter::input("validity", U8),
            Parameter::input("before", U8),
            Parameter::value("flags", U32),
            Parameter::value("order", U32),
            Parameter::value("low", $key),
            Parameter::value("high", $key),
            Parameter::value("negated", U32),
            Parameter::value("n", U64),
            Parameter::output("mask", U32),
        ]
    };
}

/// The mask of a range over values of four bytes.
pub(super) static RANGE_WORDS: KernelDefinition = KernelDefinition {
    name: "xlog_range_words",
    module: &MODULE,
    parameters: parameters!(U32),
    host: HostKernel::of::<Range<u32>>(),
};

/// The same over values of eight bytes.
pub(super) static RANGE_LONGS: KernelDefinition = KernelDefinition {
    name: "xlog_range_longs",
    module: &MODULE,
    parameters: parameters!(U64),
    host: HostKernel::of::<Range<u64>>(),
};

/// How bits become a key that orders as their values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Order {
    Unsigned = 0,
    Signed = 1,
    Float = 2,
}

impl Order {
    /// The one of a type.
    pub(super) fn of(data_type: DataType) -> Self {
        match data_type {
            DataType::F32 | DataType::F64 => Self::Float,
            DataType::I32 | DataType::I64 | DataType::Date32 | DataType::Timestamp => Self::Signed,
            _ => Self::Unsigned,
        }
    }
}

/// Bits of a width, and the keys of them.
pub(super) trait Keyed: bytemuck::Pod + Ord {
    fn signed(bits: Self) -> Self;
    fn float(bits: Self) -> Self;
    fn distance(self, low: Self) -> Self;

    fn key(bits: Self, order: Order) -> Self {
        match order {
            Order::Unsigned => bits,
            Order::Signed => Self::signed(bits),
            Order::Float => Self::float(bits),
        }
    }
}

macro_rules! keyed {
    ($bits:ty, $infinity:literal, $nan:literal) => {
        impl Keyed for $bits {
            #[inline(always)]
            fn signed(bits: Self) -> Self {
                bits ^ 1 << (<$bits>::BITS - 1)
            }

            /// With one zero and one NaN, which is above every number.
            #[inline(always)]
            fn float(bits: Self) -> Self {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let size = bits & !SIGN;
                let bits = if size > $infinity { $nan } else { bits };
                let bits = if size == 0 { 0 } else { bits };
                // All ones for a negative number: all of its bits turn, else the first one.
                let turned = (bits >> (<$bits>::BITS - 1)).wrapping_neg();
                bits ^ (turned | SIGN)
            }

            #[inline(always)]
            fn distance(self, low: Self) -> Self {
                self.wrapping_sub(low)
            }
        }
    };
}

keyed!(u32, 0x7f80_0000, 0x7fc0_0000);
keyed!(u64, 0x7ff0_0000_0000_0000, 0x7ff8_0000_0000_0000);

struct Range<T>(std::marker::PhantomData<T>);

/// Rows that are worked on at a time: a multiple of 32 that stays in the cache.
const PIECE: usize = 2048;

impl<T: Keyed> KernelBody for Range<T> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (flags, order) = (call.value::<u32>(3)?, call.value::<u32>(4)?);
        let (low, high) = (call.value::<T>(5)?, call.value::<T>(6)?);
        let test = Test { low, span: high.distance(low), wanted: call.value::<u32>(7)? == 0 };
        let n = bits::length(call.value(8)?)?;
        let words = n.div_ceil(32);
        let (values, mask) = (call.input::<T>(0, n)?, call.output::<u32>(9, words)?);
        let others: Result<Vec<_>, _> = [(NULLABLE, 1), (LATER, 2)]
            .into_iter()
            .filter(|(flag, _)| flags & flag != 0)
            .map(|(_, place)| call.input::<u8>(place, words * 4))
            .collect();
        let others = others?;
        let (mut piece, mut rows) = ([T::zeroed(); PIECE], [0u8; PIECE]);
        let (mut packed, mut other) = ([0u32; PIECE / 32], [0u32; PIECE / 32]);
        for start in (0..n).step_by(PIECE) {
            let count = (n - start).min(PIECE);
            values.read_into(start, &mut piece[..count]);
            match order {
                0 => test.run(&piece[..count], &mut rows, |bits| bits),
                1 => test.run(&piece[..count], &mut rows, T::signed),
                _ => test.run(&piece[..count], &mut rows, T::float),
            }
            let used = bits::pack(&mut packed, &mut rows, count);
            for memory in &others {
                let other = &mut other[..used];
                memory.read_into(start / 8, bytemuck::cast_slice_mut(other));
                packed.iter_mut().zip(other).for_each(|(word, other)| *word &= *other);
            }
            mask.write_from(start / 32, &packed[..used]);
        }
        Ok(())
    }
}

/// Whether a key lies between two others.
struct Test<T> {
    low: T,
    span: T,
    /// Whether the keys inside are meant, or those outside.
    wanted: bool,
}

impl<T: Keyed> Test<T> {
    /// Sets the flags of a piece; compiled for each way to a key, so that none is chosen in a loop,
    /// and for processors that work on 32 bytes at once.
    fn run(&self, values: &[T], flags: &mut [u8], key: impl Fn(T) -> T) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            #[target_feature(enable = "avx2")]
            fn wide<T: Keyed>(
                test: &Test<T>,
                values: &[T],
                flags: &mut [u8],
                key: impl Fn(T) -> T,
            ) {
                test.set_flags(values, flags, key);
            }
            // SAFETY: the processor has the instructions, as it was just asked.
            return unsafe { wide(self, values, flags, key) };
        }
        self.set_flags(values, flags, key);
    }

    #[inline(always)]
    fn set_flags(&self, values: &[T], flags: &mut [u8], key: impl Fn(T) -> T) {
        for (flag, value) in flags.iter_mut().zip(values) {
            *flag = u8::from((key(*value).distance(self.low) <= self.span) == self.wanted);
        }
    }
}
