//! Stopping one driver call in its tracks, to make two threads meet where they seldom do.

use std::{sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::DriverCall;

/// The longest anybody waits at a stall: a test that goes wrong fails instead of hanging.
const LONGEST: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Armed,
    Entered,
    Over,
}

#[derive(Debug)]
pub(crate) struct StalledCall {
    call: DriverCall,
    phase: Mutex<Phase>,
    changed: Condvar,
}

impl StalledCall {
    pub(crate) fn new(call: DriverCall) -> Arc<Self> {
        Arc::new(Self { call, phase: Mutex::new(Phase::Armed), changed: Condvar::new() })
    }

    /// Whether the next `call` is to be stopped here; if so, it now counts as stopped.
    pub(crate) fn catches(&self, call: DriverCall) -> bool {
        let mut phase = self.phase.lock();
        let caught = self.call == call && *phase == Phase::Armed;
        if caught {
            *phase = Phase::Entered;
            self.changed.notify_all();
        }
        caught
    }

    /// Holds the caller until the stall is over.
    pub(crate) fn hold(&self) {
        let mut phase = self.phase.lock();
        self.changed.wait_while_for(&mut phase, |phase| *phase != Phase::Over, LONGEST);
    }
}

/// A driver call that is stopped, or will be when it is next made, until this is dropped.
#[derive(Debug)]
pub struct Stall(pub(crate) Arc<StalledCall>);

impl Stall {
    /// Waits until a thread has made the call, and is stopped in it.
    ///
    /// # Panics
    /// If none does for a long time.
    pub fn wait_until_entered(&self) {
        let mut phase = self.0.phase.lock();
        let waited =
            self.0.changed.wait_while_for(&mut phase, |phase| *phase == Phase::Armed, LONGEST);
        assert!(!waited.timed_out(), "nobody made the call {:?}", self.0.call);
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        *self.0.phase.lock() = Phase::Over;
        self.0.changed.notify_all();
    }
}
