//! Ctrl-C: the first one ends the query, the second one the process.

use std::sync::{Arc, atomic::AtomicBool};

use signal_hook::consts::{SIGINT, SIGTERM};
use xlog_io::FileError;
use xlog_query::QueryError;

/// The exit code of a process that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Signals that end the query.
#[derive(Debug)]
pub(super) struct Interrupts(Arc<AtomicBool>);

impl Interrupts {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self, QueryError> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: a signal that finds the flag set ends the process, and then sets it.
            let second = Arc::clone(&flag);
            signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, second)
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
                .map_err(|error| FileError::from_io("signals", "listen to", &error))?;
        }
        Ok(Self(flag))
    }

    /// Set by the first signal.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
