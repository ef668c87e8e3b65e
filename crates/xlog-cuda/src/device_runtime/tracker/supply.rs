//! Where a lane's next event comes from: those that are done, or more of them.

use super::{
    lane::{Lane, Submit},
    trail::{HeldEvent, Occupied, RecordedEvent},
};
use crate::{
    CudaDevice,
    device_runtime::ResourceResult,
    sync::{atomic::Ordering, sized},
};

/// Events of a lane from its first record on: made at once, each costs a fraction of a launch.
const FIRST_EVENTS: usize = sized(64, 2);

/// Events up to which a lane gets more before it asks the device which are done. Asking costs as
/// much as a launch, so that it is done once in as many; but with more than these, what the driver
/// keeps of each is far from the processor when its turn comes.
const ENOUGH_EVENTS: usize = sized(256, 2);

impl Lane {
    /// Sees to it that the event at the place of `tick` can be recorded.
    #[cold]
    #[inline(never)]
    pub(super) fn make_ready(
        &self,
        device: &CudaDevice,
        submit: &mut Submit,
        tick: u64,
    ) -> ResourceResult<()> {
        let mut asked = false;
        loop {
            let (vacated, room) = {
                let mut trail = self.trail.lock();
                (trail.vacate(tick, self.done()), trail.room())
            };
            match vacated {
                Ok(event) => {
                    (submit.next_event, submit.next_tick) = (event, tick);
                    return Ok(());
                }
                Err(Occupied::NotDone) if room >= ENOUGH_EVENTS && !asked => {
                    asked = true;
                    self.probe(device);
                    // What was hardly worth asking for is asked for again too soon.
                    if self.trail.lock().len_after(self.done()) > room / 4 * 3 {
                        self.make_room(device, submit)?;
                    }
                }
                Err(Occupied::Held) => {
                    submit.held_events.extend(self.trail.lock().take(tick));
                    self.make_room(device, submit)?;
                }
                Err(Occupied::NotDone | Occupied::Empty) => self.make_room(device, submit)?,
            }
        }
    }

    /// Gives every place of the trail an event, or makes as many places again.
    fn make_room(&self, device: &CudaDevice, submit: &mut Submit) -> ResourceResult<()> {
        let empty = {
            let mut trail = self.trail.lock();
            if trail.empty() == 0 {
                trail.grow(FIRST_EVENTS);
            }
            trail.empty()
        };
        let (mut events, held): (Vec<_>, Vec<_>) = std::mem::take(&mut submit.held_events)
            .into_iter()
            .partition(|event| HeldEvent::strong_count(event) == 1);
        submit.held_events = held;
        submit.held_events.extend(events.drain(empty.min(events.len())..));
        self.held.store(submit.held_events.len(), Ordering::Relaxed);
        let mut made = Ok(());
        while events.len() < empty && made.is_ok() {
            match device.note(device.driver().create_event()) {
                Ok(raw) => events.push(HeldEvent::new(RecordedEvent::new(raw))),
                // A failure among the others shows when they are needed.
                Err(error) => made = if events.is_empty() { Err(error) } else { break },
            }
        }
        self.trail.lock().fill(&mut events.into_iter());
        made
    }

    /// Asks how far the stream has come, unless somebody is enqueueing on it at this moment.
    pub(crate) fn ask(&self, device: &CudaDevice) {
        if let Some(_submit) = self.submit.try_lock() {
            self.probe(device);
        }
    }

    /// Asks how far the stream has come. One answer covers every event before it, so the newest
    /// that is likely to be done is asked first.
    #[cold]
    #[inline(never)]
    fn probe(&self, device: &CudaDevice) {
        let (newest, mut last) = (self.tick(), 0);
        let length = (newest - self.done().min(newest)).min(self.trail.lock().room() as u64);
        for back in [length / 8, length / 2, length.saturating_sub(1)] {
            let found = self.trail.lock().find(newest - back);
            let Some(found) = found.filter(|found| found.tick != last) else { continue };
            last = found.tick;
            // SAFETY: the event is held by `found`.
            match device.note(unsafe { device.driver().event_done(found.event.raw) }) {
                Ok(true) => {
                    let tick = found.tick;
                    drop(found);
                    self.learn(tick);
                    return;
                }
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }

    /// Events that stand for work that may still be running, or are held, and events at rest.
    pub(crate) fn events(&self) -> (usize, usize) {
        let held = self.held.load(Ordering::Relaxed);
        let (trail, done) = (self.trail.lock(), self.done());
        let in_flight = trail.len_after(done);
        (in_flight + held, trail.len() - in_flight)
    }

    /// Destroys the events at rest.
    pub(crate) fn trim(&self, device: &CudaDevice) -> ResourceResult<()> {
        let at_rest = {
            let mut submit = self.submit.lock();
            submit.next_tick = 0;
            let mut at_rest = self.trail.lock().take_done(self.done());
            at_rest.append(&mut submit.held_events);
            let (free, held) =
                at_rest.into_iter().partition(|event| HeldEvent::strong_count(event) == 1);
            submit.held_events = held;
            self.held.store(submit.held_events.len(), Ordering::Relaxed);
            free
        };
        destroy(device, at_rest)
    }
}

/// Destroys events that nobody records any more.
pub(super) fn destroy(device: &CudaDevice, events: Vec<HeldEvent>) -> ResourceResult<()> {
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
