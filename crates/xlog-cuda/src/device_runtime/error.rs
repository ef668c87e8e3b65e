//! What a resource answers when it refuses or fails.

use std::fmt;

use xlog_driver::DriverError;

use super::Generation;

/// The answer of every call on a resource.
pub type ResourceResult<T> = Result<T, ResourceError>;

/// Why a resource refused a call, or failed at it.
///
/// ```
/// use xlog_cuda::device_runtime::ResourceError;
///
/// let error = ResourceError::OutOfBudget { requested: 4096, remaining: 1024 };
/// assert_eq!(error.to_string(), "out of budget: requested 4096 bytes, remaining 1024 bytes");
/// assert!(ResourceError::from("no such kernel").to_string().contains("no such kernel"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceError {
    /// The request does not fit what is left of a limit.
    OutOfBudget {
        /// Bytes asked for.
        requested: usize,
        /// Bytes left.
        remaining: usize,
    },
    /// The driver failed, or the call could not be passed to it.
    Driver(DriverError),
    /// A stream, a recorder or a buffer was used against the rules; the text names the next step.
    StreamMisuse(String),
    /// The handle names a block that is gone.
    UseAfterFree {
        /// The generation the handle carries.
        generation: Generation,
    },
    /// An access left its block.
    OutOfBounds {
        /// The generation of the block.
        generation: Generation,
    },
    /// An earlier error took the device with it; only a new process gets it back.
    DeviceLost,
}

impl ResourceError {
    /// Whether there was not enough memory: a limit left too little, or the device had none. Once
    /// something is freed, the same request may succeed.
    ///
    /// ```
    /// use xlog_cuda::device_runtime::{DriverError, ResourceError};
    ///
    /// let full = DriverError::new("cuMemAllocAsync", DriverError::OUT_OF_MEMORY, "out of memory");
    /// assert!(ResourceError::Driver(full).is_out_of_memory());
    /// assert!(ResourceError::OutOfBudget { requested: 2, remaining: 1 }.is_out_of_memory());
    /// assert!(!ResourceError::DeviceLost.is_out_of_memory());
    /// ```
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::OutOfBudget { .. } => true,
            Self::Driver(error) => error.is_out_of_memory(),
            _ => false,
        }
    }
}

impl fmt::Display for ResourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBudget { requested, remaining } => {
                write!(f, "out of budget: requested {requested} bytes, remaining {remaining} bytes")
            }
            Self::Driver(error) => write!(f, "driver error: {error}"),
            Self::StreamMisuse(what) => write!(f, "stream misuse: {what}"),
            Self::UseAfterFree { generation } => write!(
                f,
                "use after free: no live block has generation {}; the handle outlived its block",
                generation.0
            ),
            Self::OutOfBounds { generation } => {
                write!(f, "out of bounds: an access left the block of generation {}", generation.0)
            }
            Self::DeviceLost => f.write_str(
                "device lost: an earlier error made the device unusable; restart the process",
            ),
        }
    }
}

impl std::error::Error for ResourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Driver(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DriverError> for ResourceError {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl From<&str> for ResourceError {
    fn from(message: &str) -> Self {
        Self::Driver(message.into())
    }
}

impl From<String> for ResourceError {
    fn from(message: String) -> Self {
        Self::Driver(message.into())
    }
}
