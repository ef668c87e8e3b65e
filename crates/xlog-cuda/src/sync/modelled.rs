//! Loom's locks and counters, in the shape of those they stand for.

use std::{
    marker::PhantomData,
    ops::Deref,
    ptr,
    sync::{PoisonError, TryLockError},
    time::Duration,
};

use loom::sync::{
    MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};

/// `parking_lot`'s mutex: nothing poisons it.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `parking_lot`'s condition variable, whose naps are over at once: nobody may count on being woken
/// before a nap ends.
#[derive(Debug, Default)]
pub(crate) struct Condvar(PhantomData<()>);

impl Condvar {
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _nap: Duration) {
        // The lock stays held: whoever gives up a claim wants it only to wake a sleeper.
        let _ = guard;
    }

    pub(crate) fn notify_all(&self) {}
}

/// `std`'s table made once: whoever finds it sees all of it.
pub(crate) struct OnceLock<T>(AtomicPtr<T>);

// SAFETY: as for `std`'s: it owns a `T`, hands out `&T` to any thread, and may be filled by one
// thread and dropped by another.
unsafe impl<T: Send> Send for OnceLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: null, or a box that was leaked into here, and is freed with `self` alone.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(made) = self.get() {
            return made;
        }
        let fresh = Box::into_raw(Box::new(make()));
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match self.0.compare_exchange(ptr::null_mut(), fresh, order.0, order.1) {
            // SAFETY: just made, and now owned by `self`.
            Ok(_) => unsafe { &*fresh },
            Err(theirs) => {
                // SAFETY: just made, and nobody has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                // SAFETY: somebody else's, owned by `self`.
                unsafe { &*theirs }
            }
        }
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        let made = self.0.with_mut(|made| *made);
        if !made.is_null() {
            // SAFETY: leaked into here, and nobody has `self` any more.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

/// `std`'s counted pointer, with a count that a model looks at.
#[derive(Debug)]
pub(crate) struct Counted<T>(std::sync::Arc<(AtomicUsize, T)>);

impl<T> Counted<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::sync::Arc::new((AtomicUsize::new(1), value)))
    }

    pub(crate) fn strong_count(this: &Self) -> usize {
        this.0.0.load(Ordering::Relaxed)
    }

    /// The value, if this was the last.
    pub(crate) fn into_inner(this: Self) -> Option<T> {
        let inner = std::sync::Arc::clone(&this.0);
        drop(this);
        std::sync::Arc::into_inner(inner).map(|(_, value)| value)
    }
}

impl<T> Clone for Counted<T> {
    fn clone(&self) -> Self {
        self.0.0.fetch_add(1, Ordering::Relaxed);
        Self(std::sync::Arc::clone(&self.0))
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}
