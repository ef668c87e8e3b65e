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
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use xlog_core::Access;

use super::{
    UseTracker,
    desk::{Claims, Desk, DeskId, Held},
    slot::{Slot, Word, pause},
};
use crate::device_runtime::{BlockUse, ResourceError, ResourceResult, StreamId};

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

/// What to do when another launch holds a claim that conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnConflict {
    /// Refuse, naming both places.
    Refuse,
    /// Wait for that launch to commit, unless that could never happen.
    Wait,
}

/// Why a claim was not given.
enum Stop {
    /// The block is gone.
    Stale(usize),
    /// Another launch holds a claim that conflicts.
    Held(usize, Holder),
}

/// One block of a launch: where its state is kept, and this thread's claims on it.
pub(crate) struct Target<'t> {
    pub(super) number: u32,
    pub(super) access: Access,
    progress: Progress,
    pub(super) slot: &'t Slot,
    pub(super) cell: &'t Claims,
}

/// How far the claim on a block has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    None,
    Announced,
    Granted,
}

/// The blocks of a launch, each found once.
pub(crate) type Targets<'t> = SmallVec<[Target<'t>; 8]>;

impl UseTracker {
    /// Claims every block of a launch, all or none, and shows each to `granted`.
    #[inline]
    pub(super) fn claim_all<'t>(
        &'t self,
        uses: &[BlockUse],
        holder: Holder,
        on_conflict: OnConflict,
        targets: &mut Targets<'t>,
        mut granted: impl FnMut(&Target<'t>),
    ) -> ResourceResult<()> {
        while let Err(stop) = self.try_claim_all(uses, holder, targets, &mut granted) {
            undo(targets);
            targets.clear();
            self.after_release();
            self.meet(uses, &stop, holder, on_conflict)?;
        }
        Ok(())
    }

    #[inline]
    fn try_claim_all<'t>(
        &'t self,
        uses: &[BlockUse],
        holder: Holder,
        targets: &mut Targets<'t>,
        granted: &mut impl FnMut(&Target<'t>),
    ) -> Result<(), Stop> {
        let desk = self.desk(holder.desk);
        let mut ask = false;
        for (index, one) in uses.iter().enumerate() {
            let number = one.slot.0;
            let found = self.slots.get(number).zip(desk.cells.grow(number));
            let Some((slot, cell)) = found else { return Err(Stop::Stale(index)) };
            if !slot.owns(one.block.ptr, one.block.generation) {
                return Err(Stop::Stale(index));
            }
            if cell.conflicts(one.access) {
                return Err(Stop::Held(index, cell.holder(holder.desk)));
            }
            let mut progress = Progress::None;
            if slot.allows(one.access, holder.desk) {
                cell.announce(holder);
                progress = Progress::Announced;
            } else {
                ask = true;
            }
            targets.push(Target { number, access: one.access, progress, slot, cell });
        }
        // Between every announcement above and every second look below; see `slot`.
        desk.fence();
        for (target, one) in targets.iter_mut().zip(uses) {
            if target.progress == Progress::Announced {
                if target.slot.allows(target.access, holder.desk)
                    && target.slot.is_generation(one.block.generation)
                {
                    target.cell.grant(target.access);
                    target.progress = Progress::Granted;
                    granted(target);
                } else {
                    target.cell.withdraw();
                    target.progress = Progress::None;
                    ask = true;
                }
            }
        }
        if ask { self.ask_for_rest(uses, targets, holder, granted) } else { Ok(()) }
    }

    /// Claims, one by one, the blocks whose words did not allow it.
    #[cold]
    fn ask_for_rest<'t>(
        &'t self,
        uses: &[BlockUse],
        targets: &mut Targets<'t>,
        holder: Holder,
        granted: &mut impl FnMut(&Target<'t>),
    ) -> Result<(), Stop> {
        for (index, (target, one)) in targets.iter_mut().zip(uses).enumerate() {
            if target.progress == Progress::None {
                self.ask_for(target, one, holder).map_err(|held_by| match held_by {
                    Some(holder) => Stop::Held(index, holder),
                    None => Stop::Stale(index),
                })?;
                target.progress = Progress::Granted;
                granted(target);
            }
        }
        Ok(())
    }

    /// Claims a block with its word locked; otherwise who holds it, or nobody if it is gone.
    fn ask_for(
        &self,
        target: &Target<'_>,
        one: &BlockUse,
        holder: Holder,
    ) -> Result<(), Option<Holder>> {
        let (slot, access) = (target.slot, target.access);
        let word = slot.lock();
        if matches!(word, Word::Retired | Word::Vacant)
            || !slot.owns(one.block.ptr, one.block.generation)
        {
            slot.unlock(word);
            return Err(None);
        }
        if let Some(held_by) = self.held_against(target.number, access, Some(holder.desk)) {
            slot.unlock(Word::Slow);
            return Err(Some(held_by));
        }
        target.cell.announce(holder);
        target.cell.grant(access);
        slot.unlock(if access.writes() { Word::Biased(holder.desk) } else { Word::Shared });
        Ok(())
    }

    /// The blocks of a launch that holds claims on them.
    #[inline]
    pub(crate) fn claimed_targets(&self, uses: &[BlockUse], holder: Holder) -> Targets<'_> {
        let desk = self.desk(holder.desk);
        let found = uses.iter().filter_map(|one| {
            let (number, access, progress) = (one.slot.0, one.access, Progress::Granted);
            let (slot, cell) = self.slots.get(number).zip(desk.cells.get(number))?;
            Some(Target { number, access, progress, slot, cell })
        });
        found.collect()
    }

    /// A claim on a slot that stands in the way of `access`, on any desk but `except`. The slot's
    /// word is locked, so no new one can come.
    fn held_against(&self, slot: u32, access: Access, except: Option<DeskId>) -> Option<Holder> {
        self.desks_for(slot).filter(|(desk, _)| Some(*desk) != except).find_map(|(desk, cell)| {
            let mut looks = 0;
            loop {
                match cell.held() {
                    Held::Nothing => return None,
                    Held::Reads if !access.writes() => return None,
                    Held::Reads | Held::Write => return Some(cell.holder(desk)),
                    // Its owner finds the word locked and takes it back, or has granted it
                    // already: either way without waiting for anybody.
                    Held::Undecided => {
                        looks += 1;
                        pause(looks);
                    }
                }
            }
        })
    }

    /// The cell for `slot` on every desk that ever claimed it or a neighbour.
    fn desks_for(&self, slot: u32) -> impl Iterator<Item = (DeskId, &Claims)> {
        let desks = self.desks_used.load(Ordering::SeqCst);
        (0..desks)
            .filter_map(move |desk| Some((DeskId(desk), self.desks.get(desk)?.cells.get(slot)?)))
    }

    /// Whether anybody holds a claim on a slot whose word is locked or retired.
    pub(super) fn is_held(&self, slot: u32) -> bool {
        self.held_against(slot, Access::Write, None).is_some()
    }

    /// The streams of launches that hold claims, for a pool that wants to let one go.
    pub(crate) fn is_claimed_on(&self, stream: StreamId) -> bool {
        let desks = self.desks_used.load(Ordering::SeqCst);
        (0..desks).filter_map(|desk| Some((DeskId(desk), self.desks.get(desk)?))).any(
            |(desk, cells)| {
                cells
                    .cells
                    .iter()
                    .any(|cell| cell.held() != Held::Nothing && cell.holder(desk).stream == stream)
            },
        )
    }

    /// The desk of a thread, made when it first launches.
    #[inline]
    fn desk(&self, id: DeskId) -> &Desk {
        match self.desks.get(id.0) {
            Some(desk) if id.0 < self.desks_used.load(Ordering::Relaxed) => desk,
            _ => self.make_desk(id),
        }
    }

    #[cold]
    fn make_desk(&self, id: DeskId) -> &Desk {
        static OVERFLOW: std::sync::LazyLock<Desk> = std::sync::LazyLock::new(Desk::default);
        self.desks_used.fetch_max(id.0.saturating_add(1), Ordering::SeqCst);
        // Past four billion threads at once there is no machine.
        self.desks.grow(id.0).unwrap_or(&OVERFLOW)
    }

    /// Gives up every claim of a launch.
    #[inline]
    pub(crate) fn release(&self, targets: &Targets<'_>) {
        for target in targets {
            target.cell.release(target.access);
        }
        self.after_release();
    }

    /// Lets those go on who wait for claims: other launches, and frees.
    #[inline]
    pub(super) fn after_release(&self) {
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
        on_conflict: OnConflict,
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
        match self.claim_waiters.wait(mine.desk, one.slot.0, |slot| {
            let held =
                |(desk, cell): (DeskId, &Claims)| (cell.held() != Held::Nothing).then_some(desk);
            self.desks_for(slot).filter_map(held).collect()
        }) {
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
        let word = slot.lock();
        if matches!(word, Word::Retired | Word::Vacant) || !is_block() {
            slot.unlock(word);
            return None;
        }
        let held = self.is_held(number);
        slot.unlock(Word::Retired);
        Some(held)
    }
}

/// Takes back what was announced, and gives up what was granted.
fn undo(targets: &mut Targets<'_>) {
    for target in targets {
        match target.progress {
            Progress::None => {}
            Progress::Announced => target.cell.withdraw(),
            Progress::Granted => target.cell.release(target.access),
        }
    }
}

/// The refusal of a claim, naming both places.
fn refusal(one: &BlockUse, held_by: Holder, mine: Holder, why: &str) -> ResourceError {
    ResourceError::StreamMisuse(format!(
        "block {:#x} (generation {}) is claimed by the launch preflighted at {} on stream {}, \
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
pub(super) fn stale(one: &BlockUse) -> ResourceError {
    ResourceError::UseAfterFree { generation: one.block.generation }
}

/// Threads that wait for claims to be given up. Also finds the circle of threads that wait for
/// each other before anybody goes to sleep in it.
#[derive(Debug, Default)]
pub(crate) struct ClaimWaiters {
    sleepers: AtomicUsize,
    waiting: Mutex<HashMap<DeskId, u32>>,
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
const LOOKS: u32 = 100;

/// The longest sleep before another look. Giving a claim up costs no fence, so once in a great
/// while it may not see that somebody went to sleep.
const LONGEST_SLEEP: Duration = Duration::from_micros(500);

impl ClaimWaiters {
    /// Waits until a claim on `slot` is given up. `holders` lists who holds claims on a slot.
    fn wait(&self, desk: DeskId, slot: u32, holders: impl Fn(u32) -> Vec<DeskId>) -> WaitEnd {
        for look in 1..LOOKS {
            if holders(slot).is_empty() {
                return WaitEnd::TryAgain;
            }
            pause(look);
        }
        let mut waiting = self.waiting.lock();
        let mut reached = holders(slot);
        if reached.contains(&desk) {
            return WaitEnd::OwnThread;
        }
        let mut open = reached.clone();
        while let Some(holder) = open.pop() {
            if holder == desk {
                return WaitEnd::Circle;
            }
            let Some(&next) = waiting.get(&holder) else { continue };
            for other in holders(next) {
                if !reached.contains(&other) {
                    reached.push(other);
                    open.push(other);
                }
            }
        }
        waiting.insert(desk, slot);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if !holders(slot).is_empty() {
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
