//! How far a query is, for whoever watches.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use xlog_io::ReadProgress;

/// How far a query is. Threads share it.
#[derive(Debug, Default)]
pub struct Monitor {
    inputs: Mutex<Vec<ReadProgress>>,
    rows_read: AtomicU64,
    rows_written: AtomicU64,
}

impl Monitor {
    /// Bytes read of all inputs that were begun; bytes there are in all, where that is known of
    /// each.
    #[must_use]
    pub fn progress(&self) -> ReadProgress {
        let inputs = self.inputs.lock();
        let bytes_read = inputs.iter().map(|input| input.bytes_read).sum();
        let bytes_total = inputs.iter().map(|input| input.bytes_total).sum();
        ReadProgress { bytes_read, bytes_total }
    }

    /// Rows that came from inputs.
    #[must_use]
    pub fn rows_read(&self) -> u64 {
        self.rows_read.load(Ordering::Relaxed)
    }

    /// Rows that went to sinks.
    #[must_use]
    pub fn rows_written(&self) -> u64 {
        self.rows_written.load(Ordering::Relaxed)
    }

    /// One more input; answers its place.
    pub(super) fn begin(&self, progress: ReadProgress) -> usize {
        let mut inputs = self.inputs.lock();
        inputs.push(progress);
        inputs.len() - 1
    }

    pub(super) fn read(&self, input: usize, progress: ReadProgress, rows: usize) {
        if let Some(own) = self.inputs.lock().get_mut(input) {
            *own = progress;
        }
        self.rows_read.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(super) fn wrote(&self, rows: usize) {
        self.rows_written.fetch_add(rows as u64, Ordering::Relaxed);
    }
}
