//! The uses of one launch, each block once.

use std::{fmt, mem::MaybeUninit};

use crate::device_runtime::{Access, BlockUse};

/// Uses kept without a heap allocation.
const FEW: usize = 8;

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

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
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

    #[test]
    fn one_use_a_block_of_the_strongest_access() {
        let block = |ptr, generation, device_ordinal| BlockId {
            ptr,
            generation: Generation(generation),
            alloc_stream: StreamId::DEFAULT,
            device_ordinal,
        };
        let one =
            |ptr, generation, ordinal| BlockUse::new(block(ptr, generation, ordinal), Access::Read);
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
}
