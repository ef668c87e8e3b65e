//! The one lock written by hand.
//!
//! A lane's trail of events is locked for a few nanoseconds by every launch that records an event
//! and by every launch that waits for one. [`TinyLock`] costs one atomic exchange to take and a
//! plain store to release, half of what a parking lock costs. It spins, so it may only guard
//! sections that make no call which can block: no driver call, no caller's code.

use std::sync::atomic::{AtomicBool, Ordering};

use lock_api::{GuardSend, RawMutex};

/// A mutex over [`RawTinyLock`].
pub(crate) type TinyLock<T> = lock_api::Mutex<RawTinyLock, T>;

/// One byte: held or not.
#[derive(Debug)]
pub(crate) struct RawTinyLock(AtomicBool);

/// Looks before a waiter lets other threads run.
const SPINS: u32 = 64;

impl RawTinyLock {
    #[cold]
    fn lock_contended(&self) {
        let mut looks = 0;
        while self.0.load(Ordering::Relaxed) || !self.try_lock() {
            looks += 1;
            if looks % SPINS == 0 {
                // The holder may have been preempted: give it the core.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

// SAFETY: `try_lock` succeeds for one caller only until `unlock` stores `false` (the exchange is
// atomic), and acquire and release order the guarded data between holders.
unsafe impl RawMutex for RawTinyLock {
    #[allow(clippy::declare_interior_mutable_const)] // the trait's way to name an initial value
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let total = TinyLock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| *total.lock() += 1));
            }
        });
        assert_eq!(*total.lock(), 80_000);
        let guard = total.lock();
        assert!(total.try_lock().is_none());
        drop(guard);
        assert!(total.try_lock().is_some());
    }
}
