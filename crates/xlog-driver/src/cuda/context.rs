//! The device's primary context, and which context each thread has bound.
//!
//! Owns one hold on the primary context: the one every other CUDA library of the process uses, so
//! that memory and streams can be shared with them. A call leaves the context bound on its thread.
//! Orders nothing.

use std::{
    cell::Cell,
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use cudarc::driver::sys::{self, CUresult};

use super::failure::{self, DEINITIALIZED};
use crate::DriverResult;

thread_local! {
    /// The hold whose context this crate bound last on this thread; 0 for none. Without a
    /// destructor, so that drops reach it while the thread ends.
    static BOUND: Cell<u64> = const { Cell::new(0) };
}

/// Numbers the holds. A context's address comes back when a device is closed and opened again, a
/// number does not, so a thread never takes a dead context for the one that is bound.
static NEXT_HOLD: AtomicU64 = AtomicU64::new(1);

/// A hold on a device's primary context.
#[derive(Debug)]
pub(super) struct Context {
    device: sys::CUdevice,
    handle: sys::CUcontext,
    hold: u64,
}

// SAFETY: the handle is a name the driver understands on every thread; its calls lock by
// themselves, and what they need bound is bound per thread.
unsafe impl Send for Context {}
// SAFETY: as for `Send`; nothing here changes after `retain`.
unsafe impl Sync for Context {}

impl Context {
    /// Takes a hold on the primary context of `device`, and binds it here.
    pub(super) fn retain(device: sys::CUdevice) -> DriverResult<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: `device` came from `cuDeviceGet`; `handle` is a place for one handle.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut handle, device) };
        failure::check("cuDevicePrimaryCtxRetain", result)?;
        let hold = NEXT_HOLD.fetch_add(1, Ordering::Relaxed);
        let context = Self { device, handle, hold };
        context.bind()?;
        Ok(context)
    }

    /// Binds the context on this thread, whatever was bound before.
    pub(super) fn bind(&self) -> DriverResult<()> {
        // SAFETY: the context is alive as long as the hold, and `self` is the hold.
        let result = unsafe { sys::cuCtxSetCurrent(self.handle) };
        let bound = if result == CUresult::CUDA_SUCCESS { self.hold } else { 0 };
        BOUND.set(bound);
        failure::check("cuCtxSetCurrent", result)
    }

    /// Makes a call that is rare or slow, with the context certainly bound.
    pub(super) fn cold(
        &self,
        call: &'static str,
        operation: impl FnOnce() -> CUresult,
    ) -> DriverResult<()> {
        self.bind()?;
        failure::check(call, operation())
    }

    /// Makes a call that gives something back; succeeds without it once the driver has shut down.
    pub(super) fn give_back(
        &self,
        call: &'static str,
        operation: impl FnOnce() -> CUresult,
    ) -> DriverResult<()> {
        match self.bind() {
            Ok(()) => failure::check_given_back(call, operation()),
            Err(error) if error.code() == DEINITIALIZED => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes a call that is many and short.
    #[inline]
    pub(super) fn hot(
        &self,
        call: &'static str,
        operation: impl Fn() -> CUresult,
    ) -> DriverResult<()> {
        failure::check(call, self.hot_result(operation)?)
    }

    /// The same, for calls whose code is an answer.
    ///
    /// Binding costs a driver call of its own, about as much as the call it is made for, so it is
    /// left out where this crate bound the context last. Another library may have unbound it since,
    /// and nothing tells us; the driver then refuses with 201 before it has done anything, so
    /// binding and calling once more cannot do the work twice. Only 201: an invalid handle (400) is
    /// also what a destroyed stream gives, and a second try would only hide whose mistake it was.
    #[inline]
    pub(super) fn hot_result(&self, operation: impl Fn() -> CUresult) -> DriverResult<CUresult> {
        if BOUND.get() != self.hold {
            self.bind()?;
        }
        let result = operation();
        if result != CUresult::CUDA_ERROR_INVALID_CONTEXT {
            return Ok(result);
        }
        self.bind()?;
        Ok(operation())
    }

    /// Waits until everything in the context is done.
    pub(super) fn synchronize(&self) -> DriverResult<()> {
        // SAFETY: takes nothing; `cold` binds the context it is about.
        self.cold("cuCtxSynchronize", || unsafe { sys::cuCtxSynchronize() })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: gives back the one hold `retain` took; the driver keeps the context for others.
        let result = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        failure::report_drop(failure::check_given_back("cuDevicePrimaryCtxRelease_v2", result));
    }
}
