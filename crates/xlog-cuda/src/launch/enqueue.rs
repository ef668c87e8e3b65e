//! Claim, wait, enqueue, publish: the one sequence every tracked operation goes through.

use std::{panic::Location, sync::Arc};

use xlog_driver::{DriverResult, RawStream};

use crate::device_runtime::{
    BlockUse, ResourceError, ResourceResult, RuntimeCore, StreamId, UseTracker,
    tracker::{Holder, OnConflict, RecordedEvent},
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
        let holder = self.begin(operation)?;
        commit(self.runtime, self.uses, holder)
    }

    /// The same, with a hold on the event behind the operation.
    pub(crate) fn with_event(
        &self,
        operation: impl FnOnce(RawStream) -> DriverResult<()>,
    ) -> ResourceResult<Arc<RecordedEvent>> {
        let holder = self.begin(operation)?;
        let tracker = self.runtime.tracker();
        let lane = tracker.enter(self.stream)?;
        if self.runtime.direct_tracker().is_none() {
            commit(self.runtime, self.uses, holder)?;
            return tracker.mark_with_event(lane).map(|(_, event)| event);
        }
        match tracker.mark_with_event(lane) {
            Ok((point, event)) => {
                tracker.publish_claimed(self.uses, holder, lane, point);
                Ok(event)
            }
            // Publishes what it can, by synchronising if it must.
            Err(error) => commit(self.runtime, self.uses, holder).and(Err(error)),
        }
    }

    #[inline]
    fn begin(
        &self,
        operation: impl FnOnce(RawStream) -> DriverResult<()>,
    ) -> ResourceResult<Holder> {
        let holder = Holder::new(self.stream, self.place);
        prepare(self.runtime, self.uses, holder, OnConflict::Wait)?;
        let enqueued =
            self.runtime.raw(self.stream).and_then(|raw| self.runtime.device.note(operation(raw)));
        match enqueued {
            Ok(()) => Ok(holder),
            Err(error) => {
                // Nothing was enqueued: nothing is published.
                self.runtime.tracker().release(self.uses, holder);
                Err(error)
            }
        }
    }
}

/// Claims the blocks and queues the waits. All or none.
#[inline]
pub(super) fn prepare(
    runtime: &RuntimeCore,
    uses: &[BlockUse],
    holder: Holder,
    on_conflict: OnConflict,
) -> ResourceResult<()> {
    runtime.check()?;
    match runtime.direct_tracker() {
        Some(tracker) => tracker.claim(uses, holder, runtime.ordinal, true, on_conflict),
        None => prepare_through_stack(runtime, uses, holder, on_conflict),
    }
}

/// The same for a stack with a layer that wants to see every use: the claims are taken first, the
/// waits queued through the stack.
fn prepare_through_stack(
    runtime: &RuntimeCore,
    uses: &[BlockUse],
    holder: Holder,
    on_conflict: OnConflict,
) -> ResourceResult<()> {
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
    tracker.claim(&known, holder, runtime.ordinal, false, on_conflict)?;
    runtime
        .resource()
        .prepare_uses(uses, holder.stream)
        .inspect_err(|_| tracker.release(&known, holder))
}

/// Publishes the uses of work that is in flight, and gives up the claims.
#[inline]
pub(super) fn commit(
    runtime: &RuntimeCore,
    uses: &[BlockUse],
    holder: Holder,
) -> ResourceResult<()> {
    match runtime.direct_tracker() {
        Some(tracker) => tracker.finish_claimed(uses, holder),
        None => {
            let finished = runtime.resource().finish_uses(uses, holder.stream);
            runtime.tracker().release(uses, holder);
            finished
        }
    }
}

/// The uses whose blocks this runtime's tracker keeps: a stack may track some elsewhere.
fn known_uses(tracker: &UseTracker, uses: &[BlockUse]) -> Vec<BlockUse> {
    uses.iter().filter(|one| tracker.knows(one.block)).copied().collect()
}
