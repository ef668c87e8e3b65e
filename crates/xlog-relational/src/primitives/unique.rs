//! Runs of equal values.
//!
//! Values are equal if their bits are, which is what sorted floats are grouped by: -0.0 and 0.0 are
//! two runs, and so are NaNs of different bits.

use std::{marker::PhantomData, ops::Range};

use xlog_core::ScalarType::{self, U32, U64};
use xlog_cuda::{
    device_runtime::{ResourceResult, StreamId},
    launch::DeviceElement,
    memory::TrackedCudaSlice,
};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, Input, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{
    host::{PIECE, length},
    order::{Bits, Ordered},
    pending::Pending,
    rows::checked_rows,
    select::{Tiled, compact, compaction, row_numbers},
};
use crate::Engine;

static MODULE: KernelModule =
    KernelModule { name: "unique", ptx: include_str!("../../kernels/unique.ptx") };

/// What finding runs of values of one type launches.
#[derive(Debug)]
#[doc(hidden)]
pub struct RunKernels {
    values: Tiled,
    rows: Tiled,
}

/// A type of value whose runs can be found.
pub trait Runs: Ordered {
    /// The kernels for it.
    #[doc(hidden)]
    const KERNELS: &'static RunKernels;
}

macro_rules! heads {
    ($name:expr, $value:expr, $heads:expr, $body:ty, $tile_rows:expr) => {
        Tiled {
            kernel: KernelDefinition {
                name: $name,
                module: &MODULE,
                parameters: &[
                    Parameter::input("values", $value).counted_by(4),
                    Parameter::output("heads", $heads).counted_by(4),
                    Parameter::output("count", U64).elements(1),
                    Parameter::in_out("tiles", U64),
                    Parameter::value("rows", U64),
                    Parameter::value("tile_count", U32),
                ],
                host: HostKernel::of::<$body>(),
            },
            tile_rows: $tile_rows,
        }
    };
}

macro_rules! runs {
    ($($value:ty, $scalar:expr, $bits:ty, $static:ident, $width:literal, $tiles:expr;)*) => {$(
        static $static: RunKernels = RunKernels {
            values: heads!(concat!("xlog_unique_", $width), $scalar, $scalar,
                           Heads<$bits, false>, $tiles[0]),
            rows: heads!(concat!("xlog_unique_rows_", $width), $scalar, U32,
                         Heads<$bits, true>, $tiles[1]),
        };
        impl Runs for $value {
            const KERNELS: &'static RunKernels = &$static;
        }
    )*};
}

/// Rows a block takes: for values, and for row numbers.
const TILES_32: [usize; 2] = [384 * 17, 384 * 15];
const TILES_64: [usize; 2] = [384 * 11, 384 * 11];

runs! {
    u32, U32, u32, RUNS_U32, "32", TILES_32;
    i32, ScalarType::I32, u32, RUNS_I32, "32", TILES_32;
    f32, ScalarType::F32, u32, RUNS_F32, "32", TILES_32;
    u64, U64, u64, RUNS_U64, "64", TILES_64;
    i64, ScalarType::I64, u64, RUNS_I64, "64", TILES_64;
    f64, ScalarType::F64, u64, RUNS_F64, "64", TILES_64;
}

/// The first value of each run of equal values among the first `len`: of sorted values, each once.
/// Takes `len` below 2^32.
#[track_caller]
pub fn unique<T: Runs>(
    engine: &Engine,
    stream: StreamId,
    values: &TrackedCudaSlice<T>,
    len: u64,
) -> ResourceResult<Pending<T>> {
    heads(engine, stream, &T::KERNELS.values, values, len)
}

/// The row number at which each run of equal values among the first `len` starts. Takes `len` below
/// 2^32.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::{ResourceError, StreamId}};
/// use xlog_relational::{Engine, primitives::run_starts};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let mut values = engine.manager().alloc::<u64>(5)?;
/// values.upload(&[4, 4, 4, 9, 9])?;
/// let starts = run_starts(&engine, StreamId::DEFAULT, &values, 5)?;
/// let (starts, count) = starts.wait()?;
/// assert_eq!(starts.view(..count as usize)?.download()?, [0, 3]);
/// # Ok::<(), ResourceError>(())
/// ```
#[track_caller]
pub fn run_starts<T: Runs>(
    engine: &Engine,
    stream: StreamId,
    values: &TrackedCudaSlice<T>,
    len: u64,
) -> ResourceResult<Pending<u32>> {
    heads(engine, stream, &T::KERNELS.rows, values, len)
}

#[track_caller]
fn heads<T: Runs, R: DeviceElement>(
    engine: &Engine,
    stream: StreamId,
    tiled: &'static Tiled,
    values: &TrackedCudaSlice<T>,
    len: u64,
) -> ResourceResult<Pending<R>> {
    let len = checked_rows(len, values.len(), "the values with runs")?;
    compaction(engine, stream, tiled, len, |to| {
        engine
            .launch(&tiled.kernel, stream)?
            .input(values)
            .output(to.selected)
            .report::<u64>(1)
            .in_out(to.tiles)
            .value(len as u64)
            .value(to.tile_count)
            .launch_reporting(to.dims)
    })
}

struct Heads<B, const ROWS: bool>(PhantomData<B>);

impl<B: Bits, const ROWS: bool> KernelBody for Heads<B, ROWS> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let rows = length(call.value(4)?)?;
        let (input, count) = (call.input::<B>(0, rows)?, call.output::<u64>(2, 1)?);
        if ROWS {
            let heads = call.output::<u32>(1, rows)?;
            compact(call, rows, &heads, &count, |range, flags, numbers| {
                flag_heads(&input, range.clone(), flags);
                row_numbers(range, numbers);
            });
        } else {
            let heads = call.output::<B>(1, rows)?;
            compact(call, rows, &heads, &count, |range, flags, values| {
                input.read_into(range.start, values);
                flag_heads(&input, range, flags);
            });
        }
        Ok(())
    }
}

fn flag_heads<B: Bits, M: MemoryPolicy>(
    input: &Input<'_, B, M>,
    range: Range<usize>,
    flags: &mut [u8],
) {
    // The value before the first is read too, unless there is none.
    let mut values = [B::default(); PIECE + 1];
    let values = &mut values[..=range.len()];
    if range.start == 0 {
        input.read_into(0, &mut values[1..]);
        values[0] = !values[1];
    } else {
        input.read_into(range.start - 1, values);
    }
    for (flag, pair) in flags.iter_mut().zip(values.windows(2)) {
        *flag = u8::from(pair[0] != pair[1]);
    }
}
