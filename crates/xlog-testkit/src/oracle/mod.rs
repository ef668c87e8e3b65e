//! An independent judge of what follows what on a device.
//!
//! The [`Oracle`] watches a host device, simulated or parallel. It sees driver calls, the accesses
//! that kernels, copies and fills make when they run, and, if a runtime is above, what that
//! declared. From the calls alone it keeps vector clocks: a stream's own order, events as they were
//! recorded, waits, and what the host learnt by waiting or asking. Every access is held against
//! all that touched the same bytes before: if the clocks do not order the two, that is a race,
//! whether or not this run happened to show it. It shares no code with the runtime it judges.
//!
//! It also keeps a [`Trace`] of the run, on which the same judgement can be made again with a wait
//! left out: if nothing is wrong then, the wait was superfluous.
//!
//! ```
//! use std::sync::Arc;
//! use xlog_driver::{Driver, host::SimulatedDriver};
//! use xlog_testkit::oracle::{FindingKind, Oracle};
//!
//! let oracle = Arc::new(Oracle::new());
//! let driver = SimulatedDriver::new(0, 1).watched_by(oracle.clone());
//! let (writer, reader) = (driver.create_stream()?, driver.create_stream()?);
//! // SAFETY: streams and memory are this driver's, and stay.
//! unsafe {
//!     let (from, to) = (driver.allocate(64)?, driver.allocate(64)?);
//!     driver.fill_bytes(from, 7, 64, writer)?;
//!     driver.copy_on_device(to, from, 64, reader)?; // and nobody waits for the fill
//! }
//! driver.drain();
//! let kinds: Vec<_> = oracle.findings().iter().map(|finding| finding.kind).collect();
//! // The device may have run the two in either order: which race it is depends on that.
//! assert!(kinds.contains(&FindingKind::ReadAfterWrite)
//!     || kinds.contains(&FindingKind::WriteAfterRead));
//! # Ok::<(), xlog_driver::DriverError>(())
//! ```

mod analysis;
mod books;
mod check;
mod clock;
mod finding;
mod shadow;
mod state;
mod trace;

use std::fmt;

use parking_lot::Mutex;
use xlog_driver::{BlockNote, Declared, DeviceCall, DeviceWatcher, OperationId};

pub use analysis::{Analysis, TraceRace};
pub use finding::{Action, BlockLabel, Finding, FindingKind, Place, StreamName};
pub use trace::{Edit, Step, Trace, TraceUse};

use self::state::State;

/// Watches one device and says what is wrong with what runs on it.
#[derive(Default)]
pub struct Oracle {
    state: Mutex<State>,
}

impl Oracle {
    /// An oracle that has seen nothing yet. It watches one device.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was found so far, each once. Work that has not run yet has not been judged.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.state.lock().findings.clone()
    }

    /// What happened so far.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.state.lock().trace.clone()
    }

    /// How many kernels, copies and fills were enqueued so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state.lock().operations.len() as u64
    }

    /// Ends a test that found something, with all of it.
    ///
    /// # Panics
    /// If there is a finding.
    #[track_caller]
    #[allow(clippy::panic)] // a test fails here
    pub fn assert_clean(&self) {
        let findings = self.findings();
        if findings.is_empty() {
            return;
        }
        let texts: Vec<_> = findings.iter().map(ToString::to_string).collect();
        panic!("{} findings:\n{}", findings.len(), texts.join("\n"));
    }
}

impl DeviceWatcher for Oracle {
    fn called(&self, call: &DeviceCall<'_>) {
        self.state.lock().called(call);
    }

    fn finished(&self, operation: OperationId) {
        self.state.lock().finished(operation);
    }

    fn may_read(&self, operation: OperationId, address: u64, bytes: usize) -> bool {
        self.state.lock().access(operation, address, bytes, false)
    }

    fn may_write(&self, operation: OperationId, address: u64, bytes: usize) -> bool {
        self.state.lock().access(operation, address, bytes, true)
    }

    fn declared(&self, declared: &Declared<'_>) -> u64 {
        self.state.lock().declared(declared)
    }

    fn declaration_over(&self, declaration: u64) {
        self.state.lock().declaration_over(declaration);
    }

    fn block(&self, note: &BlockNote) {
        self.state.lock().block(note);
    }
}

impl fmt::Debug for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Oracle")
            .field("operations", &state.operations.len())
            .field("findings", &state.findings.len())
            .finish_non_exhaustive()
    }
}
