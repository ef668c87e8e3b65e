//! One stream, as the tracker sees it: how far it has come, what it follows, its events.
//!
//! Two locks. `submit` is held while something is enqueued on the stream *and* the lane's record of
//! it must agree: an event with its tick and the uses it stands for, a wait with the clock. It does
//! span those driver calls, and only threads that enqueue on the same stream ever take it: they
//! would queue up in the driver otherwise, in an order nobody knows. `trail` is taken for moments
//! by anyone who looks for an event to wait for, and never over a driver call.

use std::sync::Arc;

use smallvec::SmallVec;
use xlog_driver::{RawEvent, RawStream};

use super::{
    chunked::Chunked,
    point::Point,
    slot::Follows,
    supply,
    trail::{HeldEvent, Trail},
};
use crate::{
    CudaDevice,
    device_runtime::{ResourceError, ResourceResult, StreamId},
    mutant::{self, Mutant},
    sync::{
        Mutex, MutexGuard, TinyLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
        sized,
    },
};

/// The id of a lane no stream has.
const VACANT: u32 = u32::MAX;

/// One stream of the pool.
#[derive(Debug)]
#[repr(C, align(64))] // in this order: what every launch looks at comes first
pub(crate) struct Lane {
    id: AtomicU32,
    /// The raw handle was handed out: somebody may capture the stream.
    exposed: AtomicBool,
    /// The next tick may be the open one of blocks that nobody counted.
    opened: AtomicBool,
    index: usize,
    /// A stream another library owns, while the lane stands for it; 0 for none.
    foreign: AtomicU64,
    /// The lane's own stream, kept from one owner to the next; 0 until it is first needed.
    own: AtomicU64,
    /// The last tick that a record was begun for.
    tick: AtomicU64,
    /// How far every lane is known to have come; shared by all of them.
    completed: Arc<[AtomicU64]>,
    /// What the stream's tail follows of every lane; written under `submit`, after the wait.
    clock: Box<[AtomicU64]>,
    /// The tick of this lane's latest read of each block, by slot; see `Slot::readers`.
    reads: Chunked<AtomicU64, { sized(256, 2) }>,
    pub(super) submit: Mutex<Submit>,
    pub(super) trail: TinyLock<Trail>,
    /// Events held, as of the last change: asked for without `submit`, which a thread at a full
    /// queue holds on to.
    pub(super) held: AtomicUsize,
    /// Live blocks born here plus frees waiting here: reasons to keep the stream.
    blocks: AtomicUsize,
    records: AtomicU64,
    waits: AtomicU64,
}

/// Everything on a stream at some moment, and all that it follows.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) tick: u64,
    clock: SmallVec<[u64; 40]>,
}

/// What only those who enqueue on the stream touch.
#[derive(Debug)]
pub(crate) struct Submit {
    /// The event of the next tick, and that tick: it stands for nothing. Any other tick: it is to
    /// be looked for.
    pub(super) next_event: RawEvent,
    pub(super) next_tick: u64,
    /// Done, but somebody held them when their turn came.
    pub(super) held_events: Vec<HeldEvent>,
    /// Lanes beyond this are at 0 in the lane's clock.
    clock_len: usize,
    /// It changed since the last event.
    joined: bool,
    replaced: Replaced,
}

/// Whether a lane's last launch has replaced the one before it: every block that was remembered to
/// have been used by that one is remembered for this one instead. Then nobody waits for that one
/// any more, and its event can be recorded again though the device may not have come that far:
/// waits that were queued for it stand for what it stood for then. So a loop over the same blocks
/// gets by with three events, which stay near the processor, and never asks the device anything.
///
/// Blocks of a launch are counted, and the next one counts those that it finds still to be that
/// one's. Whatever else names a tick, the birth of a block, uses that hold no claim, copies of
/// either that a pool keeps, is not counted, and nothing replaces it.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// Blocks of the last launch; none at all if others may name it too.
    blocks: Option<usize>,
    /// The tick that nobody names any more; 0 for none.
    tick: u64,
}

impl Lane {
    pub(crate) fn new(index: usize, completed: &Arc<[AtomicU64]>) -> Self {
        let lanes = completed.len();
        Self {
            index,
            id: AtomicU32::new(VACANT),
            foreign: AtomicU64::new(0),
            own: AtomicU64::new(0),
            exposed: AtomicBool::new(false),
            opened: AtomicBool::new(false),
            tick: AtomicU64::new(0),
            completed: Arc::clone(completed),
            clock: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            reads: Chunked::new(),
            submit: Mutex::new(Submit::default()),
            trail: TinyLock::new(Trail::new(index)),
            held: AtomicUsize::new(0),
            blocks: AtomicUsize::new(0),
            records: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The stream's id, if the lane has a stream.
    #[inline]
    pub(crate) fn stream(&self) -> Option<StreamId> {
        match self.id.load(Ordering::SeqCst) {
            VACANT => None,
            id => Some(StreamId(id)),
        }
    }

    pub(crate) fn occupy(&self, stream: StreamId, adopted: Option<RawStream>) {
        self.foreign.store(adopted.map_or(0, |raw| raw.0), Ordering::Release);
        self.exposed.store(adopted.is_some(), Ordering::Relaxed);
        self.reopen(stream);
    }

    /// Takes the id away, so that nobody enters any more.
    pub(crate) fn close(&self) {
        self.id.store(VACANT, Ordering::SeqCst);
    }

    /// Gives the lane an id, or back the one it had.
    pub(crate) fn reopen(&self, stream: StreamId) {
        self.id.store(stream.0, Ordering::SeqCst);
    }

    /// Lets another library's stream go. A stream of our own stays for the lane's next owner, so
    /// that a raw handle somebody kept never dangles.
    pub(crate) fn let_go(&self) {
        self.foreign.store(0, Ordering::Release);
    }

    /// The raw stream, created when it is first needed.
    #[inline]
    pub(crate) fn raw(&self, device: &CudaDevice) -> ResourceResult<RawStream> {
        match self.created_raw() {
            Some(raw) => Ok(raw),
            None => self.create_raw(device),
        }
    }

    #[cold]
    #[inline(never)]
    fn create_raw(&self, device: &CudaDevice) -> ResourceResult<RawStream> {
        let _submit = self.submit.lock();
        if let Some(raw) = self.created_raw() {
            return Ok(raw);
        }
        let raw = device.note(device.driver().create_stream())?;
        self.own.store(raw.0, Ordering::Release);
        Ok(raw)
    }

    #[inline]
    pub(crate) fn created_raw(&self) -> Option<RawStream> {
        match self.foreign.load(Ordering::Acquire) {
            0 => Some(self.own.load(Ordering::Acquire)).filter(|own| *own != 0).map(RawStream),
            foreign => Some(RawStream(foreign)),
        }
    }

    pub(crate) fn expose(&self) {
        self.exposed.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_exposed(&self) -> bool {
        self.exposed.load(Ordering::Relaxed)
    }

    pub(crate) fn hold_block(&self) {
        self.blocks.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn drop_blocks(&self, count: usize) {
        self.blocks.fetch_sub(count, Ordering::SeqCst);
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks.load(Ordering::SeqCst)
    }

    pub(crate) fn tick(&self) -> u64 {
        self.tick.load(Ordering::SeqCst)
    }

    /// The next tick, before its record: a defect.
    #[cfg(feature = "mutants")]
    pub(crate) fn draw_tick(&self) -> u64 {
        self.tick.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether the device is known to have passed a point, of whichever lane.
    #[inline]
    pub(crate) fn is_done(&self, point: Point) -> bool {
        self.completed[point.lane()].load(Ordering::Acquire) >= point.tick()
    }

    /// Blocks may have been given the open point, uncounted: nothing replaces the tick that closes
    /// it.
    pub(crate) fn opened(&self) {
        self.opened.store(true, Ordering::SeqCst);
    }

    /// The point that the next record, whenever it comes, will stand for.
    #[inline]
    pub(crate) fn open_point(&self) -> Point {
        Point::new(self.index, self.tick() + 1)
    }

    /// This lane's latest read of a block.
    #[inline]
    pub(crate) fn read_of(&self, slot: u32) -> Point {
        let tick = self.reads.get(slot).map_or(0, |tick| tick.load(Ordering::Acquire));
        Point::new(self.index, tick)
    }

    /// Where this lane's latest read of a block is kept.
    #[inline]
    pub(crate) fn read_cell(&self, slot: u32) -> Option<&AtomicU64> {
        self.reads.grow(slot)
    }

    pub(crate) fn submit(&self) -> MutexGuard<'_, Submit> {
        self.submit.lock()
    }

    pub(crate) fn trail(&self) -> &TinyLock<Trail> {
        &self.trail
    }

    pub(crate) fn counters(&self) -> (u64, u64) {
        (self.records.load(Ordering::Relaxed), self.waits.load(Ordering::Relaxed))
    }

    /// Records an event at the stream's tail, the next tick, and has `publish` say what it stands
    /// for before anybody else enqueues here.
    #[inline]
    pub(crate) fn record(
        &self,
        device: &CudaDevice,
        publish: impl FnOnce(Point),
    ) -> ResourceResult<()> {
        let publish = |point| {
            publish(point);
            false
        };
        self.record_with(device, None, |_| (), publish)
    }

    /// The same for a launch, whose blocks are that many: `publish` answers whether each of them
    /// was the last launch's.
    #[inline]
    pub(crate) fn record_counted(
        &self,
        device: &CudaDevice,
        blocks: usize,
        publish: impl FnOnce(Point) -> bool,
    ) -> ResourceResult<()> {
        let opened =
            self.opened.load(Ordering::Relaxed) && self.opened.swap(false, Ordering::SeqCst);
        self.record_with(device, (!opened).then_some(blocks), |_| (), publish)
    }

    /// The same, with a hold on the event.
    pub(crate) fn record_and_hold(
        &self,
        device: &CudaDevice,
        publish: impl FnOnce(Point),
    ) -> ResourceResult<HeldEvent> {
        let hold = |trail: &mut Trail| trail.newest().map(|found| found.event);
        let publish = |point| {
            publish(point);
            false
        };
        self.record_with(device, None, hold, publish)?.ok_or_else(no_event)
    }

    #[inline]
    fn record_with<H>(
        &self,
        device: &CudaDevice,
        blocks: Option<usize>,
        hold: impl FnOnce(&mut Trail) -> H,
        publish: impl FnOnce(Point) -> bool,
    ) -> ResourceResult<H> {
        let raw = self.raw(device)?;
        let mut submit = self.submit.lock();
        // Counted before it is recorded, and what is enqueued on one stream happens one after the
        // other: whoever enqueues behind this event reads the new tick afterwards, and whoever
        // reads the old one, in a pool of one stream, has enqueued before it. A record that fails
        // only skips a tick.
        let tick = self.tick.load(Ordering::Relaxed) + 1;
        #[cfg(feature = "mutants")]
        let tick = Some(mutant::drawn::take()).filter(|drawn| *drawn != 0).unwrap_or(tick);
        if submit.next_tick != tick {
            self.make_ready(device, &mut submit, tick)?;
        }
        if cfg!(feature = "mutants") {
            self.tick.fetch_max(tick, Ordering::Release);
        } else {
            self.tick.store(tick, Ordering::Release);
        }
        // SAFETY: `raw` and the event are this device's; streams are destroyed with the tracker,
        // events when nobody holds them.
        device.note(unsafe { device.driver().record_event(submit.next_event, raw) })?;
        bump(&self.records);
        let held = {
            let mut trail = self.trail.lock();
            if std::mem::take(&mut submit.joined) {
                let clock = &self.clock[..submit.clock_len];
                trail.push_clock(clock.iter().map(|tick| tick.load(Ordering::Relaxed)));
            }
            trail.stand(tick);
            let held = hold(&mut trail);
            // The next one, for the next record.
            if let Ok(event) = trail.vacate(tick + 1, self.done()) {
                let event = trail.reuse(submit.replaced.tick, tick + 1).unwrap_or(event);
                (submit.next_event, submit.next_tick) = (event, tick + 1);
            }
            held
        };
        let replaces = publish(Point::new(self.index, tick));
        let all = replaces && blocks.is_some() && blocks == submit.replaced.blocks
            || mutant::is(Mutant::ReplacedTooSoon);
        submit.replaced = Replaced { blocks, tick: if all { tick - 1 } else { 0 } };
        Ok(held)
    }

    /// Notes that the stream's tail now follows `tick` of the lane `source`, and all that its event
    /// had followed. The wait has been queued, and `submit` is held. Should the event be gone by
    /// now, then it is done, and what it had followed is too.
    #[inline(always)]
    pub(crate) fn join(&self, submit: &mut Submit, source: &Lane, tick: u64) {
        let join = |of_lane: &AtomicU64, tick: u64| {
            if of_lane.load(Ordering::Relaxed) < tick {
                of_lane.store(tick, Ordering::Release);
            }
        };
        let mut joined = source.index + 1;
        {
            let trail = source.trail.lock();
            for (lane, (of_lane, tick)) in (1..).zip(self.clock.iter().zip(trail.clock(tick))) {
                join(of_lane, tick);
                joined = joined.max(lane);
            }
        }
        if let Some(of_source) = self.clock.get(source.index) {
            join(of_source, tick);
        }
        submit.joined = true;
        submit.clock_len = submit.clock_len.max(joined);
        bump(&self.waits);
    }

    /// Notes that everything up to `tick` is done, and with it all that the event of that tick had
    /// followed on other lanes.
    pub(crate) fn learn(&self, tick: u64) {
        let clock: SmallVec<[u64; 40]> = self.trail.lock().clock(tick).collect();
        self.learn_clock(&clock);
        self.completed[self.index].fetch_max(tick, Ordering::AcqRel);
    }

    fn learn_clock(&self, clock: &[u64]) {
        for (completed, tick) in self.completed.iter().zip(clock) {
            if completed.load(Ordering::Relaxed) < *tick {
                completed.fetch_max(*tick, Ordering::AcqRel);
            }
        }
    }

    /// What the stream's tail follows now. Whoever reads this, and waits for the stream after that,
    /// knows that all of it is done.
    pub(crate) fn tail(&self) -> Tail {
        let tick = self.tick();
        Tail { tick, clock: self.clock.iter().map(|tick| tick.load(Ordering::Acquire)).collect() }
    }

    /// Notes that the device has passed a tail of this lane.
    pub(crate) fn learn_tail(&self, tail: &Tail) {
        self.learn_clock(&tail.clock);
        self.completed[self.index].fetch_max(tail.tick, Ordering::AcqRel);
    }

    /// The tick up to which the device is known to have come.
    #[inline]
    pub(super) fn done(&self) -> u64 {
        self.completed[self.index].load(Ordering::Acquire)
    }

    /// Destroys everything; nobody uses the lane any more.
    pub(crate) fn destroy(&mut self, device: &CudaDevice) -> ResourceResult<()> {
        let submit = self.submit.get_mut();
        let mut events = std::mem::take(&mut submit.held_events);
        events.extend(self.trail.get_mut().take_done(u64::MAX));
        let events = supply::destroy(device, events);
        let raw = match self.own.load(Ordering::Relaxed) {
            0 => return events,
            own => RawStream(own),
        };
        // SAFETY: created by this device, and the lane is going away.
        let stream = device.note(unsafe { device.driver().destroy_stream(raw) });
        events.and(stream)
    }
}

impl Default for Submit {
    fn default() -> Self {
        Self {
            next_event: RawEvent(0),
            next_tick: 0,
            held_events: Vec::new(),
            clock_len: 0,
            joined: false,
            replaced: Replaced::default(),
        }
    }
}

#[cold]
#[inline(never)]
fn no_event() -> ResourceError {
    "the books of a stream's events are wrong: none stands where one was recorded".into()
}

/// Adds one to a counter that only one thread writes at a time.
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Follows for Lane {
    #[inline]
    fn follows(&self, point: Point) -> bool {
        (point.lane() == self.index && !mutant::is(Mutant::WaitsForItself))
            || self.clock[point.lane()].load(Ordering::Acquire) >= point.tick()
            || self.is_done(point)
    }
}
