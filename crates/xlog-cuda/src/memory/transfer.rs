//! Copies and fills, recorded like any launch.
//!
//! Slices without tracked memory are copied synchronously, with the whole device at rest: nobody
//! knows what else touches them.

use std::{panic::Location, sync::Arc};

use bytemuck::Pod;
use xlog_driver::RawStream;

use super::{Download, SliceView};
use crate::{
    CudaDevice,
    device_runtime::{Access, ResourceError, ResourceResult, StreamId, XlogDeviceRuntime},
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
    let (staging, driver) = (&runtime.core().staging, runtime.device().driver());
    // One claim over all pieces: nobody sees a block that is half uploaded.
    let mut started = Enqueue { runtime: runtime.core(), stream, uses: &uses, place }.start()?;
    let pieces = bytes.len().div_ceil(UPLOAD_PIECE);
    for (index, piece) in bytes.chunks(UPLOAD_PIECE).enumerate() {
        let buffer = staging.take(piece.len())?;
        // SAFETY: the buffer has room for the piece, and no copy uses it.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), buffer.as_ptr(), piece.len()) }
        let destination = view.ptr() + (index * UPLOAD_PIECE) as u64;
        // SAFETY: the destination is claimed; the buffer is kept until the event is done.
        let copied = started.enqueue(|raw| unsafe {
            driver.copy_to_device(destination, buffer.as_ptr(), piece.len(), raw)
        });
        if let Err(error) = copied {
            staging.give_back(buffer, None);
            return Err(error);
        }
        if index + 1 == pieces {
            let event = started.finish_with_event();
            return staging.give_back_behind(buffer, event, runtime, stream);
        }
        staging.give_back_behind(buffer, started.event_so_far(), runtime, stream)?;
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
    let (staging, driver) = (&runtime.core().staging, runtime.device().driver());
    let place = Location::caller();
    let mut started = Enqueue { runtime: runtime.core(), stream, uses: &uses, place }.start()?;
    let buffer = staging.take(bytes)?;
    // SAFETY: the source is claimed; the buffer is kept until the event is done.
    let copied = started
        .enqueue(|raw| unsafe { driver.copy_to_host(buffer.as_ptr(), view.ptr(), bytes, raw) });
    if let Err(error) = copied {
        staging.give_back(buffer, None);
        return Err(error);
    }
    match started.finish_with_event() {
        Ok(event) => Ok(Download::staged(Arc::clone(runtime), buffer, event, view.len())),
        Err(error) => {
            staging.give_back_behind(buffer, Err(error.clone()), runtime, stream).and(Err(error))
        }
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
