//! A stream as the tracing driver sees it: its order, and its stamps that are still out.

use std::{collections::VecDeque, time::Instant};

use parking_lot::Mutex;
use xlog_driver::{Driver, RawStamp, WorkStamps};

/// Stamps that are out on a stream before the device is asked about them again.
const BATCH: usize = 512;

/// A stream and the one order of its calls.
#[derive(Debug)]
pub(crate) struct TracedStream {
    /// Its number in the log.
    pub(crate) number: u32,
    /// Held over a call on the stream and the note of it, so that the notes are in its order, and
    /// the stamps of an operation have only that operation between them.
    pub(crate) order: Mutex<Stamped>,
}

/// Work between its stamps.
#[derive(Debug)]
struct Bracket {
    /// Its number in the log, unless the log was full.
    work: Option<u32>,
    stamps: WorkStamps,
}

/// Work whose times are not known yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Stamped {
    out: VecDeque<Bracket>,
    ask_at: usize,
}

/// When the device began and ended work.
pub(crate) struct Times {
    pub(crate) work: u32,
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
}

impl TracedStream {
    pub(crate) fn new(number: u32) -> Self {
        Self { number, order: Mutex::default() }
    }
}

impl Stamped {
    /// Adds work that was enqueued between two stamps.
    pub(crate) fn push(&mut self, work: Option<u32>, stamps: WorkStamps) {
        self.out.push_back(Bracket { work, stamps });
    }

    /// Whether it is time to ask the device about stamps.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.out.len() >= self.ask_at.max(BATCH);
        if due {
            self.ask_at = self.out.len() + BATCH;
        }
        due
    }

    /// Takes the times of work that is done, and gives its stamps back to `spare`.
    pub(crate) fn collect(
        &mut self,
        driver: &dyn Driver,
        spare: &mut Vec<RawStamp>,
        times: &mut Vec<Times>,
    ) {
        while let Some(&Bracket { work, stamps }) = self.out.front() {
            let Some(end) = time_of(driver, stamps.end) else { break };
            let begin = time_of(driver, stamps.begin).unwrap_or(end);
            times.extend(work.map(|work| Times { work, begin, end }));
            spare.extend([stamps.begin, stamps.end]);
            self.out.pop_front();
        }
        self.ask_at = self.out.len() + BATCH;
    }

    /// Gives up on the times of work that has none yet.
    pub(crate) fn give_up(&mut self, spare: &mut Vec<RawStamp>) {
        for bracket in self.out.drain(..) {
            spare.extend([bracket.stamps.begin, bracket.stamps.end]);
        }
    }
}

/// When the device passed a stamp. A device that cannot say has no times, and the trace goes on.
fn time_of(driver: &dyn Driver, stamp: RawStamp) -> Option<Instant> {
    // SAFETY: a stamp on a stream's list is this driver's, and destroyed only once taken off it.
    unsafe { driver.stamp_time(stamp) }.ok().flatten()
}
