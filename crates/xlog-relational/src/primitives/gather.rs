//! Values and validity bits fetched by row number, and columns made from nothing.

use std::marker::PhantomData;

use xlog_core::ScalarType::{F32, F64, I32, I64, U8, U32, U64};
use xlog_cuda::{
    LaunchDims,
    device_runtime::{ResourceError, ResourceResult, StreamId},
    launch::{DeviceElement, LaunchBatch},
    memory::TrackedCudaSlice,
};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{
    host::{PIECE, length},
    rows::room,
};
use crate::Engine;

static MODULE: KernelModule =
    KernelModule { name: "gather", ptx: include_str!("../../kernels/gather.ptx") };

/// A type of row number: `u32` or `u64`. The greatest of them, [`NULL`](Self::NULL), names no row.
pub trait RowNumber: DeviceElement + Default + Send + Sync {
    /// Names no row.
    const NULL: Self;
    #[doc(hidden)]
    const BITS: &'static KernelDefinition;
    #[doc(hidden)]
    const VALID: &'static KernelDefinition;
    #[doc(hidden)]
    const IOTA: &'static KernelDefinition;
    #[doc(hidden)]
    fn number(self) -> u64;
    #[doc(hidden)]
    fn counting(first: Self, places: u64) -> Self;
    /// The kernel of a gather, among those of a type of value.
    #[doc(hidden)]
    fn gather(kernels: &'static GatherKernels) -> &'static KernelDefinition;
}

/// What gathering values of one type, and filling with one, launches.
#[derive(Debug)]
#[doc(hidden)]
pub struct GatherKernels {
    by_32: KernelDefinition,
    by_64: KernelDefinition,
    fill: KernelDefinition,
}

/// A type of value that can be gathered.
pub trait Gatherable: DeviceElement + Send + Sync {
    #[doc(hidden)]
    const KERNELS: &'static GatherKernels;
}

macro_rules! gather {
    ($name:expr, $value:expr, $rows:expr, $body:ty) => {
        KernelDefinition {
            name: $name,
            module: &MODULE,
            parameters: &[
                Parameter::input("values", $value).counted_by(3),
                Parameter::input("rows", $rows).counted_by(4),
                Parameter::output("out", $value).counted_by(4),
                Parameter::value("length", U64),
                Parameter::value("count", U64),
            ],
            host: HostKernel::of::<$body>(),
        }
    };
}

macro_rules! gatherable {
    ($($value:ty, $scalar:expr, $static:ident, $width:literal;)*) => {$(
        static $static: GatherKernels = GatherKernels {
            by_32: gather!(concat!("xlog_gather_", $width, "_by_32"), $scalar, U32,
                           Gather<$value, u32>),
            by_64: gather!(concat!("xlog_gather_", $width, "_by_64"), $scalar, U64,
                           Gather<$value, u64>),
            fill: KernelDefinition {
                name: concat!("xlog_fill_", $width),
                module: &MODULE,
                parameters: &[
                    Parameter::output("out", $scalar).counted_by(2),
                    Parameter::value("value", $scalar),
                    Parameter::value("count", U64),
                ],
                host: HostKernel::of::<Fill<$value>>(),
            },
        };
        impl Gatherable for $value {
            const KERNELS: &'static GatherKernels = &$static;
        }
    )*};
}

gatherable! {
    u8, U8, GATHER_U8, "8";
    u32, U32, GATHER_U32, "32";
    i32, I32, GATHER_I32, "32";
    f32, F32, GATHER_F32, "32";
    u64, U64, GATHER_U64, "64";
    i64, I64, GATHER_I64, "64";
    f64, F64, GATHER_F64, "64";
}

macro_rules! row_numbers {
    ($($row:ident, $scalar:expr, $width:literal, $field:ident, $bits:ident, $valid:ident,
       $iota:ident;)*) => {$(
        static $bits: KernelDefinition = KernelDefinition {
            name: concat!("xlog_gather_bits_by_", $width),
            module: &MODULE,
            parameters: &[
                Parameter::input("bits", U32).counted_by(5),
                Parameter::input("rows", $scalar).counted_by(4),
                Parameter::output("out", U32).counted_by(6),
                Parameter::value("length", U64),
                Parameter::value("count", U64),
                Parameter::value("words", U64),
                Parameter::value("out_words", U64),
            ],
            host: HostKernel::of::<GatherBits<$row>>(),
        };
        static $valid: KernelDefinition = KernelDefinition {
            name: concat!("xlog_rows_valid_", $width),
            module: &MODULE,
            parameters: &[
                Parameter::input("rows", $scalar).counted_by(3),
                Parameter::output("out", U32).counted_by(4),
                Parameter::value("length", U64),
                Parameter::value("count", U64),
                Parameter::value("out_words", U64),
            ],
            host: HostKernel::of::<RowsValid<$row>>(),
        };
        static $iota: KernelDefinition = KernelDefinition {
            name: concat!("xlog_iota_", stringify!($row)),
            module: &MODULE,
            parameters: &[
                Parameter::output("out", $scalar).counted_by(2),
                Parameter::value("first", $scalar),
                Parameter::value("count", U64),
            ],
            host: HostKernel::of::<Iota<$row>>(),
        };
        impl RowNumber for $row {
            const NULL: Self = Self::MAX;
            const BITS: &'static KernelDefinition = &$bits;
            const VALID: &'static KernelDefinition = &$valid;
            const IOTA: &'static KernelDefinition = &$iota;
            fn number(self) -> u64 {
                u64::from(self)
            }
            fn counting(first: Self, places: u64) -> Self {
                first.wrapping_add(places as Self)
            }
            fn gather(kernels: &'static GatherKernels) -> &'static KernelDefinition {
                &kernels.$field
            }
        }
    )*};
}

row_numbers! {
    u32, U32, "32", by_32, GATHER_BITS_BY_32, ROWS_VALID_32, IOTA_U32;
    u64, U64, "64", by_64, GATHER_BITS_BY_64, ROWS_VALID_64, IOTA_U64;
}

/// A count that memory of `available` values holds.
fn checked(count: u64, available: usize, what: &str) -> ResourceResult<usize> {
    usize::try_from(count).ok().filter(|count| *count <= available).ok_or_else(|| {
        ResourceError::StreamMisuse(format!(
            "{what}: {count} were named, the memory has {available}; name as many as there are"
        ))
    })
}

/// `values[rows[i]]` for the first `count` row numbers. A row number that is not below `length`
/// names no row, and gives a zero.
#[track_caller]
pub fn gather<T: Gatherable, R: RowNumber>(
    engine: &Engine,
    stream: StreamId,
    values: &TrackedCudaSlice<T>,
    length: u64,
    rows: &TrackedCudaSlice<R>,
    count: u64,
) -> ResourceResult<TrackedCudaSlice<T>> {
    at_once(engine, stream, |batch| gather_in(engine, batch, values, length, rows, count))
}

/// [`gather`], as a step of a batch.
pub(crate) fn gather_in<T: Gatherable, R: RowNumber>(
    engine: &Engine,
    batch: &mut LaunchBatch<'_>,
    values: &TrackedCudaSlice<T>,
    length: u64,
    rows: &TrackedCudaSlice<R>,
    count: u64,
) -> ResourceResult<TrackedCudaSlice<T>> {
    checked(length, values.len(), "the values to gather from")?;
    let places = checked(count, rows.len(), "the row numbers to gather by")?;
    let out = engine.alloc(room(places), batch.stream(), "gathered")?;
    if places > 0 {
        engine
            .launch(R::gather(T::KERNELS), batch.stream())?
            .input(values)
            .input(rows)
            .output(&out)
            .value(length)
            .value(count)
            .launch_in(batch, LaunchDims::for_elements(places.div_ceil(4)))?;
    }
    Ok(out)
}

/// Has a batch of its own do one thing.
#[track_caller]
fn at_once<T>(
    engine: &Engine,
    stream: StreamId,
    step: impl FnOnce(&mut LaunchBatch<'_>) -> ResourceResult<T>,
) -> ResourceResult<T> {
    let mut batch = engine.batch(stream);
    let made = step(&mut batch)?;
    batch.submit()?;
    Ok(made)
}

/// Bit `rows[i]` of `bits`, 32 to a word, for the first `count` row numbers. A row number that is
/// not below `length` names no row, and gives a cleared bit; so do the places behind the last one
/// in its word.
#[track_caller]
pub fn gather_bits<R: RowNumber>(
    engine: &Engine,
    stream: StreamId,
    bits: &TrackedCudaSlice<u32>,
    length: u64,
    rows: &TrackedCudaSlice<R>,
    count: u64,
) -> ResourceResult<TrackedCudaSlice<u32>> {
    at_once(engine, stream, |batch| gather_bits_in(engine, batch, bits, length, rows, count))
}

/// [`gather_bits`], as a step of a batch.
pub(crate) fn gather_bits_in<R: RowNumber>(
    engine: &Engine,
    batch: &mut LaunchBatch<'_>,
    bits: &TrackedCudaSlice<u32>,
    length: u64,
    rows: &TrackedCudaSlice<R>,
    count: u64,
) -> ResourceResult<TrackedCudaSlice<u32>> {
    let words = checked(length.div_ceil(32), bits.len(), "the words of bits to gather from")?;
    let places = checked(count, rows.len(), "the row numbers to gather by")?;
    let out = engine.alloc(room(places.div_ceil(32)), batch.stream(), "gathered bits")?;
    if places > 0 {
        engine
            .launch(R::BITS, batch.stream())?
            .input(bits)
            .input(rows)
            .output(&out)
            .value(length)
            .value(count)
            .value(words as u64)
            .value(places.div_ceil(32) as u64)
            .launch_in(batch, LaunchDims::for_elements(places))?;
    }
    Ok(out)
}

/// A set bit for each of the first `count` row numbers that names one of `length` rows, 32 to a
/// word: the validity of what is gathered from a column without nulls.
#[track_caller]
pub fn rows_valid<R: RowNumber>(
    engine: &Engine,
    stream: StreamId,
    rows: &TrackedCudaSlice<R>,
    length: u64,
    count: u64,
) -> ResourceResult<TrackedCudaSlice<u32>> {
    at_once(engine, stream, |batch| rows_valid_in(engine, batch, rows, length, count))
}

/// [`rows_valid`], as a step of a batch.
pub(crate) fn rows_valid_in<R: RowNumber>(
    engine: &Engine,
    batch: &mut LaunchBatch<'_>,
    rows: &TrackedCudaSlice<R>,
    length: u64,
    count: u64,
) -> ResourceResult<TrackedCudaSlice<u32>> {
    let places = checked(count, rows.len(), "the row numbers to look at")?;
    let out = engine.alloc(room(places.div_ceil(32)), batch.stream(), "validity of rows")?;
    if places > 0 {
        engine
            .launch(R::VALID, batch.stream())?
            .input(rows)
            .output(&out)
            .value(length)
            .value(count)
            .value(places.div_ceil(32) as u64)
            .launch_in(batch, LaunchDims::for_elements(places))?;
    }
    Ok(out)
}

/// `first`, `first + 1` and so on, `count` numbers. Numbers that their type does not hold are
/// refused.
#[track_caller]
pub fn iota<R: RowNumber>(
    engine: &Engine,
    stream: StreamId,
    first: R,
    count: u64,
) -> ResourceResult<TrackedCudaSlice<R>> {
    let fits = first.number().checked_add(count).is_some_and(|end| end <= R::NULL.number());
    let places = usize::try_from(count).ok().filter(|_| fits).ok_or_else(|| {
        ResourceError::StreamMisuse(format!(
            "{count} numbers from {} on reach {}, which means no row; count in 64 bits",
            first.number(),
            R::NULL.number()
        ))
    })?;
    let out = engine.alloc(room(places), stream, "row numbers")?;
    if places > 0 {
        engine
            .launch(R::IOTA, stream)?
            .output(&out)
            .value(first)
            .value(count)
            .launch(LaunchDims::for_elements(places))?;
    }
    Ok(out)
}

/// `count` times the same value.
#[track_caller]
pub fn fill<T: Gatherable>(
    engine: &Engine,
    stream: StreamId,
    value: T,
    count: u64,
) -> ResourceResult<TrackedCudaSlice<T>> {
    let places = checked(count, usize::MAX / 8, "the values to fill in")?;
    let out = engine.alloc(room(places), stream, "filled")?;
    if places > 0 {
        engine
            .launch(&T::KERNELS.fill, stream)?
            .output(&out)
            .value(value)
            .value(count)
            .launch(LaunchDims::for_elements(places))?;
    }
    Ok(out)
}

struct Gather<T, R>(PhantomData<(T, R)>);

impl<T: DeviceElement + Send + Sync, R: RowNumber> KernelBody for Gather<T, R> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (len, count) = (call.value::<u64>(3)?, length(call.value(4)?)?);
        let (values, rows) = (call.input::<T>(0, length(len)?)?, call.input::<R>(1, count)?);
        let out = call.output::<T>(2, count)?;
        call.in_parts(count, call.threads_for(count), PIECE, |_, range| {
            let mut piece_rows = [R::default(); PIECE];
            let mut piece = Vec::with_capacity(PIECE);
            for start in range.clone().step_by(PIECE) {
                let piece_rows = &mut piece_rows[..(range.end - start).min(PIECE)];
                rows.read_into(start, piece_rows);
                piece.clear();
                piece.extend(piece_rows.iter().map(|row| match row.number() {
                    row if row < len => values.get(row as usize),
                    _ => T::zeroed(),
                }));
                out.write_from(start, &piece);
            }
        });
        Ok(())
    }
}

/// Writes a bit for each row number that `set` says yes to.
fn write_bits<R: RowNumber, M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    (rows, out): (usize, usize),
    count: usize,
    set: impl Fn(u64) -> bool + Sync,
) -> Result<(), KernelFault> {
    let rows = call.input::<R>(rows, count)?;
    let out = call.output::<u32>(out, count.div_ceil(32))?;
    call.in_parts(count, call.threads_for(count), 32, |_, range| {
        let mut word_rows = [R::default(); 32];
        for start in range.clone().step_by(32) {
            let word_rows = &mut word_rows[..(range.end - start).min(32)];
            rows.read_into(start, word_rows);
            let word = word_rows
                .iter()
                .enumerate()
                .fold(0u32, |word, (bit, row)| word | u32::from(set(row.number())) << bit);
            out.set(start / 32, word);
        }
    });
    Ok(())
}

struct GatherBits<R>(PhantomData<R>);

impl<R: RowNumber> KernelBody for GatherBits<R> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (len, count) = (call.value::<u64>(3)?, length(call.value(4)?)?);
        let bits = call.input::<u32>(0, length(call.value(5)?)?)?;
        write_bits::<R, M>(call, (1, 2), count, |row| {
            row < len && bits.get((row / 32) as usize) >> (row % 32) & 1 != 0
        })
    }
}

struct RowsValid<R>(PhantomData<R>);

impl<R: RowNumber> KernelBody for RowsValid<R> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (len, count) = (call.value::<u64>(2)?, length(call.value(3)?)?);
        write_bits::<R, M>(call, (0, 1), count, |row| row < len)
    }
}

struct Iota<R>(PhantomData<R>);

impl<R: RowNumber> KernelBody for Iota<R> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (first, count) = (call.value::<R>(1)?, length(call.value(2)?)?);
        let out = call.output::<R>(0, count)?;
        call.in_parts(count, call.threads_for(count), PIECE, |_, range| {
            let mut piece = Vec::with_capacity(PIECE);
            for start in range.clone().step_by(PIECE) {
                let end = range.end.min(start + PIECE);
                piece.clear();
                piece.extend((start..end).map(|i| R::counting(first, i as u64)));
                out.write_from(start, &piece);
            }
        });
        Ok(())
    }
}

struct Fill<T>(PhantomData<T>);

impl<T: DeviceElement> KernelBody for Fill<T> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (value, count) = (call.value::<T>(1)?, length(call.value(2)?)?);
        call.output::<T>(0, count)?.fill(value);
        Ok(())
    }
}
