//! The uses of one launch, each block once.

use smallvec::SmallVec;

use crate::device_runtime::BlockUse;

/// The uses of one launch: several of one block are one, of the strongest access.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    uses: SmallVec<[BlockUse; 8]>,
    /// A bit for the generation of each use: one that is not set was never added.
    seen: u64,
}

impl Uses {
    /// Adds a use, or strengthens the one there is. A block is its address, its generation and its
    /// device, never its address alone.
    #[inline]
    pub(crate) fn add(&mut self, one: BlockUse) {
        let bit = 1 << (one.block.generation.0 % 64);
        if self.seen & bit != 0 && self.strengthen(one) {
            return;
        }
        self.seen |= bit;
        self.uses.push(one);
    }

    #[inline(never)]
    fn strengthen(&mut self, one: BlockUse) -> bool {
        let same = self.uses.iter_mut().find(|other| {
            other.block.generation == one.block.generation
                && other.block.ptr == one.block.ptr
                && other.block.device_ordinal == one.block.device_ordinal
        });
        if let Some(other) = same {
            other.access = other.access.and(one.access);
            return true;
        }
        false
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }
}

impl std::ops::Deref for Uses {
    type Target = [BlockUse];

    #[inline]
    fn deref(&self) -> &[BlockUse] {
        &self.uses
    }
}

impl FromIterator<BlockUse> for Uses {
    fn from_iter<I: IntoIterator<Item = BlockUse>>(uses: I) -> Self {
        let mut all = Self::default();
        uses.into_iter().for_each(|one| all.add(one));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_runtime::{Access, BlockId, Generation, StreamId};

    #[test]
    fn one_use_a_block_of_the_strongest_access() {
        let block = |ptr, generation, device_ordinal| BlockId {
            ptr,
            generation: Generation(generation),
            alloc_stream: StreamId::DEFAULT,
            device_ordinal,
        };
        let uses: Uses = [
            BlockUse::new(block(256, 1, 0), Access::Read),
            BlockUse::new(block(256, 2, 0), Access::Read),
            BlockUse::new(block(256, 1, 0), Access::Write),
            BlockUse::new(block(256, 1, 1), Access::Write),
        ]
        .into_iter()
        .collect();
        let accesses: Vec<_> = uses.iter().map(BlockUse::access).collect();
        assert_eq!(accesses, [Access::ReadWrite, Access::Read, Access::Write]);
    }
}
