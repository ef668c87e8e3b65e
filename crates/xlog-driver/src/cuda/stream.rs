//! Streams of the CUDA device.
//!
//! Owns none: a stream belongs to whoever created it. Handles are trusted, as
//! [`Driver`](crate::Driver) says. A stream is made non-blocking, so it neither waits for the
//! legacy default stream nor is waited for by it.

use std::ptr;

use cudarc::driver::sys::{
    self, CUresult, CUstream_flags as StreamFlags, CUstreamCaptureStatus as CaptureStatus,
};

use super::{context::Context, failure};
use crate::{DriverResult, RawStream, StreamProgress};

/// The driver's own handle.
#[inline]
pub(super) const fn handle(stream: RawStream) -> sys::CUstream {
    stream.0 as sys::CUstream
}

pub(super) fn create(context: &Context) -> DriverResult<RawStream> {
    let mut stream = ptr::null_mut();
    let flags = StreamFlags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: the context is bound; `stream` is a place for one handle.
    context.cold("cuStreamCreate", || unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
    Ok(RawStream(stream as u64))
}

pub(super) unsafe fn destroy(context: &Context, stream: RawStream) -> DriverResult<()> {
    // SAFETY: the caller passes a live stream of this driver, and uses it no more.
    context.give_back("cuStreamDestroy_v2", || unsafe { sys::cuStreamDestroy_v2(handle(stream)) })
}

pub(super) unsafe fn synchronize(context: &Context, stream: RawStream) -> DriverResult<()> {
    // SAFETY: the caller passes a live stream of this driver.
    context.cold("cuStreamSynchronize", || unsafe { sys::cuStreamSynchronize(handle(stream)) })
}

pub(super) unsafe fn progress(
    context: &Context,
    stream: RawStream,
) -> DriverResult<StreamProgress> {
    // SAFETY: the caller passes a live stream of this driver.
    match context.hot_result(|| unsafe { sys::cuStreamQuery(handle(stream)) })? {
        CUresult::CUDA_ERROR_NOT_READY => Ok(StreamProgress::Busy),
        result => failure::check("cuStreamQuery", result).map(|()| StreamProgress::Idle),
    }
}

pub(super) unsafe fn is_capturing(context: &Context, stream: RawStream) -> DriverResult<bool> {
    let mut status = CaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let place = ptr::from_mut(&mut status);
    context.hot("cuStreamIsCapturing", || {
        // SAFETY: the caller passes a live stream of this driver; `place` points at a status that
        // outlives the call.
        unsafe { sys::cuStreamIsCapturing(handle(stream), place) }
    })?;
    // An invalidated capture still holds the stream until somebody ends it.
    Ok(status != CaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}
