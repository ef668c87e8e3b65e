//! Memory over time: what the driver has given, what is in use of it, and the longest free range.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::{MemorySample, TagChange};

/// The books of memory, kept from the notes of a log.
#[derive(Debug, Default)]
pub(crate) struct MemoryBooks {
    pub(crate) samples: Vec<MemorySample>,
    pub(crate) tags: Vec<TagChange>,
    /// The driver's allocations: address and length.
    allocations: BTreeMap<u64, u64>,
    /// Ranges that no block is in: address and length.
    free: BTreeMap<u64, u64>,
    /// How many of them have each length.
    lengths: BTreeMap<u64, usize>,
    /// Blocks in use: length by address and generation.
    blocks: FxHashMap<(u64, u64), u64>,
    now: MemorySample,
}

impl MemoryBooks {
    /// Whether the driver's memory at an address is known to be there.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.allocations.contains_key(&address)
    }

    /// The driver gave memory.
    pub(crate) fn allocated(&mut self, at: u64, address: u64, bytes: u64) {
        self.allocations.insert(address, bytes);
        self.now.reserved += bytes;
        self.add_free(address, bytes);
        self.note(at);
    }

    /// The driver got memory back.
    pub(crate) fn freed(&mut self, at: u64, address: u64) {
        let Some(bytes) = self.allocations.remove(&address) else { return };
        self.now.reserved -= bytes;
        let inside: Vec<u64> =
            self.free.range(address..address + bytes).map(|(start, _)| *start).collect();
        for start in inside {
            self.remove_free(start);
        }
        self.note(at);
    }

    /// A block was handed out.
    pub(crate) fn handed_out(
        &mut self,
        at: u64,
        (address, generation): (u64, u64),
        bytes: u64,
        tag: &'static str,
    ) {
        self.blocks.insert((address, generation), bytes);
        self.now.in_use += bytes;
        self.take_free(address, address + bytes);
        self.tags.push(TagChange { at, tag, change: signed(bytes) });
        self.note(at);
    }

    /// A block was taken back. One that was handed out before the trace began is not counted.
    pub(crate) fn taken_back(
        &mut self,
        at: u64,
        (address, generation): (u64, u64),
        tag: &'static str,
    ) {
        let Some(bytes) = self.blocks.remove(&(address, generation)) else { return };
        self.now.in_use -= bytes;
        let within = self.allocations.range(..=address).next_back();
        if within.is_some_and(|(start, length)| address < start + length) {
            self.add_free(address, bytes);
        }
        self.tags.push(TagChange { at, tag, change: -signed(bytes) });
        self.note(at);
    }

    fn note(&mut self, at: u64) {
        let largest_free = self.lengths.last_key_value().map_or(0, |(length, _)| *length);
        self.now = MemorySample { at, largest_free, ..self.now };
        self.samples.push(self.now);
    }

    /// Adds a free range, joined with its neighbours of the same allocation.
    fn add_free(&mut self, mut start: u64, mut bytes: u64) {
        let after = self.free.get(&(start + bytes)).copied();
        if let Some(after) = after.filter(|_| !self.allocations.contains_key(&(start + bytes))) {
            self.remove_free(start + bytes);
            bytes += after;
        }
        let before = self.free.range(..start).next_back().map(|(at, length)| (*at, *length));
        if let Some((at, length)) = before
            && at + length == start
            && !self.allocations.contains_key(&start)
        {
            self.remove_free(at);
            start = at;
            bytes += length;
        }
        self.free.insert(start, bytes);
        *self.lengths.entry(bytes).or_default() += 1;
    }

    fn remove_free(&mut self, start: u64) -> u64 {
        let Some(length) = self.free.remove(&start) else { return 0 };
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
        length
    }

    /// Takes a range out of the free ones. More than one can be touched: a block of a resource
    /// that sets memory aside around others is longer than what was known to be free.
    fn take_free(&mut self, start: u64, end: u64) {
        let first = self.free.range(..=start).next_back().map(|(at, _)| *at);
        let inside: Vec<u64> =
            self.free.range(start..end).map(|(at, _)| *at).filter(|at| *at != start).collect();
        for at in first.into_iter().chain(inside) {
            let Some(limit) = self.free.get(&at).map(|length| at + length) else { continue };
            if limit <= start {
                continue;
            }
            self.remove_free(at);
            if at < start {
                self.add_free(at, start - at);
            }
            if limit > end {
                self.add_free(end, limit - end);
            }
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ranges_are_split_and_joined_within_their_allocation() {
        let mut books = MemoryBooks::default();
        books.allocated(1, 1000, 100);
        books.allocated(2, 1100, 50);
        let largest = |books: &MemoryBooks| books.samples.last().map(|s| s.largest_free);
        assert_eq!(largest(&books), Some(100), "neighbours, but two allocations");
        books.handed_out(3, (1040, 1), 20, "a");
        assert_eq!(largest(&books), Some(50));
        books.handed_out(4, (1100, 1), 50, "b");
        assert_eq!(largest(&books), Some(40));
        books.handed_out(5, (1000, 2), 40, "a");
        books.taken_back(6, (1040, 1), "a");
        assert_eq!(largest(&books), Some(60));
        books.taken_back(7, (1000, 2), "a");
        assert_eq!(largest(&books), Some(100));
        books.freed(8, 1000);
        assert_eq!(books.now, MemorySample { at: 8, reserved: 50, in_use: 50, largest_free: 0 });
        let sum: i64 = books.tags.iter().map(|change| change.change).sum();
        assert_eq!(sum, 50);
    }

    #[test]
    fn a_block_that_the_trace_did_not_see_born_is_not_counted() {
        let mut books = MemoryBooks::default();
        books.taken_back(1, (64, 1), "before");
        assert!(books.samples.is_empty() && books.tags.is_empty());
    }
}
