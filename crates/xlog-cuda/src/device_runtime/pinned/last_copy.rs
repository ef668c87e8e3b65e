//! The copy that used a buffer last.

use std::sync::Arc;

use crate::device_runtime::{
    ResourceResult, StreamId, UseTracker, XlogDeviceRuntime, tracker::HeldEvent,
};

/// The event behind the last copy of a buffer. Events are their tracker's, so that is kept too: a
/// buffer may outlive the runtime it was copied with.
#[derive(Debug)]
pub(crate) struct LastCopy {
    event: HeldEvent,
    stream: StreamId,
    tracker: Arc<UseTracker>,
}

impl LastCopy {
    pub(crate) fn new(event: HeldEvent, stream: StreamId, runtime: &XlogDeviceRuntime) -> Self {
        Self { event, stream, tracker: Arc::clone(runtime.stream_pool().tracker()) }
    }

    /// Copies with the same key end in the order in which they began.
    pub(super) fn key(&self) -> (u64, StreamId) {
        (self.tracker.number(), self.stream)
    }

    /// Whether the copy is over; asking does not wait.
    pub(crate) fn is_done(&self) -> ResourceResult<bool> {
        self.tracker.is_event_done(&self.event)
    }

    /// Waits for the copy.
    pub(crate) fn wait(&self) -> ResourceResult<()> {
        self.tracker.wait_for_event(&self.event)
    }
}
