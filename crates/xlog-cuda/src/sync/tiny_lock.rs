//! The one lock written by hand.
//!
//! A lane's trail of events is locked for a few nanoseconds by every launch that records an event
//! and by every launch that waits for one. [`TinyLock`] costs one atomic exchange to take and a
//! plain store to release, half of what a parking lock costs. It spins, so it may only guard
//! sections that make no call which can block: no driver call, no caller's code.

use super::{
    Step,
    atomic::{AtomicBool, Ordering},
    leaves_out, spin_loop, yield_now,
};

/// One byte: held or not.
#[derive(Debug)]
pub(crate) struct RawTinyLock(AtomicBool);

/// Looks before a waiter lets other threads run.
const SPINS: u32 = 64;

impl RawTinyLock {
    #[inline]
    fn take(&self) {
        if !self.try_take() {
            self.take_contended();
        }
    }

    #[cold]
    fn take_contended(&self) {
        let mut looks = 0;
        while self.0.load(Ordering::Relaxed) || !self.try_take() {
            looks += 1;
            if looks % SPINS == 0 {
                // The holder may have been preempted: give it the core.
                yield_now();
            } else {
                spin_loop();
            }
        }
    }

    #[inline]
    fn try_take(&self) -> bool {
        let acquires = !leaves_out(Step::LockAcquire);
        !self.0.swap(true, if acquires { Ordering::Acquire } else { Ordering::Relaxed })
    }

    #[inline]
    fn give_back(&self) {
        let releases = !leaves_out(Step::LockRelease);
        let order = if releases { Ordering::Release } else { Ordering::Relaxed };
        if cfg!(loom) {
            // A store and an exchange at once stay in no order in a model, and whoever failed to
            // exchange would find its own value there for ever.
            self.0.swap(false, order);
        } else {
            self.0.store(false, order);
        }
    }
}

#[cfg(not(loom))]
mod frame {
    use lock_api::{GuardSend, RawMutex};

    use super::{AtomicBool, RawTinyLock};

    /// A mutex over [`RawTinyLock`].
    pub(crate) type TinyLock<T> = lock_api::Mutex<RawTinyLock, T>;
    /// What is guarded, until it is dropped.
    pub(crate) type TinyGuard<'l, T> = lock_api::MutexGuard<'l, RawTinyLock, T>;

    // SAFETY: `try_take` succeeds for one caller only until `give_back` stores `false` (the
    // exchange is atomic), and acquire and release order the guarded data between holders.
    unsafe impl RawMutex for RawTinyLock {
        #[allow(clippy::declare_interior_mutable_const)] // the trait's way to name an initial value
        const INIT: Self = Self(AtomicBool::new(false));
        type GuardMarker = GuardSend;

        #[inline]
        fn lock(&self) {
            self.take();
        }

        #[inline]
        fn try_lock(&self) -> bool {
            self.try_take()
        }

        #[inline]
        unsafe fn unlock(&self) {
            self.give_back();
        }
    }
}

/// The same frame around a cell that a model watches: loom's atomics have no constant value, which
/// `lock_api` asks for.
#[cfg(loom)]
mod frame {
    use std::ops::{Deref, DerefMut};

    use loom::cell::{MutPtr, UnsafeCell};

    use super::{AtomicBool, RawTinyLock};

    #[derive(Debug)]
    pub(crate) struct TinyLock<T> {
        raw: RawTinyLock,
        value: UnsafeCell<T>,
    }

    // SAFETY: the value is reached only by the one holder of the lock, as in `lock_api`.
    unsafe impl<T: Send> Sync for TinyLock<T> {}

    impl<T> TinyLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { raw: RawTinyLock(AtomicBool::new(false)), value: UnsafeCell::new(value) }
        }

        pub(crate) fn lock(&self) -> TinyGuard<'_, T> {
            self.raw.take();
            TinyGuard { value: Some(self.value.get_mut()), raw: &self.raw }
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            let value = self.value.with_mut(|value| value);
            // SAFETY: `self` is borrowed alone for as long as the answer is.
            unsafe { &mut *value }
        }
    }

    impl<T: Default> Default for TinyLock<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    #[derive(Debug)]
    pub(crate) struct TinyGuard<'l, T> {
        value: Option<MutPtr<T>>,
        raw: &'l RawTinyLock,
    }

    impl<T> TinyGuard<'_, T> {
        fn value(&self) -> &MutPtr<T> {
            self.value.as_ref().expect("there until the guard is dropped")
        }
    }

    impl<T> Deref for TinyGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            // SAFETY: the lock is held while the guard lives.
            unsafe { self.value().deref() }
        }
    }

    impl<T> DerefMut for TinyGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: the lock is held while the guard lives, and the guard is borrowed alone.
            unsafe { self.value().deref() }
        }
    }

    impl<T> Drop for TinyGuard<'_, T> {
        fn drop(&mut self) {
            // Out of the cell before somebody else goes in.
            self.value = None;
            self.raw.give_back();
        }
    }
}

pub(crate) use self::frame::{TinyGuard, TinyLock};

#[cfg(all(test, not(loom)))]
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
