//! A sort by several digits in one launch, as the host device does it.
//!
//! Memory is slow and a core's cache is fast: the highest digit takes all rows apart, through
//! memory, into buckets; one that fits a cache is sorted there by the digits that are left, lowest
//! first, and one that does not is taken apart again. Buckets are independent, so that all threads
//! have work. Digits that are the same in every key are left out. Every step is stable.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use xlog_driver::host::{Input, KernelCall, KernelFault, MemoryPolicy, ReadWrite};

use super::host::{DIGITS, Digit, Payload};
use crate::primitives::{
    host::{PIECE, for_each_piece},
    order::{Bits, Order},
};

/// Bytes of rows that are sorted in a core's cache, which holds them twice.
const CACHED: usize = 384 << 10;
/// Buckets are taken together up to this many rows: each costs its counts, however small it is.
const TOGETHER: usize = 8192;

/// Words of four bytes in which rows lie between two digits: the keys, then the values.
pub(super) fn room_words(len: usize, key: usize, value: usize) -> usize {
    values_at(len, key) + len * value / 4
}

/// The word at which the values begin; keys and values of eight bytes are aligned.
fn values_at(len: usize, key: usize) -> usize {
    (len * key / 4).next_multiple_of(2)
}

/// Where rows lie: as they were given; and, their bits ordered, where the result goes or in room
/// of the sort's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Given,
    Result,
    Room,
}

/// One digit: its first bit and how many it has.
type Bounds = (u32, u32);

/// Rows that are sorted by the first few digits, and by no more.
#[derive(Clone, Debug)]
struct Bucket {
    rows: Range<usize>,
    digits_done: usize,
    place: Place,
}

/// A row in a cache.
#[derive(Clone, Copy)]
struct Row<B, C> {
    key: B,
    carried: C,
}

/// Keys, and the values beside them if there are any.
struct Columns<K, V> {
    keys: K,
    values: Option<V>,
}

/// A whole sort: where its rows are, and by what it goes.
pub(super) struct Whole<'c, B, P: Payload, M> {
    given: Columns<Input<'c, B, M>, Input<'c, P::Value, M>>,
    result: Columns<ReadWrite<'c, B, M>, ReadWrite<'c, P::Value, M>>,
    room: Columns<ReadWrite<'c, B, M>, ReadWrite<'c, P::Value, M>>,
    /// Those that are not the same in every key, the highest first.
    digits: Vec<Bounds>,
    order: Order<B>,
}

impl<'c, B: Bits, P: Payload, M: MemoryPolicy> Whole<'c, B, P, M> {
    /// The sort of a launch's `len` rows by the bits in `bits`.
    pub(super) fn of(
        call: &'c KernelCall<'_, M>,
        len: usize,
        bits: Range<u32>,
        order: Order<B>,
    ) -> Result<Self, KernelFault> {
        let given = call.input::<B>(4, len)?;
        let differing = differing(call, &given, order).between(bits.start, bits.end);
        let keys = (call.input::<B>(5, len)?, call.output::<B>(5, len)?);
        let (values_in, values) = if P::PRESENT {
            let both = (call.input::<P::Value>(7, len)?, call.output::<P::Value>(7, len)?);
            (Some(call.input::<P::Value>(6, len)?), Some(both))
        } else {
            (None, None)
        };
        let at = values_at(len, size_of::<B>());
        let room_values = if P::PRESENT { Some(call.room::<P::Value>(0, at, len)?) } else { None };
        Ok(Self {
            given: Columns { keys: given, values: values_in },
            result: Columns { keys, values },
            room: Columns { keys: call.room::<B>(0, 0, len)?, values: room_values },
            digits: digits(differing, bits.start),
            order,
        })
    }

    /// Sorts the rows.
    pub(super) fn run(&self, call: &KernelCall<'_, M>) {
        let len = self.given.keys.len();
        let most = CACHED / size_of::<Row<B, P::Carried>>();
        let mut large = vec![Bucket { rows: 0..len, digits_done: 0, place: Place::Given }];
        let mut small = Vec::new();
        while let Some(bucket) = large.pop() {
            let sorted = bucket.digits_done == self.digits.len();
            if sorted && bucket.place == Place::Result && self.order.is_none() {
                continue;
            }
            if bucket.rows.len() <= most {
                small.push(bucket);
            } else if sorted {
                self.settle(call, &bucket);
            } else {
                self.take_apart(call, &bucket, &mut large);
            }
        }
        // Whoever is done takes the next: buckets differ in size.
        let next = AtomicUsize::new(0);
        let workers = call.threads_for(len).min(small.len()).max(1);
        let longest = small.iter().map(|bucket| bucket.rows.len()).max().unwrap_or(0);
        call.in_parts(workers, workers, 1, |_, _| {
            let mut cache = Cache::new(longest);
            while let Some(bucket) = small.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.sort_cached(bucket, &mut cache);
            }
        });
    }

    fn keys_at(&self, place: Place) -> &Input<'c, B, M> {
        match place {
            Place::Given => &self.given.keys,
            Place::Result => &self.result.keys.0,
            Place::Room => &self.room.keys.0,
        }
    }

    fn values_at(&self, place: Place) -> Option<&Input<'c, P::Value, M>> {
        match place {
            Place::Given => self.given.values.as_ref(),
            Place::Result => self.result.values.as_ref().map(|both| &both.0),
            Place::Room => self.room.values.as_ref().map(|both| &both.0),
        }
    }

    /// What orders the bits of keys that are read there.
    fn order_at(&self, place: Place) -> Order<B> {
        if place == Place::Given { self.order } else { Order::default() }
    }

    /// Moves the rows of a bucket by its next digit, and adds what it falls into to `buckets`.
    fn take_apart(&self, call: &KernelCall<'_, M>, bucket: &Bucket, buckets: &mut Vec<Bucket>) {
        let last = bucket.digits_done + 1 == self.digits.len();
        let to = match bucket.place {
            Place::Given if !last => Place::Room,
            Place::Result => Place::Room,
            _ => Place::Result,
        };
        let ends = last && to == Place::Result;
        let starts = self.move_by(call, bucket, to, self.digits[bucket.digits_done], ends);
        if ends {
            return;
        }
        let digits_done = bucket.digits_done + 1;
        if last {
            buckets.push(Bucket { rows: bucket.rows.clone(), digits_done, place: to });
            return;
        }
        let rows = starts.windows(2).map(|ends| ends[0]..ends[1]).filter(|rows| !rows.is_empty());
        let mut several: Option<Bucket> = None;
        for rows in rows {
            match &mut several {
                Some(before) if rows.end - before.rows.start <= TOGETHER => {
                    // Not sorted by this digit, since it has several values here.
                    before.rows.end = rows.end;
                    before.digits_done = bucket.digits_done;
                }
                before => {
                    buckets.extend(before.take());
                    *before = Some(Bucket { rows, digits_done, place: to });
                }
            }
        }
        buckets.extend(several);
    }

    /// Moves sorted rows to where the result goes, and turns their bits back.
    fn settle(&self, call: &KernelCall<'_, M>, bucket: &Bucket) {
        self.move_by(call, bucket, Place::Result, (0, 0), true);
    }

    /// Moves the rows of a bucket, all threads at it, and answers where those of each value of the
    /// digit begin, and where the last ones end.
    fn move_by(
        &self,
        call: &KernelCall<'_, M>,
        bucket: &Bucket,
        to: Place,
        (shift, bits): Bounds,
        ends: bool,
    ) -> Vec<usize> {
        let target = if to == Place::Room { &self.room } else { &self.result };
        let values = self.values_at(bucket.place);
        let digit = Digit {
            keys_in: self.keys_at(bucket.place),
            keys_out: &target.keys.1,
            values: values.zip(target.values.as_ref().map(|both| &both.1)),
            shift,
            bits,
            first: self.order_at(bucket.place),
            last: if ends { self.order } else { Order::default() },
        };
        let (first, len) = (bucket.rows.start, bucket.rows.len());
        let parts = call.threads_for(len);
        let within = |range: Range<usize>| first + range.start..first + range.end;
        let counts = call.in_parts(len, parts, 1, |_, range| digit.count(within(range)));
        let mut starts = Vec::with_capacity(DIGITS + 1);
        let mut places = vec![vec![0u32; DIGITS]; parts];
        let mut start = first as u32;
        for value in 0..DIGITS {
            starts.push(start as usize);
            for (places, counts) in places.iter_mut().zip(&counts) {
                places[value] = start;
                start += counts[value];
            }
        }
        starts.push(start as usize);
        call.in_parts(len, parts, 1, |part, range| digit.scatter(within(range), &places[part]));
        starts
    }

    /// Sorts a bucket by the digits it still needs, where it fits, and writes it to the result.
    fn sort_cached(&self, bucket: &Bucket, cache: &mut Cache<B, P>) {
        let digits = &self.digits[bucket.digits_done..];
        let len = bucket.rows.len();
        let Cache { rows, others, keys, values, counts } = cache;
        let order = self.order_at(bucket.place);
        counts[..digits.len()].fill([0; DIGITS]);
        for start in (0..len).step_by(PIECE) {
            let piece = start..len.min(start + PIECE);
            let (from, keys) = (bucket.rows.start + start, &mut keys[..piece.len()]);
            self.keys_at(bucket.place).read_into(from, keys);
            keys.iter_mut().for_each(|key| *key = order.apply(*key));
            for ((shift, bits), counts) in digits.iter().zip(counts.iter_mut()) {
                for key in keys.iter() {
                    counts[key.digit(*shift, *bits) % DIGITS] += 1;
                }
            }
            if let Some(there) = self.values_at(bucket.place) {
                there.read_into(from, &mut values[..piece.len()]);
            }
            for ((row, key), value) in rows[piece].iter_mut().zip(keys).zip(values.iter()) {
                *row = Row { key: *key, carried: P::carry(*value) };
            }
        }
        let (mut from, mut to) = (&mut rows[..len], &mut others[..len]);
        for (&(shift, bits), counts) in digits.iter().zip(counts.iter_mut()).rev() {
            if counts.iter().any(|count| *count as usize == len) {
                continue;
            }
            let mut sum = 0;
            for count in counts.iter_mut() {
                sum += std::mem::replace(count, sum);
            }
            for row in from.iter() {
                let next = &mut counts[row.key.digit(shift, bits) % DIGITS];
                to[*next as usize] = *row;
                *next += 1;
            }
            std::mem::swap(&mut from, &mut to);
        }
        for start in (0..len).step_by(PIECE) {
            let piece = &from[start..len.min(start + PIECE)];
            let at = bucket.rows.start + start;
            for ((row, key), value) in piece.iter().zip(keys.iter_mut()).zip(values.iter_mut()) {
                (*key, *value) = (self.order.undo(row.key), P::carried(row.carried));
            }
            self.result.keys.1.write_from(at, &keys[..piece.len()]);
            if let Some((_, out)) = &self.result.values {
                out.write_from(at, &values[..piece.len()]);
            }
        }
    }
}

/// The bits that are not the same in every key, after the change that orders them.
fn differing<B: Bits, M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    keys: &Input<'_, B, M>,
    order: Order<B>,
) -> B {
    let mut first = [B::default()];
    keys.read_into(0, &mut first[..keys.len().min(1)]);
    let first = order.apply(first[0]);
    let parts = call.in_parts(keys.len(), call.threads_for(keys.len()), 1, |_, range| {
        let mut bits = B::default();
        for_each_piece(keys, range, |piece| {
            bits = piece.iter().fold(bits, |bits, key| bits | (order.apply(*key) ^ first));
        });
        bits
    });
    parts.into_iter().fold(B::default(), |bits, part| bits | part)
}

/// Digits that hold all bits that are set, none of them below `least`; the highest first.
fn digits<B: Bits>(mut differing: B, least: u32) -> Vec<Bounds> {
    let mut digits = Vec::new();
    while let Some(highest) = differing.highest() {
        let first = (highest + 1).saturating_sub(8).max(least);
        digits.push((first, highest + 1 - first));
        differing = differing.between(0, first);
    }
    digits
}

/// What a thread sorts buckets in.
struct Cache<B, P: Payload> {
    rows: Vec<Row<B, P::Carried>>,
    others: Vec<Row<B, P::Carried>>,
    keys: Vec<B>,
    values: Vec<P::Value>,
    /// Of each digit, how many rows have each value.
    counts: Vec<[u32; DIGITS]>,
}

impl<B: Bits, P: Payload> Cache<B, P> {
    /// One for up to `len` rows.
    fn new(len: usize) -> Self {
        let none = Row { key: B::default(), carried: P::carry(P::Value::default()) };
        Self {
            rows: vec![none; len],
            others: vec![none; len],
            keys: vec![B::default(); PIECE],
            values: vec![P::Value::default(); PIECE],
            counts: vec![[0; DIGITS]; size_of::<B>()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_hold_every_bit_that_differs_and_skip_the_others() {
        assert_eq!(digits(0u64, 0), []);
        assert_eq!(digits(u32::MAX, 0), [(24, 8), (16, 8), (8, 8), (0, 8)]);
        assert_eq!(digits(0x8000_0000_0001u64, 0), [(40, 8), (0, 1)]);
        assert_eq!(digits(0b111_1111_1000u32, 3), [(3, 8)]);
        assert_eq!(digits(0b1111_1111_1000u32, 3), [(4, 8), (3, 1)]);
    }
}
