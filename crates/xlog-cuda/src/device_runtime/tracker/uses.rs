//! Preparing, finishing and claiming the uses of a launch.

use super::{
    Frontier, Holder, Lane, Point, UseTracker,
    claims::{Conflict, ThreadToken, WaitEnd},
    slot::{Released, SlotState},
};
use crate::device_runtime::{BlockUse, ResourceError, ResourceResult, StreamId};

/// What to do when another launch holds a claim that conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnConflict {
    /// Refuse, naming both places.
    Refuse,
    /// Wait for that launch to commit, unless that could never happen.
    Wait,
}

/// Why a pass over the blocks of a launch ended early: which block, and whether it is gone or held.
struct Stop {
    index: usize,
    held: bool,
}

impl UseTracker {
    /// Queues, on `stream`, the waits every use needs. Holds no claim.
    pub(crate) fn prepare(
        &self,
        uses: &[BlockUse],
        stream: StreamId,
        ordinal: u32,
    ) -> ResourceResult<()> {
        check_device(uses, ordinal)?;
        let lane = self.enter(stream)?;
        let mut needed = Frontier::default();
        let view = self.view(lane);
        for one in uses {
            self.with_block(one, |state| state.gather(one.access, &view, &mut needed))
                .ok_or_else(|| stale(one))?;
        }
        if needed.is_empty() { Ok(()) } else { self.queue_waits(lane, &needed) }
    }

    /// Claims every block of a launch and, if `plan` says so, queues the waits it needs: all or
    /// none. Answers the lane of the launch.
    #[inline]
    pub(crate) fn claim(
        &self,
        uses: &[BlockUse],
        holder: Holder,
        ordinal: u32,
        plan: bool,
        on_conflict: OnConflict,
    ) -> ResourceResult<&Lane> {
        check_device(uses, ordinal)?;
        let lane = self.enter(holder.stream)?;
        let mut needed = Frontier::default();
        while let Err(stop) = self.claim_pass(uses, holder, lane, plan, &mut needed) {
            self.release(&uses[..stop.index], holder);
            self.meet(&uses[stop.index], &stop, holder, on_conflict)?;
            needed = Frontier::default();
        }
        if !needed.is_empty() {
            self.queue_waits(lane, &needed).inspect_err(|_| self.release(uses, holder))?;
        }
        Ok(lane)
    }

    #[inline]
    fn claim_pass(
        &self,
        uses: &[BlockUse],
        holder: Holder,
        lane: &Lane,
        plan: bool,
        needed: &mut Frontier,
    ) -> Result<(), Stop> {
        let view = self.view(lane);
        for (index, one) in uses.iter().enumerate() {
            let claimed = self.with_block(one, |state| {
                let claimed = state.claim(one.access, holder);
                if claimed && plan {
                    state.gather(one.access, &view, needed);
                }
                claimed
            });
            match claimed {
                Some(true) => {}
                other => return Err(Stop { index, held: other.is_some() }),
            }
        }
        Ok(())
    }

    /// Answers a claim that was not given: refuses it, or waits until it is worth another try.
    #[cold]
    fn meet(
        &self,
        one: &BlockUse,
        stop: &Stop,
        mine: Holder,
        on_conflict: OnConflict,
    ) -> ResourceResult<()> {
        if !stop.held {
            return Err(stale(one));
        }
        let found = self.find(one.block, one.slot).and_then(|(number, slot)| {
            let state = slot.0.lock();
            let holder = state.first_holder()?;
            state.conflicts(one.access).then_some(Conflict { slot: number, holder })
        });
        // Given up in the meantime: try again at once.
        let Some(conflict) = found else { return Ok(()) };
        if on_conflict == OnConflict::Refuse {
            return Err(conflict.refusal(
                mine,
                one,
                "conflicts with it; commit that launch first, or use the launch builder, which \
                 waits",
            ));
        }
        // Most launches commit within microseconds: look a few times before going to sleep.
        for _ in 0..200 {
            std::hint::spin_loop();
            if self.with_block(one, |state| !state.conflicts(one.access)).unwrap_or(true) {
                return Ok(());
            }
        }
        let end = self.claim_waiters.wait(mine.thread, conflict.slot, |slot| {
            self.slots.get(slot).map(|slot| slot.0.lock().contend()).unwrap_or_default()
        });
        match end {
            WaitEnd::TryAgain => Ok(()),
            WaitEnd::OwnThread => Err(conflict.refusal(
                mine,
                one,
                "would wait for its own thread; commit or drop that recorder first",
            )),
            WaitEnd::Circle => Err(conflict.refusal(
                mine,
                one,
                "would wait for a thread that waits for this one; commit or drop this thread's \
                 other recorders first",
            )),
        }
    }

    /// Gives up every claim of a launch without recording anything: nothing was enqueued.
    pub(crate) fn release(&self, uses: &[BlockUse], holder: Holder) {
        for one in uses {
            let released = self.with_claimed(one, |state| state.release(holder));
            self.after_release(released);
        }
    }

    /// Records every use of a launch with one event, and gives up its claims.
    ///
    /// Work is in flight by now, so failing to record it is not the end: the stream is
    /// synchronised instead, and if even that fails the blocks are never reused.
    #[inline]
    pub(crate) fn finish_claimed(&self, uses: &[BlockUse], holder: Holder) -> ResourceResult<()> {
        let marked = match self.lane(holder.stream) {
            Some(lane) => {
                self.device.check_alive().and_then(|()| self.mark(lane)).map(|point| (lane, point))
            }
            None => Err(super::unknown_stream(holder.stream)),
        };
        match marked {
            Ok((lane, point)) => {
                self.publish_claimed(uses, holder, lane, point);
                Ok(())
            }
            Err(error) => {
                self.protect(uses, holder.stream);
                self.release(uses, holder);
                Err(error)
            }
        }
    }

    /// Publishes uses that `point` stands for, and gives up their claims.
    #[inline]
    pub(crate) fn publish_claimed(
        &self,
        uses: &[BlockUse],
        holder: Holder,
        lane: &Lane,
        point: Point,
    ) {
        let view = self.view(lane);
        for one in uses {
            let released = self.with_claimed(one, |state| {
                state.publish(one.access, point, &view);
                state.release(holder)
            });
            self.after_release(released);
        }
    }

    /// Records uses that hold no claim. Blocks that are stale are refused before anything changes.
    pub(crate) fn finish(
        &self,
        uses: &[BlockUse],
        stream: StreamId,
        ordinal: u32,
    ) -> ResourceResult<()> {
        check_device(uses, ordinal)?;
        self.device.check_alive()?;
        let lane = self.lane(stream).ok_or_else(|| super::unknown_stream(stream))?;
        for one in uses {
            self.with_block(one, |_| ()).ok_or_else(|| stale(one))?;
        }
        let point = match self.mark(lane) {
            Ok(point) => point,
            Err(error) => {
                self.protect(uses, stream);
                return Err(error);
            }
        };
        let view = self.view(lane);
        let mut answer = Ok(());
        for one in uses {
            // One that was freed in between does not keep the others from being recorded.
            let published = self.with_block(one, |state| state.publish(one.access, point, &view));
            answer = answer.and(published.ok_or_else(|| stale(one)));
        }
        answer
    }

    /// What is left when uses could not be recorded: wait until they are over.
    #[cold]
    fn protect(&self, uses: &[BlockUse], stream: StreamId) {
        // A stream that left the pool meanwhile was synchronised on its way out, and its lane
        // still has it: waiting again covers what was enqueued on it since.
        let raw = self.lanes.get(self.lane_index(stream)).and_then(Lane::created_raw);
        let waited = raw.map_or(Ok(()), |raw| self.synchronize_raw(raw));
        if let Err(error) = waited {
            log::error!("uses could be neither recorded nor waited for; blocks leaked: {error}");
            for one in uses {
                if let Some((_, slot)) = self.find(one.block, one.slot) {
                    slot.0.lock().set_unprotected();
                }
            }
        }
    }

    /// Runs `f` on the state of a live block; `None` if the handle is stale.
    #[inline]
    fn with_block<R>(&self, one: &BlockUse, f: impl FnOnce(&mut SlotState) -> R) -> Option<R> {
        let (_, slot) = self.find(one.block, one.slot)?;
        let mut state = slot.0.lock();
        state.is(one.block.ptr, one.block.generation).then(|| f(&mut state))
    }

    /// Runs `f` on the state of a block this launch holds a claim on: it may have been freed
    /// meanwhile, but its slot is its own until the claim is given up.
    #[inline]
    fn with_claimed(&self, one: &BlockUse, f: impl FnOnce(&mut SlotState) -> Released) -> Released {
        let slot = self
            .slots
            .get(one.slot.0)
            .or_else(|| self.slots.at(one.block.ptr).and_then(|number| self.slots.get(number)));
        if let Some(slot) = slot {
            let mut state = slot.0.lock();
            if state.owns(one.block.ptr, one.block.generation) {
                return f(&mut state);
            }
        }
        Released::default()
    }

    #[inline]
    fn after_release(&self, released: Released) {
        if released.wake {
            self.claim_waiters.wake();
        }
        if let Some(run) = released.run {
            run();
        }
    }
}

#[cold]
fn stale(one: &BlockUse) -> ResourceError {
    ResourceError::UseAfterFree { generation: one.block.generation }
}

#[inline]
fn check_device(uses: &[BlockUse], ordinal: u32) -> ResourceResult<()> {
    match uses.iter().find(|one| one.block.device_ordinal != ordinal) {
        None => Ok(()),
        Some(one) => Err(foreign_device(one.block.device_ordinal, ordinal)),
    }
}

#[cold]
pub(crate) fn foreign_device(of_block: u32, ours: u32) -> ResourceError {
    ResourceError::Driver(
        format!("the block lives on device {of_block}, this resource serves device {ours}").into(),
    )
}

impl Holder {
    /// A launch of the calling thread.
    #[inline]
    pub(crate) fn new(stream: StreamId, place: &'static std::panic::Location<'static>) -> Self {
        Self { thread: ThreadToken::current(), stream, place }
    }
}
