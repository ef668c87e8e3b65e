//! The pool that stream-ordered memory comes from.
//!
//! Owns the memory it has reserved, until it is trimmed or dropped. Pointers and streams are
//! trusted, as [`Driver`](crate::Driver) says. Memory is valid on its stream from the allocation
//! on, and may be handed out again from where it was freed; the pool adds no wait of its own.

use std::ptr;

use cudarc::driver::sys::{
    self, CUmemAllocationHandleType as HandleType, CUmemAllocationType as AllocationType,
    CUmemLocationType as LocationType, CUmemPool_attribute as Attribute,
};

use super::{context::Context, failure, stream};
use crate::{DriverResult, RawStream};

/// A memory pool of one device. The device's default pool would do, but belongs to everyone in the
/// process: how it reuses memory is not ours to change.
#[derive(Debug)]
pub(super) struct MemoryPool {
    handle: sys::CUmemoryPool,
}

// SAFETY: the handle is a name the driver understands on every thread; its calls lock by
// themselves.
unsafe impl Send for MemoryPool {}
// SAFETY: as for `Send`; the handle does not change.
unsafe impl Sync for MemoryPool {}

impl MemoryPool {
    /// A pool of memory on `device`, for this process alone.
    pub(super) fn create(context: &Context, device: sys::CUdevice) -> DriverResult<Self> {
        let properties = sys::CUmemPoolProps {
            allocType: AllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: HandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: sys::CUmemLocation {
                type_: LocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: device,
            },
            win32SecurityAttributes: ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut handle = ptr::null_mut();
        context.cold("cuMemPoolCreate", || {
            // SAFETY: the properties are complete, their spare bytes zero; `handle` is a place for
            // one handle.
            unsafe { sys::cuMemPoolCreate(&mut handle, &properties) }
        })?;
        let pool = Self { handle };
        // Keep what was reserved: giving it back at every synchronisation, the default, makes the
        // next allocation a slow one. Nobody is starved, since `trim` gives it back in need.
        pool.set(Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
        // Reuse across streams where the runtime's own waits allow it, or where the work is done.
        pool.set(Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1i32)?;
        pool.set(Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1i32)?;
        // Never by a wait the driver inserts: an edge between two streams that the tracker does not
        // know of can close a circle, and then the program hangs.
        pool.set(Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0i32)?;
        Ok(pool)
    }

    /// Sets an attribute; `T` is the type the driver documents for it, `i32` or `u64`.
    fn set<T>(&self, attribute: Attribute, mut value: T) -> DriverResult<()> {
        let value = ptr::from_mut(&mut value).cast();
        // SAFETY: the pool is alive, and the value has the attribute's type: `create`, the only
        // caller, passes a `u64` for the threshold and an `i32` for the rest.
        let result = unsafe { sys::cuMemPoolSetAttribute(self.handle, attribute, value) };
        failure::check("cuMemPoolSetAttribute", result)
    }

    pub(super) unsafe fn allocate(
        &self,
        context: &Context,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<u64> {
        let (pool, stream) = (self.handle, stream::handle(stream));
        let mut pointer = 0;
        context.cold("cuMemAllocFromPoolAsync", || {
            // SAFETY: the pool is alive, and the caller passes a live stream of this driver;
            // `pointer` is a place for one address.
            unsafe { sys::cuMemAllocFromPoolAsync(&mut pointer, bytes, pool, stream) }
        })?;
        Ok(pointer)
    }

    /// Gives memory nobody holds back to the device.
    pub(super) fn trim(&self) -> DriverResult<()> {
        // SAFETY: the pool is alive.
        let result = unsafe { sys::cuMemPoolTrimTo(self.handle, 0) };
        failure::check("cuMemPoolTrimTo", result)
    }
}

/// Frees memory of a pool; which one, the driver knows.
pub(super) unsafe fn free(context: &Context, pointer: u64, stream: RawStream) -> DriverResult<()> {
    context.give_back("cuMemFreeAsync", || {
        // SAFETY: the caller passes what `allocate` gave and a live stream of this driver, and has
        // ordered every other use before this point of it.
        unsafe { sys::cuMemFreeAsync(pointer, stream::handle(stream)) }
    })
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        // SAFETY: the pool is alive until here. Allocations that are still out stay valid: the
        // driver destroys the pool when the last of them is freed.
        let result = unsafe { sys::cuMemPoolDestroy(self.handle) };
        failure::report_drop(failure::check_given_back("cuMemPoolDestroy", result));
    }
}
