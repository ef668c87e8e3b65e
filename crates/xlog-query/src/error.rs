//! What a query answers when it is refused or fails.

use std::fmt;

use xlog_io::FileError;
use xlog_relational::RelationalError;

use crate::parse::ParseError;

/// The answer of everything here.
pub type QueryResult<T> = Result<T, QueryError>;

/// Why a query was refused, or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryError {
    /// A text that cannot be read, or that speaks of what is not there.
    Parse {
        /// The clause it is part of, as the user calls it: a flag, or a key of a plan.
        clause: String,
        /// What is wrong with it.
        error: ParseError,
    },
    /// A plan that makes no sense.
    Plan {
        /// What is wrong, and what to do.
        message: String,
    },
    /// A file that is at fault.
    File(FileError),
    /// More memory than there is.
    TooLarge {
        /// What needs it.
        what: String,
        /// Bytes it would take, as far as that can be said.
        needed: u64,
        /// Bytes there are.
        budget: u64,
    },
    /// An operator refused or failed.
    Relational(RelationalError),
    /// It was cancelled.
    Cancelled,
}

impl QueryError {
    pub(crate) fn plan(message: impl Into<String>) -> Self {
        Self::Plan { message: message.into() }
    }

    /// Whether what the user gave is at fault, rather than the machine.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Parse { .. } | Self::Plan { .. } | Self::File(_) => true,
            Self::TooLarge { .. } | Self::Cancelled => false,
            Self::Relational(error) => is_bad_input(error),
        }
    }
}

fn is_bad_input(error: &RelationalError) -> bool {
    match error {
        RelationalError::InPlan { source, .. } => is_bad_input(source),
        RelationalError::Resource(_)
        | RelationalError::OutOfMemory { .. }
        | RelationalError::Cancelled => false,
        _ => true,
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse { clause, error } => write!(f, "{clause}: {error}"),
            Self::Plan { message } => f.write_str(message),
            Self::File(error) => error.fmt(f),
            Self::TooLarge { what, needed, budget } => {
                let (needed, budget) = (Bytes(*needed), Bytes(*budget));
                write!(f, "{what} would take about {needed}, and the budget is {budget}; ")?;
                f.write_str("raise it with --memory, or filter or select less")?;
                let sorts = what.ends_with("(sorting all rows)");
                f.write_str(if sorts { ", or ask for the first rows with --limit" } else { "" })
            }
            Self::Relational(error) => error.fmt(f),
            Self::Cancelled => f.write_str("cancelled; nothing was written"),
        }
    }
}

impl std::error::Error for QueryError {}

impl From<RelationalError> for QueryError {
    fn from(error: RelationalError) -> Self {
        match error {
            RelationalError::Cancelled => Self::Cancelled,
            error => Self::Relational(error),
        }
    }
}

impl From<FileError> for QueryError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// A number of bytes for people.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(
    /// How many.
    pub u64,
);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let mut amount = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while amount >= 1023.95 && unit + 1 < UNITS.len() {
            amount /= 1024.0;
            unit += 1;
        }
        write!(f, "{amount:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        let shown = [0, 1023, 1024, 1536, (1 << 20) - 1, 4 << 30, u64::MAX];
        let shown = shown.map(|bytes| Bytes(bytes).to_string());
        let expected = ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "1.0 MiB", "4.0 GiB"];
        assert_eq!(shown[..6], expected);
        assert!(shown[6].ends_with(" TiB"));
    }
}
