//! Where a thread says which blocks its launches are using right now.
//!
//! Every thread that launches has a desk, and on it a cell for each block: the claims this thread
//! holds. Only the thread itself writes its cells, with plain stores, so claiming a block costs no
//! atomic exchange; whoever must know all claims on a block reads the cell of every desk.

use std::{
    cell::Cell as ThreadCell,
    panic::Location,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence, fence},
};

use parking_lot::Mutex;
use xlog_core::Access;

use super::{chunked::Chunked, claims::Holder};
use crate::device_runtime::StreamId;

/// A number for each thread, small, and used again after the thread is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct DeskId(pub(crate) u32);

static VACANT_DESKS: Mutex<(Vec<u32>, u32)> = Mutex::new((Vec::new(), 0));

/// Gives the number back when the thread ends.
struct OwnDesk(u32);

impl Drop for OwnDesk {
    fn drop(&mut self) {
        VACANT_DESKS.lock().0.push(self.0);
    }
}

impl DeskId {
    /// The calling thread's desk.
    #[inline]
    pub(crate) fn current() -> Self {
        thread_local!(static CURRENT: ThreadCell<u32> = const { ThreadCell::new(u32::MAX) });
        let current = CURRENT.get();
        if current != u32::MAX {
            return Self(current);
        }
        let desk = Self::sit_down();
        CURRENT.set(desk.0);
        desk
    }

    #[cold]
    fn sit_down() -> Self {
        thread_local!(static OWN: ThreadCell<Option<OwnDesk>> = const { ThreadCell::new(None) });
        let number = {
            let mut vacant = VACANT_DESKS.lock();
            vacant.0.pop().unwrap_or_else(|| {
                vacant.1 += 1;
                vacant.1 - 1
            })
        };
        // A thread that is already ending keeps its number for good: nobody may share it.
        let _ = OWN.try_with(|own| own.set(Some(OwnDesk(number))));
        Self(number)
    }
}

/// The claims of one thread on one block.
#[derive(Default)]
pub(crate) struct Claims {
    /// How many read claims, and whether there is a write claim; see the constants.
    state: AtomicU32,
    stream: AtomicU32,
    place: AtomicPtr<Location<'static>>,
}

/// Announced, but not yet known to be granted: the owner is about to decide.
const TENTATIVE: u32 = 1 << 31;
/// A write claim.
const WRITE: u32 = 1 << 30;

/// What a cell says to another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Nothing,
    Reads,
    Write,
    /// Being decided; look again.
    Undecided,
}

impl Claims {
    #[inline]
    fn load(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// What this cell holds, for another thread.
    #[inline]
    pub(crate) fn held(&self) -> Held {
        match self.load() {
            0 => Held::Nothing,
            state if state & TENTATIVE != 0 => Held::Undecided,
            state if state & WRITE != 0 => Held::Write,
            _ => Held::Reads,
        }
    }

    /// Whether the owner's own claims stand in the way of another of its own.
    #[inline]
    pub(crate) fn conflicts(&self, access: Access) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & WRITE != 0 || (access.writes() && state != 0)
    }

    /// Announces a claim. Counts only once it is granted; the owner decides soon.
    #[inline]
    pub(crate) fn announce(&self, holder: Holder) {
        self.stream.store(holder.stream.0, Ordering::Relaxed);
        self.place.store(std::ptr::from_ref(holder.place).cast_mut(), Ordering::Relaxed);
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state | TENTATIVE, Ordering::Release);
    }

    /// Makes an announced claim count.
    #[inline]
    pub(crate) fn grant(&self, access: Access) {
        let state = self.state.load(Ordering::Relaxed) & !TENTATIVE;
        self.state.store(with(state, access), Ordering::Release);
    }

    /// Takes an announcement back.
    #[inline]
    pub(crate) fn withdraw(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state & !TENTATIVE, Ordering::Release);
    }

    /// Gives a granted claim up.
    #[inline]
    pub(crate) fn release(&self, access: Access) {
        let state = self.state.load(Ordering::Relaxed);
        let state = if access.writes() { state & !WRITE } else { state.saturating_sub(1) };
        self.state.store(state, Ordering::Release);
    }

    /// The launch behind the claims, for messages: the latest one.
    pub(crate) fn holder(&self, desk: DeskId) -> Holder {
        let place = self.place.load(Ordering::Relaxed).cast_const();
        // SAFETY: only ever set from a `&'static Location`; null before the first claim.
        let place = unsafe { place.as_ref() }.unwrap_or(Location::caller());
        Holder { desk, stream: StreamId(self.stream.load(Ordering::Relaxed)), place }
    }
}

fn with(state: u32, access: Access) -> u32 {
    if access.writes() { state | WRITE } else { state + 1 }
}

/// One thread's claims on the blocks of one tracker.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) cells: Chunked<Claims, 256>,
    fence: AtomicU32,
}

impl Default for Desk {
    fn default() -> Self {
        Self { cells: Chunked::new(), fence: AtomicU32::new(0) }
    }
}

impl Desk {
    /// A full fence: every store before it is visible to all before any load after it.
    #[inline]
    pub(crate) fn fence(&self) {
        if cfg!(target_arch = "x86_64") {
            // Any locked instruction is a full fence there, and the fence instruction itself takes
            // several times as long. The compiler may move nothing across either.
            compiler_fence(Ordering::SeqCst);
            self.fence.swap(0, Ordering::SeqCst);
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }
}
