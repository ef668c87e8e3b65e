//! Claim, wait, enqueue, publish: the one sequence every tracked operation goes through.

use std::panic::Location;

use xlog_driver::{DriverResult, RawStream};

use super::declaration::OpenDeclaration;
use crate::device_runtime::{
    BlockUse, ResourceError, ResourceResult, RuntimeCore, StreamId, UseTracker,
    tracker::{HeldEvent, Holder, Lane, Launch, OnConflict, TicketId},
};

/// One operation that is about to be enqueued, and what it touches.
#[derive(Clone, Copy)]
pub(crate) struct Enqueue<'e> {
    pub(crate) runtime: &'e RuntimeCore,
    pub(crate) stream: StreamId,
    pub(crate) uses: &'e [BlockUse],
    pub(crate) place: &'static Location<'static>,
}

impl<'e> Enqueue<'e> {
    /// Runs `operation` behind every wait it needs and records its uses.
    #[inline]
    pub(crate) fn run(
        self,
        operation: impl FnOnce(RawStream) -> DriverResult<()>,
    ) -> ResourceResult<()> {
        // Apart, with copies of their own, so that nothing of the common case has to go through
        // memory.
        let Some(tracker) = self.runtime.plain_tracker() else {
            return self.run_otherwise(operation);
        };
        let (lane, ticket) = self.claim(tracker, OnConflict::Wait)?;
        self.enqueue(lane, ticket, operation)?;
        tracker.finish_claimed(&Launch { uses: self.uses, lane, ticket })
    }

    /// The same on a device that is lost or watched, or with a stack that wants to see every use.
    #[cold]
    #[inline(never)]
    fn run_otherwise(
        self,
        operation: impl FnOnce(RawStream) -> DriverResult<()>,
    ) -> ResourceResult<()> {
        let prepared = self.prepare(OnConflict::Wait)?;
        let declared = self.declare_on(prepared.lane);
        self.enqueue(prepared.lane, prepared.ticket, operation)?;
        // What did not come by now never will.
        drop(declared);
        self.commit(prepared)
    }

    #[inline(always)]
    fn enqueue(
        &self,
        lane: &Lane,
        ticket: TicketId,
        operation: impl FnOnce(RawStream) -> DriverResult<()>,
    ) -> ResourceResult<()> {
        let device = &self.runtime.device;
        // If nothing was enqueued, nothing is published.
        let release = |_: &ResourceError| self.runtime.tracker().release(ticket);
        lane.raw(device).and_then(|raw| device.note(operation(raw))).inspect_err(release)
    }

    /// Tells whoever watches the device, if anybody does, what is about to be enqueued on a lane.
    #[cold]
    #[inline(never)]
    pub(super) fn declare_on(&self, lane: &Lane) -> Option<Box<OpenDeclaration>> {
        let device = &self.runtime.device;
        let (watcher, raw) = (device.watcher()?, lane.raw(device).ok()?);
        let declared = OpenDeclaration::new(watcher, self.uses, (raw, self.stream), self.place);
        Some(Box::new(declared))
    }

    /// Claims the blocks and queues the waits. Until the answer is finished or dropped, nobody
    /// else plans against these blocks.
    pub(crate) fn start(self) -> ResourceResult<Started<'e>> {
        let prepared = self.prepare(OnConflict::Wait)?;
        let declared = self.declare_on(prepared.lane);
        Ok(Started { enqueue: self, prepared, enqueued: false, over: false, declared })
    }

    /// Claims the blocks and queues the waits: all or none.
    pub(super) fn prepare(&self, on_conflict: OnConflict) -> ResourceResult<Prepared<'e>> {
        self.runtime.check()?;
        match self.runtime.direct_tracker() {
            Some(tracker) => {
                let (lane, ticket) = self.claim(tracker, on_conflict)?;
                Ok(Prepared { lane, ticket, direct: true })
            }
            None => self.prepare_in_stack(on_conflict),
        }
    }

    /// Claims the blocks and queues the waits with the tracker itself.
    #[inline(always)]
    pub(super) fn claim<'t>(
        &self,
        tracker: &'t UseTracker,
        on_conflict: OnConflict,
    ) -> ResourceResult<(&'t Lane, TicketId)> {
        let holder = Holder::new(self.stream, self.place);
        tracker.claim(self.uses, holder, self.runtime.ordinal, true, on_conflict)
    }

    /// The same for a stack with a layer that wants to see every use: the claims are taken first,
    /// the waits queued through the stack.
    #[inline(never)]
    pub(super) fn prepare_in_stack(&self, on_conflict: OnConflict) -> ResourceResult<Prepared<'e>> {
        let (runtime, uses) = (self.runtime, self.uses);
        let holder = Holder::new(self.stream, self.place);
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
        let (lane, ticket) = tracker.claim(&known, holder, runtime.ordinal, false, on_conflict)?;
        match runtime.resource().prepare_uses(uses, self.stream) {
            Ok(()) => Ok(Prepared { lane, ticket, direct: false }),
            Err(error) => {
                tracker.release(ticket);
                Err(error)
            }
        }
    }

    /// Publishes the uses of work that is in flight, and gives up the claims.
    #[inline]
    pub(super) fn commit(&self, prepared: Prepared<'_>) -> ResourceResult<()> {
        let tracker = self.runtime.tracker();
        let Prepared { lane, ticket, direct } = prepared;
        if direct {
            return tracker.finish_claimed(&Launch { uses: self.uses, lane, ticket });
        }
        match self.runtime.resource().finish_uses(self.uses, self.stream) {
            Ok(()) => {
                tracker.release(ticket);
                Ok(())
            }
            // The stack did not record them; the tracker does, so that nothing goes unprotected.
            Err(error) => {
                let uses = &known_uses(tracker, self.uses);
                let finished = tracker.finish_claimed(&Launch { uses, lane, ticket });
                finished.and(Err(error))
            }
        }
    }
}

/// How a launch stands after its waits were queued.
#[derive(Clone, Copy)]
pub(super) struct Prepared<'r> {
    /// The lane of its stream.
    pub(super) lane: &'r Lane,
    /// Where its claims are written down.
    pub(super) ticket: TicketId,
    /// Whether its uses go straight to the tracker.
    pub(super) direct: bool,
}

/// An operation in several parts, between its waits and its record. Dropping it publishes what was
/// enqueued.
pub(crate) struct Started<'e> {
    enqueue: Enqueue<'e>,
    prepared: Prepared<'e>,
    enqueued: bool,
    over: bool,
    /// Until the operation is over.
    declared: Option<Box<OpenDeclaration>>,
}

impl Started<'_> {
    /// Enqueues one part of the operation.
    pub(crate) fn enqueue(
        &mut self,
        operation: impl FnOnce(RawStream) -> DriverResult<()>,
    ) -> ResourceResult<()> {
        let device = &self.enqueue.runtime.device;
        let raw = self.prepared.lane.raw(device)?;
        device.note(operation(raw))?;
        self.enqueued = true;
        Ok(())
    }

    /// An event behind what was enqueued so far.
    pub(crate) fn event_so_far(&self) -> ResourceResult<HeldEvent> {
        self.prepared.lane.record_and_hold(&self.enqueue.runtime.device, |_| ())
    }

    /// Records the uses.
    pub(super) fn finish(mut self) -> ResourceResult<()> {
        self.over = true;
        self.declared = None;
        self.enqueue.commit(self.prepared)
    }

    /// Records the uses, with a hold on the event behind them.
    pub(crate) fn finish_with_event(mut self) -> ResourceResult<HeldEvent> {
        self.over = true;
        self.declared = None;
        let tracker = self.enqueue.runtime.tracker();
        if self.prepared.direct {
            let Prepared { lane, ticket, .. } = self.prepared;
            return tracker.finish_with_event(&Launch { uses: self.enqueue.uses, lane, ticket });
        }
        self.enqueue.commit(self.prepared)?;
        self.event_so_far()
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        self.declared = None;
        if self.over {
            return;
        }
        if !self.enqueued {
            // Nothing was enqueued: nothing is published.
            self.enqueue.runtime.tracker().release(self.prepared.ticket);
            return;
        }
        if let Err(error) = self.enqueue.commit(self.prepared) {
            log::error!("publishing the uses of an operation that failed half-way: {error}");
        }
    }
}

/// The uses whose blocks this runtime's tracker keeps: a stack may track some elsewhere.
pub(super) fn known_uses(tracker: &UseTracker, uses: &[BlockUse]) -> Vec<BlockUse> {
    uses.iter().filter(|one| tracker.knows(one.block)).copied().collect()
}
