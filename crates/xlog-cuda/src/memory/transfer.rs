//! Copies and fills, recorded like any launch.
//!
//! Slices without tracked memory are copied synchronously, with the whole device at rest: nobody
//! knows what else touches them.

use std::{panic::Location, sync::Arc};

use bytemuck::Pod;
use xlog_driver::RawStream;

use super::{Download, PinnedCopy, PinnedCopyError, SliceView};
use crate::{
    CudaDevice,
    device_runtime::{
        Access, LastCopy, PinnedBuffer, ResourceError, ResourceResult, StreamId, XlogDeviceRuntime,
        tracker::HeldEvent,
    },
    launch::{Enqueue, Uses},
};

/// Bytes a large upload stages at a time: enough to keep the bus busy, little enough to pin.
const UPLOAD_PIECE: usize = 8 << 20;

/// The runtime that tracks a view's memory, if there is one.
fn tracking_runtime<'v, T: Pod>(view: &SliceView<'v, T>) -> Option<&'v Arc<XlogDeviceRuntime>> {
    view.slice().runtime().filter(|runtime| runtime.supports_block_use_tracking())
}

#[track_caller]
pub(super) fn upload<T: Pod>(
    view: &SliceView<'_, T>,
    values: &[T],
    stream: StreamId,
) -> ResourceResult<()> {
    same_length(values.len(), view.len())?;
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let Some(runtime) = tracking_runtime(view) else {
        return at_rest(&view.slice().core().device, |driver, raw| {
            // SAFETY: both ranges have `bytes.len()` bytes, and `at_rest` waits for the copy.
            unsafe { driver.copy_to_device(view.ptr(), bytes.as_ptr(), bytes.len(), raw) }
        });
    };
    let place = Location::caller();
    let uses = Uses::of([(view.declaration(), Access::Write)]);
    let (staging, driver) = (runtime.staging(), runtime.device().driver());
    // One claim over all pieces: nobody sees a block that is half uploaded.
    let mut started = Enqueue { runtime: runtime.core(), stream, uses: &uses, place }.start()?;
    let pieces = bytes.len().div_ceil(UPLOAD_PIECE);
    for (index, piece) in bytes.chunks(UPLOAD_PIECE).enumerate() {
        let mut buffer = staging.allocate(piece.len())?;
        buffer.copy_from_slice(piece);
        let destination = view.ptr() + (index * UPLOAD_PIECE) as u64;
        // SAFETY: the destination is claimed; the buffer is kept until the event is done.
        started.enqueue(|raw| unsafe {
            driver.copy_to_device(destination, buffer.pointer(), piece.len(), raw)
        })?;
        if index + 1 == pieces {
            drop(follow(started.finish_with_event(), buffer, runtime, stream)?);
            return Ok(());
        }
        // Not waited for: the buffer goes back behind its piece.
        drop(follow(started.event_so_far(), buffer, runtime, stream)?);
    }
    Ok(())
}

#[track_caller]
pub(super) fn download<T: Pod>(
    view: &SliceView<'_, T>,
    stream: StreamId,
) -> ResourceResult<Download<T>> {
    let bytes = view.bytes();
    let Some(runtime) = tracking_runtime(view) else {
        let mut values = vec![0u8; bytes];
        at_rest(&view.slice().core().device, |driver, raw| {
            // SAFETY: both ranges have `bytes` bytes, and `at_rest` waits for the copy.
            unsafe { driver.copy_to_host(values.as_mut_ptr(), view.ptr(), bytes, raw) }
        })?;
        return Ok(Download::done(values, view.len()));
    };
    let uses = Uses::of([(view.declaration(), Access::Read)]);
    let driver = runtime.device().driver();
    let place = Location::caller();
    let mut started = Enqueue { runtime: runtime.core(), stream, uses: &uses, place }.start()?;
    // A view may be empty; a buffer never is.
    let buffer = runtime.staging().allocate(bytes.max(1))?;
    let host = buffer.pointer();
    // SAFETY: the source is claimed; the buffer is kept until the event is done.
    started.enqueue(|raw| unsafe { driver.copy_to_host(host, view.ptr(), bytes, raw) })?;
    let copy = follow(started.finish_with_event(), buffer, runtime, stream)?;
    Ok(Download::staged(copy, view.len()))
}

/// Work on `buffer` was enqueued, a copy or a report, and `event` is behind it. If there is no
/// event to be had, everything on the stream is waited for instead; if even that fails, the buffer
/// is left behind.
pub(super) fn follow(
    event: ResourceResult<HeldEvent>,
    buffer: PinnedBuffer,
    runtime: &XlogDeviceRuntime,
    stream: StreamId,
) -> Result<PinnedCopy, PinnedCopyError> {
    match event {
        Ok(event) => Ok(PinnedCopy::started(buffer, LastCopy::new(event, stream, runtime))),
        Err(error) => Err(not_followed(error, buffer, || runtime.synchronize(stream))),
    }
}

/// The answer for a copy that may have been enqueued: the buffer comes back if `wait` knows that it
/// is over.
fn not_followed(
    error: ResourceError,
    buffer: PinnedBuffer,
    wait: impl FnOnce() -> ResourceResult<()>,
) -> PinnedCopyError {
    let buffer = match wait() {
        Ok(()) => Some(buffer),
        Err(_) => {
            buffer.leave_behind();
            None
        }
    };
    PinnedCopyError { error, buffer }
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToDevice,
    ToHost,
}

/// Copies between a view and a pinned buffer of the caller's, which the answer owns.
#[track_caller]
pub(super) fn copy_pinned<T: Pod>(
    view: &SliceView<'_, T>,
    buffer: PinnedBuffer,
    way: Way,
    stream: StreamId,
) -> Result<PinnedCopy, PinnedCopyError> {
    let (ptr, bytes, device) = (view.ptr(), view.bytes(), &view.slice().core().device);
    if buffer.len() != bytes {
        let error = format!(
            "a buffer of {} bytes for a range of {bytes}; allocate one of the same size",
            buffer.len()
        );
        return Err(PinnedCopyError { error: error.into(), buffer: Some(buffer) });
    }
    let host = buffer.pointer();
    // SAFETY: both ranges have `bytes` bytes. Whoever calls this has the device at rest, or the
    // view's block claimed, and keeps the buffer until the copy is over.
    let enqueue = |driver: &dyn xlog_driver::Driver, raw| unsafe {
        match way {
            Way::ToDevice => driver.copy_to_device(ptr, host, bytes, raw),
            Way::ToHost => driver.copy_to_host(host, ptr, bytes, raw),
        }
    };
    let Some(runtime) = tracking_runtime(view) else {
        return match at_rest(device, enqueue) {
            Ok(()) => Ok(PinnedCopy::done(buffer)),
            Err(error) => Err(not_followed(error, buffer, || device.synchronize())),
        };
    };
    let access = if way == Way::ToDevice { Access::Write } else { Access::Read };
    let uses = Uses::of([(view.declaration(), access)]);
    let place = Location::caller();
    let started = Enqueue { runtime: runtime.core(), stream, uses: &uses, place }.start();
    let enqueued = started.and_then(|mut started| {
        started.enqueue(|raw| enqueue(runtime.device().driver(), raw))?;
        Ok(started)
    });
    match enqueued {
        Ok(started) => follow(started.finish_with_event(), buffer, runtime, stream),
        // Nothing was enqueued.
        Err(error) => Err(PinnedCopyError { error, buffer: Some(buffer) }),
    }
}

#[track_caller]
pub(super) fn copy<T: Pod>(
    source: &SliceView<'_, T>,
    destination: &SliceView<'_, T>,
    stream: StreamId,
) -> ResourceResult<()> {
    same_length(source.len(), destination.len())?;
    let (from, to, bytes) = (source.ptr(), destination.ptr(), source.bytes());
    let device = &source.slice().core().device;
    if device.identity() != destination.slice().core().device.identity() {
        return Err("the two slices are on different devices; download and upload instead".into());
    }
    let (Some(runtime), Some(_)) = (tracking_runtime(source), tracking_runtime(destination)) else {
        return at_rest(device, |driver, raw| {
            // SAFETY: both ranges have `bytes` bytes, and the device is at rest.
            unsafe { driver.copy_on_device(to, from, bytes, raw) }
        });
    };
    let (from_block, to_block) = (source.declaration(), destination.declaration());
    let uses = Uses::of([(from_block, Access::Read), (to_block, Access::Write)]);
    let driver = runtime.device().driver();
    let enqueue =
        Enqueue { runtime: runtime.core(), stream, uses: &uses, place: Location::caller() };
    // SAFETY: both ranges have `bytes` bytes, and both blocks are recorded.
    enqueue.run(|raw| unsafe { driver.copy_on_device(to, from, bytes, raw) })
}

#[track_caller]
pub(super) fn fill_bytes<T: Pod>(
    view: &SliceView<'_, T>,
    value: u8,
    stream: StreamId,
) -> ResourceResult<()> {
    let Some(runtime) = tracking_runtime(view) else {
        return at_rest(&view.slice().core().device, |driver, raw| {
            // SAFETY: the view has that many bytes, and the device is at rest.
            unsafe { driver.fill_bytes(view.ptr(), value, view.bytes(), raw) }
        });
    };
    let uses = Uses::of([(view.declaration(), Access::Write)]);
    let driver = runtime.device().driver();
    let enqueue =
        Enqueue { runtime: runtime.core(), stream, uses: &uses, place: Location::caller() };
    // SAFETY: the view has that many bytes, and its block is recorded.
    enqueue.run(|raw| unsafe { driver.fill_bytes(view.ptr(), value, view.bytes(), raw) })
}

/// Runs one operation with everything before it done, and waits for it.
fn at_rest(
    device: &CudaDevice,
    operation: impl FnOnce(&dyn xlog_driver::Driver, RawStream) -> xlog_driver::DriverResult<()>,
) -> ResourceResult<()> {
    device.synchronize()?;
    let driver = device.driver();
    let raw = device.note(driver.create_stream())?;
    // SAFETY: the stream was created just now; it is destroyed once, after the last use.
    let (waited, destroyed) = unsafe {
        let done = operation(driver, raw).and_then(|()| driver.synchronize_stream(raw));
        (done, driver.destroy_stream(raw))
    };
    device.note(waited).and(device.note(destroyed))
}

fn same_length(given: usize, needed: usize) -> ResourceResult<()> {
    if given == needed {
        return Ok(());
    }
    Err(ResourceError::Driver(
        format!("{given} values for a range of {needed}; take a view of the part you mean").into(),
    ))
}
