//! Compaction on the host device.

use std::{
    marker::PhantomData,
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use bytemuck::Pod;
use xlog_driver::host::{
    BitRange, KernelBody, KernelCall, KernelFault, Markable, MemoryPolicy, Output, compress, mark,
};

use crate::primitives::{
    host::{PIECE, length},
    order::Bits,
};

/// Rows that a thread compacts before it writes them: what is selected of them stays in a cache.
const CHUNK: usize = 1 << 16;

/// The end of a chunk that is not known yet.
const UNKNOWN: u64 = u64::MAX;

/// Writes the values of the rows whose flag is 1, in their order, and how many there are.
///
/// `load` fills in the flags, a byte for each, and the values of a range of rows.
pub(in crate::primitives) fn compact<M: MemoryPolicy, V: Pod + Send + Sync>(
    call: &KernelCall<'_, M>,
    rows: usize,
    selected: &Output<'_, V, M>,
    count: &Output<'_, u64, M>,
    load: impl Fn(Range<usize>, &mut [u8], &mut [V]) + Sync,
) {
    compact_bits(call, rows, selected, count, |range, words, values| {
        let mut flags = [0u8; PIECE];
        load(range.clone(), &mut flags[..range.len()], values);
        words.iter_mut().zip(flags.chunks_exact(32)).for_each(|(word, flags)| *word = pack(flags));
    });
}

/// 32 flags, one to a byte, as the bits of a word.
#[inline(always)]
fn pack(flags: &[u8]) -> u32 {
    let eight = |flags: &[u8]| {
        let bytes = flags.iter().rev().fold(0u64, |bytes, flag| bytes << 8 | u64::from(*flag));
        // Moves the lowest bit of byte `i` to bit `56 + i`; no two meet.
        (bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    };
    let bytes = flags.chunks_exact(8).enumerate();
    bytes.fold(0, |word, (byte, flags)| word | eight(flags) << (8 * byte))
}

/// As [`compact`], with flags as bits: row `i` of the range is bit `i % 32` of word `i / 32`.
/// Threads take one chunk after the other and hand on where its values end, so that each row is
/// read once.
fn compact_bits<M: MemoryPolicy, V: Pod + Send + Sync>(
    call: &KernelCall<'_, M>,
    rows: usize,
    selected: &Output<'_, V, M>,
    count: &Output<'_, u64, M>,
    load: impl Fn(Range<usize>, &mut [u32], &mut [V]) + Sync,
) {
    let ends: Vec<_> = (0..rows.div_ceil(CHUNK)).map(|_| AtomicU64::new(UNKNOWN)).collect();
    let (next, broken) = (AtomicUsize::new(0), AtomicBool::new(false));
    let parts = call.threads_for(rows);
    call.in_parts(parts, parts, 1, |_, _| {
        let _guard = BreakOnPanic(&broken);
        let mut words = [0u32; PIECE / 32];
        let mut values = [V::zeroed(); PIECE];
        // Room for one word more than can be kept, which compressing spoils.
        let mut kept = vec![V::zeroed(); CHUNK.min(rows.next_multiple_of(32)) + 32];
        // Chunks are taken in order, so that somebody is at work on every one before this.
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= ends.len() {
                return;
            }
            let mut held = 0;
            for piece in pieces(chunk * CHUNK..rows.min((chunk + 1) * CHUNK)) {
                let len = piece.len();
                let words = &mut words[..len.div_ceil(32)];
                load(piece, words, &mut values[..len]);
                if let (Some(last), 1..) = (words.last_mut(), len % 32) {
                    *last &= !(u32::MAX << (len % 32));
                }
                held += compress(words, &values, &mut kept[held..]);
            }
            let start = if chunk == 0 { 0 } else { wait_for(&ends[chunk - 1], &broken) };
            ends[chunk].store(start + held as u64, Ordering::Release);
            selected.write_from(start as usize, &kept[..held]);
        }
    });
    count.set(0, ends.last().map_or(0, |end| end.load(Ordering::Acquire)));
}

/// Where the chunk before ends. Its thread is at work on it: this is short, unless the thread waits
/// for a processor.
fn wait_for(end: &AtomicU64, broken: &AtomicBool) -> u64 {
    let mut rounds = 0u32;
    loop {
        let known = end.load(Ordering::Acquire);
        if known != UNKNOWN {
            return known;
        }
        assert!(!broken.load(Ordering::Relaxed), "another part of this kernel panicked");
        rounds += 1;
        if rounds < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

/// Says so when a thread panics: others would wait for it forever.
struct BreakOnPanic<'b>(&'b AtomicBool);

impl Drop for BreakOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
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
        let within = BitRange::<B> {
            magnitude: call.value(6)?,
            flip: call.value(7)?,
            least: call.value(8)?,
            span: call.value(9)?,
            outside: call.value::<u32>(10)? != 0,
        };
        let input = call.input::<B>(0, rows)?;
        let count = call.output::<u64>(2, 1)?;
        if ROWS {
            let selected = call.output::<u32>(1, rows)?;
            compact_bits(call, rows, &selected, &count, |range, words, numbers| {
                let mut values = [B::default(); PIECE];
                let values = &mut values[..range.len()];
                input.read_into(range.start, values);
                mark(values, &within, words);
                row_numbers(range, numbers);
            });
        } else {
            let selected = call.output::<B>(1, rows)?;
            compact_bits(call, rows, &selected, &count, |range, words, values| {
                input.read_into(range.start, values);
                mark(values, &within, words);
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
        compact_bits(call, rows, &selected, &count, |range, words, values| {
            input.read_into(range.start, values);
            mask.read_into(range.start / 32, words);
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
        compact_bits(call, rows, &selected, &count, |range, words, numbers| {
            mask.read_into(range.start / 32, words);
            row_numbers(range, numbers);
        });
        Ok(())
    }
}
