//! Compaction on the host device.

use std::{marker::PhantomData, ops::Range};

use bytemuck::Pod;
use xlog_driver::host::{
    BitRange, KernelBody, KernelCall, KernelFault, Markable, MemoryPolicy, Output, compress, mark,
};

use crate::primitives::{
    host::{PIECE, length},
    order::Bits,
};

/// Writes the values of the rows whose flag is 1, in their order, and how many there are.
///
/// `flags` and `values` fill in those of a range of rows, a byte for each flag.
pub(in crate::primitives) fn compact<M: MemoryPolicy, V: Pod + Send + Sync>(
    call: &KernelCall<'_, M>,
    rows: usize,
    selected: &Output<'_, V, M>,
    count: &Output<'_, u64, M>,
    flags: impl Fn(Range<usize>, &mut [u8]) + Sync,
    values: impl Fn(Range<usize>, &mut [V]) + Sync,
) {
    let bits = |range: Range<usize>, words: &mut [u32]| {
        let mut bytes = [0u8; PIECE];
        flags(range.clone(), &mut bytes[..range.len()]);
        words
            .iter_mut()
            .zip(bytes.chunks_exact(32))
            .for_each(|(word, flags)| *word = pack_flags(flags));
    };
    compact_bits(call, rows, selected, count, bits, values);
}

/// 32 flags, one to a byte, as the bits of a word.
#[inline(always)]
pub(crate) fn pack_flags(flags: &[u8]) -> u32 {
    let eight = |flags: &[u8]| {
        let bytes = flags.iter().rev().fold(0u64, |bytes, flag| bytes << 8 | u64::from(*flag));
        // Moves the lowest bit of byte `i` to bit `56 + i`; no two meet.
        (bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    };
    let bytes = flags.chunks_exact(8).enumerate();
    bytes.fold(0, |word, (byte, flags)| word | eight(flags) << (8 * byte))
}

/// As [`compact`], with flags as bits. They are asked for once, and kept: how many there are in a
/// part must be known before the next part can write.
fn compact_bits<M: MemoryPolicy, V: Pod + Send + Sync>(
    call: &KernelCall<'_, M>,
    rows: usize,
    selected: &Output<'_, V, M>,
    count: &Output<'_, u64, M>,
    bits: impl Fn(Range<usize>, &mut [u32]) + Sync,
    values: impl Fn(Range<usize>, &mut [V]) + Sync,
) {
    let parts = call.threads_for(rows);
    let marked = call.in_parts(rows, parts, PIECE, |_, range| {
        let mut words = vec![0u32; range.len().div_ceil(32)];
        for (piece, words) in pieces(range.clone()).zip(words.chunks_mut(PIECE / 32)) {
            bits(piece, words);
        }
        if let (Some(last), 1..) = (words.last_mut(), range.len() % 32) {
            *last &= !(u32::MAX << (range.len() % 32));
        }
        let count: usize = words.iter().map(|word| word.count_ones() as usize).sum();
        (words, count)
    });
    let mut starts = Vec::with_capacity(parts);
    let mut total = 0;
    for (_, count) in &marked {
        starts.push(total);
        total += count;
    }
    call.in_parts(rows, parts, PIECE, |part, range| {
        let mut piece_values = vec![V::zeroed(); PIECE];
        // Room for a whole word behind the last place.
        let mut kept = vec![V::zeroed(); PIECE + 32];
        let mut place = starts[part];
        for (piece, words) in pieces(range).zip(marked[part].0.chunks(PIECE / 32)) {
            if words.iter().all(|word| *word == 0) {
                continue;
            }
            values(piece.clone(), &mut piece_values[..piece.len()]);
            let held = compress(words, &piece_values, &mut kept);
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

impl<B: Bits + Markable, const ROWS: bool> KernelBody for InRange<B, ROWS> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let rows = length(call.value(4)?)?;
        let range = BitRange::<B> {
            magnitude: call.value(6)?,
            flip: call.value(7)?,
            least: call.value(8)?,
            span: call.value(9)?,
            outside: call.value::<u32>(10)? != 0,
        };
        let input = call.input::<B>(0, rows)?;
        let count = call.output::<u64>(2, 1)?;
        let bits = |piece: Range<usize>, words: &mut [u32]| {
            let mut values = [B::default(); PIECE];
            let values = &mut values[..piece.len()];
            input.read_into(piece.start, values);
            mark(values, &range, words);
        };
        if ROWS {
            compact_bits(call, rows, &call.output::<u32>(1, rows)?, &count, bits, row_numbers);
        } else {
            let selected = call.output::<B>(1, rows)?;
            compact_bits(call, rows, &selected, &count, bits, |piece, values| {
                input.read_into(piece.start, values);
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
        let bits = |range: Range<usize>, words: &mut [u32]| mask.read_into(range.start / 32, words);
        compact_bits(call, rows, &selected, &count, bits, |range, values| {
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
        let bits = |range: Range<usize>, words: &mut [u32]| mask.read_into(range.start / 32, words);
        compact_bits(call, rows, &selected, &count, bits, row_numbers);
        Ok(())
    }
}
