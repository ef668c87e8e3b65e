//! The sort's kernels on the host device.

use std::{marker::PhantomData, ops::Range};

use xlog_cuda::launch::DeviceElement;
use xlog_driver::host::{Input, KernelBody, KernelCall, KernelFault, MemoryPolicy, Output};

use super::whole::Whole;
use crate::primitives::{
    host::{PIECE, for_each_piece, length},
    order::{Bits, Order},
};

/// Values of a digit.
pub(super) const DIGITS: usize = 256;

/// What is sorted along with the keys: `()` for nothing.
pub(super) trait Payload: Send + Sync + 'static {
    /// Its type; any, if there is none.
    type Value: DeviceElement + Default + Send + Sync;
    /// What takes its place beside a key in a row: nothing, if there is none.
    type Carried: Copy + Send + Sync;
    /// Whether there is one.
    const PRESENT: bool;

    /// A value beside a key.
    fn carry(value: Self::Value) -> Self::Carried;
    /// The value that was beside a key; any, if there is none.
    fn carried(carried: Self::Carried) -> Self::Value;
}

impl Payload for () {
    type Value = u32;
    type Carried = ();
    const PRESENT: bool = false;

    #[inline(always)]
    fn carry(_: u32) {}
    #[inline(always)]
    fn carried((): ()) -> u32 {
        0
    }
}

macro_rules! payloads {
    ($($value:ty),*) => {$(
        impl Payload for $value {
            type Value = $value;
            type Carried = $value;
            const PRESENT: bool = true;

            #[inline(always)]
            fn carry(value: $value) -> $value {
                value
            }
            #[inline(always)]
            fn carried(carried: $value) -> $value {
                carried
            }
        }
    )*};
}

payloads!(u32, u64);

/// The values read and written beside the keys.
type Values<'d, 'c, V, M> = Option<(&'d Input<'c, V, M>, &'d Output<'c, V, M>)>;

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

/// One digit of a sort; or all of them, if there are more bits than one digit has.
pub(super) struct Sweep<B, P, const ORDERED: bool>(PhantomData<(B, P)>);

impl<B: Bits, P: Payload, const ORDERED: bool> KernelBody for Sweep<B, P, ORDERED> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        // Behind the keys come the values, if there are any, and then the numbers.
        let at = if P::PRESENT { 8 } else { 6 };
        let (count, rows) = (length(call.value(at)?)?, length(call.value(at + 1)?)?);
        let (shift, bits) = (call.value::<u32>(at + 2)?, call.value::<u32>(at + 3)?);
        let order = |at: usize| -> Result<Order<B>, KernelFault> {
            Ok(if ORDERED {
                Order { magnitude: call.value(at)?, flip: call.value(at + 1)? }
            } else {
                Order::default()
            })
        };
        let (first, last) = (order(at + 4)?, order(at + 6)?);
        if bits > 8 {
            Whole::<B, P, M>::of(call, count, shift..shift + bits, first)?.run(call);
            return Ok(());
        }
        let values = if P::PRESENT {
            Some((call.input::<P::Value>(6, count)?, call.output::<P::Value>(7, rows)?))
        } else {
            None
        };
        let sweep = Digit {
            keys_in: &call.input::<B>(4, count)?,
            keys_out: &call.output::<B>(5, rows)?,
            values: values.as_ref().map(|(from, to)| (from, to)),
            shift,
            bits,
            first,
            last,
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
        call.in_parts(count, parts, 1, |part, range| sweep.scatter(range, &places[part]));
        Ok(())
    }
}

/// What a sweep moves, and by which digit.
pub(super) struct Digit<'d, 'c, B, V, M> {
    pub(super) keys_in: &'d Input<'c, B, M>,
    pub(super) keys_out: &'d Output<'c, B, M>,
    pub(super) values: Values<'d, 'c, V, M>,
    pub(super) shift: u32,
    pub(super) bits: u32,
    pub(super) first: Order<B>,
    pub(super) last: Order<B>,
}

impl<B: Bits, V: DeviceElement + Default + Send, M: MemoryPolicy> Digit<'_, '_, B, V, M> {
    /// How many keys of `range` have each digit.
    pub(super) fn count(&self, range: Range<usize>) -> Vec<u32> {
        let mut counts = [0u32; DIGITS];
        for_each_piece(self.keys_in, range, |piece| {
            for key in piece {
                counts[self.first.apply(*key).digit(self.shift, self.bits) % DIGITS] += 1;
            }
        });
        counts.to_vec()
    }

    /// Moves the keys of `range`, each to the next place of its digit. Straight there: 256 places
    /// that are written in turn fit a cache by themselves, and no branch has to be guessed.
    pub(super) fn scatter(&self, range: Range<usize>, places: &[u32]) {
        let mut next = [0u32; DIGITS];
        next.copy_from_slice(places);
        let mut place_of = |key: B| -> usize {
            let next = &mut next[key.digit(self.shift, self.bits) % DIGITS];
            *next += 1;
            *next as usize - 1
        };
        let Some((values_in, values_out)) = self.values else {
            return for_each_piece(self.keys_in, range, |piece| {
                for key in piece {
                    let key = self.first.apply(*key);
                    self.keys_out.set(place_of(key), self.last.undo(key));
                }
            });
        };
        let mut values = vec![V::default(); PIECE];
        let mut start = range.start;
        for_each_piece(self.keys_in, range, |piece| {
            values_in.read_into(start, &mut values[..piece.len()]);
            start += piece.len();
            for (key, value) in piece.iter().zip(&values) {
                let key = self.first.apply(*key);
                let place = place_of(key);
                self.keys_out.set(place, self.last.undo(key));
                values_out.set(place, *value);
            }
        });
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
