//! What can be wrong with a run.

use std::fmt;

use crate::oracle::Finding;

/// Something that must not happen, and did.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The independent oracle saw a hazard.
    Hazard(Finding),
    /// Declared uses that have to be ordered are not, whatever the kernels did touch.
    Unordered(String),
    /// A block, or what was downloaded of it, is not what a serial run gives.
    WrongBytes(String),
    /// A wait was queued that nothing needed.
    SuperfluousWait(String),
    /// A wait covers work enqueued after the use it stands for.
    LateEdge(String),
    /// A call failed that had no reason to.
    UnexpectedError(String),
    /// A call that had to be refused was not.
    MissingRefusal(String),
    /// Counters do not agree with what the program holds.
    Accounting(String),
    /// Something is left over when everything was given back.
    Leak(String),
    /// Nothing can go on.
    Deadlock(String),
    /// The runtime panicked.
    Panic(String),
}

impl Failure {
    /// One word for each kind: what shrinking keeps, and what a table of mutants names.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Hazard(_) => "hazard",
            Self::Unordered(_) => "unordered",
            Self::WrongBytes(_) => "wrong bytes",
            Self::SuperfluousWait(_) => "superfluous wait",
            Self::LateEdge(_) => "late edge",
            Self::UnexpectedError(_) => "unexpected error",
            Self::MissingRefusal(_) => "missing refusal",
            Self::Accounting(_) => "accounting",
            Self::Leak(_) => "leak",
            Self::Deadlock(_) => "deadlock",
            Self::Panic(_) => "panic",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hazard(finding) => write!(f, "{finding}"),
            Self::Unordered(text)
            | Self::WrongBytes(text)
            | Self::SuperfluousWait(text)
            | Self::LateEdge(text)
            | Self::UnexpectedError(text)
            | Self::MissingRefusal(text)
            | Self::Accounting(text)
            | Self::Leak(text)
            | Self::Deadlock(text)
            | Self::Panic(text) => write!(f, "{}: {text}", self.kind()),
        }
    }
}
