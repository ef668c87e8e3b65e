//! Compaction on the host device.

use std::{marker::PhantomData, ops::Range};

use bytemuck::Pod;
use xlog_driver::host::{KernelBody, KernelCall, KernelFault, MemoryPolicy, Output};

use super::condition::Condition;
use crate::primitives::{
    host::{PIECE, length},
    order::{Bits, Order, Ordered},
};

/// Writes the values of the rows whose flag is 1, in their order, and how many there are.
///
/// `flags` and `values` fill in those of a range of rows. Flags are asked for twice: how many there
/// are in a part must be known before the next part can write.
pub(in crate::primitives) fn compact<M: MemoryPolicy, V: Pod + Send + Sync>(
    call: &KernelCall<'_, M>,
    rows: usize,
    selected: &Output<'_, V, M>,
    count: &Output<'_, u64, M>,
    flags: impl Fn(Range<usize>, &mut [u8]) + Sync,
    values: impl Fn(Range<usize>, &mut [V]) + Sync,
) {
    let parts = call.threads_for(rows);
    let counts = call.in_parts(rows, parts, PIECE, |_, range| {
        let mut piece_flags = vec![0u8; PIECE];
        pieces(range).fold(0usize, |count, piece| {
            let piece_flags = &mut piece_flags[..piece.len()];
            flags(piece, piece_flags);
            count + piece_flags.iter().map(|&flag| usize::from(flag)).sum::<usize>()
        })
    });
    let mut starts = Vec::with_capacity(parts);
    let mut total = 0;
    for count in counts {
        starts.push(total);
        total += count;
    }
    call.in_parts(rows, parts, PIECE, |part, range| {
        let mut piece_flags = vec![0u8; PIECE];
        let mut piece_values = vec![V::zeroed(); PIECE];
        let mut kept = vec![V::zeroed(); PIECE];
        let mut place = starts[part];
        for piece in pieces(range) {
            let len = piece.len();
            flags(piece.clone(), &mut piece_flags[..len]);
            values(piece, &mut piece_values[..len]);
            // Written every time and kept now and then: a branch would be guessed wrong.
            let mut held = 0;
            for (value, flag) in piece_values[..len].iter().zip(&piece_flags) {
                kept[held] = *value;
                held += usize::from(*flag);
            }
            selected.write_from(place, &kept[..held]);
            place += held;
        }
    });
    count.set(0, total as u64);
}

fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(PIECE).map(move |start| start..end.min(start + PIECE))
}

/// The rows' own numbers.
pub(in crate::primitives) fn row_numbers(range: Range<usize>, rows: &mut [u32]) {
    // Rows are below 2^32, as the launching side checked.
    rows.iter_mut().zip(range).for_each(|(number, row)| *number = row as u32);
}

/// Values, or row numbers, by a condition on the values.
pub(super) struct InRange<B, const ROWS: bool>(PhantomData<B>);

impl<B: Bits + Ordered<Bits = B>, const ROWS: bool> KernelBody for InRange<B, ROWS> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let rows = length(call.value(4)?)?;
        let order = Order { magnitude: call.value::<B>(6)?, flip: call.value::<B>(7)? };
        let condition = Condition::<B> {
            least: call.value(8)?,
            span: call.value(9)?,
            outside: call.value::<u32>(10)? != 0,
        };
        let input = call.input::<B>(0, rows)?;
        let count = call.output::<u64>(2, 1)?;
        let flags = |range: Range<usize>, flags: &mut [u8]| {
            let mut values = [B::default(); PIECE];
            let values = &mut values[..flags.len()];
            input.read_into(range.start, values);
            for (flag, value) in flags.iter_mut().zip(values) {
                *flag = u8::from(condition.holds_ordered(order.apply(*value)));
            }
        };
        if ROWS {
            compact(call, rows, &call.output::<u32>(1, rows)?, &count, flags, row_numbers);
        } else {
            let selected = call.output::<B>(1, rows)?;
            compact(call, rows, &selected, &count, flags, |range, values| {
                input.read_into(range.start, values);
            });
        }
        Ok(())
    }
}

/// Values by a mask.
pub(super) struct Masked<B>(PhantomData<B>);

impl<B: Bits> KernelBody for Masked<B> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (rows, words) = (length(call.value(5)?)?, length(call.value(6)?)?);
        let (input, mask) = (call.input::<B>(0, rows)?, call.input::<u32>(1, words)?);
        let (selected, count) = (call.output::<B>(2, rows)?, call.output::<u64>(3, 1)?);
        let flags = |range, flags: &mut [u8]| unpack(range, flags, |at, w| mask.read_into(at, w));
        compact(call, rows, &selected, &count, flags, |range, values| {
            input.read_into(range.start, values);
        });
        Ok(())
    }
}

/// Row numbers by a mask.
pub(super) struct MaskedRows;

impl KernelBody for MaskedRows {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (rows, words) = (length(call.value(4)?)?, length(call.value(5)?)?);
        let mask = call.input::<u32>(0, words)?;
        let (selected, count) = (call.output::<u32>(1, rows)?, call.output::<u64>(2, 1)?);
        let flags = |range, flags: &mut [u8]| unpack(range, flags, |at, w| mask.read_into(at, w));
        compact(call, rows, &selected, &count, flags, row_numbers);
        Ok(())
    }
}

/// The bits of a range of rows that starts at a whole word, one to a byte.
fn unpack(range: Range<usize>, flags: &mut [u8], read: impl Fn(usize, &mut [u32])) {
    let mut words = [0u32; PIECE / 32];
    let words = &mut words[..range.len().div_ceil(32)];
    read(range.start / 32, words);
    for (flags, word) in flags.chunks_mut(32).zip(words) {
        for (bit, flag) in flags.iter_mut().enumerate() {
            *flag = (*word >> bit & 1) as u8;
        }
    }
}
