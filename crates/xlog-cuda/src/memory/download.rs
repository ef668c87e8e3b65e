//! A copy to the host that nobody has waited for yet.

use std::{fmt, marker::PhantomData, sync::Arc};

use bytemuck::Pod;

use super::staging::StagingBuffer;
use crate::device_runtime::{ResourceResult, XlogDeviceRuntime, tracker::RecordedEvent};

/// Values on their way to the host. Dropping it keeps the memory they arrive in until the copy is
/// done.
#[must_use = "the values arrive only where they are asked for: call wait()"]
pub struct Download<T> {
    state: State,
    len: usize,
    values: PhantomData<fn() -> T>,
}

enum State {
    /// Arrived already: the copy was synchronous.
    Done(Vec<u8>),
    /// In a staging buffer, behind an event.
    Staged {
        runtime: Arc<XlogDeviceRuntime>,
        buffer: Option<StagingBuffer>,
        event: Arc<RecordedEvent>,
    },
}

impl<T: Pod> Download<T> {
    pub(super) fn done(bytes: Vec<u8>, len: usize) -> Self {
        Self { state: State::Done(bytes), len, values: PhantomData }
    }

    pub(super) fn staged(
        runtime: Arc<XlogDeviceRuntime>,
        buffer: StagingBuffer,
        event: Arc<RecordedEvent>,
        len: usize,
    ) -> Self {
        let state = State::Staged { runtime, buffer: Some(buffer), event };
        Self { state, len, values: PhantomData }
    }

    /// Whether the values have arrived; asking does not wait.
    pub fn is_done(&self) -> ResourceResult<bool> {
        match &self.state {
            State::Done(_) => Ok(true),
            State::Staged { runtime, event, .. } => {
                let device = runtime.device();
                device.check_alive()?;
                // SAFETY: the event is held here.
                device.note(unsafe { device.driver().event_done(event.raw) })
            }
        }
    }

    /// Waits for the values.
    pub fn wait(self) -> ResourceResult<Vec<T>> {
        let mut values = vec![T::zeroed(); self.len];
        match &self.state {
            State::Done(bytes) => {
                bytemuck::cast_slice_mut::<T, u8>(&mut values).copy_from_slice(bytes);
            }
            State::Staged { runtime, buffer, event } => {
                let device = runtime.device();
                device.check_alive()?;
                // SAFETY: the event is held here.
                device.note(unsafe { device.driver().synchronize_event(event.raw) })?;
                if let Some(buffer) = buffer {
                    let into = bytemuck::cast_slice_mut::<T, u8>(&mut values);
                    // SAFETY: the copy into the buffer is done, it has room for `len` values, and
                    // this handle owns it.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            buffer.as_ptr(),
                            into.as_mut_ptr(),
                            into.len(),
                        );
                    }
                }
            }
        }
        Ok(values)
    }
}

impl<T> Drop for Download<T> {
    fn drop(&mut self) {
        if let State::Staged { runtime, buffer, event } = &mut self.state
            && let Some(buffer) = buffer.take()
        {
            runtime.core().staging.give_back(buffer, Some(Arc::clone(event)));
        }
    }
}

impl<T> fmt::Debug for Download<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("len", &self.len).finish_non_exhaustive()
    }
}
