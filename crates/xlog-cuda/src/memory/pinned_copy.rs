//! A copy between a slice and a pinned buffer that nobody has waited for yet.

use std::fmt;

use crate::device_runtime::{LastCopy, PinnedBuffer, ResourceError, ResourceResult};

/// A pinned buffer that is being copied from or to. Dropping it gives the buffer back to where it
/// came from, once the copy is done.
#[must_use = "the buffer comes back only where it is asked for: call wait()"]
pub struct PinnedCopy {
    buffer: Option<PinnedBuffer>,
    /// `None` once it is known to be over.
    copy: Option<LastCopy>,
}

impl PinnedCopy {
    /// A copy that is over already.
    pub(super) fn done(buffer: PinnedBuffer) -> Self {
        Self { buffer: Some(buffer), copy: None }
    }

    pub(super) fn started(buffer: PinnedBuffer, copy: LastCopy) -> Self {
        Self { buffer: Some(buffer), copy: Some(copy) }
    }

    /// Whether the copy is over; asking does not wait.
    pub fn is_done(&self) -> ResourceResult<bool> {
        self.copy.as_ref().map_or(Ok(true), LastCopy::is_done)
    }

    /// Waits for the copy, and gives the buffer back. If the device fails, the buffer goes back to
    /// where it came from once the copy is done.
    pub fn wait(mut self) -> ResourceResult<PinnedBuffer> {
        if let Some(copy) = &self.copy {
            copy.wait()?;
            self.copy = None;
        }
        self.buffer.take().ok_or_else(|| "a copy without a buffer".into())
    }
}

impl Drop for PinnedCopy {
    fn drop(&mut self) {
        if let (Some(buffer), Some(copy)) = (self.buffer.take(), self.copy.take()) {
            buffer.hand_back_behind(copy);
        }
    }
}

impl fmt::Debug for PinnedCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedCopy").field("buffer", &self.buffer).finish_non_exhaustive()
    }
}

/// Why a copy with a pinned buffer did not begin, or could not be followed; and the buffer.
#[derive(Debug)]
#[non_exhaustive]
pub struct PinnedCopyError {
    /// What went wrong.
    pub error: ResourceError,
    /// The buffer, as it was; `None` if the copy may still run, and nobody can tell until when.
    pub buffer: Option<PinnedBuffer>,
}

impl fmt::Display for PinnedCopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for PinnedCopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<PinnedCopyError> for ResourceError {
    fn from(refused: PinnedCopyError) -> Self {
        refused.error
    }
}
