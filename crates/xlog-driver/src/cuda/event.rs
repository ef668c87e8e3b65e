//! Events of the CUDA device.
//!
//! Owns none: an event belongs to whoever created it. Handles are trusted, as
//! [`Driver`](crate::Driver) says. A wait is for what the event stands for at the time of the
//! call; recording the event again does not move it.

use std::ptr;

use cudarc::driver::sys::{
    self, CUevent_flags as EventFlags, CUevent_wait_flags as WaitFlags, CUresult,
};

use super::{context::Context, failure, stream};
use crate::{DriverResult, RawEvent, RawStream};

#[inline]
const fn handle(event: RawEvent) -> sys::CUevent {
    event.0 as sys::CUevent
}

/// An event without timing: recording one that keeps the time costs the stream a drain.
pub(super) fn create(context: &Context) -> DriverResult<RawEvent> {
    create_with(context, EventFlags::CU_EVENT_DISABLE_TIMING as u32)
}

/// An event that keeps the time.
pub(super) fn create_timed(context: &Context) -> DriverResult<RawEvent> {
    create_with(context, EventFlags::CU_EVENT_DEFAULT as u32)
}

fn create_with(context: &Context, flags: u32) -> DriverResult<RawEvent> {
    let mut event = ptr::null_mut();
    // SAFETY: the context is bound; `event` is a place for one handle.
    context.cold("cuEventCreate", || unsafe { sys::cuEventCreate(&mut event, flags) })?;
    Ok(RawEvent(event as u64))
}

pub(super) unsafe fn destroy(context: &Context, event: RawEvent) -> DriverResult<()> {
    // SAFETY: the caller passes a live event of this driver, and uses it no more.
    context.give_back("cuEventDestroy_v2", || unsafe { sys::cuEventDestroy_v2(handle(event)) })
}

#[inline]
pub(super) unsafe fn record(
    context: &Context,
    event: RawEvent,
    stream: RawStream,
) -> DriverResult<()> {
    context.hot("cuEventRecord", || {
        // SAFETY: the caller passes a live event and a live stream of this driver.
        unsafe { sys::cuEventRecord(handle(event), stream::handle(stream)) }
    })
}

#[inline]
pub(super) unsafe fn wait(
    context: &Context,
    stream: RawStream,
    event: RawEvent,
) -> DriverResult<()> {
    let flags = WaitFlags::CU_EVENT_WAIT_DEFAULT as u32;
    context.hot("cuStreamWaitEvent", || {
        // SAFETY: the caller passes a live stream and a live event of this driver.
        unsafe { sys::cuStreamWaitEvent(stream::handle(stream), handle(event), flags) }
    })
}

#[inline]
pub(super) unsafe fn done(context: &Context, event: RawEvent) -> DriverResult<bool> {
    // SAFETY: the caller passes a live event of this driver.
    match context.hot_result(|| unsafe { sys::cuEventQuery(handle(event)) })? {
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        result => failure::check("cuEventQuery", result).map(|()| true),
    }
}

pub(super) unsafe fn synchronize(context: &Context, event: RawEvent) -> DriverResult<()> {
    // SAFETY: the caller passes a live event of this driver.
    context.cold("cuEventSynchronize", || unsafe { sys::cuEventSynchronize(handle(event)) })
}

/// Milliseconds from one event that keeps the time to another, in half-microsecond steps; negative
/// if the second was first. `None` while either is still to come.
pub(super) unsafe fn elapsed(
    context: &Context,
    from: RawEvent,
    to: RawEvent,
) -> DriverResult<Option<f32>> {
    let mut milliseconds = 0.0;
    let place = ptr::from_mut(&mut milliseconds);
    // SAFETY: the caller passes two live events of this driver; `place` outlives the call.
    let call = || unsafe { sys::cuEventElapsedTime_v2(place, handle(from), handle(to)) };
    match context.hot_result(call)? {
        CUresult::CUDA_ERROR_NOT_READY => Ok(None),
        result => failure::check("cuEventElapsedTime_v2", result).map(|()| Some(milliseconds)),
    }
}
