//! Blocks cut from larger ones: what a pool asks of the tracker.
//!
//! A pool takes large blocks from the resource below it, *sets them aside*, and cuts its own blocks
//! out of them. A block that comes back keeps its slot, and with it the uses that whoever gets its
//! memory next has to follow (rule 7): handing it out again to a stream that follows them takes a
//! new generation and nothing else.

use super::{
    Frontier, Lane, Point, Retired, SlotHint, UseTracker,
    desk::{Desk, DeskId},
    recent,
    slot::{CROWDED, Follows, Slot, Tenant},
};
use crate::{
    device_runtime::{BlockId, Generation, ResourceResult},
    mutant::{self, Mutant},
};

/// A block of the resource below that was cut up: out of the books of addresses, because its first
/// part has the same one.
#[derive(Debug)]
pub(crate) struct SetAside {
    number: u32,
    ptr: u64,
    /// The uses its parts start from.
    pub(crate) birth: Frontier,
    /// Whether its home is the default stream now.
    pub(crate) rehomed: bool,
}

impl Retired {
    /// The block's slot.
    pub(crate) fn slot(&self) -> u32 {
        self.number
    }

    /// The uses that its memory has to follow.
    pub(crate) fn uses(&self) -> &[Point] {
        self.outstanding.points()
    }
}

impl UseTracker {
    /// Sets a block aside, and makes the default stream its home: whoever releases the stream it
    /// was allocated on knows nothing of it. A block that a pool counts keeps its home. `None` if
    /// it is not one of this tracker's.
    pub(crate) fn set_aside(&self, block: BlockId) -> Option<SetAside> {
        let (number, slot) = self.find_block(block, SlotHint::NONE)?;
        let birth = match mutant::is(Mutant::NoBirthInSlabs) {
            true => Frontier::default(),
            false => self.outstanding(number, slot),
        };
        self.slots.remove(block.ptr, number);
        let tenant = slot.tenant();
        if tenant.place == Tenant::NOWHERE {
            self.lanes[0].hold_block();
            self.lanes[tenant.home].drop_blocks(1);
        }
        let rehomed = matches!(tenant.place, Tenant::NOWHERE | Tenant::AT_ITS_ADDRESS);
        if rehomed {
            slot.set_home(0);
        }
        Some(SetAside { number, ptr: block.ptr, birth, rehomed })
    }

    /// Puts a block that was set aside back into the books, to be freed behind `uses`.
    pub(crate) fn bring_back(&self, aside: &SetAside, uses: &[Point]) {
        if let Some(slot) = self.slots.get(aside.number) {
            slot.with_rest(|rest| {
                uses.iter()
                    .for_each(|point| super::slot::keep_latest(&mut rest.bare_writes, *point));
            });
            self.slots.insert(aside.ptr, aside.number);
        }
    }

    /// A slot for a block at `ptr`, out of use until it is renewed, that follows `uses`.
    pub(crate) fn carve(
        &self,
        (ptr, bytes): (u64, usize),
        tenant: Tenant,
        uses: &[Point],
    ) -> ResourceResult<u32> {
        let (number, slot) = self.slots.take().ok_or("no room for another block's identity")?;
        slot.reserve(ptr, uses, tenant, bytes);
        self.slots.insert(ptr, number);
        Ok(number)
    }

    /// Whether work on `lane` is behind every use of a retired slot.
    #[inline(always)]
    pub(crate) fn follows_slot(&self, number: u32, lane: &Lane) -> bool {
        let Some(slot) = self.slots.get(number) else { return false };
        let (last_write, readers) = (slot.last_write(), slot.readers());
        let own = readers & !(1 << lane.index()) == 0;
        if own && last_write.lane() == lane.index() {
            return true;
        }
        lane.follows(last_write) && (own || self.follows_readers(number, slot, lane))
    }

    #[cold]
    fn follows_readers(&self, number: u32, slot: &Slot, lane: &Lane) -> bool {
        self.follows_points(self.outstanding(number, slot).points(), lane)
            && !slot.with_rest(|rest| rest.unprotected)
    }

    /// Asks the device how far the streams have come that used a retired slot.
    pub(crate) fn ask_about_slot(&self, number: u32) {
        if let Some(slot) = self.slots.get(number) {
            let uses = self.outstanding(number, slot);
            uses.points().iter().for_each(|point| self.lanes[point.lane()].ask(&self.device));
        }
    }

    /// Makes work on `lane` follow every use of a retired slot.
    pub(crate) fn follow_slot(&self, number: u32, lane: &Lane) -> ResourceResult<()> {
        match self.slots.get(number) {
            Some(slot) => self.follow_points(self.outstanding(number, slot).points(), lane),
            None => Ok(()),
        }
    }

    /// Makes work on `lane` follow `points`.
    pub(crate) fn follow_points(&self, points: &[Point], lane: &Lane) -> ResourceResult<()> {
        if mutant::is(Mutant::CarvedFresh) {
            return Ok(());
        }
        let mut needed = Frontier::default();
        points.iter().for_each(|point| lane.need(*point, &mut needed));
        if needed.is_empty() { Ok(()) } else { self.queue_waits(lane, &needed) }
    }

    /// Whether work on `lane` is behind all of `points`.
    pub(crate) fn follows_points(&self, points: &[Point], lane: &Lane) -> bool {
        points.iter().all(|point| lane.follows(*point))
    }

    /// Whether the device is known to have passed a point.
    pub(crate) fn is_done(&self, point: Point) -> bool {
        self.lanes[point.lane()].is_done(point)
    }

    /// Whether a retired slot had a use that nobody can wait for.
    pub(crate) fn is_unprotected(&self, number: u32) -> bool {
        self.slots.get(number).is_some_and(|slot| {
            slot.readers() & CROWDED != 0 && slot.with_rest(|rest| rest.unprotected)
        })
    }

    /// Gives a retired slot's memory to a new block, of `home`.
    #[inline]
    pub(crate) fn renew(&self, number: u32, home: &Lane) -> Generation {
        let Some(slot) = self.slots.get(number) else { return Generation::next() };
        let generation = Generation::after(slot.generation());
        slot.set_home(home.index());
        if mutant::is(Mutant::CarvedFresh) {
            slot.clear_readers();
            slot.set_last_write(home.open_point());
        }
        slot.renew(generation);
        recent::remember(self.number, slot.ptr(), number);
        generation
    }

    /// Takes a block out of use that only the calling thread can have claims on, and has none. What
    /// is not that simple is left to [`retire`](Self::retire). Answers the slot and its tenant.
    #[inline]
    pub(crate) fn retire_quickly(&self, block: BlockId, owner: u64) -> Option<(u32, Tenant)> {
        let number = match recent::recall(self.number, block.ptr) {
            Some(number) => number,
            None => self.slots.at(block.ptr)?,
        };
        let slot = self.slots.get(number)?;
        let (tenant, desk) = (slot.tenant(), DeskId::current());
        let simple = tenant.owner == owner
            && slot.owns(block.ptr, block.generation)
            && slot.readers() & CROWDED == 0
            && self.desks.get(desk.0).is_none_or(Desk::is_idle);
        (simple && slot.retire_biased(desk)).then_some((number, tenant))
    }

    /// Ends a retired slot. Answers the uses that its memory still has to follow.
    pub(crate) fn dissolve(&self, number: u32) -> Frontier {
        let Some(slot) = self.slots.get(number) else { return Frontier::default() };
        let uses = self.outstanding(number, slot);
        self.slots.remove(slot.ptr(), number);
        slot.vacate();
        self.slots.give_back(number);
        uses
    }

    /// Where a slot's block is kept by its owner.
    pub(crate) fn tenant_of(&self, number: u32) -> Option<Tenant> {
        self.slots.get(number).map(|slot| slot.tenant())
    }
}
