//! Copies and fills, enqueued.
//!
//! Owns nothing. Pointers, lengths and streams are trusted, as [`Driver`](crate::Driver) says.
//! Each enqueues behind what its stream holds. Nothing to copy is nothing to enqueue, whatever the
//! pointers: an empty range has no address the driver must accept.

use cudarc::driver::sys;

use super::{context::Context, stream};
use crate::{DriverResult, RawStream};

pub(super) unsafe fn to_device(
    context: &Context,
    destination: u64,
    source: *const u8,
    bytes: usize,
    stream: RawStream,
) -> DriverResult<()> {
    if bytes == 0 {
        return Ok(());
    }
    let (source, stream) = (source.cast(), stream::handle(stream));
    context.hot("cuMemcpyHtoDAsync_v2", || {
        // SAFETY: the caller passes a live stream and two live ranges of `bytes` bytes, and keeps
        // them until the stream has passed the copy.
        unsafe { sys::cuMemcpyHtoDAsync_v2(destination, source, bytes, stream) }
    })
}

pub(super) unsafe fn to_host(
    context: &Context,
    destination: *mut u8,
    source: u64,
    bytes: usize,
    stream: RawStream,
) -> DriverResult<()> {
    if bytes == 0 {
        return Ok(());
    }
    let (destination, stream) = (destination.cast(), stream::handle(stream));
    context.hot("cuMemcpyDtoHAsync_v2", || {
        // SAFETY: as in `to_device`; nobody else touches the host range meanwhile.
        unsafe { sys::cuMemcpyDtoHAsync_v2(destination, source, bytes, stream) }
    })
}

pub(super) unsafe fn on_device(
    context: &Context,
    destination: u64,
    source: u64,
    bytes: usize,
    stream: RawStream,
) -> DriverResult<()> {
    if bytes == 0 {
        return Ok(());
    }
    let stream = stream::handle(stream);
    context.hot("cuMemcpyDtoDAsync_v2", || {
        // SAFETY: as in `to_device`; the caller passes ranges that do not overlap.
        unsafe { sys::cuMemcpyDtoDAsync_v2(destination, source, bytes, stream) }
    })
}

pub(super) unsafe fn fill(
    context: &Context,
    destination: u64,
    value: u8,
    bytes: usize,
    stream: RawStream,
) -> DriverResult<()> {
    if bytes == 0 {
        return Ok(());
    }
    let stream = stream::handle(stream);
    context.hot("cuMemsetD8Async", || {
        // SAFETY: the caller passes a live stream and a live range of `bytes` bytes, and keeps it
        // until the stream has passed the fill.
        unsafe { sys::cuMemsetD8Async(destination, value, bytes, stream) }
    })
}
