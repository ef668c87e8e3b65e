//! Preparing and finishing the uses of a launch.

use super::{
    Frontier, Lane, Point, UseTracker,
    claims::{TicketId, stale},
    slot::{CROWDED, Follows, Slot, keep_latest},
    trail::HeldEvent,
};
use crate::{
    device_runtime::{Access, BlockUse, DeviceBlock, ResourceError, ResourceResult, StreamId},
    mutant::{self, Mutant},
    sync::{Step, atomic::Ordering, leaves_out},
};

/// A launch between its waits and its record: what it claims, and where that is kept.
pub(crate) struct Launch<'l> {
    pub(crate) uses: &'l [BlockUse],
    pub(crate) lane: &'l Lane,
    pub(crate) ticket: TicketId,
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
        for one in uses {
            let (number, slot) = self.find_live(one).ok_or_else(|| stale(one))?;
            self.gather(number, slot, one.access, lane, &mut needed);
            if needed.is_unreachable() {
                return Err(unprotected(one));
            }
        }
        if needed.is_empty() { Ok(()) } else { self.queue_waits(lane, &needed) }
    }

    /// Queues the waits of a launch whose blocks are claimed, unless one of them has a use that
    /// nothing can wait for.
    pub(super) fn follow(&self, uses: &[BlockUse], lane: &Lane) -> ResourceResult<()> {
        let mut needed = Frontier::default();
        for one in uses {
            if let Some(slot) = self.slots.get(one.slot.0) {
                self.gather(one.slot.0, slot, one.access, lane, &mut needed);
            }
        }
        if needed.is_empty() {
            return Ok(());
        }
        if !needed.is_unreachable() {
            return self.queue_waits(lane, &needed);
        }
        let leaked = |one: &&BlockUse| {
            self.slots.get(one.slot.0).is_some_and(|slot| slot.with_rest(|rest| rest.unprotected))
        };
        Err(unprotected(uses.iter().find(leaked).unwrap_or(&uses[0])))
    }

    /// Adds what a use must follow to `needed`: rule 1 (and 3: the birth is the first write).
    #[inline(always)]
    pub(super) fn gather(
        &self,
        number: u32,
        slot: &Slot,
        access: Access,
        lane: &Lane,
        needed: &mut Frontier,
    ) {
        let skips = if access.writes() { Mutant::WriteSkipsWrite } else { Mutant::ReadSkipsWrite };
        if !mutant::is(skips) {
            lane.need(slot.last_write(), needed);
        }
        let readers = slot.readers_before(access);
        if readers != 0 {
            self.gather_readers(number, slot, (readers, access), lane, needed);
        }
    }

    #[inline(never)]
    fn gather_readers(
        &self,
        number: u32,
        slot: &Slot,
        (readers, access): (u64, Access),
        lane: &Lane,
        needed: &mut Frontier,
    ) {
        if access.writes() && !mutant::is(Mutant::WriteSkipsReads) {
            for reader in bits(readers & !CROWDED) {
                lane.need(self.lanes[reader].read_of(number), needed);
            }
        }
        if readers & CROWDED != 0 {
            slot.with_rest(|rest| {
                let reads: &[Point] = if access.writes() { &rest.bare_reads } else { &[] };
                rest.bare_writes.iter().chain(reads).for_each(|point| lane.need(*point, needed));
                if rest.unprotected {
                    needed.make_unreachable();
                }
            });
        }
    }

    /// Records every use of a launch with one event, and gives up its claims.
    ///
    /// Work is in flight by now, so failing to record it is not the end: the stream is
    /// synchronised instead, and if even that fails the blocks are never reused.
    #[inline]
    pub(crate) fn finish_claimed(&self, launch: &Launch<'_>) -> ResourceResult<()> {
        #[cfg(feature = "mutants")]
        mutant::drawn::set(launch.ticket.drawn);
        // As in `mark`, but each way with a copy of its own of what it publishes: this is where
        // every launch comes through.
        let marked = self.device.check_alive().and_then(|()| match self.open_point(launch.lane) {
            Some(open) => {
                self.publish(launch, open, true);
                Ok(())
            }
            None => {
                let publish = |point| self.publish(launch, point, false);
                launch.lane.record_counted(&self.device, launch.uses.len(), publish)
            }
        });
        self.give_up(launch, marked)
    }

    /// The same, with an event in any case, and a hold on it.
    pub(crate) fn finish_with_event(&self, launch: &Launch<'_>) -> ResourceResult<HeldEvent> {
        let marked = self.device.check_alive().and_then(|()| {
            let publish = |point| {
                self.publish(launch, point, false);
            };
            launch.lane.record_and_hold(&self.device, publish)
        });
        self.give_up(launch, marked)
    }

    /// Gives up the claims of a launch; uses that could not be recorded are waited for first.
    #[inline]
    fn give_up<R>(&self, launch: &Launch<'_>, marked: ResourceResult<R>) -> ResourceResult<R> {
        if marked.is_err() && !mutant::is(Mutant::CommitStops) {
            let slots = launch.uses.iter().filter_map(|one| self.slots.get(one.slot.0));
            self.protect(slots, launch.lane);
        }
        self.release(launch.ticket);
        marked
    }

    /// Publishes claimed uses that `point` stands for. Unless `alone`, the lane's submit lock is
    /// held, and points of this lane come in order. Answers whether all that the launch before this
    /// one on the lane was remembered for may be this launch's own now: so it is, if those were no
    /// more.
    #[inline(always)]
    fn publish(&self, launch: &Launch<'_>, point: Point, alone: bool) -> bool {
        // With one stream the point stays the same: a write there covers all that is before it,
        // and is all that a later use has to follow.
        if alone && launch.ticket.written_at == point {
            return false;
        }
        let lane = launch.lane;
        let (before, mut replaces) = (Point::new(lane.index(), point.tick() - 1), !alone);
        for one in launch.uses {
            let Some(slot) = self.slots.get(one.slot.0) else {
                replaces = false;
                continue;
            };
            if alone && slot.last_write() == point {
                continue;
            }
            if one.access.writes() {
                slot.set_last_write(point);
                if !alone {
                    replaces &= slot.count_at(point) == before;
                }
                let readers = slot.readers();
                if readers != 0 && !mutant::is(Mutant::WriteKeepsReads) {
                    // Its own waits covered every one of them.
                    slot.clear_readers();
                    if readers & CROWDED != 0 {
                        self.forget_covered(slot, point);
                    }
                }
            } else if let Some(cell) = lane.read_cell(one.slot.0) {
                if mutant::is(Mutant::ReadElsewhere) {
                    let home = &self.lanes[slot.tenant().home];
                    if let Some(cell) = home.read_cell(one.slot.0) {
                        cell.store(home.tick(), Ordering::Release);
                    }
                    slot.add_reader(home.index());
                    continue;
                }
                if mutant::is(Mutant::OneReader) {
                    slot.clear_readers();
                }
                if mutant::is(Mutant::ReadersPileUp) {
                    slot.with_rest(|rest| rest.bare_reads.push(point));
                }
                let tick = point.tick();
                let last = cell.load(Ordering::Relaxed);
                if last < tick {
                    if alone {
                        cell.fetch_max(tick, Ordering::AcqRel);
                    } else {
                        cell.store(tick, Ordering::Release);
                    }
                }
                let known = slot.add_reader(lane.index());
                replaces &= known && last == before.tick();
            } else {
                replaces = false;
            }
        }
        replaces
    }

    /// Records uses that hold no claim: all or none, so one stale block refuses the batch.
    pub(crate) fn finish(
        &self,
        uses: &[BlockUse],
        stream: StreamId,
        ordinal: u32,
    ) -> ResourceResult<()> {
        check_device(uses, ordinal)?;
        self.device.check_alive()?;
        let lane = self.lane(stream).ok_or_else(|| super::unknown_stream(stream))?;
        let mut known = Vec::with_capacity(uses.len());
        for one in uses {
            known.push((self.find_recordable(one).ok_or_else(|| stale(one))?, one.access));
        }
        if known.is_empty() {
            return Ok(());
        }
        let mut published = None;
        let marked = self.mark(lane, |point, _| published = Some(point));
        let Some(point) = published else {
            self.protect(known.iter().map(|((_, slot), _)| *slot), lane);
            return marked;
        };
        for ((number, slot), access) in known {
            if access.writes() {
                self.forget_covered(slot, point);
                self.forget_covered_readers(number, slot, point);
                if mutant::is(Mutant::BareWriteForgets) {
                    slot.clear_readers();
                }
                slot.with_rest(|rest| keep_latest(&mut rest.bare_writes, point));
            } else {
                slot.with_rest(|rest| keep_latest(&mut rest.bare_reads, point));
            }
        }
        Ok(())
    }

    /// What a write at `point` covers: what its event follows, no more.
    fn covered_by(&self, point: Point) -> impl Fn(Point) -> bool {
        let trail = self.lanes[point.lane()].trail();
        let clock: Vec<u64> = trail.lock().clock(point.tick()).collect();
        move |other: Point| {
            if other.lane() == point.lane() {
                other.tick() <= point.tick()
            } else {
                clock.get(other.lane()).is_some_and(|tick| *tick >= other.tick())
            }
        }
    }

    /// Forgets uses without a claim that a write at `point` covers: rule 4.
    #[cold]
    #[inline(never)]
    fn forget_covered(&self, slot: &Slot, point: Point) {
        let covered = self.covered_by(point);
        slot.with_rest(|rest| {
            rest.bare_reads.retain(|read| !covered(*read));
            rest.bare_writes.retain(|write| !covered(*write));
        });
    }

    /// The same for reads under a claim. Whoever publishes another one finds its bit set, and sees
    /// too late that it was taken away: so while anybody holds a claim to read, all of them stay.
    /// To wait for the write is to wait for what it covers.
    fn forget_covered_readers(&self, number: u32, slot: &Slot, point: Point) {
        let covered = self.covered_by(point);
        let Some(word) = slot.lock() else { return };
        if !self.is_held_to_read(number) || leaves_out(Step::ReadersAtWork) {
            bits(slot.readers() & !CROWDED)
                .filter(|lane| covered(self.lanes[*lane].read_of(number)))
                .for_each(|lane| slot.remove_reader(lane));
        }
        slot.unlock(word);
    }

    /// What is left when uses could not be recorded: wait until they are over.
    #[cold]
    #[inline(never)]
    fn protect<'s>(&self, slots: impl Iterator<Item = &'s Slot>, lane: &Lane) {
        let waited = lane.created_raw().map_or(Ok(()), |raw| self.synchronize_raw(raw));
        if let Err(error) = waited {
            log::error!("uses could be neither recorded nor waited for; blocks leaked: {error}");
            slots.for_each(|slot| slot.with_rest(|rest| rest.unprotected = true));
        }
    }

    /// Every point a free must follow: rule 5.
    pub(super) fn outstanding(&self, number: u32, slot: &Slot) -> Frontier {
        let mut all = Frontier::default();
        if mutant::is(Mutant::FreeSkipsUses) {
            return all;
        }
        all.add(slot.last_write());
        bits(slot.readers() & !CROWDED).for_each(|lane| all.add(self.lanes[lane].read_of(number)));
        slot.with_rest(|rest| {
            rest.bare_reads.iter().chain(&rest.bare_writes).for_each(|point| all.add(*point));
        });
        all
    }

    /// 1 for the last write or the allocation, plus 1 for each reading stream.
    pub(super) fn dependencies(slot: &Slot) -> usize {
        let mut readers = slot.readers() & !CROWDED;
        slot.with_rest(|rest| rest.bare_reads.iter().for_each(|p| readers |= 1 << p.lane()));
        1 + readers.count_ones() as usize
    }

    /// Checks what comes before (address, generation): that a block is of the device `ordinal`, and
    /// its stream of this pool.
    #[inline(always)]
    pub(crate) fn check_block(&self, block: &DeviceBlock, ordinal: u32) -> ResourceResult<()> {
        if block.device_ordinal != ordinal {
            return Err(foreign_device(block.device_ordinal, ordinal));
        }
        match self.lane(block.alloc_stream) {
            Some(_) => Ok(()),
            None => Err(super::unknown_stream(block.alloc_stream)),
        }
    }

    /// Everything that is remembered of a block's uses.
    pub(super) fn remembered_uses(slot: &Slot) -> usize {
        let readers = (slot.readers() & !CROWDED).count_ones() as usize;
        slot.with_rest(|rest| 1 + readers + rest.bare_reads.len() + rest.bare_writes.len())
    }

    fn find_live(&self, one: &BlockUse) -> Option<(u32, &Slot)> {
        self.find_block(one.block, one.slot).filter(|(_, slot)| slot.lives_at(one.block.ptr))
    }

    /// The slot of a block whose uses can still be recorded: a live one, or one whose free waits
    /// for the launches that hold claims on it.
    fn find_recordable(&self, one: &BlockUse) -> Option<(u32, &Slot)> {
        let found = self.find_block(one.block, one.slot);
        found.filter(|(number, slot)| slot.lives_at(one.block.ptr) || self.is_held(*number))
    }
}

/// The numbers of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        (bit < 64).then(|| {
            word &= word - 1;
            bit as usize
        })
    })
}

pub(super) fn check_device(uses: &[BlockUse], ordinal: u32) -> ResourceResult<()> {
    match uses.iter().find(|one| one.block.device_ordinal != ordinal) {
        None => Ok(()),
        Some(one) => Err(foreign_device(one.block.device_ordinal, ordinal)),
    }
}

/// A block with a use that nobody can wait for takes no further ones.
#[cold]
fn unprotected(one: &BlockUse) -> ResourceError {
    ResourceError::StreamMisuse(format!(
        "the block at {:#x} had a use that could be neither recorded nor waited for, so nothing \
         can be ordered behind it; allocate another",
        one.block.ptr
    ))
}

#[cold]
#[inline(never)]
pub(crate) fn foreign_device(of_block: u32, ours: u32) -> ResourceError {
    ResourceError::Driver(
        format!("the block lives on device {of_block}, this resource serves device {ours}").into(),
    )
}
