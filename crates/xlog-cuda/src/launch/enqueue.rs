//! Claim, wait, enqueue, publish: the one sequence every tracked operation goes through.

use std::{panic::Location, sync::Arc};

use xlog_driver::{DriverResult, RawStream};

use crate::device_runtime::{
    BlockUse, ResourceError, ResourceResult, RuntimeCore, StreamId, UseTracker,
    tracker::{Holder, Lane, OnConflict, RecordedEvent},
};

/// One operation that is about to be enqueued, and what it touches.
pub(crate) struct Enqueue<'e> {
    pub(crate) runtime: &'e RuntimeCore,
    pub(crate) stream: StreamId,
    pub(crate) uses: &'e [BlockUse],
    pub(crate) place: &'static Location<'static>,
}

impl Enqueue<'_> {
    /// Runs `operation` behind every wait it needs and records its uses.
    #[inline]
    pub(crate) fn run(
        &self,
        operation: impl FnOnce(RawStream) -> DriverResult<()>,
    ) -> ResourceResult<()> {
        let holder = Holder::new(self.stream, self.place);
        let (_, direct) = self.begin(holder, operation)?;
        commit(self.runtime, self.uses, holder, direct)
    }

    /// The same, with a hold on the event behind the operation.
    pub(crate) fn with_event(
        &self,
        operation: impl FnOnce(RawStream) -> DriverResult<()>,
    ) -> ResourceResult<Arc<RecordedEvent>> {
        let holder = Holder::new(self.stream, self.place);
        let (lane, direct) = self.begin(holder, operation)?;
        let tracker = self.runtime.tracker();
        if !direct {
            commit(self.runtime, self.uses, holder, direct)?;
            return tracker.mark_with_event(lane).map(|(_, event)| event);
        }
        match tracker.mark_with_event(lane) {
            Ok((point, event)) => {
                tracker.publish_claimed(self.uses, holder, lane, point);
                Ok(event)
            }
            // Publishes what it can, by synchronising if it must.
            Err(error) => commit(self.runtime, self.uses, holder, direct).and(Err(error)),
        }
    }

    #[inline]
    fn begin(
        &self,
        holder: Holder,
        operation: impl FnOnce(RawStream) -> DriverResult<()>,
    ) -> ResourceResult<(&Lane, bool)> {
        let (lane, direct) = prepare(self.runtime, self.uses, holder, OnConflict::Wait)?;
        let device = &self.runtime.device;
        let enqueued = lane.raw(device).and_then(|raw| device.note(operation(raw)));
        match enqueued {
            Ok(()) => Ok((lane, direct)),
            Err(error) => {
                // Nothing was enqueued: nothing is published.
                self.runtime.tracker().release(self.uses, holder);
                Err(error)
            }
        }
    }
}

/// Claims the blocks and queues the waits: all or none. Answers the lane of the launch, and whether
/// its uses go straight to the tracker.
#[inline]
pub(super) fn prepare<'r>(
    runtime: &'r RuntimeCore,
    uses: &[BlockUse],
    holder: Holder,
    on_conflict: OnConflict,
) -> ResourceResult<(&'r Lane, bool)> {
    runtime.check()?;
    match runtime.direct_tracker() {
        Some(tracker) => {
            let lane = tracker.claim(uses, holder, runtime.ordinal, true, on_conflict)?;
            Ok((lane, true))
        }
        None => Ok((prepare_through_stack(runtime, uses, holder, on_conflict)?, false)),
    }
}

/// The same for a stack with a layer that wants to see every use: the claims are taken first, the
/// waits queued through the stack.
fn prepare_through_stack<'r>(
    runtime: &'r RuntimeCore,
    uses: &[BlockUse],
    holder: Holder,
    on_conflict: OnConflict,
) -> ResourceResult<&'r Lane> {
    if !uses.is_empty() && !runtime.resource().supports_block_use_tracking() {
        return Err(ResourceError::StreamMisuse(
            "the runtime's resource does not support cross-stream use tracking; build the \
             runtime over AsyncCudaResource, or have every adaptor forward \
             supports_block_use_tracking"
                .into(),
        ));
    }
    let tracker = runtime.tracker();
    let known = known_uses(tracker, uses);
    let lane = tracker.claim(&known, holder, runtime.ordinal, false, on_conflict)?;
    match runtime.resource().prepare_uses(uses, holder.stream) {
        Ok(()) => Ok(lane),
        Err(error) => {
            tracker.release(&known, holder);
            Err(error)
        }
    }
}

/// Publishes the uses of work that is in flight, and gives up the claims.
#[inline]
pub(super) fn commit(
    runtime: &RuntimeCore,
    uses: &[BlockUse],
    holder: Holder,
    direct: bool,
) -> ResourceResult<()> {
    if direct {
        return runtime.tracker().finish_claimed(uses, holder);
    }
    let finished = runtime.resource().finish_uses(uses, holder.stream);
    runtime.tracker().release(uses, holder);
    finished
}

/// The uses whose blocks this runtime's tracker keeps: a stack may track some elsewhere.
fn known_uses(tracker: &UseTracker, uses: &[BlockUse]) -> Vec<BlockUse> {
    uses.iter().filter(|one| tracker.knows(one.block)).copied().collect()
}
