//! Two tables as one, the rows of the first before those of the second: one launch for the values
//! of a column, and one for its validity.

use std::{marker::PhantomData, sync::Arc};

use xlog_core::ScalarType::{U8, U32, U64};
use xlog_cuda::{
    LaunchDims, device_runtime::StreamId, launch::DeviceElement, memory::TrackedCudaSlice,
};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{
    keys::{host_length, map_codes, pieces, validity},
    rows::host_count,
};
use crate::{
    Engine,
    column::{Column, ColumnParts, Dictionary, Values, validity_words},
    error::{RelationalError, RelationalResult},
    table::Table,
};

pub(super) static MODULE: KernelModule =
    KernelModule { name: "sets", ptx: include_str!("../../kernels/sets.ptx") };

/// Refuses tables whose columns, matched by place, differ in number or type.
pub(super) fn refuse_unlike(left: &Table, right: &Table) -> RelationalResult<()> {
    if left.width() != right.width() {
        let (expected, found) = (left.width(), right.width());
        return Err(RelationalError::WidthMismatch { expected, found });
    }
    for ((_, a), (name, b)) in left.columns().zip(right.columns()) {
        if a.data_type() != b.data_type() {
            let column = format!("column {name:?} of the right table");
            return Err(RelationalError::type_mismatch(column, a.data_type(), b.data_type()));
        }
    }
    Ok(())
}

/// The rows of `left`, then those of `right`, under the names of the left one. The tables are
/// alike: see [`refuse_unlike`].
pub(super) fn stacked(left: &Table, right: &Table, stream: StreamId) -> RelationalResult<Table> {
    let columns = left
        .columns()
        .zip(right.columns())
        .map(|((name, a), (_, b))| Ok((name, stacked_column(a, b, stream)?)));
    Table::new(left.engine(), columns.collect::<RelationalResult<Vec<_>>>()?)
}

fn stacked_column(left: &Column, right: &Column, stream: StreamId) -> RelationalResult<Column> {
    let engine = left.engine();
    let (above, below) = (left.len(), right.len());
    let len = host_count((above as u64).saturating_add(below as u64), "rows")?;
    let (dictionary, codes) = match (left.dictionary(), right.dictionary()) {
        (Some(a), Some(b)) => {
            let unified = Dictionary::unify(a, b)?;
            (Some(unified.dictionary), unified.right_codes)
        }
        _ => (None, None),
    };
    let values = match (left.values(), right.values()) {
        (Values::Bytes(a), Values::Bytes(b)) => {
            stack_values(engine, (a, above), (b, below), stream)?.into()
        }
        (Values::Words(a), Values::Words(b)) => match codes {
            Some(codes) => {
                let b = map_codes(engine, b, &codes, below, stream)?;
                stack_values(engine, (a, above), (&b, below), stream)?.into()
            }
            None => stack_values(engine, (a, above), (b, below), stream)?.into(),
        },
        (Values::Longs(a), Values::Longs(b)) => {
            stack_values(engine, (a, above), (b, below), stream)?.into()
        }
        _ => {
            let (expected, found) = (left.data_type(), right.data_type());
            return Err(RelationalError::type_mismatch("the lower column", expected, found));
        }
    };
    let validity = stack_validity(engine, left, right, len, stream)?.map(Arc::new);
    let parts = ColumnParts {
        data_type: left.data_type(),
        len,
        values,
        validity,
        null_count: left.null_count().zip(right.null_count()).map(|(a, b)| a + b),
        dictionary,
    };
    Column::from_parts(engine, parts)
}

/// The first values of `left`, then those of `right`, in memory of their own.
pub(super) fn stack_values<T: Stackable>(
    engine: &Engine,
    (left, above): (&TrackedCudaSlice<T>, usize),
    (right, below): (&TrackedCudaSlice<T>, usize),
    stream: StreamId,
) -> RelationalResult<TrackedCudaSlice<T>> {
    let len = above + below;
    let out = engine.alloc::<T>(len.max(1), stream, "column values")?;
    if len > 0 {
        engine
            .launch(T::KERNEL, stream)?
            .input(left)
            .input(right)
            .output(&out)
            .value(above as u64)
            .value(below as u64)
            .value(len as u64)
            .launch(LaunchDims::for_elements(len.div_ceil(4)))?;
    }
    Ok(out)
}

fn stack_validity(
    engine: &Engine,
    left: &Column,
    right: &Column,
    len: usize,
    stream: StreamId,
) -> RelationalResult<Option<TrackedCudaSlice<u32>>> {
    let (above, below) = (validity(left), validity(right));
    // A side without bits hands in the other one's, which nobody reads for it.
    let Some(stand_in) = above.or(below).filter(|_| len > 0) else {
        return Ok(None);
    };
    let words = validity_words(len);
    let out = engine.alloc::<u32>(words, stream, "column validity")?;
    engine
        .launch(&STACK_BITS, stream)?
        .input(&**above.unwrap_or(stand_in))
        .value(u32::from(above.is_some()))
        .input(&**below.unwrap_or(stand_in))
        .value(u32::from(below.is_some()))
        .output(&out)
        .value(left.len() as u64)
        .value(right.len() as u64)
        .value(words as u64)
        .launch(LaunchDims::for_elements(len))?;
    Ok(Some(out))
}

/// A type of value that can be stacked.
pub(super) trait Stackable: DeviceElement + Send + Sync {
    const KERNEL: &'static KernelDefinition;
}

macro_rules! stackable {
    ($($value:ty, $scalar:expr, $static:ident, $name:literal;)*) => {$(
        static $static: KernelDefinition = KernelDefinition {
            name: $name,
            module: &MODULE,
            parameters: &[
                Parameter::input("left", $scalar).counted_by(3),
                Parameter::input("right", $scalar).counted_by(4),
                Parameter::output("out", $scalar).counted_by(5),
                Parameter::value("left_rows", U64),
                Parameter::value("right_rows", U64),
                Parameter::value("rows", U64),
            ],
            host: HostKernel::of::<Stack<$value>>(),
        };
        impl Stackable for $value {
            const KERNEL: &'static KernelDefinition = &$static;
        }
    )*};
}

stackable! {
    u8, U8, STACK_8, "xlog_stack_8";
    u32, U32, STACK_32, "xlog_stack_32";
    u64, U64, STACK_64, "xlog_stack_64";
}

static STACK_BITS: KernelDefinition = KernelDefinition {
    name: "xlog_stack_bits",
    module: &MODULE,
    parameters: &[
        Parameter::input("left", U32),
        Parameter::value("has_left", U32),
        Parameter::input("right", U32),
        Parameter::value("has_right", U32),
        Parameter::output("out", U32).counted_by(7),
        Parameter::value("left_rows", U64),
        Parameter::value("right_rows", U64),
        Parameter::value("words", U64),
    ],
    host: HostKernel::of::<StackBits>(),
};

/// Values that are copied at a time.
const PIECE: usize = 1024;

struct Stack<T>(PhantomData<T>);

impl<T: DeviceElement + Send + Sync> KernelBody for Stack<T> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (above, below) = (host_length(call.value(3)?)?, host_length(call.value(4)?)?);
        let (left, right) = (call.input::<T>(0, above)?, call.input::<T>(1, below)?);
        let out = call.output::<T>(2, above + below)?;
        for (input, from, rows) in [(&left, 0, above), (&right, above, below)] {
            call.in_parts(rows, call.threads_for(rows), PIECE, |_, range| {
                let mut piece = [T::zeroed(); PIECE];
                for part in pieces(range, PIECE) {
                    input.read_into(part.start, &mut piece[..part.len()]);
                    out.write_from(from + part.start, &piece[..part.len()]);
                }
            });
        }
        Ok(())
    }
}

struct StackBits;

impl KernelBody for StackBits {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (above, below) = (host_length(call.value(5)?)?, host_length(call.value(6)?)?);
        let side = |index: usize, rows: usize| {
            let has = call.value::<u32>(index + 1)? != 0;
            let words = if has { rows.div_ceil(32) } else { 0 };
            let bits = call.input::<u32>(index, words)?;
            // Up to 32 bits from row `start` on.
            Ok::<_, KernelFault>(move |start: usize, count: usize| -> u64 {
                if !has {
                    return (1 << count) - 1;
                }
                let low = u64::from(bits.get(start / 32)) >> (start % 32);
                let more = start % 32 + count > 32;
                let high = if more { u64::from(bits.get(start / 32 + 1)) } else { 0 };
                (low | high << (32 - start % 32)) & ((1 << count) - 1)
            })
        };
        let (left, right) = (side(0, above)?, side(2, below)?);
        let words = host_length(call.value(7)?)?;
        let out = call.output::<u32>(4, words)?;
        call.in_parts(words, call.threads_for(words), 1, |_, range| {
            for word in range {
                let (start, end) = (word * 32, (word * 32 + 32).min(above + below));
                let upper = above.clamp(start, end) - start;
                let mut bits = if upper > 0 { left(start, upper) } else { 0 };
                if start + upper < end {
                    bits |= right(start + upper - above, end - start - upper) << upper;
                }
                out.set(word, bits as u32);
            }
        });
        Ok(())
    }
}
