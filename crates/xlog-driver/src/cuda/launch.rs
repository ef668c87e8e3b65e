//! Kernel launches.
//!
//! Owns nothing. The caller matches arguments to parameters, as [`Driver`](crate::Driver) says;
//! only their number is checked, since it bounds the table built here. A launch enqueues behind
//! what its stream holds. It takes no lock and allocates nothing.

use std::{
    ffi::c_void,
    ptr::{self, null_mut},
};

use cudarc::driver::sys;

use super::{context::Context, stream};
use crate::{
    Arguments, DriverError, DriverResult, LaunchDims, MAX_ARGUMENTS, RawFunction, RawStream,
};

#[inline]
pub(super) unsafe fn launch(
    context: &Context,
    function: RawFunction,
    dims: LaunchDims,
    arguments: &Arguments,
    stream: RawStream,
) -> DriverResult<()> {
    let slots = arguments.slots();
    if slots.len() > MAX_ARGUMENTS {
        return Err(too_many(slots.len()));
    }
    // The driver wants the address of each argument, and reads as many bytes there as the
    // parameter has: the low ones of its slot.
    let mut addresses = [null_mut::<c_void>(); MAX_ARGUMENTS];
    for (address, slot) in addresses.iter_mut().zip(slots) {
        *address = ptr::from_ref(slot).cast_mut().cast();
    }
    let addresses = addresses.as_mut_ptr();
    let (function, stream) = (function.0 as sys::CUfunction, stream::handle(stream));
    let LaunchDims { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes } = dims;
    context.hot("cuLaunchKernel", || {
        // SAFETY: the caller passes a live kernel and a live stream of this driver, and arguments
        // that match the parameters; their slots, which the driver only reads, and the table of
        // their addresses outlive the call, and it copies them before it returns.
        unsafe {
            sys::cuLaunchKernel(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shared_bytes,
                stream,
                addresses,
                null_mut(),
            )
        }
    })
}

#[cold]
fn too_many(count: usize) -> DriverError {
    DriverError::from(format!(
        "a kernel takes at most {MAX_ARGUMENTS} arguments and this launch has {count}: pass a \
         pointer to a table of them",
    ))
}
