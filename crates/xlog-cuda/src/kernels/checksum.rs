//! A checksum that does not depend on the order of its additions.

use xlog_core::ScalarType::{U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::length;

static MODULE: KernelModule =
    KernelModule { name: "checksum", ptx: include_str!("../../kernels/checksum.ptx") };

/// Adds the checksum of `in` to `sum`, which starts at zero.
pub static CHECKSUM_U32: KernelDefinition = KernelDefinition {
    name: "xlog_checksum_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("in", U32).counted_by(2),
        Parameter::in_out("sum", U64).elements(1),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Checksum>(),
};

struct Checksum;

impl KernelBody for Checksum {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(2)?)?;
        let mut sum = call.input::<u64>(1, 1)?.get(0);
        call.input::<u32>(0, n)?.for_each_piece(|start, piece| {
            sum = sum.wrapping_add(sum_of(start, piece));
        });
        call.output::<u64>(1, 1)?.set(0, sum);
        Ok(())
    }
}

/// What [`CHECKSUM_U32`] adds for `values`, for checking results.
#[must_use]
pub fn checksum_u32(values: &[u32]) -> u64 {
    sum_of(0, values)
}

fn sum_of(start: usize, values: &[u32]) -> u64 {
    let indexed = values.iter().zip(start as u64..);
    indexed.fold(0, |sum, (value, index)| {
        sum.wrapping_add(scramble((index << 32) ^ u64::from(*value)))
    })
}

/// SplitMix64's output function.
fn scramble(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
