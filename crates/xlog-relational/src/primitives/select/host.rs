//! Compaction on the host device.

use std::{
    marker::PhantomData,
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use bytemuck::Pod;
use xlog_driver::host::{KernelBody, KernelCall, KernelFault, MemoryPolicy, Output};

use super::condition::Condition;
use crate::primitives::{
    host::{PIECE, length},
    order::{Bits, Order, Ordered},
};

/// Rows that a thread compacts before it writes them: what is selected of them stays in a cache.
const CHUNK: usize = 1 << 16;

/// The end of a chunk that is not known yet.
const UNKNOWN: u64 = u64::MAX;

/// Writes the values of the rows whose flag is 1, in their order, and how many there are.
///
/// `load` fills in the flags and the values of a range of rows. Threads take one chunk after the
/// other and hand on where its values end, so that each row is read once.
pub(in crate::primitives) fn compact<M: MemoryPolicy, V: Pod + Send + Sync>(
    call: &KernelCall<'_, M>,
    rows: usize,
    selected: &Output<'_, V, M>,
    count: &Output<'_, u64, M>,
    load: impl Fn(Range<usize>, &mut [u8], &mut [V]) + Sync,
) {
    let ends: Vec<_> = (0..rows.div_ceil(CHUNK)).map(|_| AtomicU64::new(UNKNOWN)).collect();
    let (next, broken) = (AtomicUsize::new(0), AtomicBool::new(false));
    let parts = call.threads_for(rows);
    call.in_parts(parts, parts, 1, |_, _| {
        let _guard = BreakOnPanic(&broken);
        let mut piece_flags = [0u8; PIECE];
        let mut piece_values = [V::zeroed(); PIECE];
        let mut kept = [V::zeroed(); PIECE];
        let mut chunk_kept = Vec::with_capacity(CHUNK.min(rows));
        // Chunks are taken in order, so that somebody is at work on every one before this.
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= ends.len() {
                return;
            }
            chunk_kept.clear();
            for piece in pieces(chunk * CHUNK..rows.min((chunk + 1) * CHUNK)) {
                let len = piece.len();
                load(piece, &mut piece_flags[..len], &mut piece_values[..len]);
                // Written every time and kept now and then: a branch would be guessed wrong.
                let mut held = 0;
                for (value, flag) in piece_values[..len].iter().zip(&piece_flags[..len]) {
                    kept[held % PIECE] = *value;
                    held += usize::from(*flag);
                }
                chunk_kept.extend_from_slice(&kept[..held]);
            }
            let start = if chunk == 0 { 0 } else { wait_for(&ends[chunk - 1], &broken) };
            ends[chunk].store(start + chunk_kept.len() as u64, Ordering::Release);
            selected.write_from(start as usize, &chunk_kept);
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
        let flag = |flags: &mut [u8], values: &[B]| {
            for (flag, value) in flags.iter_mut().zip(values) {
                *flag = u8::from(condition.holds_ordered(order.apply(*value)));
            }
        };
        if ROWS {
            let selected = call.output::<u32>(1, rows)?;
            compact(call, rows, &selected, &count, |range, flags, numbers| {
                let mut values = [B::default(); PIECE];
                let values = &mut values[..flags.len()];
                input.read_into(range.start, values);
                flag(flags, values);
                row_numbers(range, numbers);
            });
        } else {
            let selected = call.output::<B>(1, rows)?;
            compact(call, rows, &selected, &count, |range, flags, values| {
                input.read_into(range.start, values);
                flag(flags, values);
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
        compact(call, rows, &selected, &count, |range, flags, values| {
            input.read_into(range.start, values);
            unpack(range, flags, |at, words| mask.read_into(at, words));
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
        compact(call, rows, &selected, &count, |range, flags, numbers| {
            row_numbers(range.clone(), numbers);
            unpack(range, flags, |at, words| mask.read_into(at, words));
        });
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
