//! The sink that keeps the latest records.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::{LogRecord, LogSink};

/// Keeps the latest records in memory, and counts those it let go.
///
/// ```
/// # use std::sync::Arc;
/// # use xlog_cuda::{CudaDevice, device_runtime::*};
/// let sink = Arc::new(MemorySink::new(1));
/// let plain = Box::new(DirectCudaResource::new(Arc::new(CudaDevice::host()), 0));
/// let memory = LoggingResource::new(plain, Arc::clone(&sink));
/// let block = memory.allocate(1024, StreamId::DEFAULT, AllocTag("example"))?;
/// memory.deallocate(block)?;
///
/// assert_eq!(sink.records()[0].action, LogAction::Free);
/// assert_eq!(sink.dropped(), 1);
/// # Ok::<(), ResourceError>(())
/// ```
#[derive(Debug)]
pub struct MemorySink {
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    records: VecDeque<LogRecord>,
    dropped: u64,
}

impl MemorySink {
    /// A sink for the latest `capacity` records.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, kept: Mutex::default() }
    }

    /// The records it has, oldest first.
    #[must_use]
    pub fn records(&self) -> Vec<LogRecord> {
        self.kept.lock().records.iter().cloned().collect()
    }

    /// The same, and forgets them. They do not count as dropped.
    #[must_use]
    pub fn take(&self) -> Vec<LogRecord> {
        // The lock is held for the exchange only.
        let records = std::mem::take(&mut self.kept.lock().records);
        records.into()
    }

    /// How many records made room for later ones.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.kept.lock().dropped
    }
}

impl LogSink for MemorySink {
    fn record(&self, record: LogRecord) {
        let mut kept = self.kept.lock();
        if kept.records.len() >= self.capacity {
            kept.dropped += 1;
            if kept.records.pop_front().is_none() {
                return;
            }
        }
        kept.records.push_back(record);
    }
}
