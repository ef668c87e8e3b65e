//! The sort's kernels on the host device.

use std::{marker::PhantomData, ops::Range};

use xlog_cuda::launch::DeviceElement;
use xlog_driver::host::{Input, KernelBody, KernelCall, KernelFault, MemoryPolicy, Output};

use crate::primitives::{
    host::{PIECE, for_each_piece, length},
    order::{Bits, Order},
};

/// Values of a digit.
pub(super) const DIGITS: usize = 256;

/// Values gathered for a digit before they are written: a few cache lines at a time cost a fraction
/// of what single values cost that go to 256 places in turn.
const GATHERED: usize = 32;

/// What is sorted along with the keys: `()` for nothing.
pub(super) trait Payload: Send + Sync + 'static {
    /// Its type; any, if there is none.
    type Value: DeviceElement + Default + Send + Sync;
    /// Whether there is one.
    const PRESENT: bool;
}

impl Payload for () {
    type Value = u32;
    const PRESENT: bool = false;
}

impl Payload for u32 {
    type Value = u32;
    const PRESENT: bool = true;
}

impl Payload for u64 {
    type Value = u64;
    const PRESENT: bool = true;
}

/// The values read and written beside the keys.
type Values<'c, V, M> = Option<(Input<'c, V, M>, Output<'c, V, M>)>;

/// `bins[sweep][digit]` += how many keys have that digit.
pub(super) struct Histogram<B>(PhantomData<B>);

impl<B: Bits> KernelBody for Histogram<B> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let count = length(call.value(2)?)?;
        let (begin, end) = (call.value::<u32>(3)?, call.value::<u32>(4)?);
        let order = Order { magnitude: call.value::<B>(5)?, flip: call.value::<B>(6)? };
        let keys = call.input::<B>(0, count)?;
        let sweeps = (end - begin).div_ceil(8) as usize;
        let (before, after) =
            (call.input::<u32>(1, sweeps * DIGITS)?, call.output::<u32>(1, sweeps * DIGITS)?);
        let mut bins = vec![0u32; sweeps * DIGITS];
        before.read_into(0, &mut bins);
        let counts = call.in_parts(count, call.threads_for(count), 1, |_, range| {
            let mut counts = vec![0u32; sweeps * DIGITS];
            for_each_piece(&keys, range, |piece| {
                // Digit by digit: the counts of one stay in the fastest cache.
                for (sweep, counts) in counts.chunks_exact_mut(DIGITS).enumerate() {
                    let first = begin + 8 * sweep as u32;
                    let bits = (end - first).min(8);
                    for key in piece {
                        counts[order.apply(*key).digit(first, bits)] += 1;
                    }
                }
            });
            counts
        });
        for counts in counts {
            bins.iter_mut().zip(counts).for_each(|(bin, count)| *bin += count);
        }
        after.write_from(0, &bins);
        Ok(())
    }
}

/// Counts of digits become places to start at, sweep by sweep.
pub(super) struct Starts;

impl KernelBody for Starts {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let count = length(call.value(1)?)?;
        let mut bins = vec![0u32; count];
        call.input::<u32>(0, count)?.read_into(0, &mut bins);
        for sweep in bins.chunks_mut(DIGITS) {
            let mut sum = 0;
            for bin in sweep {
                sum += std::mem::replace(bin, sum);
            }
        }
        call.output::<u32>(0, count)?.write_from(0, &bins);
        Ok(())
    }
}

/// One digit of a sort.
pub(super) struct Sweep<B, P, const ORDERED: bool>(PhantomData<(B, P)>);

impl<B: Bits, P: Payload, const ORDERED: bool> KernelBody for Sweep<B, P, ORDERED> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        // Behind the keys come the values, if there are any, and then the numbers.
        let at = if P::PRESENT { 8 } else { 6 };
        let (count, rows) = (length(call.value(at)?)?, length(call.value(at + 1)?)?);
        let (shift, bits) = (call.value(at + 2)?, call.value(at + 3)?);
        let order = |at: usize| -> Result<Order<B>, KernelFault> {
            Ok(if ORDERED {
                Order { magnitude: call.value(at)?, flip: call.value(at + 1)? }
            } else {
                Order::default()
            })
        };
        let values = if P::PRESENT {
            Some((call.input::<P::Value>(6, count)?, call.output::<P::Value>(7, rows)?))
        } else {
            None
        };
        let sweep = Digit {
            keys_in: call.input::<B>(4, count)?,
            keys_out: call.output::<B>(5, rows)?,
            values,
            shift,
            bits,
            first: order(at + 4)?,
            last: order(at + 6)?,
        };
        let mut starts = vec![0u32; DIGITS];
        call.input::<u32>(2, DIGITS)?.read_into(0, &mut starts);

        let parts = call.threads_for(count);
        let counts = call.in_parts(count, parts, 1, |_, range| sweep.count(range));
        // Each part starts behind the parts before it.
        let mut places = Vec::with_capacity(parts);
        for counts in counts {
            places.push(starts.clone());
            starts.iter_mut().zip(counts).for_each(|(start, count)| *start += count);
        }
        call.output::<u32>(3, DIGITS)?.write_from(0, &starts);
        call.in_parts(count, parts, 1, |part, range| sweep.scatter(range, places[part].clone()));
        Ok(())
    }
}

/// What a sweep moves, and by which digit.
struct Digit<'c, B, V, M> {
    keys_in: Input<'c, B, M>,
    keys_out: Output<'c, B, M>,
    values: Values<'c, V, M>,
    shift: u32,
    bits: u32,
    first: Order<B>,
    last: Order<B>,
}

impl<B: Bits, V: DeviceElement + Default + Send, M: MemoryPolicy> Digit<'_, B, V, M> {
    /// How many keys of `range` have each digit.
    fn count(&self, range: Range<usize>) -> Vec<u32> {
        let mut counts = vec![0u32; DIGITS];
        for_each_piece(&self.keys_in, range, |piece| {
            for key in piece {
                counts[self.first.apply(*key).digit(self.shift, self.bits)] += 1;
            }
        });
        counts
    }

    /// Moves the keys of `range`, each to the next place of its digit.
    #[allow(clippy::useless_vec)] // too large for a stack
    fn scatter(&self, range: Range<usize>, mut places: Vec<u32>) {
        let mut keys = vec![[B::default(); GATHERED]; DIGITS];
        let mut values = vec![[V::default(); GATHERED]; DIGITS];
        let mut held = [0u8; DIGITS];
        let mut piece_values = vec![V::default(); PIECE];
        let mut at = range.start;
        for_each_piece(&self.keys_in, range, |piece| {
            if let Some((values_in, _)) = &self.values {
                values_in.read_into(at, &mut piece_values[..piece.len()]);
            }
            at += piece.len();
            for (key, value) in piece.iter().zip(&piece_values) {
                let key = self.first.apply(*key);
                let digit = key.digit(self.shift, self.bits);
                let slot = usize::from(held[digit]);
                keys[digit][slot] = self.last.undo(key);
                if self.values.is_some() {
                    values[digit][slot] = *value;
                }
                held[digit] += 1;
                if slot + 1 == GATHERED {
                    let place = places[digit] as usize;
                    self.keys_out.write_from(place, &keys[digit]);
                    if let Some((_, values_out)) = &self.values {
                        values_out.write_from(place, &values[digit]);
                    }
                    places[digit] += GATHERED as u32;
                    held[digit] = 0;
                }
            }
        });
        for (digit, held) in held.into_iter().enumerate() {
            let (place, held) = (places[digit] as usize, usize::from(held));
            self.keys_out.write_from(place, &keys[digit][..held]);
            if let Some((_, values_out)) = &self.values {
                values_out.write_from(place, &values[digit][..held]);
            }
        }
    }
}

/// A whole sort of a few keys.
pub(super) struct Tile<B, P>(PhantomData<(B, P)>);

impl<B: Bits, P: Payload> KernelBody for Tile<B, P> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let at = if P::PRESENT { 4 } else { 2 };
        let count = length(call.value(at)?)?;
        let (begin, end) = (call.value::<u32>(at + 1)?, call.value::<u32>(at + 2)?);
        let order = Order { magnitude: call.value::<B>(at + 3)?, flip: call.value(at + 4)? };
        let mut keys = vec![B::default(); count];
        call.input::<B>(0, count)?.read_into(0, &mut keys);
        let mut rows: Vec<usize> = (0..count).collect();
        rows.sort_by_key(|&row| order.apply(keys[row]).between(begin, end));
        let sorted: Vec<_> = rows.iter().map(|&row| keys[row]).collect();
        call.output::<B>(1, count)?.write_from(0, &sorted);
        if P::PRESENT {
            let mut values = vec![P::Value::default(); count];
            call.input::<P::Value>(2, count)?.read_into(0, &mut values);
            let sorted: Vec<_> = rows.iter().map(|&row| values[row]).collect();
            call.output::<P::Value>(3, count)?.write_from(0, &sorted);
        }
        Ok(())
    }
}
