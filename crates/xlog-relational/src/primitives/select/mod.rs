//! Selections: the values, or the row numbers, of the rows that a condition or a mask picks.
//!
//! A selection is one pass over its input, and for more than a tile a small launch before it. None
//! waits for the device, which reports how many rows were picked ([`Pending`]).

mod condition;
mod host;
mod kernels;

pub(crate) use condition::BitCondition;
pub use condition::{Comparison, Condition};
pub(super) use host::{compact, row_numbers};
use xlog_cuda::{
    LaunchDims,
    device_runtime::{ResourceResult, StreamId},
    launch::DeviceElement,
    memory::{Download, TrackedCudaSlice},
};
use xlog_driver::KernelDefinition;

use self::kernels::SelectKernels;
use super::{
    order::Ordered,
    pending::{Pending, PendingCount},
    rows::{checked_rows, room},
    tiles::{CountBits, tile_words},
};
use crate::Engine;

/// A type of value that can be selected, by itself or by a mask.
pub trait Selectable: Ordered {
    /// The kernels for it.
    #[doc(hidden)]
    const KERNELS: &'static SelectKernels;
}

macro_rules! selectable {
    ($($value:ty => $kernels:ident),*) => {
        $(impl Selectable for $value {
            const KERNELS: &'static SelectKernels = &kernels::$kernels;
        })*
    };
}

selectable!(
    u32 => SELECT_U32, i32 => SELECT_I32, f32 => SELECT_F32,
    u64 => SELECT_U64, i64 => SELECT_I64, f64 => SELECT_F64
);

/// A kernel, and how many rows a block of it takes.
#[derive(Debug)]
pub(super) struct Tiled {
    pub(super) kernel: KernelDefinition,
    pub(super) tile_rows: usize,
}

/// Those of the first `len` values for which the condition holds, in their order. Takes `len` below
/// 2^32.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::{ResourceError, StreamId}};
/// use xlog_relational::{Engine, primitives::{Comparison, Condition, select_if}};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let mut values = engine.manager().alloc::<i32>(4)?;
/// values.upload(&[3, -7, 0, 12])?;
/// let condition = Condition::new(Comparison::Greater, 0);
/// let selected = select_if(&engine, StreamId::DEFAULT, &values, 4, &condition)?;
/// let (selected, count) = selected.wait()?;
/// assert_eq!(selected.view(..count as usize)?.download()?, [3, 12]);
/// # Ok::<(), ResourceError>(())
/// ```
#[track_caller]
pub fn select_if<T: Selectable>(
    engine: &Engine,
    stream: StreamId,
    values: &TrackedCudaSlice<T>,
    len: u64,
    condition: &Condition<T>,
) -> ResourceResult<Pending<T>> {
    by_range(engine, stream, &T::KERNELS.range, values, len, &condition.on_bits())
}

/// As [`select_if`], over memory that is typed by width alone.
#[track_caller]
pub(crate) fn select_bits_if<B: Selectable<Bits = B>>(
    engine: &Engine,
    stream: StreamId,
    values: &TrackedCudaSlice<B>,
    len: u64,
    condition: &BitCondition<B>,
) -> ResourceResult<Pending<B>> {
    by_range(engine, stream, &B::KERNELS.range, values, len, condition)
}

/// As [`select_rows_if`], over memory that is typed by width alone.
#[track_caller]
pub(crate) fn select_rows_if_bits<B: Selectable<Bits = B>>(
    engine: &Engine,
    stream: StreamId,
    values: &TrackedCudaSlice<B>,
    len: u64,
    condition: &BitCondition<B>,
) -> ResourceResult<Pending<u32>> {
    by_range(engine, stream, &B::KERNELS.range_rows, values, len, condition)
}

/// The numbers of those of the first `len` rows for whose value the condition holds, ascending.
/// Takes `len` below 2^32.
#[track_caller]
pub fn select_rows_if<T: Selectable>(
    engine: &Engine,
    stream: StreamId,
    values: &TrackedCudaSlice<T>,
    len: u64,
    condition: &Condition<T>,
) -> ResourceResult<Pending<u32>> {
    by_range(engine, stream, &T::KERNELS.range_rows, values, len, &condition.on_bits())
}

#[track_caller]
fn by_range<T: Selectable, R: DeviceElement>(
    engine: &Engine,
    stream: StreamId,
    tiled: &'static Tiled,
    values: &TrackedCudaSlice<T>,
    len: u64,
    condition: &BitCondition<T::Bits>,
) -> ResourceResult<Pending<R>> {
    let len = checked_rows(len, values.len(), "the values to select from")?;
    compaction(engine, stream, tiled, len, |to| {
        engine
            .launch(&tiled.kernel, stream)?
            .input(values)
            .output(to.selected)
            .report::<u64>(1)
            .in_out(to.tiles)
            .value(len as u64)
            .value(to.tile_count)
            .value(condition.order.magnitude)
            .value(condition.order.flip)
            .value(condition.least)
            .value(condition.span)
            .value(u32::from(condition.outside))
            .launch_reporting(to.dims)
    })
}

/// Those of the first `len` values whose bit of `mask` is set, in their order: bit `i % 32` of word
/// `i / 32`. Takes `len` below 2^32.
#[track_caller]
pub fn select_by_mask<T: Selectable>(
    engine: &Engine,
    stream: StreamId,
    values: &TrackedCudaSlice<T>,
    mask: &TrackedCudaSlice<u32>,
    len: u64,
) -> ResourceResult<Pending<T>> {
    let tiled = &T::KERNELS.mask;
    let len = checked_rows(len, values.len(), "the values to select from")?;
    let words = len.div_ceil(32);
    checked_rows(words as u64, mask.len(), "the words of the mask")?;
    compaction(engine, stream, tiled, len, |to| {
        engine
            .launch(&tiled.kernel, stream)?
            .input(values)
            .input(mask)
            .output(to.selected)
            .report::<u64>(1)
            .in_out(to.tiles)
            .value(len as u64)
            .value(words as u64)
            .value(to.tile_count)
            .launch_reporting(to.dims)
    })
}

/// The numbers of those of the first `len` rows whose bit of `mask` is set, ascending. Takes `len`
/// below 2^32.
#[track_caller]
pub fn select_rows_by_mask(
    engine: &Engine,
    stream: StreamId,
    mask: &TrackedCudaSlice<u32>,
    len: u64,
) -> ResourceResult<Pending<u32>> {
    let tiled = &kernels::MASK_ROWS;
    let len = checked_rows(len, mask.len().saturating_mul(32), "the bits of the mask")?;
    compaction(engine, stream, tiled, len, |to| {
        engine
            .launch(&tiled.kernel, stream)?
            .input(mask)
            .output(to.selected)
            .report::<u64>(1)
            .in_out(to.tiles)
            .value(len as u64)
            .value(len.div_ceil(32) as u64)
            .value(to.tile_count)
            .launch_reporting(to.dims)
    })
}

/// What a compaction writes, and how it is launched.
pub(super) struct Target<'t, R> {
    pub(super) selected: &'t TrackedCudaSlice<R>,
    pub(super) tiles: &'t TrackedCudaSlice<u64>,
    pub(super) tile_count: u32,
    pub(super) dims: LaunchDims,
}

/// Memory for what is selected of `len` rows, and the launch that fills it.
#[track_caller]
pub(super) fn compaction<R: DeviceElement>(
    engine: &Engine,
    stream: StreamId,
    tiled: &Tiled,
    len: usize,
    launch: impl FnOnce(&Target<'_, R>) -> ResourceResult<Download<u64>>,
) -> ResourceResult<Pending<R>> {
    if len == 0 {
        let selected = engine.alloc(room(len), stream, "selected")?;
        return Ok(Pending::new(selected, PendingCount::NONE));
    }
    let tile_count = len.div_ceil(tiled.tile_rows);
    // First of all: the device is at work on these while the rest is made ready.
    let tiles = tile_words(engine, stream, CountBits::B32, tile_count)?;
    let selected = engine.alloc(room(len), stream, "selected")?;
    let count = launch(&Target {
        selected: &selected,
        tiles: &tiles,
        tile_count: tile_count as u32,
        dims: LaunchDims::linear(tile_count as u32, 384),
    })?;
    Ok(Pending::new(selected, PendingCount::reported(count)))
}
