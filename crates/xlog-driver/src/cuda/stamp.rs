//! Times of places in streams: events that keep the time, read on the host's clock.
//!
//! Owns a stream of its own and *bases*: events whose host time is known. The first one is made
//! when the first stamp is; a device that is not traced has none. Stamps belong to whoever asked
//! for them. Orders nothing: no stream waits for a stamp or for a base.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{context::Context, event, failure, stream};
use crate::{DriverResult, RawEvent, RawStamp, RawStream};

/// How far from a base a stamp may be before there is a new one: the driver answers with 24 bits
/// of milliseconds, which are half a microsecond up to four seconds.
const REACH: f64 = 2e9;

/// Tries to read both clocks at the same moment; the tightest counts.
const TRIES: usize = 8;

/// The clock of the device, beside the host's.
#[derive(Debug, Default)]
pub(super) struct Stamps(Mutex<Option<Clock>>);

#[derive(Debug)]
struct Clock {
    stream: RawStream,
    /// When the first base was passed, by the host's clock.
    begun: Instant,
    /// Oldest first.
    bases: Vec<Base>,
}

#[derive(Debug)]
struct Base {
    event: RawEvent,
    /// Nanoseconds since the first one, by the device's clock.
    nanoseconds: f64,
}

/// An event, and when it was passed by the host's clock, give or take half of what that took.
struct Reading {
    event: RawEvent,
    at: Instant,
    took: Duration,
}

impl Reading {
    fn take(context: &Context, stream: RawStream) -> DriverResult<Self> {
        let event = event::create_timed(context)?;
        let before = Instant::now();
        // SAFETY: an event that was just made, and the clock's own stream.
        unsafe {
            event::record(context, event, stream)?;
            event::synchronize(context, event)?;
        }
        let took = before.elapsed();
        Ok(Self { event, at: before + took / 2, took })
    }
}

impl Stamps {
    /// A new stamp.
    pub(super) fn create(&self, context: &Context) -> DriverResult<RawStamp> {
        let mut clock = self.0.lock();
        if clock.is_none() {
            *clock = Some(Clock::start(context)?);
        }
        drop(clock);
        event::create_timed(context).map(|event| RawStamp(event.0))
    }

    /// When the device passed a stamp.
    ///
    /// # Safety
    /// As [`Driver`](crate::Driver) says.
    pub(super) unsafe fn time(
        &self,
        context: &Context,
        stamp: RawStamp,
    ) -> DriverResult<Option<Instant>> {
        let stamp = RawEvent(stamp.0);
        // Asked first: of an event that was never recorded, no time is to be had.
        // SAFETY: the caller passes a live stamp, which is an event.
        if !unsafe { event::done(context, stamp) }? {
            return Ok(None);
        }
        let mut guard = self.0.lock();
        let Some(clock) = guard.as_mut() else { return Ok(None) };
        // SAFETY: as above; bases are live until the driver is closed.
        let Some(nanoseconds) = (unsafe { clock.nanoseconds(context, stamp) })? else {
            return Ok(None);
        };
        // A stamp is not older than the first base but by a clock's last digit.
        Ok(Some(clock.begun + Duration::from_nanos(nanoseconds.max(0.0) as u64)))
    }

    /// Gives back what the clock is made of.
    pub(super) fn close(&mut self, context: &Context) {
        let Some(clock) = self.0.get_mut().take() else { return };
        for base in clock.bases {
            // SAFETY: a live event of this driver, and its last use.
            failure::report_drop(unsafe { event::destroy(context, base.event) });
        }
        // SAFETY: a live stream of this driver, and its last use.
        failure::report_drop(unsafe { stream::destroy(context, clock.stream) });
    }
}

impl Clock {
    /// Reads both clocks several times, and keeps the reading that took the shortest.
    fn start(context: &Context) -> DriverResult<Self> {
        let stream = stream::create(context)?;
        let mut best = Reading::take(context, stream)?;
        for _ in 1..TRIES {
            let mut reading = Reading::take(context, stream)?;
            if reading.took < best.took {
                std::mem::swap(&mut reading, &mut best);
            }
            // SAFETY: a live event, and its last use.
            unsafe { event::destroy(context, reading.event) }?;
        }
        let bases = vec![Base { event: best.event, nanoseconds: 0.0 }];
        Ok(Self { stream, begun: best.at, bases })
    }

    /// Nanoseconds from the first base to `event`, from the latest base before it.
    ///
    /// # Safety
    /// `event` is a live event of this driver that keeps the time and is done.
    unsafe fn nanoseconds(
        &mut self,
        context: &Context,
        event: RawEvent,
    ) -> DriverResult<Option<f64>> {
        let mut nearest = None;
        for (later, base) in self.bases.iter().rev().enumerate() {
            // SAFETY: both are live events that keep the time.
            let Some(elapsed) = (unsafe { event::elapsed(context, base.event, event) })? else {
                return Ok(None);
            };
            nearest = Some((later, base.nanoseconds, f64::from(elapsed) * 1e6));
            if elapsed >= 0.0 {
                break;
            }
        }
        let Some((later, base, elapsed)) = nearest else { return Ok(None) };
        // Once for all stamps of before: those have a later base now, which serves none of them.
        if elapsed > REACH && later == 0 {
            self.add_base(context)?;
        }
        Ok(Some(base + elapsed))
    }

    /// A base for the stamps to come.
    fn add_base(&mut self, context: &Context) -> DriverResult<()> {
        let Some(last) = self.bases.last() else { return Ok(()) };
        let event = event::create_timed(context)?;
        // SAFETY: a live stream and a live event, both of this driver; as is the last base.
        let elapsed = unsafe {
            event::record(context, event, self.stream)?;
            event::synchronize(context, event)?;
            event::elapsed(context, last.event, event)?
        };
        let Some(elapsed) = elapsed else {
            // SAFETY: the event that was just made, and its last use.
            return unsafe { event::destroy(context, event) };
        };
        let nanoseconds = last.nanoseconds + f64::from(elapsed) * 1e6;
        self.bases.push(Base { event, nanoseconds });
        Ok(())
    }
}
