//! Where the tracker keeps its slots: a table that grows without moving, so that a slot is found
//! by its number without a lock.

use std::sync::OnceLock;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::slot::Slot;

/// Slots of the first chunk; each chunk is twice as large as the one before it.
const FIRST_CHUNK: usize = 64;
/// Chunks there can be: room for four billion blocks.
const CHUNKS: usize = 26;
/// Maps from address to slot, so that threads seldom meet at one.
const SHARDS: usize = 16;

/// Every slot of one tracker.
#[derive(Debug)]
pub(crate) struct SlotTable {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    vacant: Mutex<Vacant>,
    by_address: [Mutex<FxHashMap<u64, u32>>; SHARDS],
}

#[derive(Debug, Default)]
struct Vacant {
    numbers: Vec<u32>,
    next: u32,
}

impl SlotTable {
    pub(crate) fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            vacant: Mutex::default(),
            by_address: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Slot `number`, if the table ever grew that far.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Slot> {
        let position = number as usize + FIRST_CHUNK;
        let chunk = (position / FIRST_CHUNK).ilog2() as usize;
        self.chunks.get(chunk)?.get()?.get(position - (FIRST_CHUNK << chunk))
    }

    /// A vacant slot; `None` when there are four billion blocks already.
    pub(crate) fn take(&self) -> Option<(u32, &Slot)> {
        let number = {
            let mut vacant = self.vacant.lock();
            match vacant.numbers.pop() {
                Some(number) => number,
                None => {
                    let number = vacant.next;
                    vacant.next = number.checked_add(1).filter(|next| *next < u32::MAX)?;
                    number
                }
            }
        };
        let position = number as usize + FIRST_CHUNK;
        let chunk = (position / FIRST_CHUNK).ilog2() as usize;
        let slots = self
            .chunks
            .get(chunk)?
            .get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| Slot::default()).collect());
        Some((number, slots.get(position - (FIRST_CHUNK << chunk))?))
    }

    /// Makes slot `number` available again.
    pub(crate) fn give_back(&self, number: u32) {
        self.vacant.lock().numbers.push(number);
    }

    /// Names the slot of the block at `ptr`.
    pub(crate) fn insert(&self, ptr: u64, number: u32) {
        self.shard(ptr).lock().insert(ptr, number);
    }

    /// Forgets the block at `ptr`, if it is still the one in slot `number`.
    pub(crate) fn remove(&self, ptr: u64, number: u32) {
        let mut shard = self.shard(ptr).lock();
        if shard.get(&ptr) == Some(&number) {
            shard.remove(&ptr);
        }
    }

    /// The slot of the block at `ptr`.
    pub(crate) fn at(&self, ptr: u64) -> Option<u32> {
        self.shard(ptr).lock().get(&ptr).copied()
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> usize {
        self.by_address.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Every slot ever used.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().filter_map(OnceLock::get).flat_map(|chunk| chunk.iter())
    }

    fn shard(&self, ptr: u64) -> &Mutex<FxHashMap<u64, u32>> {
        // Addresses are multiples of 256: the bits above tell them apart.
        &self.by_address[(ptr >> 8) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_find_their_slots_across_chunks_and_come_back() {
        let table = SlotTable::new();
        let slots: Vec<_> = (0..1_000)
            .map(|expected| {
                let (number, slot) = table.take().expect("room");
                assert_eq!(number, expected);
                std::ptr::from_ref(slot)
            })
            .collect();
        for (number, slot) in slots.iter().enumerate() {
            let found = table.get(number as u32).expect("taken");
            assert!(std::ptr::eq(found, *slot), "slot {number} moved");
        }
        table.give_back(17);
        assert_eq!(table.take().map(|(number, _)| number), Some(17));
        assert!(table.get(u32::MAX).is_none() && table.get(1 << 20).is_none());
    }
}
