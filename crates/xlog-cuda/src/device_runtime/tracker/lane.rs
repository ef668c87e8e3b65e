//! One stream, as the tracker sees it: how far it has come, what it follows, its events.
//!
//! Two locks. `submit` is held while something is enqueued on the stream *and* the lane's record of
//! it must agree: an event with its tick and the uses it stands for, a wait with the clock. It does
//! span those driver calls, and only threads that enqueue on the same stream ever take it: they
//! would queue up in the driver otherwise, in an order nobody knows. `trail` is taken for moments
//! by anyone who looks for an event to wait for, and never over a driver call.

use std::sync::Arc;

use smallvec::SmallVec;
use xlog_driver::RawStream;

use super::{
    chunked::Chunked,
    point::Point,
    slot::Follows,
    trail::{HeldEvent, RecordedEvent, Trail},
};
use crate::{
    CudaDevice,
    device_runtime::{ResourceResult, StreamId},
    mutant::{self, Mutant},
    sync::{
        Mutex, MutexGuard, Step, TinyLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
        leaves_out, sized,
    },
};

/// The id of a lane no stream has.
const VACANT: u32 = u32::MAX;

/// Launches between two questions how far the device has come. One costs half a launch; but every
/// event recorded in between is one more that goes round, and the more there are, the farther away
/// is what the driver keeps of each.
const PROBE_EVERY: u64 = sized(48, 1) as u64;

/// The same, at most, on a device that is so far behind that asking it gives nothing back.
const PROBE_SELDOM: u64 = sized(512, 1) as u64;

/// Events made at once: enough for the launches between two questions, and for those that the
/// device is behind by.
const EVENTS_AT_ONCE: usize = sized(64, 1);

/// One stream of the pool.
#[derive(Debug)]
#[repr(C, align(64))] // in this order: what every launch looks at comes first
pub(crate) struct Lane {
    id: AtomicU32,
    /// The raw handle was handed out: somebody may capture the stream.
    exposed: AtomicBool,
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
    submit: Mutex<Submit>,
    trail: TinyLock<Trail>,
    /// Events at rest and events held, as of the last change: asked for without `submit`, which a
    /// thread at a full queue holds on to.
    idle: AtomicUsize,
    held: AtomicUsize,
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
#[derive(Debug, Default)]
pub(crate) struct Submit {
    idle_events: Vec<HeldEvent>,
    /// Done, but somebody still holds them.
    held_events: Vec<HeldEvent>,
    /// The tick before which the device is not asked again, and how many there are between.
    next_probe: u64,
    patience: u64,
    /// Lanes beyond this are at 0 in the lane's clock.
    clock_len: usize,
    /// It changed since the last event.
    joined: bool,
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
            tick: AtomicU64::new(0),
            completed: Arc::clone(completed),
            clock: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            reads: Chunked::new(),
            submit: Mutex::new(Submit {
                next_probe: PROBE_EVERY,
                patience: PROBE_EVERY,
                ..Submit::default()
            }),
            trail: TinyLock::new(Trail::default()),
            idle: AtomicUsize::new(0),
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
        self.record_with(device, |_| (), publish)
    }

    /// The same, with a hold on the event.
    pub(crate) fn record_and_hold(
        &self,
        device: &CudaDevice,
        publish: impl FnOnce(Point),
    ) -> ResourceResult<HeldEvent> {
        self.record_with(device, HeldEvent::clone, publish)
    }

    #[inline]
    fn record_with<H>(
        &self,
        device: &CudaDevice,
        hold: impl FnOnce(&HeldEvent) -> H,
        publish: impl FnOnce(Point),
    ) -> ResourceResult<H> {
        let raw = self.raw(device)?;
        let mut submit = self.submit.lock();
        let event = match submit.idle_events.pop() {
            Some(event) => event,
            None => submit.stock_up(device, &self.trail)?,
        };
        // Counted before it is recorded, and what is enqueued on one stream happens one after the
        // other: whoever enqueues behind this event reads the new tick afterwards, and whoever
        // reads the old one, in a pool of one stream, has enqueued before it. A record that fails
        // only skips a tick.
        let tick = self.tick.load(Ordering::Relaxed) + 1;
        #[cfg(feature = "mutants")]
        let tick = Some(mutant::drawn::take()).filter(|drawn| *drawn != 0).unwrap_or(tick);
        if cfg!(feature = "mutants") {
            self.tick.fetch_max(tick, Ordering::Release);
        } else {
            self.tick.store(tick, Ordering::Release);
        }
        // SAFETY: `raw` and `event` are this device's; streams are destroyed with the tracker,
        // events when nobody holds them.
        let recorded = device.note(unsafe { device.driver().record_event(event.raw, raw) });
        if let Err(error) = recorded {
            submit.idle_events.push(event);
            self.count_events(&submit);
            return Err(error);
        }
        bump(&self.records);
        event.stand_for(Point::new(self.index, tick));
        let held = hold(&event);
        let spent = {
            let mut trail = self.trail.lock();
            if std::mem::take(&mut submit.joined) {
                let clock = &self.clock[..submit.clock_len];
                trail.push_clock(clock.iter().map(|tick| tick.load(Ordering::Relaxed)));
            }
            trail.push(tick, event);
            // The next one, for the next record.
            submit.idle_events.is_empty() && !submit.take_done(&mut trail, self.done())
        };
        publish(Point::new(self.index, tick));
        if spent && tick >= submit.next_probe {
            self.probe(device, &mut submit);
        }
        self.count_events(&submit);
        Ok(held)
    }

    /// Notes that the stream's tail now follows `tick` of lane `source` and all that `clock` says
    /// that point followed. The wait has been queued, and `submit` is held.
    #[inline]
    pub(crate) fn join(&self, submit: &mut Submit, source: usize, tick: u64, clock: &[u64]) {
        let join = |of_lane: &AtomicU64, tick: u64| {
            if of_lane.load(Ordering::Relaxed) < tick {
                of_lane.store(tick, Ordering::Release);
            }
        };
        self.clock.iter().zip(clock).for_each(|(of_lane, tick)| join(of_lane, *tick));
        join(&self.clock[source], tick);
        submit.joined = true;
        submit.clock_len = submit.clock_len.max(clock.len()).max(source + 1);
        bump(&self.waits);
    }

    /// Notes that everything up to `tick` is done, and lets its events rest.
    pub(crate) fn complete(&self, tick: u64, submit: &mut Submit) {
        self.learn(tick);
        let mut recycled = std::mem::take(&mut submit.held_events);
        self.trail.lock().prune(tick, &mut recycled);
        recycled.into_iter().for_each(|event| submit.let_rest(event));
        self.count_events(submit);
    }

    /// Notes that everything up to `tick` is done, and with it all that the event of that tick had
    /// followed on other lanes. Its events stay where they are until the lane needs one.
    pub(crate) fn learn(&self, tick: u64) {
        let mut clock: SmallVec<[u64; 40]> = SmallVec::from_elem(0, self.completed.len());
        let found = self.trail.lock().find(tick, &mut clock);
        if found.is_some_and(|found| found.tick == tick) {
            self.learn_clock(&clock);
        }
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

    fn count_events(&self, submit: &Submit) {
        self.idle.store(submit.idle_events.len(), Ordering::Relaxed);
        self.held.store(submit.held_events.len(), Ordering::Relaxed);
    }

    /// Asks how far the stream has come, unless somebody is enqueueing on it at this moment.
    pub(crate) fn ask(&self, device: &CudaDevice) {
        if let Some(mut submit) = self.submit.try_lock() {
            self.probe(device, &mut submit);
        }
    }

    /// Asks how far the stream has come. One answer covers every event before it, so the newest
    /// that is likely to be done is asked first.
    #[cold]
    #[inline(never)]
    fn probe(&self, device: &CudaDevice, submit: &mut Submit) {
        let before = self.done();
        let length = self.trail.lock().len_after(before);
        for back in [length / 8, length / 2, length.saturating_sub(1)] {
            let Some(found) = self.trail.lock().nth_newest(back) else { break };
            // SAFETY: the event is held by `found`.
            match device.note(unsafe { device.driver().event_done(found.event.raw) }) {
                Ok(true) => {
                    let tick = found.tick;
                    drop(found);
                    self.learn(tick);
                    break;
                }
                Ok(false) => {}
                Err(_) => break,
            }
        }
        let held = std::mem::take(&mut submit.held_events);
        held.into_iter().for_each(|event| submit.let_rest(event));
        if submit.idle_events.is_empty() {
            submit.take_done(&mut self.trail.lock(), self.done());
        }
        let worth_it = self.done() - before >= PROBE_EVERY / 2;
        submit.patience =
            if worth_it { PROBE_EVERY } else { (2 * submit.patience).min(PROBE_SELDOM) };
        submit.next_probe = self.tick() + submit.patience;
    }

    /// The tick up to which the device is known to have come.
    #[inline]
    fn done(&self) -> u64 {
        self.completed[self.index].load(Ordering::Acquire)
    }

    /// Events that stand for work that may still be running, or are held, and events at rest.
    pub(crate) fn events(&self) -> (usize, usize) {
        let (held, idle) = (self.held.load(Ordering::Relaxed), self.idle.load(Ordering::Relaxed));
        let (trail, done) = (self.trail.lock(), self.done());
        (trail.len_after(done) + held, trail.len_until(done) + idle)
    }

    /// Destroys the events at rest.
    pub(crate) fn trim(&self, device: &CudaDevice) -> ResourceResult<()> {
        let idle = {
            let mut submit = self.submit.lock();
            self.complete(self.done(), &mut submit);
            let idle = std::mem::take(&mut submit.idle_events);
            self.count_events(&submit);
            idle
        };
        destroy(device, idle)
    }

    /// Destroys everything; nobody uses the lane any more.
    pub(crate) fn destroy(&mut self, device: &CudaDevice) -> ResourceResult<()> {
        let submit = self.submit.get_mut();
        let mut events = std::mem::take(&mut submit.idle_events);
        events.append(&mut submit.held_events);
        self.trail.get_mut().prune(u64::MAX, &mut events);
        let events = destroy(device, events);
        let raw = match self.own.load(Ordering::Relaxed) {
            0 => return events,
            own => RawStream(own),
        };
        // SAFETY: created by this device, and the lane is going away.
        let stream = device.note(unsafe { device.driver().destroy_stream(raw) });
        events.and(stream)
    }
}

fn destroy(device: &CudaDevice, events: Vec<HeldEvent>) -> ResourceResult<()> {
    let mut answer = Ok(());
    for event in events {
        // Somebody who still holds an event keeps it: a leak is better than a dangling handle.
        if let Some(event) = HeldEvent::into_inner(event) {
            // SAFETY: created by this device, and this was the last hold.
            answer = answer.and(device.note(unsafe { device.driver().destroy_event(event.raw) }));
        }
    }
    answer
}

impl Submit {
    /// An event, when none is at rest, and more for the launches to come: one made alone, between
    /// launches, costs twice a launch, and one made among others a fraction of it.
    #[cold]
    #[inline(never)]
    fn stock_up(
        &mut self,
        device: &CudaDevice,
        trail: &TinyLock<Trail>,
    ) -> ResourceResult<HeldEvent> {
        let make = || -> ResourceResult<HeldEvent> {
            let raw = device.note(device.driver().create_event())?;
            Ok(HeldEvent::new(RecordedEvent::new(raw)))
        };
        let event = make()?;
        // A failure among the others shows when they are needed.
        self.idle_events.extend((1..EVENTS_AT_ONCE).map_while(|_| make().ok()));
        // Room for all of them at once: whoever records finds the allocator far away.
        trail.lock().reserve(EVENTS_AT_ONCE);
        Ok(event)
    }

    /// Takes the oldest event of a trail that is done to be recorded next; false if there is none.
    #[inline]
    fn take_done(&mut self, trail: &mut Trail, done: u64) -> bool {
        while self.idle_events.is_empty() {
            let Some(event) = trail.take_done(done) else { return false };
            self.let_rest(event);
        }
        true
    }

    /// Keeps an event that is done for the next record. Out of the trail, nobody can take a new
    /// hold; those who have one let go soon.
    #[inline]
    fn let_rest(&mut self, event: HeldEvent) {
        if HeldEvent::strong_count(&event) == 1 || leaves_out(Step::HeldEvent) {
            self.idle_events.push(event);
        } else {
            self.held_events.push(event);
        }
    }
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
