//! The first row of every key of a small table: what the host bodies of kernels of one block share.

use xlog_cuda::LaunchDims;
use xlog_driver::host::{KernelCall, KernelFault, MemoryPolicy};

use super::host::{hash_long, slot_after, slot_of};

/// The block of every kernel that is launched with one; as in the CUDA source.
pub(in crate::primitives) const ONE_BLOCK: LaunchDims = LaunchDims::linear(1, 512);

/// A key of up to 96 bits: a word, and its third half or 0.
pub(in crate::primitives) type SmallKey = (u64, u32);

/// The 32-bit keys of parameter `index`.
pub(in crate::primitives) fn word_keys<M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    index: usize,
    rows: usize,
) -> Result<Vec<SmallKey>, KernelFault> {
    let mut words = vec![0u32; rows];
    call.input::<u32>(index, rows)?.read_into(0, &mut words);
    Ok(words.into_iter().map(|word| (u64::from(word), 0)).collect())
}

/// The 64-bit keys of parameter `index`, and their third halves, which are parameter `extra`.
pub(in crate::primitives) fn long_keys<M: MemoryPolicy>(
    call: &KernelCall<'_, M>,
    index: usize,
    extra: Option<usize>,
    rows: usize,
) -> Result<Vec<SmallKey>, KernelFault> {
    let (mut words, mut more) = (vec![0u64; rows], vec![0u32; rows]);
    call.input::<u64>(index, rows)?.read_into(0, &mut words);
    if let Some(extra) = extra {
        call.input::<u32>(extra, rows)?.read_into(0, &mut more);
    }
    Ok(words.into_iter().zip(more).collect())
}

/// A table of keys with the first row of each, half full at most.
pub(in crate::primitives) struct FirstRows {
    slots: Vec<Option<(SmallKey, u32)>>,
}

impl FirstRows {
    /// An empty table for `rows` rows.
    pub(in crate::primitives) fn new(rows: usize) -> Self {
        Self { slots: vec![None; 2 * rows + 1] }
    }

    /// The first row of a key: `row` if it is new.
    pub(in crate::primitives) fn insert(&mut self, key: SmallKey, row: u32) -> u32 {
        let slot = self.slot(key);
        self.slots[slot].get_or_insert((key, row)).1
    }

    /// The first row of a key, if it is there.
    pub(in crate::primitives) fn find(&self, key: SmallKey) -> Option<u32> {
        self.slots[self.slot(key)].map(|(_, row)| row)
    }

    /// The slot of a key, or the free one where it would be.
    fn slot(&self, key: SmallKey) -> usize {
        let capacity = self.slots.len();
        let mut slot = slot_of((hash_long(key.0, key.1) >> 32) as u32, capacity);
        while self.slots[slot].is_some_and(|(other, _)| other != key) {
            slot = slot_after(slot, capacity);
        }
        slot
    }
}
