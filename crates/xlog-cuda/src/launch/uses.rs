//! The uses of one launch, each block once.

use std::{cell::Cell, fmt, mem::MaybeUninit};

use crate::device_runtime::{Access, BlockUse};

/// Uses kept without a heap allocation.
const FEW: usize = 8;

thread_local! {
    /// Where a recorder of this thread kept its uses last: near the processor, and made already.
    static SPARE: Cell<Option<Box<Uses>>> = const { Cell::new(None) };
}

/// The uses of one launch: several of one block are one, of the strongest access.
#[derive(Clone)]
pub(crate) struct Uses {
    /// The first of them; places beyond `len` are not even empty, which every launch would pay for.
    few: [MaybeUninit<BlockUse>; FEW],
    len: usize,
    /// All of them, once they are more than a few.
    many: Vec<BlockUse>,
    /// A bit for the generation of each use: one that is not set was never added.
    seen: u64,
}

impl Default for Uses {
    #[inline]
    fn default() -> Self {
        // Not `[MaybeUninit::uninit(); FEW]`: that is a constant, and constants are copied.
        // SAFETY: an array of places that may be uninitialised is what an uninitialised one is.
        let few = unsafe { MaybeUninit::uninit().assume_init() };
        Self { few, len: 0, many: Vec::new(), seen: 0 }
    }
}

impl Uses {
    /// Adds a use of `one`'s block, or strengthens the one there is. A block is its address, its
    /// generation and its device, never its address alone.
    #[inline]
    pub(crate) fn add(&mut self, one: &BlockUse, access: Access) {
        let bit = 1 << (one.block.generation.0 % 64);
        if self.seen & bit != 0 && self.strengthen(one, access) {
            return;
        }
        self.seen |= bit;
        match self.few.get_mut(self.len) {
            Some(place) => {
                place.write(BlockUse { access, ..*one });
            }
            None => self.add_to_many(BlockUse { access, ..*one }),
        }
        self.len += 1;
    }

    #[cold]
    #[inline(never)]
    fn add_to_many(&mut self, one: BlockUse) {
        if self.many.is_empty() {
            let mut many = Vec::with_capacity(2 * FEW);
            many.extend_from_slice(self);
            self.many = many;
        }
        self.many.push(one);
    }

    #[inline(never)]
    fn strengthen(&mut self, one: &BlockUse, access: Access) -> bool {
        let same = self.as_mut_slice().iter_mut().find(|other| {
            other.block.generation == one.block.generation
                && other.block.ptr == one.block.ptr
                && other.block.device_ordinal == one.block.device_ordinal
        });
        if let Some(other) = same {
            other.access = other.access.and(access);
            return true;
        }
        false
    }

    /// None yet, where the last ones were that this thread gave back.
    #[inline]
    pub(crate) fn spare() -> Box<Self> {
        SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default()
    }

    /// Keeps the memory for the next launch of this thread.
    #[inline]
    pub(crate) fn give_back(mut self: Box<Self>) {
        if self.len <= FEW {
            (self.len, self.seen) = (0, 0);
            // A thread that is ending has no next one.
            let _ = SPARE.try_with(|spare| spare.set(Some(self)));
        }
    }

    /// The uses of blocks that have an identity.
    pub(crate) fn of<const N: usize>(blocks: [(Option<&BlockUse>, Access); N]) -> Self {
        let mut all = Self::default();
        for (block, access) in blocks {
            if let Some(block) = block {
                all.add(block, access);
            }
        }
        all
    }

    fn as_mut_slice(&mut self) -> &mut [BlockUse] {
        if self.len > FEW {
            return &mut self.many;
        }
        // SAFETY: `len` counts up by one with each place that is written, in order.
        unsafe { self.few[..self.len].assume_init_mut() }
    }
}

impl std::ops::Deref for Uses {
    type Target = [BlockUse];

    #[inline]
    fn deref(&self) -> &[BlockUse] {
        if self.len > FEW {
            return &self.many;
        }
        // SAFETY: as in `as_mut_slice`.
        unsafe { self.few[..self.len].assume_init_ref() }
    }
}

impl fmt::Debug for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_runtime::{BlockId, Generation, StreamId};

    fn one(ptr: u64, generation: u64, device_ordinal: u32) -> BlockUse {
        let (generation, alloc_stream) = (Generation(generation), StreamId::DEFAULT);
        BlockUse::new(BlockId { ptr, generation, alloc_stream, device_ordinal }, Access::Read)
    }

    #[test]
    fn one_use_a_block_of_the_strongest_access() {
        let uses = Uses::of([
            (Some(&one(256, 1, 0)), Access::Read),
            (Some(&one(256, 2, 0)), Access::Read),
            (None, Access::Write),
            (Some(&one(256, 1, 0)), Access::Write),
            (Some(&one(256, 1, 1)), Access::Write),
        ]);
        let accesses: Vec<_> = uses.iter().map(BlockUse::access).collect();
        assert_eq!(accesses, [Access::ReadWrite, Access::Read, Access::Write]);
        let mut many = Uses::default();
        for round in [Access::Read, Access::Write] {
            (1..=100).for_each(|generation| many.add(&one(256 * generation, generation, 0), round));
        }
        assert_eq!(many.len(), 100);
        assert!(many.iter().all(|one| one.access() == Access::ReadWrite));
        assert_eq!(many[41].block().ptr, 256 * 42);
    }

    #[test]
    fn what_was_given_back_is_empty_and_there_again() {
        let mut uses = Uses::spare();
        (1..=3).for_each(|generation| uses.add(&one(256, generation, 0), Access::Read));
        let place: *const Uses = &raw const *uses;
        uses.give_back();
        let mut again = Uses::spare();
        assert!(std::ptr::eq(place, &raw const *again) && again.is_empty());
        again.add(&one(256, 1, 0), Access::Write);
        assert_eq!(again.iter().map(BlockUse::access).collect::<Vec<_>>(), [Access::Write]);
        // Another one, while that one is out; and one with many is not kept.
        let mut other = Uses::spare();
        assert!(other.is_empty());
        (1..=20).for_each(|generation| other.add(&one(256, generation, 0), Access::Read));
        assert_eq!(other.len(), 20);
        other.give_back();
        assert!(Uses::spare().is_empty());
    }
}
