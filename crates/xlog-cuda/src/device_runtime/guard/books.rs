//! What a guard knows of its blocks.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{
    finding::{Finding, FindingKind, FreedBy},
    options::GuardOptions,
};
use crate::device_runtime::{AllocTag, BlockId, DeviceBlock, Generation, ResourceError, StreamId};

/// What lies before and behind every block.
pub(super) const CANARY: u8 = 0xFD;
/// What a new block is full of.
pub(super) const NEW: u8 = 0xA5;
/// What a freed block is full of.
pub(super) const FREED: u8 = 0xDD;

/// A block, in use or in quarantine, and its margins.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) ptr: u64,
    pub(super) bytes: usize,
    pub(super) tag: AllocTag,
    pub(super) generation: Generation,
    pub(super) stream: StreamId,
    pub(super) sequence: u64,
    /// The lane of its stream.
    pub(super) home: usize,
    /// Its own slot in the tracker.
    pub(super) slot: u32,
    /// Bytes in front of it, and behind it.
    pub(super) margins: (usize, usize),
    /// Locked while the memory is looked at or handed on, also over driver calls: so nobody gives
    /// it back while somebody looks.
    pub(super) state: Mutex<State>,
}

/// How far a block has come.
#[derive(Debug)]
pub(super) struct State {
    /// The block of the resource below; `None` once that has it back.
    pub(super) below: Option<DeviceBlock>,
    /// Who freed it, if it was.
    pub(super) freed: Option<FreedBy>,
    /// Whether the body was filled after the free.
    pub(super) poisoned: bool,
    /// The kinds that were reported already.
    pub(super) reported: Vec<FindingKind>,
}

/// One part of a block's memory, and what it should be full of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) kind: FindingKind,
    pub(super) ptr: u64,
    pub(super) bytes: usize,
    pub(super) value: u8,
}

impl Guarded {
    /// The bytes it takes from the resource below.
    pub(super) fn whole(&self) -> usize {
        self.bytes + self.margins.0 + self.margins.1
    }

    pub(super) fn margins(&self) -> [Region; 2] {
        let region = |kind, ptr, bytes| Region { kind, ptr, bytes, value: CANARY };
        let (before, after) = self.margins;
        [
            region(FindingKind::OutOfBoundsBefore, self.ptr - before as u64, before),
            region(FindingKind::OutOfBoundsAfter, self.ptr + self.bytes as u64, after),
        ]
    }

    pub(super) fn body(&self) -> Region {
        let (ptr, bytes) = (self.ptr, self.bytes);
        Region { kind: FindingKind::WriteAfterFree, ptr, bytes, value: FREED }
    }

    pub(super) fn finding(
        &self,
        kind: FindingKind,
        (offset, wrong): (i64, usize),
        freed: Option<FreedBy>,
    ) -> Finding {
        Finding {
            kind,
            tag: self.tag,
            generation: self.generation,
            ptr: self.ptr,
            bytes: self.bytes,
            offset,
            wrong,
            stream: self.stream,
            sequence: self.sequence,
            freed,
        }
    }

    /// What a mistake of this kind is to a caller.
    pub(super) fn error(&self, kind: FindingKind) -> ResourceError {
        let generation = self.generation;
        match kind {
            FindingKind::OutOfBoundsBefore | FindingKind::OutOfBoundsAfter => {
                ResourceError::OutOfBounds { generation }
            }
            FindingKind::WriteAfterFree | FindingKind::DoubleFree => {
                ResourceError::UseAfterFree { generation }
            }
        }
    }
}

/// Every block by its address, and those in quarantine in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Books {
    blocks: FxHashMap<u64, Arc<Guarded>>,
    queue: VecDeque<Arc<Guarded>>,
    queued_bytes: usize,
    allocations: u64,
}

impl Books {
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.allocations += 1;
        self.allocations
    }

    pub(super) fn add(&mut self, block: Arc<Guarded>) {
        self.blocks.insert(block.ptr, block);
    }

    pub(super) fn remove(&mut self, block: &Guarded) {
        self.blocks.remove(&block.ptr);
    }

    pub(super) fn at(&self, ptr: u64) -> Option<Arc<Guarded>> {
        self.blocks.get(&ptr).cloned()
    }

    pub(super) fn find(&self, id: BlockId) -> Option<Arc<Guarded>> {
        self.at(id.ptr).filter(|block| block.generation == id.generation)
    }

    /// Every block, in use or not, the oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Guarded>> {
        let mut all: Vec<_> = self.blocks.values().cloned().collect();
        all.sort_unstable_by_key(|block| block.sequence);
        all
    }

    pub(super) fn enqueue(&mut self, block: Arc<Guarded>) {
        self.queued_bytes += block.whole();
        self.queue.push_back(block);
    }

    /// Puts a block back that could not leave.
    pub(super) fn put_back(&mut self, block: Arc<Guarded>) {
        self.queued_bytes += block.whole();
        self.queue.push_front(block);
    }

    /// The oldest one, if there are more than the options allow.
    pub(super) fn pop_over(&mut self, options: &GuardOptions) -> Option<Arc<Guarded>> {
        let over = self.queued_bytes > options.quarantine_bytes
            || self.queue.len() > options.quarantine_blocks;
        if over { self.take(|_| true, 1).pop() } else { None }
    }

    /// Takes the first `most` that are asked for out of the queue.
    pub(super) fn take(
        &mut self,
        wanted: impl Fn(&Guarded) -> bool,
        most: usize,
    ) -> Vec<Arc<Guarded>> {
        let mut taken = Vec::new();
        self.queue.retain(|block| {
            let take = taken.len() < most && wanted(block);
            if take {
                taken.push(Arc::clone(block));
            }
            !take
        });
        self.queued_bytes -= taken.iter().map(|block| block.whole()).sum::<usize>();
        taken
    }

    /// Those in quarantine.
    pub(super) fn queue(&self) -> Vec<Arc<Guarded>> {
        self.queue.iter().cloned().collect()
    }

    /// How many they are, and their bytes.
    pub(super) fn queued(&self) -> (usize, usize) {
        (self.queue.len(), self.queued_bytes)
    }

    /// Blocks in use that were allocated on a lane.
    pub(super) fn homed_on(&self, lane: usize) -> usize {
        let quarantined = self.queue.iter().filter(|block| block.home == lane).count();
        let all = self.blocks.values().filter(|block| block.home == lane).count();
        all.saturating_sub(quarantined)
    }
}
