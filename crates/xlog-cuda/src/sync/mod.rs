//! What threads meet at: atomics, locks, tables made once, and what a thread has for itself.
//!
//! The parts whose threads meet without a lock take these from here. In every build that is used
//! they are `std`'s and `parking_lot`'s under their own names. Under `cfg(loom)` they are loom's,
//! which runs a test once for every way in which its threads can take turns, with every value that
//! a load may return on a machine whose stores arrive late; `ci/loom` runs those tests, and
//! `models` says how to write one.

#[cfg(loom)]
mod modelled;
#[cfg(all(test, loom))]
pub(crate) mod models;
mod tiny_lock;

#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{Arc as Counted, OnceLock, atomic},
    thread::yield_now,
};

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::{MutexGuard, atomic},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use self::modelled::{Condvar, Counted, Mutex, OnceLock};
pub(crate) use self::tiny_lock::{TinyGuard, TinyLock};

/// The size of a table: `usual`, or `modelled` where every entry is one more thing to follow.
pub(crate) const fn sized(usual: usize, modelled: usize) -> usize {
    if cfg!(loom) { modelled } else { usual }
}

/// A step that keeps threads apart. A model must fail without it: each has one that leaves it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(all(test, loom)), allow(dead_code))] // only models leave anything out
pub(crate) enum Step {
    /// The fence between announcing claims and looking at the words.
    AnnouncersFence,
    /// The fence between locking a word and reading the tickets.
    LockersFence,
    /// Waiting for a ticket that is not decided yet.
    UndecidedTicket,
    /// Giving up claims with a store that releases what was done under them.
    ClosingRelease,
    /// Filling a ticket again with stores that release what was done under its last launch.
    FillingRelease,
    /// Looking for claims on a block that is freed.
    HeldBlock,
    /// Taking the tiny lock with an exchange that acquires.
    LockAcquire,
    /// Releasing the tiny lock with a store that releases.
    LockRelease,
    /// Keeping an event that somebody holds from its next record.
    HeldEvent,
    /// Asking whether a point is done when its event is gone and a later one was found.
    LaterEvent,
    /// Reading the tick before the mode.
    TickBeforeMode,
    /// Not counting the launch whose tick may be the open one of others.
    OpenedTick,
    /// Settling no more than was pending before the stream was waited for.
    SeenBefore,
    /// Looking for claims before reads are forgotten.
    ReadersAtWork,
    /// The fence between closing a lane and looking for launches on it.
    ReleasersFence,
}

/// Whether a model leaves a step out.
#[cfg(not(all(test, loom)))]
#[inline(always)]
pub(crate) const fn leaves_out(_: Step) -> bool {
    false
}
#[cfg(all(test, loom))]
pub(crate) use self::models::leaves_out;

/// `std`'s `thread_local!`; under a model, one value for each thread of the model.
#[cfg(not(loom))]
macro_rules! own {
    ($($(#[$attribute:meta])* static $name:ident: $type:ty = const $value:block;)*) => {
        std::thread_local! { $($(#[$attribute])* static $name: $type = const $value;)* }
    };
}
#[cfg(loom)]
macro_rules! own {
    ($($(#[$attribute:meta])* static $name:ident: $type:ty = const $value:block;)*) => {
        loom::thread_local! { $($(#[$attribute])* static $name: $type = $value;)* }
    };
}

/// A plain `static`; under a model, a new one for each of its runs, which must all be alike.
#[cfg(not(loom))]
macro_rules! shared {
    (static $name:ident: $type:ty = $value:expr;) => {
        static $name: $type = $value;
    };
}
#[cfg(loom)]
macro_rules! shared {
    (static $name:ident: $type:ty = $value:expr;) => {
        loom::lazy_static! { static ref $name: $type = $value; }
    };
}
pub(crate) use {own, shared};
