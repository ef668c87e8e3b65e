//! When a stream came to a place.

use std::time::Instant;

use parking_lot::Mutex;

/// A stamp of the host device: the time at which the stream's thread came to it.
#[derive(Debug, Default)]
pub(super) struct HostStamp(Mutex<Option<Instant>>);

impl HostStamp {
    /// Forgets the time, before the stamp goes onto a stream.
    pub(super) fn clear(&self) {
        *self.0.lock() = None;
    }

    /// Notes that the stream has come this far.
    pub(super) fn pass(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// When that was.
    pub(super) fn time(&self) -> Option<Instant> {
        *self.0.lock()
    }
}
