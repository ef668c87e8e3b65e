//! Ending a plan early.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{RelationalError, RelationalResult};

/// Cancels what it was given to. Clones share one state; it can be cancelled from any thread, and
/// from a signal handler.
///
/// ```
/// use xlog_relational::exec::CancelToken;
///
/// let token = CancelToken::new();
/// let elsewhere = token.clone();
/// assert!(token.check().is_ok());
/// elsewhere.cancel();
/// assert!(token.is_cancelled() && token.check().is_err());
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

/// A token whose state is a flag that others set too, such as the handler of a signal.
impl From<Arc<AtomicBool>> for CancelToken {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }
}

impl CancelToken {
    /// One that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels, for good.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// [`RelationalError::Cancelled`] once it was.
    pub fn check(&self) -> RelationalResult<()> {
        if self.is_cancelled() { Err(RelationalError::Cancelled) } else { Ok(()) }
    }
}
