//! Prefix sums.

use std::marker::PhantomData;

use xlog_core::ScalarType::{U32, U64};
use xlog_cuda::{
    LaunchDims,
    device_runtime::{ResourceError, ResourceResult, StreamId},
    launch::DeviceElement,
    memory::TrackedCudaSlice,
};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{
    host::{PIECE, for_each_piece, length},
    tiles::{CountBits, tile_words},
};
use crate::Engine;

pub(super) static MODULE: KernelModule =
    KernelModule { name: "scan", ptx: include_str!("../../kernels/scan.ptx") };

/// Sums that a block makes.
const TILE: usize = 2688;

/// A type that can be summed: `u32` or `u64`. Sums are `u64`.
pub trait Summable: DeviceElement + Default + Into<u64> + Send + Sync {
    /// The kernel for it.
    #[doc(hidden)]
    const KERNEL: &'static KernelDefinition;
}

macro_rules! sums {
    ($($value:ty, $scalar:expr, $static:ident, $name:literal;)*) => {$(
        static $static: KernelDefinition = KernelDefinition {
            name: $name,
            module: &MODULE,
            parameters: &[
                Parameter::input("values", $scalar).counted_by(3),
                Parameter::output("sums", U64).counted_by(4),
                Parameter::in_out("tiles", U64),
                Parameter::value("rows", U64),
                Parameter::value("places", U64),
            ],
            host: HostKernel::of::<ExclusiveSum<$value>>(),
        };
        impl Summable for $value {
            const KERNEL: &'static KernelDefinition = &$static;
        }
    )*};
}

sums! {
    u32, U32, EXCLUSIVE_SUM_U32, "xlog_exclusive_sum_u32";
    u64, U64, EXCLUSIVE_SUM_U64, "xlog_exclusive_sum_u64";
}

/// The sums of everything before each of the first `len` values, and behind them the total: one
/// more sum than there are values.
///
/// Sums of 2^64 and more wrap; sums of fewer than 2^32 values of 32 bits cannot be as large.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::{ResourceError, StreamId}};
/// use xlog_relational::{Engine, primitives::exclusive_sum};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let mut counts = engine.manager().alloc::<u32>(3)?;
/// counts.upload(&[2, 0, 5])?;
/// let starts = exclusive_sum(&engine, StreamId::DEFAULT, &counts, 3)?;
/// assert_eq!(starts.download()?, [0, 2, 2, 7]);
/// # Ok::<(), ResourceError>(())
/// ```
#[track_caller]
pub fn exclusive_sum<T: Summable>(
    engine: &Engine,
    stream: StreamId,
    values: &TrackedCudaSlice<T>,
    len: u64,
) -> ResourceResult<TrackedCudaSlice<u64>> {
    let places = usize::try_from(len).ok().filter(|len| *len <= values.len());
    let Some(places) = places.and_then(|len| len.checked_add(1)) else {
        return Err(ResourceError::StreamMisuse(format!(
            "the values to sum: {len} were named, the memory has {}; name as many as there are",
            values.len()
        )));
    };
    let Ok(tiles) = i32::try_from(places.div_ceil(TILE)) else {
        return Err(ResourceError::StreamMisuse(format!(
            "the values to sum: {len} are more than a grid of tiles of {TILE} takes; split them"
        )));
    };
    let sums = engine.alloc(places, stream, "sums")?;
    let words = tile_words(engine, stream, CountBits::B64, tiles as usize)?;
    engine
        .launch(T::KERNEL, stream)?
        .input(values)
        .output(&sums)
        .in_out(&words)
        .value(len)
        .value(places as u64)
        .launch(LaunchDims::linear(tiles as u32, 224))?;
    Ok(sums)
}

struct ExclusiveSum<T>(PhantomData<T>);

impl<T: Summable> KernelBody for ExclusiveSum<T> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (rows, places) = (length(call.value(3)?)?, length(call.value(4)?)?);
        let (values, sums) = (call.input::<T>(0, rows)?, call.output::<u64>(1, places)?);
        let parts = call.threads_for(rows);
        let totals = call.in_parts(rows, parts, PIECE, |_, range| {
            let mut total = 0u64;
            for_each_piece(&values, range, |piece| {
                total = piece.iter().fold(total, |sum, &value| sum.wrapping_add(value.into()));
            });
            total
        });
        let mut starts = Vec::with_capacity(parts);
        let mut total = 0u64;
        for part in totals {
            starts.push(total);
            total = total.wrapping_add(part);
        }
        call.in_parts(rows, parts, PIECE, |part, range| {
            let (mut sum, mut at) = (starts[part], range.start);
            let mut out = Vec::with_capacity(PIECE);
            for_each_piece(&values, range, |piece| {
                out.clear();
                for &value in piece {
                    out.push(sum);
                    sum = sum.wrapping_add(value.into());
                }
                sums.write_from(at, &out);
                at += out.len();
            });
        });
        sums.set(rows, total);
        Ok(())
    }
}
