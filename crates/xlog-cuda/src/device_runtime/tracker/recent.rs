//! Where the blocks are that a thread got last.
//!
//! A block is mostly freed by the thread that allocated it, and soon. Each thread remembers the
//! slots of the last few hundred, so that finding them again takes no lock. Only ever a hint: the
//! generation found there decides.

use std::cell::Cell;

use crate::sync::own;

/// Blocks a thread remembers; a power of two.
const BLOCKS: usize = 256;

#[derive(Clone, Copy)]
struct Entry {
    ptr: u64,
    tracker: u32,
    slot: u32,
}

own! {
    static RECENT: [Cell<Entry>; BLOCKS] =
        const { [const { Cell::new(Entry { ptr: 0, tracker: 0, slot: 0 }) }; BLOCKS] };
}

/// Addresses that follow each other get places of their own.
#[inline]
fn place(ptr: u64) -> usize {
    ((ptr >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % BLOCKS
}

/// Remembers that tracker number `tracker` keeps the block at `ptr` in `slot`.
#[inline]
pub(super) fn remember(tracker: u64, ptr: u64, slot: u32) {
    let entry = Entry { ptr, tracker: tracker as u32, slot };
    // A thread that is ending remembers nothing.
    let _ = RECENT.try_with(|recent| recent[place(ptr)].set(entry));
}

/// The slot that was remembered for the block at `ptr`.
#[inline]
pub(super) fn recall(tracker: u64, ptr: u64) -> Option<u32> {
    let entry = RECENT.try_with(|recent| recent[place(ptr)].get()).ok()?;
    (entry.ptr == ptr && entry.tracker == tracker as u32).then_some(entry.slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_blocks_are_remembered_by_tracker() {
        for bytes in [256, 4 << 10, 64 << 10, 1 << 20] {
            let ptr = |n: u64| (7 << 30) + n * bytes;
            (0..64).for_each(|n| remember(7, ptr(n), n as u32));
            let known = (0..64).filter(|n| recall(7, ptr(*n)) == Some(*n as u32)).count();
            assert!(known >= 48, "{known} of 64 blocks of {bytes} bytes are still known");
        }
        assert_eq!((recall(8, 7 << 30), recall(7, 12)), (None, None));
    }
}
