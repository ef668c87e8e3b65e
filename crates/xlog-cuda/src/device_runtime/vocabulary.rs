//! The words of the runtime: streams, tags, generations, blocks and their uses.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

use xlog_core::Access;

/// A stream of the runtime's pool; never a raw handle.
///
/// ```
/// use xlog_cuda::device_runtime::StreamId;
///
/// assert_eq!(StreamId::DEFAULT, StreamId(0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The pool's own first stream. It resolves without having been acquired, and is a
    /// non-blocking stream like any other, not CUDA's legacy stream.
    pub const DEFAULT: Self = Self(0);
}

/// A caller's label for an allocation, shown in logs, leak reports and traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocTag(pub &'static str);

impl AllocTag {
    /// The label of what nobody labelled.
    pub const UNTAGGED: Self = Self("untagged");
}

/// Tells apart two allocations at one address: the later one has the larger generation.
///
/// ```
/// use xlog_cuda::device_runtime::Generation;
///
/// let earlier = Generation::next();
/// assert!(Generation::next() > earlier);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// A generation no other call in this process gets.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // the fixed name of the specification
    pub fn next() -> Self {
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// A generation no other call gets, larger than `earlier`, which was handed out before: from a
    /// stock of the calling thread's own, so that threads do not meet at one counter.
    #[inline]
    pub(crate) fn after(earlier: Self) -> Self {
        STOCK.with(|stock| {
            let (next, end) = stock.get();
            if next > earlier.0 && next < end {
                stock.set((next + 1, end));
                return Self(next);
            }
            // Whatever was handed out came from below this.
            let first = NEXT.fetch_add(STOCK_SIZE, Ordering::Relaxed);
            stock.set((first + 1, first + STOCK_SIZE));
            Self(first)
        })
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Generations a thread takes at once.
const STOCK_SIZE: u64 = 1024;

thread_local! {
    /// The next generation of the calling thread, and the end of what it took.
    static STOCK: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// A block's identity without a borrow of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// Its address.
    pub ptr: u64,
    /// Which allocation at that address.
    pub generation: Generation,
    /// The stream it was allocated on.
    pub alloc_stream: StreamId,
    /// The device it lives on.
    pub device_ordinal: u32,
}

impl BlockId {
    /// The identity of `block`.
    #[must_use]
    pub fn from_block(block: &DeviceBlock) -> Self {
        Self {
            ptr: block.ptr,
            generation: block.generation,
            alloc_stream: block.alloc_stream,
            device_ordinal: block.device_ordinal,
        }
    }
}

/// Where a block is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Usable.
    Live,
    /// Handed back; its stream is not yet past it.
    Retired,
    /// Held back by the guard.
    Quarantined,
    /// Gone.
    Freed,
}

/// One allocation, owned by the caller until it is handed back.
///
/// Not `Clone`: two owners of one allocation is the mistake this type exists to prevent.
#[derive(Debug)]
pub struct DeviceBlock {
    /// Its address.
    pub ptr: u64,
    /// The device it lives on.
    pub device_ordinal: u32,
    /// The stream it was allocated on.
    pub alloc_stream: StreamId,
    /// Bytes granted, at least as many as were asked for; what every counter counts.
    pub bytes: usize,
    /// The address is a multiple of this.
    pub align: usize,
    /// The caller's label.
    pub tag: AllocTag,
    /// Which allocation at this address.
    pub generation: Generation,
    /// Where the block is in its life.
    pub state: BlockState,
}

/// One use of one block by one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockUse {
    pub(crate) block: BlockId,
    pub(crate) access: Access,
    /// Where the tracker keeps the block, if whoever made this knows. Only ever a hint: the
    /// generation found there decides.
    pub(crate) slot: SlotHint,
}

/// A place in a tracker's table, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotHint(pub(crate) u32);

impl SlotHint {
    pub(crate) const NONE: Self = Self(u32::MAX);
}

impl BlockUse {
    /// `block`, touched as `access` says.
    #[must_use]
    pub const fn new(block: BlockId, access: Access) -> Self {
        Self { block, access, slot: SlotHint::NONE }
    }

    /// Which block.
    #[must_use]
    pub const fn block(&self) -> BlockId {
        self.block
    }

    /// How it is touched.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_distinct_across_threads() {
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..5_000).map(|_| Generation::next().0).collect()))
                .collect();
            threads.into_iter().flat_map(|t| -> Vec<u64> { t.join().expect("a thread") }).collect()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 20_000);
    }

    #[test]
    fn a_generation_from_stock_is_larger_than_the_one_before_it() {
        // One address that two threads hand out in turn: each has a stock of its own.
        let mut earlier = Generation::next();
        for _ in 0..100 {
            let mine = Generation::after(earlier);
            assert!(mine > earlier);
            let theirs = std::thread::spawn(move || Generation::after(mine));
            earlier = theirs.join().expect("a thread");
            assert!(earlier > mine);
        }
    }
}
