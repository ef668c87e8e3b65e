//! Taking and giving up claims on the blocks of a launch.
//!
//! A claim is what keeps "queue the waits, enqueue the work, record the use" one step: while a
//! launch is between its preflight and its commit, nobody else may plan against the state that it
//! is about to change. No lock is held over a driver call or over the caller's code; [`slot`] says
//! how claims are told apart without one.
//!
//! [`slot`]: super::slot

use std::{
    collections::HashMap,
    panic::Location,
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use xlog_core::Access;

use super::{
    UseTracker,
    desk::{Desk, DeskId, Ticket},
    lane::Lane,
    point::{Point, PointSet},
    slot::{CROWDED, Follows, Slot, Word, pause},
    uses::check_device,
};
use crate::{
    device_runtime::{BlockUse, ResourceError, ResourceResult, StreamId},
    mutant::{self, Mutant},
    sync::{
        Condvar, Mutex, Step,
        atomic::{AtomicUsize, Ordering},
        leaves_out, sized,
    },
};

/// One launch that holds claims: its thread, its stream, and where in the source it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) desk: DeskId,
    pub(crate) stream: StreamId,
    pub(crate) place: &'static Location<'static>,
}

impl Holder {
    /// A launch of the calling thread.
    #[inline]
    pub(crate) fn new(stream: StreamId, place: &'static Location<'static>) -> Self {
        Self { desk: DeskId::current(), stream, place }
    }
}

/// Where a launch's claims are written down: a desk, and a ticket on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TicketId {
    desk: DeskId,
    number: u32,
    /// The point that wrote all of the launch's blocks last, if it is one and was looked for.
    pub(super) written_at: Point,
    /// The launch's number, for a mutant that draws it too soon.
    #[cfg(feature = "mutants")]
    pub(super) drawn: u64,
}

/// What to do when another launch holds a claim that conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnConflict {
    /// Refuse, naming both places.
    Refuse,
    /// Wait for that launch to commit, unless that could never happen.
    Wait,
}

/// A launch that asks for its claims.
struct Asked<'a> {
    uses: &'a [BlockUse],
    holder: Holder,
    ordinal: u32,
    plan: bool,
    on_conflict: OnConflict,
    /// No other launch of the thread is open.
    alone: bool,
}

/// Why a claim was not given.
enum Stop {
    /// The block is gone.
    Stale(usize),
    /// Another launch holds a claim that conflicts.
    Held(usize, Holder),
}

/// What the quick way to claims came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quick {
    /// Nothing counts yet.
    No,
    /// Claimed, and nothing to wait for; the point that wrote all blocks last, if it is one.
    Ready(Point),
    /// Claimed; all that is before it is this point.
    Behind(Point),
    /// Claimed; there may be something to wait for.
    Look,
}

impl UseTracker {
    /// Claims every block of a launch and, if `plan` says so, queues the waits it needs: all or
    /// none. Answers the lane of the launch and its ticket.
    ///
    /// Inlined, so that the common case leaves its answer in registers: through memory it would
    /// be written in parts and read as a whole, which a processor cannot do without waiting.
    #[inline(always)]
    pub(crate) fn claim(
        &self,
        uses: &[BlockUse],
        holder: Holder,
        ordinal: u32,
        plan: bool,
        on_conflict: OnConflict,
    ) -> ResourceResult<(&Lane, TicketId)> {
        // The device is the first thing to be refused, and the last that is ever wrong. Whether it
        // is lost was asked by whoever asks for claims.
        let lane = match self.enter_alive(holder.stream) {
            Ok(lane) => lane,
            Err(error) => return Err(check_device(uses, ordinal).err().unwrap_or(error)),
        };
        let desk = self.desk(holder.desk);
        let Some((number, ticket, alone)) = desk.seat() else { return Err(no_room()) };
        ticket.open(holder.stream, holder.place);
        let mut id = TicketId {
            desk: holder.desk,
            number,
            written_at: Point::default(),
            #[cfg(feature = "mutants")]
            drawn: if mutant::is(Mutant::NumberedTooSoon) { lane.draw_tick() } else { 0 },
        };
        // A launch of this thread's own that is not committed is asked about block by block.
        let quick = if alone {
            self.claim_quickly(uses, (desk, ticket), (holder.desk, lane))
        } else {
            Quick::No
        };
        // The claims came after the first look: a release that missed them is seen by this one.
        if lane.stream() == Some(holder.stream) {
            match quick {
                Quick::Ready(written_at) => {
                    id.written_at = written_at;
                    return Ok((lane, id));
                }
                Quick::Behind(point) if lane.follows(point) => return Ok((lane, id)),
                Quick::Behind(point) if plan => {
                    return match self.queue_wait(lane, point) {
                        Ok(()) => Ok((lane, id)),
                        Err(error) => Err(self.take_back(id, error)),
                    };
                }
                _ => {}
            }
        }
        let asked = Asked { uses, holder, ordinal, plan, on_conflict, alone };
        self.claim_otherwise(&asked, quick, (desk, ticket, id), lane)?;
        Ok((lane, id))
    }

    /// The common case: few blocks, all of whose words allow the claim.
    #[inline(always)]
    fn claim_quickly(
        &self,
        uses: &[BlockUse],
        (desk, ticket): (&Desk, &Ticket),
        (holder_desk, lane): (DeskId, &Lane),
    ) -> Quick {
        if !ticket.announce_all(uses.iter().map(|one| (one.slot.0, one.access))) {
            return Quick::No;
        }
        // Between every announcement above and every look below; see `slot`.
        desk.fence();
        let quick = self.look(uses, holder_desk, lane.index());
        if quick != Quick::No {
            ticket.grant();
        }
        quick
    }

    /// Whether the words of all blocks allow their claims, and whether anything but this lane's own
    /// work stands before them. Apart, so that all it counts stays in registers.
    #[inline(never)]
    fn look(&self, uses: &[BlockUse], desk: DeskId, lane: usize) -> Quick {
        let mut allowed = true;
        let (mut last_writes, mut readers) = (PointSet::default(), 0);
        for one in uses {
            let Some(slot) = self.slots.get(one.slot.0) else { return Quick::No };
            allowed &= slot.allows_use(one, desk);
            last_writes.add(slot.last_write());
            readers |= slot.readers_before(one.access);
        }
        let others_read = readers & !(1 << lane) != 0;
        if !allowed {
            return Quick::No;
        }
        if last_writes.are_all_of(lane) && !others_read && !mutant::is(Mutant::WaitsForItself) {
            return Quick::Ready(last_writes.the_same().unwrap_or_default());
        }
        // The rules are looked at one by one where one may be missing.
        if cfg!(feature = "mutants") {
            return Quick::Look;
        }
        if others_read {
            let readers = readers & !(1 << lane);
            return self.behind_readers(uses, readers, last_writes, lane);
        }
        if !last_writes.are_of_one_lane() {
            return Quick::Look;
        }
        // Behind the latest write of a lane is behind all of them, and blocks that are only read
        // stay there for long.
        Quick::Behind(last_writes.latest())
    }

    /// A write of blocks that `readers`, other lanes, have read: if it is one lane, and the writes
    /// before are this lane's own, then its latest read is all there is to follow.
    #[inline(never)]
    fn behind_readers(
        &self,
        uses: &[BlockUse],
        readers: u64,
        last_writes: PointSet,
        lane: usize,
    ) -> Quick {
        let one_reader = readers.is_power_of_two() && readers != CROWDED;
        if !one_reader || !last_writes.are_all_of(lane) {
            return Quick::Look;
        }
        let reader = &self.lanes[readers.trailing_zeros() as usize];
        let read = |one: &BlockUse| {
            let slot = self.slots.get(one.slot.0)?;
            let counts = slot.readers_before(one.access) & readers != 0;
            counts.then(|| reader.read_of(one.slot.0))
        };
        Quick::Behind(uses.iter().filter_map(read).fold(Point::default(), Point::later))
    }

    /// Claims what was not claimed quickly, and queues the waits.
    #[inline(never)]
    fn claim_otherwise(
        &self,
        asked: &Asked<'_>,
        quick: Quick,
        (desk, ticket, id): (&Desk, &Ticket, TicketId),
        lane: &Lane,
    ) -> ResourceResult<()> {
        let Asked { uses, holder, ordinal, plan, on_conflict, alone } = *asked;
        if quick == Quick::No {
            check_device(uses, ordinal).inspect_err(|_| ticket.close())?;
            self.claim_slowly(uses, (holder, alone), (desk, ticket), on_conflict)?;
        }
        if lane.stream() != Some(holder.stream) {
            self.release(id);
            return Err(super::unknown_stream(holder.stream));
        }
        if plan {
            self.follow(uses, lane).map_err(|error| self.take_back(id, error))
        } else {
            Ok(())
        }
    }

    /// Gives up the claims of a launch that is refused.
    #[cold]
    #[inline(never)]
    fn take_back(&self, id: TicketId, error: ResourceError) -> ResourceError {
        self.release(id);
        error
    }

    /// Every other case: words that do not allow the claim are locked and asked about, and
    /// conflicts are met.
    #[cold]
    #[inline(never)]
    fn claim_slowly(
        &self,
        uses: &[BlockUse],
        (holder, alone): (Holder, bool),
        (desk, ticket): (&Desk, &Ticket),
        on_conflict: OnConflict,
    ) -> ResourceResult<()> {
        let mut since = None;
        while let Err(stop) = self.try_claim(uses, (holder, alone), (desk, ticket)) {
            ticket.close();
            self.after_release();
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            self.meet(uses, &stop, holder, (on_conflict, waited))?;
        }
        Ok(())
    }

    fn try_claim(
        &self,
        uses: &[BlockUse],
        (holder, alone): (Holder, bool),
        (desk, ticket): (&Desk, &Ticket),
    ) -> Result<(), Stop> {
        ticket.open(holder.stream, holder.place);
        for (index, one) in uses.iter().enumerate() {
            let slot = self.slots.get(one.slot.0).ok_or(Stop::Stale(index))?;
            if !slot.owns(one.block.ptr, one.block.generation) {
                return Err(Stop::Stale(index));
            }
            let allowed = alone && slot.allows_use(one, holder.desk);
            if !ticket.announce(index, allowed.then_some((one.slot.0, one.access))) {
                return Err(Stop::Stale(index));
            }
        }
        desk.fence();
        let mut to_ask: SmallVec<[(usize, &Slot); 8]> = SmallVec::new();
        for (index, one) in uses.iter().enumerate() {
            let slot = self.slots.get(one.slot.0).ok_or(Stop::Stale(index))?;
            // A word that allows a claim only now is asked about too: it was not announced.
            if !(ticket.has_announced(index) && slot.allows_use(one, holder.desk)) {
                ticket.withdraw(index);
                to_ask.push((index, slot));
            }
        }
        // What was allowed counts from here on; nobody has to wait while the rest is asked for.
        ticket.grant();
        for (index, slot) in to_ask {
            self.ask_for(index, &uses[index], slot, holder, ticket)?;
        }
        Ok(())
    }

    /// Claims a block with its word locked.
    fn ask_for(
        &self,
        index: usize,
        one: &BlockUse,
        slot: &Slot,
        holder: Holder,
        ticket: &Ticket,
    ) -> Result<(), Stop> {
        let Some(word) = slot.lock() else { return Err(Stop::Stale(index)) };
        if !slot.owns(one.block.ptr, one.block.generation) {
            slot.unlock(word);
            return Err(Stop::Stale(index));
        }
        let held_by = self.held_against(one.slot.0, one.access, Some(ticket));
        if let Some(held_by) = held_by.filter(|_| !mutant::is(Mutant::NoClaims)) {
            slot.unlock(Word::Slow);
            return Err(Stop::Held(index, held_by));
        }
        ticket.announce_again(index, one.slot.0, one.access);
        let writes = one.access.writes();
        slot.unlock(if writes { Word::Biased(holder.desk) } else { Word::Shared });
        Ok(())
    }

    /// A launch, other than the one of `mine`, whose claim on a slot stands in the way of `access`.
    /// The slot's word is locked or retired, so no new one can come.
    fn held_against(&self, slot: u32, access: Access, mine: Option<&Ticket>) -> Option<Holder> {
        self.tickets()
            .filter(|(_, ticket)| mine.is_none_or(|mine| !std::ptr::eq(*ticket, mine)))
            .find(|(_, ticket)| ticket.stands_against(slot, access))
            .map(|(desk, ticket)| ticket.holder(desk))
    }

    /// Every ticket of every desk.
    fn tickets(&self) -> impl Iterator<Item = (DeskId, &Ticket)> {
        let desks = self.desks_used.load(Ordering::SeqCst);
        (0..desks)
            .filter_map(|desk| Some((DeskId(desk), self.desks.get(desk)?)))
            .flat_map(|(id, desk)| desk.tickets().map(move |ticket| (id, ticket)))
    }

    /// Whether anybody holds a claim on a slot whose word is locked or retired.
    pub(super) fn is_held(&self, slot: u32) -> bool {
        self.held_against(slot, Access::Write, None).is_some()
    }

    /// Whether anybody holds a claim to read a slot whose word is locked: then nobody has one to
    /// write it.
    pub(super) fn is_held_to_read(&self, slot: u32) -> bool {
        self.held_against(slot, Access::Read, None).is_none() && self.is_held(slot)
    }

    /// Whether a launch on `stream` is between its preflight and its commit.
    pub(crate) fn is_claimed_on(&self, stream: StreamId) -> bool {
        self.tickets().any(|(_, ticket)| ticket.is_on(stream))
    }

    /// The desk of a thread, made when it first launches.
    #[inline(always)]
    fn desk(&self, id: DeskId) -> &Desk {
        match self.desks.get(id.0) {
            Some(desk) if id.0 < self.desks_used.load(Ordering::Relaxed) => desk,
            _ => self.make_desk(id),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_desk(&self, id: DeskId) -> &Desk {
        static OVERFLOW: std::sync::LazyLock<Desk> = std::sync::LazyLock::new(Desk::default);
        self.desks_used.fetch_max(id.0.saturating_add(1), Ordering::SeqCst);
        // Past a hundred million threads at once there is no machine.
        self.desks.grow(id.0).unwrap_or(&OVERFLOW)
    }

    /// Gives up every claim of a launch.
    #[inline(always)]
    pub(crate) fn release(&self, ticket: TicketId) {
        if let Some(ticket) = self.desks.get(ticket.desk.0).and_then(|d| d.ticket(ticket.number)) {
            ticket.close();
        }
        self.after_release();
    }

    /// Lets those go on who wait for claims: other launches, and frees.
    #[inline]
    fn after_release(&self) {
        if self.claim_waiters.sleepers.load(Ordering::Relaxed) > 0 {
            self.claim_waiters.wake();
        }
        if self.deferred_frees.load(Ordering::Relaxed) > 0 {
            self.run_deferred_frees();
        }
    }

    /// Answers a claim that was not given: refuses it, or waits until it is worth another try.
    #[cold]
    fn meet(
        &self,
        uses: &[BlockUse],
        stop: &Stop,
        mine: Holder,
        (on_conflict, waited): (OnConflict, Duration),
    ) -> ResourceResult<()> {
        let (one, held_by) = match stop {
            Stop::Stale(index) => return Err(stale(&uses[*index])),
            Stop::Held(index, held_by) => (&uses[*index], *held_by),
        };
        let refusal = |why: &str| Err(refusal(one, held_by, mine, why));
        if on_conflict == OnConflict::Refuse {
            return refusal(
                "conflicts with it; commit that launch first, or use the launch builder, which \
                 waits",
            );
        }
        let own_thread = "would wait for its own thread; commit or drop that recorder first";
        if held_by.desk == mine.desk {
            return refusal(own_thread);
        }
        if waited > LONGEST_WAIT {
            return refusal(
                "has waited a minute for it; commit it, above all if it was moved to this thread",
            );
        }
        let end = self.claim_waiters.wait(mine.desk, (one.slot.0, one.access), |slot, access| {
            let holds = |(_, ticket): &(DeskId, &Ticket)| ticket.stands_against(slot, access);
            self.tickets().filter(holds).map(|(desk, _)| desk).collect()
        });
        match end {
            WaitEnd::TryAgain => Ok(()),
            WaitEnd::OwnThread => refusal(own_thread),
            WaitEnd::Circle => refusal(
                "would wait for a thread that waits for this one; commit or drop this thread's \
                 other recorders first",
            ),
        }
    }

    /// Takes a block out of use: no further claim is given. `Some(true)` if claims are held on it,
    /// `None` if the handle is stale.
    pub(super) fn close_slot(
        &self,
        number: u32,
        slot: &Slot,
        is_block: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let word = slot.lock()?;
        if !is_block() {
            slot.unlock(word);
            return None;
        }
        let held = self.is_held(number) && !leaves_out(Step::HeldBlock);
        slot.unlock(Word::Retired);
        Some(held)
    }
}

#[cold]
#[inline(never)]
fn no_room() -> ResourceError {
    "no room for another launch of this thread".into()
}

/// The refusal of a claim, naming both places.
fn refusal(one: &BlockUse, held_by: Holder, mine: Holder, why: &str) -> ResourceError {
    ResourceError::StreamMisuse(format!(
        "block {:#x} (generation {}) is claimed by the launch recorded at {} on stream {}, \
         which has not committed yet; the launch at {} on stream {} {why}",
        one.block.ptr,
        one.block.generation.0,
        held_by.place,
        held_by.stream.0,
        mine.place,
        mine.stream.0,
    ))
}

#[cold]
#[inline(never)]
pub(super) fn stale(one: &BlockUse) -> ResourceError {
    ResourceError::UseAfterFree { generation: one.block.generation }
}

/// Threads that wait for claims to be given up. Also finds the circle of threads that wait for
/// each other before anybody goes to sleep in it.
#[derive(Debug, Default)]
#[repr(C)] // the counter first: every launch looks at it
pub(crate) struct ClaimWaiters {
    sleepers: AtomicUsize,
    waiting: Mutex<HashMap<DeskId, (u32, Access)>>,
    released: Condvar,
}

/// How a wait for a claim ended.
#[derive(Debug, PartialEq, Eq)]
enum WaitEnd {
    /// The claim may be free now: try again.
    TryAgain,
    /// Waiting would never end: this thread is among the holders.
    OwnThread,
    /// Waiting would never end: the holders wait, directly or not, for this thread.
    Circle,
}

/// Looks before going to sleep: most launches commit within microseconds.
const LOOKS: u32 = sized(100, 2) as u32;

/// The longest a launch waits for another's commit. A recorder that was moved to the waiting thread
/// itself cannot be told from one elsewhere, and would never commit.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The longest sleep before another look. Giving a claim up costs no fence, so once in a great
/// while it may not see that somebody went to sleep.
const LONGEST_SLEEP: Duration = Duration::from_micros(500);

impl ClaimWaiters {
    /// Waits until a claim on a slot is given up. `holders` lists who stands in the way there.
    fn wait(
        &self,
        desk: DeskId,
        wanted: (u32, Access),
        holders: impl Fn(u32, Access) -> Vec<DeskId>,
    ) -> WaitEnd {
        for look in 1..LOOKS {
            if holders(wanted.0, wanted.1).is_empty() {
                return WaitEnd::TryAgain;
            }
            pause(look);
        }
        let mut waiting = self.waiting.lock();
        let mut reached = holders(wanted.0, wanted.1);
        if reached.contains(&desk) {
            return WaitEnd::OwnThread;
        }
        let mut open = reached.clone();
        while let Some(holder) = open.pop() {
            if holder == desk {
                return WaitEnd::Circle;
            }
            let Some(&(slot, access)) = waiting.get(&holder) else { continue };
            for other in holders(slot, access) {
                if !reached.contains(&other) {
                    reached.push(other);
                    open.push(other);
                }
            }
        }
        waiting.insert(desk, wanted);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if !holders(wanted.0, wanted.1).is_empty() {
            self.released.wait_for(&mut waiting, LONGEST_SLEEP);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        waiting.remove(&desk);
        WaitEnd::TryAgain
    }

    #[cold]
    fn wake(&self) {
        drop(self.waiting.lock());
        self.released.notify_all();
    }
}
