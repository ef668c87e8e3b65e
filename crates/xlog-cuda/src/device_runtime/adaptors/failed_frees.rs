//! The frees that failed below an adaptor that keeps books.
//!
//! `deallocate` consumes its block even if it fails. The block then stays counted as live, and a
//! later reap frees it: only after that may it leave the adaptor's books.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Inner;
use crate::device_runtime::{BlockId, ResourceError};

/// A block whose free failed: which, and its bytes.
pub(super) type FailedFree = (BlockId, usize);

/// The blocks whose free failed, until a reap has freed them.
#[derive(Debug, Default)]
pub(super) struct FailedFrees {
    /// How many there are: most of the time none, which a free can see without the lock.
    count: AtomicUsize,
    blocks: Mutex<Vec<FailedFree>>,
}

impl FailedFrees {
    /// A free failed below. Unless it was refused, a reap frees the block, and then it is settled.
    pub(super) fn note(&self, inner: &Inner, failed: FailedFree, error: &ResourceError) {
        if !is_kept_for_reap(inner, failed.0, error) {
            return;
        }
        let mut blocks = self.blocks.lock();
        if !blocks.iter().any(|(block, _)| is_same(*block, failed.0)) {
            blocks.push(failed);
            self.count.store(blocks.len(), Ordering::Release);
        }
    }

    /// A free of `block` went through: whatever failed before is settled.
    #[inline]
    pub(super) fn forget(&self, block: BlockId) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut blocks = self.blocks.lock();
            blocks.retain(|(other, _)| !is_same(*other, block));
            self.count.store(blocks.len(), Ordering::Release);
        }
    }

    /// Takes out what a reap has freed. The tracker knows which blocks are gone; where there is
    /// none, a reap that waited and answered `Ok` has freed them all (`all_freed`).
    pub(super) fn settled(&self, inner: &Inner, all_freed: bool) -> Vec<FailedFree> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut blocks = self.blocks.lock();
        let is_gone = |failed: &mut FailedFree| match inner.direct_tracker() {
            Some(tracker) => !tracker.knows(failed.0),
            None => all_freed,
        };
        let gone = blocks.extract_if(.., is_gone).collect();
        self.count.store(blocks.len(), Ordering::Release);
        gone
    }
}

/// Whether two handles name one block. Its stream does not tell: a mistaken program's is wrong.
fn is_same(one: BlockId, other: BlockId) -> bool {
    (one.ptr, one.generation) == (other.ptr, other.generation)
}

/// Whether a failed free left the block with `inner`, to be freed by a reap. A refused one is not
/// ours to count, and a lost device freezes every counter.
fn is_kept_for_reap(inner: &Inner, block: BlockId, error: &ResourceError) -> bool {
    block.device_ordinal == inner.device_ordinal()
        && !matches!(error, ResourceError::UseAfterFree { .. } | ResourceError::DeviceLost)
}
