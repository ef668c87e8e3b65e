//! Who holds a block between preflight and commit.
//!
//! A claim is what keeps "queue the waits, enqueue the work, record the use" one step: while a
//! launch is between its preflight and its commit, nobody else may plan against the state that it
//! is about to change. Claims are taken under a block's lock but outlive it, so no lock is held
//! over a driver call or over the caller's code.

use std::{
    cell::Cell,
    collections::HashMap,
    panic::Location,
    sync::atomic::{AtomicU32, Ordering},
};

use super::super::{BlockUse, ResourceError, StreamId};
use parking_lot::{Condvar, Mutex};

/// A number for each thread, cheap to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ThreadToken(u32);

impl ThreadToken {
    #[inline]
    pub(crate) fn current() -> Self {
        thread_local!(static TOKEN: Cell<u32> = const { Cell::new(0) });
        static NEXT: AtomicU32 = AtomicU32::new(1);
        TOKEN.with(|token| {
            if token.get() == 0 {
                token.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            Self(token.get())
        })
    }
}

/// One launch that holds claims: its thread, its stream, and where in the source it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) thread: ThreadToken,
    pub(crate) stream: StreamId,
    pub(crate) place: &'static Location<'static>,
}

impl PartialEq for Holder {
    /// Places are compared by address: their text is for messages.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.thread == other.thread
            && self.stream == other.stream
            && std::ptr::eq(self.place, other.place)
    }
}

/// Why a claim was not given: another launch is between its preflight and its commit.
#[derive(Debug)]
pub(crate) struct Conflict {
    pub(crate) slot: u32,
    pub(crate) holder: Holder,
}

impl Conflict {
    /// The refusal, naming both places.
    pub(crate) fn refusal(&self, mine: Holder, one: &BlockUse, why: &str) -> ResourceError {
        ResourceError::StreamMisuse(format!(
            "block {:#x} (generation {}) is claimed by the launch preflighted at {} on stream {}, \
             which has not committed yet; the launch at {} on stream {} {why}",
            one.block.ptr,
            one.block.generation.0,
            self.holder.place,
            self.holder.stream.0,
            mine.place,
            mine.stream.0,
        ))
    }
}

/// Threads asleep until a claim is given up. Also finds the circle of threads that wait for each
/// other's claims before anybody goes to sleep in it.
#[derive(Debug, Default)]
pub(crate) struct ClaimWaiters {
    waiting: Mutex<HashMap<ThreadToken, u32>>,
    released: Condvar,
}

/// How a wait for a claim ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// The claim may be free now: try again.
    TryAgain,
    /// Waiting would never end: this thread itself holds a claim on the block.
    OwnThread,
    /// Waiting would never end: the holders wait, directly or not, for this thread.
    Circle,
}

impl ClaimWaiters {
    /// Sleeps until a claim on `slot` is given up. `holders` lists the threads that hold claims on
    /// a slot; empty when there are none, and then there is nothing to wait for.
    pub(crate) fn wait(
        &self,
        thread: ThreadToken,
        slot: u32,
        holders: impl Fn(u32) -> Vec<ThreadToken>,
    ) -> WaitEnd {
        let mut waiting = self.waiting.lock();
        // `holders` also marks the slot as contended, under the slot's own lock: a holder that
        // gives up after this point must take `waiting` first, and finds this thread asleep.
        let first = holders(slot);
        if first.is_empty() {
            return WaitEnd::TryAgain;
        }
        if first.contains(&thread) {
            return WaitEnd::OwnThread;
        }
        let (mut reached, mut open) = (first.clone(), first);
        while let Some(holder) = open.pop() {
            if holder == thread {
                return WaitEnd::Circle;
            }
            let Some(&next) = waiting.get(&holder) else {
                continue;
            };
            for token in holders(next) {
                if !reached.contains(&token) {
                    reached.push(token);
                    open.push(token);
                }
            }
        }
        waiting.insert(thread, slot);
        self.released.wait(&mut waiting);
        waiting.remove(&thread);
        WaitEnd::TryAgain
    }

    /// Wakes everybody: a contended claim was given up.
    #[cold]
    pub(crate) fn wake(&self) {
        drop(self.waiting.lock());
        self.released.notify_all();
    }
}
