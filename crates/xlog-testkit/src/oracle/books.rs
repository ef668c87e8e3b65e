//! Allocations and the blocks handed out of them, present and past.
//!
//! An address can stand for several allocations at once: memory that is freed on a stream is
//! handed out again at once, while work on its former owner is still to run. So each address keeps
//! its allocations, latest last, for as long as work that was enqueued before their end may run.

use std::{collections::BTreeMap, panic::Location};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use xlog_core::Access;

use super::{clock::Point, shadow::Shadow, trace::TraceUse};

/// One allocation of the driver.
#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The stream it is valid on; `None` if it is valid everywhere.
    pub(super) stream: Option<u32>,
    pub(super) born: Point,
    /// How many operations had been enqueued by then.
    pub(super) born_at: u32,
    pub(super) died: Option<Death>,
    pub(super) pinned: bool,
    pub(super) shadow: Shadow,
}

/// How an allocation ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) point: Point,
    /// How many operations had been enqueued by then.
    pub(super) at: u32,
    /// The stream it was freed on; `None` for the host.
    pub(super) stream: Option<u32>,
}

/// A block the runtime handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) allocation: u32,
    /// Where it begins in the allocation.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) tag: &'static str,
    pub(super) generation: u64,
    pub(super) place: Option<&'static Location<'static>>,
    /// How many operations had been enqueued when it was handed out.
    pub(super) from: u32,
    /// The same for when it was taken back.
    pub(super) until: Option<u32>,
}

type Versions = SmallVec<[u32; 2]>;

/// Every allocation and every block of one device.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) allocations: Vec<Allocation>,
    pub(super) blocks: Vec<Block>,
    /// Allocations by address, the latest last.
    at: BTreeMap<u64, Versions>,
    /// The latest block at each address.
    blocks_at: BTreeMap<u64, u32>,
    by_generation: FxHashMap<u64, u32>,
}

impl Books {
    /// Writes down an allocation. Work before number `unfinished` has run.
    pub(super) fn allocate(&mut self, allocation: Allocation, unfinished: u32) -> u32 {
        let number = self.allocations.len() as u32;
        let (address, end) = (allocation.address, allocation.address + allocation.bytes);
        self.forget_overlaps(address, end);
        self.allocations.push(allocation);
        let versions = self.at.entry(address).or_default();
        let allocations = &mut self.allocations;
        // The latest past one stays, to say whose memory a late access once was.
        while versions.len() > 1 {
            let oldest = &mut allocations[versions[0] as usize];
            if oldest.died.is_none_or(|death| death.at > unfinished) {
                break;
            }
            oldest.shadow = Shadow::new(0, super::shadow::NOBODY);
            versions.remove(0);
        }
        versions.push(number);
        number
    }

    /// Memory that was cut otherwise before is nobody's any more.
    fn forget_overlaps(&mut self, address: u64, end: u64) {
        let mut gone: SmallVec<[u64; 4]> =
            self.at.range(address + 1..end).map(|(at, _)| *at).collect();
        if let Some((&before, versions)) = self.at.range(..address).next_back()
            && versions.iter().any(|one| self.end_of(*one) > address)
        {
            gone.push(before);
        }
        for at in gone {
            self.at.remove(&at);
        }
    }

    fn end_of(&self, allocation: u32) -> u64 {
        let allocation = &self.allocations[allocation as usize];
        allocation.address + allocation.bytes
    }

    /// The allocations around an address, the latest last.
    pub(super) fn around(&self, address: u64) -> &[u32] {
        match self.at.range(..=address).next_back() {
            Some((_, versions)) if versions.iter().any(|one| self.end_of(*one) > address) => {
                versions
            }
            _ => &[],
        }
    }

    /// The allocation that begins nearest below an address.
    pub(super) fn nearest(&self, address: u64) -> Option<u32> {
        self.at.range(..=address).next_back().and_then(|(_, versions)| versions.last().copied())
    }

    /// The allocation that lives at an address.
    pub(super) fn live(&self, address: u64) -> Option<u32> {
        let lives = |one: &&u32| self.allocations[**one as usize].died.is_none();
        self.around(address).iter().rev().find(lives).copied()
    }

    /// The part of a range that lies in live device memory.
    pub(super) fn range(&self, address: u64, bytes: usize, access: Access) -> Option<TraceUse> {
        let allocation = self.live(address)?;
        let whole = &self.allocations[allocation as usize];
        let start = address - whole.address;
        let end = (start + bytes as u64).min(whole.bytes);
        (!whole.pinned && start < end).then_some(TraceUse { allocation, start, end, access })
    }

    /// Writes down a block; `None` if it lies in no live allocation.
    pub(super) fn hand_out(&mut self, address: u64, bytes: u64, block: Block) -> Option<u32> {
        let allocation = self.live(address)?;
        let start = address - self.allocations[allocation as usize].address;
        let block = Block { allocation, start, end: start + bytes, ..block };
        let number = self.blocks.len() as u32;
        let end = address + bytes;
        let mut gone: SmallVec<[u64; 4]> =
            self.blocks_at.range(address..end).map(|(at, _)| *at).collect();
        if let Some((&before, &other)) = self.blocks_at.range(..address).next_back()
            && before + self.blocks[other as usize].bytes() > address
        {
            gone.push(before);
        }
        for at in gone {
            self.blocks_at.remove(&at);
        }
        self.blocks_at.insert(address, number);
        self.by_generation.insert(block.generation, number);
        self.blocks.push(block);
        Some(number)
    }

    /// The block of that generation, while the user has it.
    pub(super) fn block(&self, generation: u64) -> Option<u32> {
        self.by_generation.get(&generation).copied()
    }

    /// Ends a block.
    pub(super) fn take_back(&mut self, generation: u64, at: u32) -> Option<&Block> {
        let number = self.by_generation.remove(&generation)?;
        let block = &mut self.blocks[number as usize];
        block.until = Some(at);
        Some(block)
    }

    /// The latest block around a place of an allocation.
    pub(super) fn block_around(&self, allocation: u32, offset: u64) -> Option<u32> {
        let address = self.allocations[allocation as usize].address + offset;
        let (&at, &number) = self.blocks_at.range(..=address).next_back()?;
        let block = &self.blocks[number as usize];
        (block.allocation == allocation && address < at + block.bytes()).then_some(number)
    }
}

impl Block {
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.start
    }
}
