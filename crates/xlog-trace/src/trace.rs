//! The handle of a trace: from a driver to a recording.

use std::sync::Arc;

use xlog_driver::Driver;

use crate::{Recording, analysis, driver::TracingDriver};

/// Notes a trace keeps unless told otherwise: half a million launches, and some hundred megabytes.
const DEFAULT_LIMIT: usize = 4_000_000;

/// A trace of one device, from now until it is [finished](Self::finish).
#[derive(Clone, Debug)]
pub struct Trace {
    driver: Arc<TracingDriver>,
}

impl Trace {
    /// Traces everything that goes through [`driver`](Self::driver) to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Driver>) -> Self {
        Self::with_limit(inner, DEFAULT_LIMIT)
    }

    /// The same, keeping `notes` notes at most: a launch takes about six, with what it declares,
    /// its event, its waits and its memory. What comes after them is counted, and left out.
    #[must_use]
    pub fn with_limit(inner: Arc<dyn Driver>, notes: usize) -> Self {
        Self { driver: Arc::new(TracingDriver::new(inner, notes)) }
    }

    /// The driver to open the device with.
    #[must_use]
    pub fn driver(&self) -> Arc<dyn Driver> {
        Arc::clone(&self.driver) as Arc<dyn Driver>
    }

    /// Waits for the device, and ends the trace: what comes later is not part of it. A lost device
    /// is no reason to lose the trace: work that it did not do has no times. A second call answers
    /// the same.
    #[must_use]
    pub fn finish(&self) -> Recording {
        self.driver.close();
        let info = self.driver.info();
        self.driver.with_log(|log| analysis::analyse(log, info))
    }
}
