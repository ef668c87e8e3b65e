//! Memory that is not tied to a stream: on the device, and pinned on the host.
//!
//! Owns none of it. Pointers are trusted, as [`Driver`](crate::Driver) says. Device memory is
//! valid on every stream at once, and is given back only behind everything the device still does.

use std::ptr;

use cudarc::driver::sys;

use super::{context::Context, failure};
use crate::{DriverResult, MemoryInfo};

pub(super) fn info(context: &Context) -> DriverResult<MemoryInfo> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the context is bound; both are places for one number.
    context.cold("cuMemGetInfo_v2", || unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
    Ok(MemoryInfo { free: free as u64, total: total as u64 })
}

pub(super) fn allocate(context: &Context, bytes: usize) -> DriverResult<u64> {
    let mut pointer = 0;
    // SAFETY: the context is bound; `pointer` is a place for one address.
    context.cold("cuMemAlloc_v2", || unsafe { sys::cuMemAlloc_v2(&mut pointer, bytes) })?;
    Ok(pointer)
}

/// Waits for the device and frees. The wait is made here, and not left to the driver: that its free
/// waits is a habit, not a promise.
pub(super) unsafe fn free(context: &Context, pointer: u64) -> DriverResult<()> {
    match context.synchronize() {
        Err(error) if error.code() == failure::DEINITIALIZED => return Ok(()),
        // Memory that work may still use is not given back.
        answer => answer?,
    }
    // SAFETY: the caller passes what `allocate` gave, and uses it no more; all work is done.
    context.give_back("cuMemFree_v2", || unsafe { sys::cuMemFree_v2(pointer) })
}

/// Portable, because several devices may copy from one buffer, and mapped, because kernels read it
/// in place; with one address space for host and device the address is the same for both.
pub(super) fn allocate_pinned(context: &Context, bytes: usize) -> DriverResult<*mut u8> {
    let mut pointer = ptr::null_mut();
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    context.cold("cuMemHostAlloc", || {
        // SAFETY: the context is bound; `pointer` is a place for one address.
        unsafe { sys::cuMemHostAlloc(&mut pointer, bytes, flags) }
    })?;
    Ok(pointer.cast())
}

pub(super) unsafe fn free_pinned(context: &Context, pointer: *mut u8) -> DriverResult<()> {
    // SAFETY: the caller passes what `allocate_pinned` gave, and no copy uses it any more.
    context.give_back("cuMemFreeHost", || unsafe { sys::cuMemFreeHost(pointer.cast()) })
}
