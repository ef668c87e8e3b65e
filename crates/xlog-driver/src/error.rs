//! What a failed driver call says.

use std::{borrow::Cow, fmt};

/// The answer of every driver call.
pub type DriverResult<T> = Result<T, DriverError>;

/// A driver call that failed: which call, with which code, and what that means.
///
/// ```
/// use xlog_driver::DriverError;
///
/// let error = DriverError::new("cuMemAlloc", 2, "out of memory");
/// assert_eq!(error.to_string(), "cuMemAlloc failed with code 2: out of memory");
/// assert_eq!(DriverError::from("no such kernel").to_string(), "no such kernel");
/// ```
// One pointer: every call answers with one of these or nothing, and nothing should cost nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct DriverError(Box<Failure>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    call: Cow<'static, str>,
    code: i32,
    message: Cow<'static, str>,
    sticky: bool,
}

impl DriverError {
    /// The code of an error that no driver call produced.
    pub const NO_CODE: i32 = 0;
    /// CUDA's code for memory that is not there; the host device answers with the same.
    pub const OUT_OF_MEMORY: i32 = 2;

    /// A failure of `call` with the driver's `code`.
    pub fn new(
        call: impl Into<Cow<'static, str>>,
        code: i32,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (call, message) = (call.into(), message.into());
        Self(Box::new(Failure { call, code, message, sticky: false }))
    }

    /// The same failure, one that no later call on this device survives.
    #[must_use]
    pub fn sticky(mut self) -> Self {
        self.0.sticky = true;
        self
    }

    /// The driver call that failed; empty if none was made.
    #[must_use]
    pub fn call(&self) -> &str {
        &self.0.call
    }

    /// The driver's code; [`NO_CODE`](Self::NO_CODE) if no call was made.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.0.code
    }

    /// What the code means.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the device is lost: every later call on it fails too.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        self.0.sticky
    }

    /// Whether the device had no memory left for the call.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.0.code == Self::OUT_OF_MEMORY
    }
}

impl fmt::Debug for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverError")
            .field("call", &self.0.call)
            .field("code", &self.0.code)
            .field("message", &self.0.message)
            .field("sticky", &self.0.sticky)
            .finish()
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { call, code, message, .. } = &*self.0;
        if call.is_empty() {
            f.write_str(message)
        } else {
            write!(f, "{call} failed with code {code}: {message}")
        }
    }
}

impl std::error::Error for DriverError {}

impl From<&str> for DriverError {
    fn from(message: &str) -> Self {
        Self::from(message.to_owned())
    }
}

impl From<String> for DriverError {
    fn from(message: String) -> Self {
        Self::new("", Self::NO_CODE, message)
    }
}
