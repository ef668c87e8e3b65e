//! A line that says how far a long command has come, where a person is looking.

use std::{
    io::{IsTerminal, Write},
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

/// Progress towards a number that is known.
pub(super) struct Progress {
    what: &'static str,
    total: u64,
    start: Instant,
    shown: bool,
    /// Tenths of a second after the start when the line was written last.
    last: AtomicU64,
}

/// Cells of the bar.
const WIDTH: u64 = 24;

impl Progress {
    pub(super) fn new(what: &'static str, total: u64) -> Self {
        let shown = std::io::stderr().is_terminal();
        Self { what, total: total.max(1), start: Instant::now(), shown, last: AtomicU64::new(0) }
    }

    /// Shows that `done` are done, ten times a second at most. Answers true: go on.
    pub(super) fn show(&self, done: u64) -> bool {
        if !self.shown {
            return true;
        }
        let now = self.start.elapsed().as_millis() as u64 / 100;
        if self.last.fetch_max(now, Ordering::Relaxed) < now {
            let cells = (done.min(self.total) * WIDTH / self.total) as usize;
            let bar = "#".repeat(cells) + &".".repeat(WIDTH as usize - cells);
            let seconds = self.start.elapsed().as_secs_f64();
            let left = seconds * (self.total.saturating_sub(done)) as f64 / done.max(1) as f64;
            let (what, total) = (self.what, self.total);
            // Nobody is served by an error about a line for the eye.
            let _ = write!(
                std::io::stderr(),
                "\r[{bar}] {done} of {total} {what}, {left:.0} s left \x1b[K"
            );
        }
        true
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
