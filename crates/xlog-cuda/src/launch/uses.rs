//! The uses of one launch, each block once.

use crate::device_runtime::{Access, BlockId, BlockUse, Generation, StreamId};

/// Uses kept without a heap allocation.
const FEW: usize = 8;

/// The uses of one launch: several of one block are one, of the strongest access.
#[derive(Clone, Debug)]
pub(crate) struct Uses {
    few: [BlockUse; FEW],
    len: usize,
    /// All of them, once they are more than a few.
    many: Vec<BlockUse>,
    /// A bit for the generation of each use: one that is not set was never added.
    seen: u64,
}

impl Default for Uses {
    #[inline]
    fn default() -> Self {
        const NOBODY: BlockUse = BlockUse::new(
            BlockId {
                ptr: 0,
                generation: Generation(0),
                alloc_stream: StreamId::DEFAULT,
                device_ordinal: 0,
            },
            Access::Read,
        );
        Self { few: [NOBODY; FEW], len: 0, many: Vec::new(), seen: 0 }
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
            Some(place) => *place = BlockUse { access, ..*one },
            None => self.add_to_many(BlockUse { access, ..*one }),
        }
        self.len += 1;
    }

    #[cold]
    #[inline(never)]
    fn add_to_many(&mut self, one: BlockUse) {
        if self.many.is_empty() {
            self.many.extend_from_slice(&self.few);
        }
        self.many.push(one);
    }

    #[inline(never)]
    fn strengthen(&mut self, one: &BlockUse, access: Access) -> bool {
        let uses =
            if self.many.is_empty() { &mut self.few[..self.len] } else { &mut self.many[..] };
        let same = uses.iter_mut().find(|other| {
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
}

impl std::ops::Deref for Uses {
    type Target = [BlockUse];

    #[inline]
    fn deref(&self) -> &[BlockUse] {
        if self.len <= FEW { &self.few[..self.len] } else { &self.many }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
