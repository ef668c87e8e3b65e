//! Values on their way to the host that nobody has waited for yet.

use std::{fmt, marker::PhantomData};

use bytemuck::Pod;

use super::{PinnedCopy, transfer::follow};
use crate::device_runtime::{
    PinnedBuffer, ResourceResult, StreamId, XlogDeviceRuntime, tracker::HeldEvent,
};

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
    /// In a staging buffer.
    Staged(PinnedCopy),
}

impl<T: Pod> Download<T> {
    pub(super) fn done(bytes: Vec<u8>, len: usize) -> Self {
        Self { state: State::Done(bytes), len, values: PhantomData }
    }

    pub(super) fn staged(copy: PinnedCopy, len: usize) -> Self {
        Self { state: State::Staged(copy), len, values: PhantomData }
    }

    /// Values that work writes into `buffer` itself, with `event` behind it.
    pub(crate) fn behind(
        event: ResourceResult<HeldEvent>,
        buffer: PinnedBuffer,
        (runtime, stream): (&XlogDeviceRuntime, StreamId),
        len: usize,
    ) -> ResourceResult<Self> {
        Ok(Self::staged(follow(event, buffer, runtime, stream)?, len))
    }

    /// Whether the values have arrived; asking does not wait.
    pub fn is_done(&self) -> ResourceResult<bool> {
        match &self.state {
            State::Done(_) => Ok(true),
            State::Staged(copy) => copy.is_done(),
        }
    }

    /// Waits for the values.
    pub fn wait(self) -> ResourceResult<Vec<T>> {
        let mut values = vec![T::zeroed(); self.len];
        let into = bytemuck::cast_slice_mut::<T, u8>(&mut values);
        match self.state {
            State::Done(bytes) => into.copy_from_slice(&bytes),
            State::Staged(copy) => {
                let buffer = copy.wait()?;
                into.copy_from_slice(&buffer[..into.len()]);
            }
        }
        Ok(values)
    }
}

impl<T> fmt::Debug for Download<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("len", &self.len).finish_non_exhaustive()
    }
}
