//! The one owner of dependency state: which work on which stream every block still follows.
//!
//! A tracker belongs to a stream pool, and so to a device. Each stream is a *lane* that counts its
//! launches in *ticks*; a *point* is a tick of a lane. A block remembers the point that last wrote
//! it and, for each lane, the point that last read it since: as many words as there are streams,
//! however many launches there were. A launch on a stream waits for those of its blocks' points
//! that its lane does not already follow, and then stands for all its blocks with one event.
//!
//! Validation: every call checks the device's health, the stream, and each block's address and
//! generation before it changes anything. Ordering: a wait stands in a stream before the tracker
//! says that the stream follows it, and a use is visible to others only with its event recorded.
//!
//! Locks, in the order in which they may be taken: the pool's membership, a lane's submit lock, a
//! slot's word, the rest of a slot, a lane's trail. Only the first two are held over driver calls,
//! and a thread that waits for one of them would wait in the driver otherwise (see [`lane`]).

mod carve;
mod chunked;
mod claims;
mod desk;
mod lane;
mod mode;
#[cfg(all(test, loom))]
pub(in crate::device_runtime) mod models;
mod point;
mod recent;
mod slot;
mod supply;
mod table;
mod trail;
mod uses;
mod waits;

use std::sync::{Arc, Weak};

use xlog_driver::RawStream;

pub use self::desk::VirtualThread;
pub(crate) use self::{
    carve::SetAside,
    claims::{Holder, OnConflict, TicketId},
    lane::Lane,
    point::{MAX_LANES, Point},
    slot::{OnRelease, Tenant},
    trail::{HeldEvent, RecordedEvent},
    uses::{Launch, foreign_device},
};
use self::{
    chunked::Chunked,
    claims::ClaimWaiters,
    desk::Desk,
    point::Frontier,
    slot::{Follows, Rest, Slot},
    table::SlotTable,
};
use super::{
    BlockId, DeviceBlock, Generation, ResourceError, ResourceResult, StreamId, vocabulary::SlotHint,
};
use crate::{
    CudaDevice,
    mutant::{self, Mutant},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
        sized,
    },
};

/// A resource that counts its blocks itself.
pub(crate) trait HoldsBlocks: Send + Sync {
    /// Blocks in use that lane `index` is home to.
    fn blocks_on(&self, index: usize) -> usize;

    /// The stream of lane `index` is to be released: gives back what is free and was only kept.
    fn make_way(&self, _index: usize) {}
}

/// A small number for the calling thread that no other thread has meanwhile.
#[inline]
pub(crate) fn current_desk() -> u32 {
    desk::DeskId::current().0
}

/// Every tracker there is, by number.
static LIVING: parking_lot::Mutex<Vec<(u64, Weak<UseTracker>)>> =
    parking_lot::Mutex::new(Vec::new());

/// Dependency state of one stream pool; shared by every resource over it.
#[repr(C, align(64))] // in this order: what every launch looks at comes first
pub struct UseTracker {
    device: Arc<CudaDevice>,
    lanes: Box<[Lane]>,
    /// The bits of a stream's id that tell its lane.
    lane_bits: u32,
    /// What each thread's launches are using right now.
    desks: Chunked<Desk, { sized(8, 2) }>,
    desks_used: AtomicU32,
    /// Whether the pool has more than one stream: only then do launches record events.
    several: AtomicBool,
    number: u64,
    slots: SlotTable,
    deferred_frees: AtomicUsize,
    claim_waiters: ClaimWaiters,
    /// Slots of blocks that were freed while launches held claims on them.
    deferred: Mutex<Vec<u32>>,
    /// Resources that count their blocks themselves.
    holders: Mutex<Vec<Weak<dyn HoldsBlocks>>>,
    dropped_recorders: AtomicU64,
    leaked_blocks: AtomicU64,
}

/// A block out of use, on its way back to the driver.
#[derive(Debug)]
pub(crate) struct Retired {
    number: u32,
    pub(crate) ptr: u64,
    pub(crate) bytes: usize,
    pub(crate) home: usize,
    /// A use of it could be neither recorded nor waited for.
    pub(crate) unprotected: bool,
    outstanding: Frontier,
}

/// What a tracker holds and has done: for tests, benchmarks and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrackerStats {
    /// Blocks with an identity.
    pub blocks: usize,
    /// Uses of live blocks that are remembered: of each block the last write, and a read for each
    /// stream that has read it since.
    pub remembered_uses: usize,
    /// Streams in the pool, the default one included.
    pub streams: usize,
    /// Events that stand for work that may still be running.
    pub events_in_flight: usize,
    /// Events kept for the next launch.
    pub events_idle: usize,
    /// Events recorded since the tracker was made.
    pub records: u64,
    /// Waits queued since the tracker was made.
    pub waits: u64,
    /// Recorders dropped without a commit.
    pub dropped_recorders: u64,
    /// Blocks whose last use could be neither recorded nor waited for; never reused.
    pub leaked_blocks: u64,
}

impl UseTracker {
    pub(crate) fn new(device: Arc<CudaDevice>, lanes: usize) -> Arc<Self> {
        static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let completed: Arc<[AtomicU64]> = (0..lanes).map(|_| AtomicU64::new(0)).collect();
        let tracker = Arc::new(Self {
            number,
            device,
            lane_bits: lanes.next_power_of_two() as u32 - 1,
            lanes: (0..lanes).map(|index| Lane::new(index, &completed)).collect(),
            several: AtomicBool::new(false),
            slots: SlotTable::new(),
            desks: Chunked::new(),
            desks_used: AtomicU32::new(0),
            claim_waiters: ClaimWaiters::default(),
            deferred: Mutex::default(),
            holders: Mutex::default(),
            deferred_frees: AtomicUsize::new(0),
            dropped_recorders: AtomicU64::new(0),
            leaked_blocks: AtomicU64::new(0),
        });
        LIVING.lock().push((number, Arc::downgrade(&tracker)));
        tracker
    }

    /// The tracker of that number, if it is still there.
    pub(crate) fn find(number: u64) -> Option<Arc<Self>> {
        LIVING.lock().iter().find(|(other, _)| *other == number)?.1.upgrade()
    }

    /// No other tracker of the process has it, then or later.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// Which of the two devices it is.
    pub(crate) fn device_kind(&self) -> xlog_driver::DeviceKind {
        self.device.info().kind
    }

    pub(crate) fn shared_device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Has `holder` asked how many of its blocks a lane is home to.
    pub(crate) fn ask_too(&self, holder: Weak<dyn HoldsBlocks>) {
        let mut holders = self.holders.lock();
        holders.retain(|holder| holder.strong_count() > 0);
        holders.push(holder);
    }

    /// Has every resource give back what it kept on a lane though it is free. May wait for it.
    pub(crate) fn make_way(&self, lane: &Lane) {
        let holders: Vec<_> = self.holders.lock().iter().filter_map(Weak::upgrade).collect();
        holders.iter().for_each(|holder| holder.make_way(lane.index()));
    }

    /// Live blocks and pending frees that name a lane: reasons to keep its stream.
    pub(crate) fn blocks_on(&self, lane: &Lane) -> usize {
        let holders: Vec<_> = self.holders.lock().iter().filter_map(Weak::upgrade).collect();
        let held: usize = holders.iter().map(|holder| holder.blocks_on(lane.index())).sum();
        lane.blocks() + held
    }

    /// The lane of `stream`, on a device that is alive and a stream nobody is capturing.
    #[inline]
    pub(crate) fn enter(&self, stream: StreamId) -> ResourceResult<&Lane> {
        self.device.check_alive()?;
        self.enter_alive(stream)
    }

    /// The same for whoever knows that the device is alive.
    #[inline(always)]
    fn enter_alive(&self, stream: StreamId) -> ResourceResult<&Lane> {
        let lane = self.lane(stream).ok_or_else(|| unknown_stream(stream))?;
        self.check_capture(lane)?;
        Ok(lane)
    }

    /// Refuses a lane whose stream is being captured into a graph: whatever is asked of such a
    /// stream becomes part of the capture, or breaks it.
    #[inline]
    pub(crate) fn check_capture(&self, lane: &Lane) -> ResourceResult<()> {
        if lane.is_exposed() { self.refuse_capture(lane) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn refuse_capture(&self, lane: &Lane) -> ResourceResult<()> {
        let raw = lane.raw(&self.device)?;
        // SAFETY: the stream lives as long as its lane has it.
        if self.device.note(unsafe { self.device.driver().is_capturing(raw) })? {
            return Err(ResourceError::StreamMisuse(format!(
                "stream {} is being captured into a graph, which the runtime cannot track yet; \
                 end the capture first, or use another stream",
                lane.stream().map_or(0, |stream| stream.0)
            )));
        }
        Ok(())
    }

    /// The lane of `stream`, if the pool has that stream.
    #[inline]
    pub(crate) fn lane(&self, stream: StreamId) -> Option<&Lane> {
        let lane = self.lanes.get(self.lane_index(stream))?;
        (lane.stream() == Some(stream)).then_some(lane)
    }

    /// Where a stream's lane is, if it has one: ids are handed out so that their low bits tell.
    #[inline]
    pub(crate) fn lane_index(&self, stream: StreamId) -> usize {
        (stream.0 & self.lane_bits) as usize
    }

    /// Gives a block of resource `owner` an identity, born on `home` at `birth`.
    pub(crate) fn register(
        &self,
        ptr: u64,
        bytes: usize,
        owner: u64,
        home: &Lane,
        birth: Point,
    ) -> ResourceResult<Generation> {
        let (number, slot) = self.slots.take().ok_or("no room for another block's identity")?;
        let generation = Generation::next();
        let tenant = Tenant { owner, home: home.index(), place: Tenant::NOWHERE };
        let birth = if mutant::is(Mutant::NoBirth) { Point::default() } else { birth };
        slot.occupy(generation, ptr, birth, tenant, Rest { bytes, ..Rest::default() });
        self.slots.insert(ptr, number);
        Ok(generation)
    }

    /// Where the block's state is kept, for a [`BlockUse`](super::BlockUse) to carry along.
    pub(crate) fn locate(&self, block: &DeviceBlock) -> SlotHint {
        self.find_block(BlockId::from_block(block), SlotHint::NONE)
            .map_or(SlotHint::NONE, |(number, _)| SlotHint(number))
    }

    /// Whether the block is one of this tracker's.
    pub(crate) fn knows(&self, block: BlockId) -> bool {
        self.find_block(block, SlotHint::NONE).is_some()
    }

    /// The slot of a block, freed meanwhile or not; `None` if the handle is stale or nobody's.
    #[inline]
    fn find_block(&self, block: BlockId, hint: SlotHint) -> Option<(u32, &Slot)> {
        let number = if hint == SlotHint::NONE { self.slots.at(block.ptr)? } else { hint.0 };
        let slot = self.slots.get(number)?;
        let stale = mutant::is(Mutant::StaleFree) || mutant::is(Mutant::StaleUse);
        (slot.owns(block.ptr, block.generation) || stale).then_some((number, slot))
    }

    /// Takes a block of resource `owner` out of use before its memory is freed. `None` if launches
    /// hold claims on it: then `deferred` runs when the last of them lets go.
    pub(crate) fn retire(
        &self,
        block: BlockId,
        owner: u64,
        deferred: impl FnOnce() -> OnRelease,
    ) -> ResourceResult<Option<Retired>> {
        let stale = ResourceError::UseAfterFree { generation: block.generation };
        let Some((number, slot)) = self.find_block(block, SlotHint::NONE) else {
            return Err(stale);
        };
        let stale_too = mutant::is(Mutant::StaleFree);
        let owns = || slot.owns(block.ptr, block.generation) || stale_too;
        let is_block = || owns() && slot.tenant().owner == owner;
        match self.close_slot(number, slot, is_block) {
            None => Err(stale),
            Some(false) => Ok(Some(self.retired_at(number, slot, block.ptr))),
            Some(true) => {
                slot.with_rest(|rest| rest.on_release = Some(deferred()));
                self.deferred.lock().push(number);
                self.deferred_frees.fetch_add(1, Ordering::SeqCst);
                // The last claim may have gone in between.
                self.run_deferred_frees();
                Ok(None)
            }
        }
    }

    /// Frees what waited for claims that are gone.
    #[cold]
    pub(crate) fn run_deferred_frees(&self) {
        // Looked at with the list locked: whoever gives up the last claim now looks after us, and
        // finds what we left.
        let free: Vec<u32> =
            self.deferred.lock().extract_if(.., |number| !self.is_held(*number)).collect();
        for number in free {
            self.deferred_frees.fetch_sub(1, Ordering::SeqCst);
            let run =
                self.slots.get(number).and_then(|s| s.with_rest(|rest| rest.on_release.take()));
            if let Some(run) = run {
                run();
            }
        }
    }

    fn retired_at(&self, number: u32, slot: &Slot, ptr: u64) -> Retired {
        let outstanding = self.outstanding(number, slot);
        slot.with_rest(|rest| Retired {
            number,
            ptr,
            bytes: rest.bytes,
            home: slot.tenant().home,
            unprotected: rest.unprotected,
            outstanding,
        })
    }

    /// A block retired earlier, whose free is to be tried now.
    pub(crate) fn retired(&self, ptr: u64) -> Option<Retired> {
        let number = self.slots.at(ptr)?;
        Some(self.retired_at(number, self.slots.get(number)?, ptr))
    }

    /// A retired block lives on: its free failed, and its owner has it back.
    pub(crate) fn unretire(&self, retired: &Retired) {
        if let Some(slot) = self.slots.get(retired.number) {
            slot.change(slot::Word::Slow);
        }
    }

    /// Takes a retired block's address out of the books. Comes before the driver has the memory
    /// back, since it may give the address to another block at once.
    pub(crate) fn detach(&self, retired: &Retired) {
        self.slots.remove(retired.ptr, retired.number);
    }

    /// Undoes [`detach`](Self::detach): the driver did not take the memory.
    pub(crate) fn attach(&self, retired: &Retired) {
        self.slots.insert(retired.ptr, retired.number);
    }

    /// Ends a detached block's identity.
    pub(crate) fn unregister(&self, retired: &Retired) {
        if let Some(slot) = self.slots.get(retired.number) {
            slot.vacate();
            self.slots.give_back(retired.number);
        }
    }

    /// A lane on which memory can be freed behind a block's uses: one that follows them already,
    /// if there is one, else the block's own with the waits queued.
    pub(crate) fn follow_all(&self, retired: &Retired) -> ResourceResult<&Lane> {
        let points = &retired.outstanding;
        let follows_all = |lane: &Lane| points.points().iter().all(|point| lane.follows(*point));
        let home = &self.lanes[retired.home];
        if follows_all(home) {
            return Ok(home);
        }
        // Another library's streams, and streams somebody may be capturing, are not for our frees.
        let users = points.points().iter().map(|point| &self.lanes[point.lane()]);
        for lane in users.filter(|lane| lane.stream().is_some() && !lane.is_exposed()) {
            if follows_all(lane) {
                return Ok(lane);
            }
        }
        self.follow_at_home(retired)
    }

    /// The lane a retired block was born on, behind every use of it.
    pub(crate) fn follow_at_home(&self, retired: &Retired) -> ResourceResult<&Lane> {
        let home = &self.lanes[retired.home];
        self.check_capture(home)?;
        self.queue_waits(home, &retired.outstanding)?;
        Ok(home)
    }

    /// The raw stream of a lane, unless somebody is capturing it.
    pub(crate) fn uncaptured_raw(&self, lane: &Lane) -> ResourceResult<RawStream> {
        self.check_capture(lane)?;
        lane.raw(&self.device)
    }

    /// Outstanding dependencies of the live block at `ptr`.
    pub(crate) fn dependency_count(&self, ptr: u64) -> Option<usize> {
        let slot = self.slots.get(self.slots.at(ptr)?)?;
        slot.lives_at(ptr).then(|| Self::dependencies(slot))
    }

    /// Makes `lane` follow everything enqueued on every stream so far.
    pub(crate) fn join_all(&self, lane: &Lane) -> ResourceResult<()> {
        let mut tails = Frontier::default();
        for other in self.lanes.iter().filter(|other| other.tick() > 0) {
            tails.add(Point::new(other.index(), other.tick()));
        }
        self.queue_waits(lane, &tails)
    }

    /// Waits for everything enqueued on `lane` so far, and lets its events rest.
    pub(crate) fn synchronize(&self, lane: &Lane) -> ResourceResult<()> {
        let Some(raw) = lane.created_raw() else {
            return Ok(());
        };
        self.check_capture(lane)?;
        let tail = lane.tail();
        self.synchronize_raw(raw)?;
        lane.learn_tail(&tail);
        Ok(())
    }

    /// Whether the device has passed an event; asking does not wait.
    pub(crate) fn is_event_done(&self, event: &RecordedEvent) -> ResourceResult<bool> {
        self.device.check_alive()?;
        // SAFETY: the caller holds the event, which is this tracker's.
        let done = self.device.note(unsafe { self.device.driver().event_done(event.raw) })?;
        if done {
            self.learn(event);
        }
        Ok(done)
    }

    /// Waits until the device has passed an event.
    pub(crate) fn wait_for_event(&self, event: &RecordedEvent) -> ResourceResult<()> {
        self.device.check_alive()?;
        // SAFETY: the caller holds the event, which is this tracker's.
        self.device.note(unsafe { self.device.driver().synchronize_event(event.raw) })?;
        self.learn(event);
        Ok(())
    }

    /// What the host has seen once needs no wait on the device any more.
    fn learn(&self, event: &RecordedEvent) {
        let point = event.point();
        self.lanes[point.lane()].learn(point.tick());
    }

    pub(crate) fn synchronize_raw(&self, raw: RawStream) -> ResourceResult<()> {
        // SAFETY: streams live as long as the tracker.
        self.device.note(unsafe { self.device.driver().synchronize_stream(raw) })
    }

    pub(crate) fn count_dropped_recorder(&self) {
        self.dropped_recorders.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_leaked_block(&self) {
        self.leaked_blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// What the tracker holds and has done.
    #[must_use]
    pub fn stats(&self) -> TrackerStats {
        let mut stats = TrackerStats {
            blocks: self.slots.blocks(),
            remembered_uses: self.slots.live().map(Self::remembered_uses).sum(),
            dropped_recorders: self.dropped_recorders.load(Ordering::Relaxed),
            leaked_blocks: self.leaked_blocks.load(Ordering::Relaxed),
            ..TrackerStats::default()
        };
        for lane in &self.lanes {
            let (in_flight, idle) = lane.events();
            let (records, waits) = lane.counters();
            stats.streams += usize::from(lane.stream().is_some());
            stats.events_in_flight += in_flight;
            stats.events_idle += idle;
            stats.records += records;
            stats.waits += waits;
        }
        stats
    }

    /// Destroys the events kept for the next launch.
    pub(crate) fn trim(&self) -> ResourceResult<()> {
        self.lanes.iter().try_for_each(|lane| lane.trim(&self.device))
    }
}

impl Drop for UseTracker {
    fn drop(&mut self) {
        LIVING.lock().retain(|(number, _)| *number != self.number);
        for lane in &mut self.lanes {
            if let Err(error) = lane.destroy(&self.device) {
                log::warn!("closing a stream pool: {error}");
            }
        }
    }
}

impl std::fmt::Debug for UseTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UseTracker").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cold]
#[inline(never)]
pub(crate) fn unknown_stream(stream: StreamId) -> ResourceError {
    ResourceError::StreamMisuse(format!(
        "stream {} is not in this pool; acquire one with StreamPool::acquire, or use \
         StreamId::DEFAULT",
        stream.0
    ))
}
