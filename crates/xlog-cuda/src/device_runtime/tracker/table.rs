//! The slots of one tracker: which are vacant, and which belongs to the block at an address.

use rustc_hash::FxHashMap;

use super::{chunked::Chunked, slot::Slot};
use crate::sync::{Mutex, sized};

/// Maps from address to slot, so that threads seldom meet at one.
const SHARDS: usize = sized(16, 1);

/// Every slot of one tracker.
#[derive(Debug)]
#[repr(C)] // the slots first: every launch looks at them
pub(crate) struct SlotTable {
    slots: Chunked<Slot, { sized(256, 2) }>,
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
            slots: Chunked::new(),
            vacant: Mutex::default(),
            by_address: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Slot `number`, if the table ever grew that far.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number)
    }

    /// A vacant slot; `None` when there are billions of blocks already.
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
        Some((number, self.slots.grow(number)?))
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

    /// Every slot with a block in use.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Slot> {
        let used = self.vacant.lock().next;
        (0..used).filter_map(|number| self.slots.get(number)).filter(|slot| slot.is_live())
    }

    fn shard(&self, ptr: u64) -> &Mutex<FxHashMap<u64, u32>> {
        // Addresses are multiples of 256, and often of much more: every bit above counts.
        let mixed = (ptr >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.by_address[(mixed >> 60) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_numbered_in_order_and_come_back() {
        let table = SlotTable::new();
        for expected in 0..1_000 {
            assert_eq!(table.take().map(|(number, _)| number), Some(expected));
        }
        table.give_back(17);
        assert_eq!(table.take().map(|(number, _)| number), Some(17));
        table.insert(4096, 3);
        table.remove(4096, 4);
        assert_eq!((table.at(4096), table.blocks()), (Some(3), 1), "another slot's removal");
        table.remove(4096, 3);
        assert_eq!(table.at(4096), None);
    }
}
