//! What an operator answers when it refuses or fails.

use std::fmt;

use xlog_cuda::device_runtime::ResourceError;

use crate::types::DataType;

/// The answer of every operator.
pub type RelationalResult<T> = Result<T, RelationalError>;

/// Why a table, an expression or an operator was refused, or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelationalError {
    /// No column has that name.
    UnknownColumn {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// Two columns share a name.
    DuplicateColumn {
        /// The name that stands twice.
        name: String,
    },
    /// A column has another type than the operation takes.
    TypeMismatch {
        /// The column, or the expression in its place.
        column: String,
        /// What is taken there.
        expected: String,
        /// What was given.
        found: DataType,
    },
    /// Columns that stand side by side differ in length.
    LengthMismatch {
        /// The column that differs.
        column: String,
        /// How many rows the others have.
        expected: u64,
        /// How many it has.
        found: u64,
    },
    /// Two tables have a different number of columns where the same is needed.
    WidthMismatch {
        /// How many the first one has.
        expected: usize,
        /// How many the other one has.
        found: usize,
    },
    /// An expression that cannot be evaluated here.
    UnsupportedExpression {
        /// The expression.
        expression: String,
        /// Why, and what to do instead.
        reason: String,
    },
    /// A column lives on another runtime than the operation.
    ForeignColumn {
        /// The column.
        column: String,
    },
    /// More rows, distinct strings or bytes of text than can be counted here.
    TooMany {
        /// What there is too much of.
        what: String,
        /// How many there are.
        found: u64,
        /// How many there may be.
        most: u64,
    },
    /// A number does not fit the type of its result.
    Overflow {
        /// The operation and its type.
        operation: String,
    },
    /// The operation was cancelled.
    Cancelled,
    /// A plan that cannot be run.
    InvalidPlan {
        /// What is wrong with it.
        reason: String,
    },
    /// A node of a plan failed, and the plan ended.
    InPlan {
        /// The node's name.
        node: String,
        /// What it answered.
        source: Box<RelationalError>,
    },
    /// There was not enough memory. What the operation had taken was freed, and its inputs are as
    /// they were.
    OutOfMemory {
        /// What the operation was, or its part.
        operation: String,
        /// Bytes it would have needed in all, if that is known.
        needed: Option<u64>,
        /// What the memory stack said.
        source: ResourceError,
    },
    /// The runtime refused or failed.
    Resource(ResourceError),
    /// An Arrow array that has no place here.
    Arrow {
        /// Its column.
        column: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },
}

impl RelationalError {
    /// The error for a name that no column has.
    pub(crate) fn unknown_column<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Self {
        Self::UnknownColumn { name: name.to_owned(), known: known.map(str::to_owned).collect() }
    }

    /// The error for a column of another type than `expected` says.
    pub(crate) fn type_mismatch(
        column: impl fmt::Display,
        expected: impl fmt::Display,
        found: DataType,
    ) -> Self {
        Self::TypeMismatch { column: column.to_string(), expected: expected.to_string(), found }
    }

    /// The error for an array that Arrow knows and this crate does not.
    pub(crate) fn arrow(column: &str, reason: impl fmt::Display) -> Self {
        Self::Arrow { column: column.to_owned(), reason: reason.to_string() }
    }

    /// Whether there was not enough memory: once something is freed, the same may succeed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::OutOfMemory { .. } => true,
            Self::InPlan { source, .. } => source.is_out_of_memory(),
            Self::Resource(error) => error.is_out_of_memory(),
            _ => false,
        }
    }

    /// The same error; one of the runtime that is about memory gets the operation's name, and how
    /// much it would have needed.
    #[must_use]
    pub fn needing(self, operation: &str, needed: Option<u64>) -> Self {
        match self {
            Self::Resource(source) if source.is_out_of_memory() => {
                Self::OutOfMemory { operation: operation.to_owned(), needed, source }
            }
            other => other,
        }
    }
}

impl fmt::Display for RelationalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownColumn { name, known } => {
                write!(f, "no column is called {name:?}")?;
                if let Some(nearest) = nearest(name, known) {
                    write!(f, " (did you mean {nearest:?}?)")?;
                }
                match known.is_empty() {
                    true => f.write_str("; the table has no columns"),
                    false => write!(f, "; there are: {}", known.join(", ")),
                }
            }
            Self::DuplicateColumn { name } => {
                write!(f, "two columns are called {name:?}; rename one")
            }
            Self::TypeMismatch { column, expected, found } => {
                write!(f, "{column} is {found}; expected {expected}")
            }
            Self::LengthMismatch { column, expected, found } => write!(
                f,
                "column {column:?} has {found} rows, the others have {expected}; all columns of a \
                 table have the same length"
            ),
            Self::WidthMismatch { expected, found } => write!(
                f,
                "one table has {expected} columns and the other {found}; select the same columns \
                 of both"
            ),
            Self::UnsupportedExpression { expression, reason } => {
                write!(f, "cannot evaluate {expression}: {reason}")
            }
            Self::ForeignColumn { column } => write!(
                f,
                "column {column:?} belongs to another runtime; export it there and import it here"
            ),
            Self::TooMany { what, found, most } => {
                write!(f, "too many {what}: {found}, at most {most}; split the input")
            }
            Self::Overflow { operation } => write!(
                f,
                "overflow: {operation} does not fit its result type; calculate in f64, or filter \
                 such rows out"
            ),
            Self::Cancelled => f.write_str("cancelled; nothing of the operation's result is kept"),
            Self::InvalidPlan { reason } => write!(f, "the plan cannot be run: {reason}"),
            Self::InPlan { node, source } => write!(f, "{node}: {source}"),
            Self::OutOfMemory { operation, needed, source } => {
                write!(f, "not enough memory for {operation}")?;
                if let Some(needed) = needed {
                    write!(f, ", which needs {needed} bytes in all")?;
                }
                write!(f, "; free something or raise the budget ({source})")
            }
            Self::Resource(error) => error.fmt(f),
            Self::Arrow { column, reason } => write!(f, "Arrow column {column:?}: {reason}"),
        }
    }
}

impl std::error::Error for RelationalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OutOfMemory { source, .. } | Self::Resource(source) => Some(source),
            Self::InPlan { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

impl From<ResourceError> for RelationalError {
    fn from(error: ResourceError) -> Self {
        Self::Resource(error)
    }
}

/// The known name that `name` was most likely meant to be.
fn nearest<'n>(name: &str, known: &'n [String]) -> Option<&'n str> {
    let most = name.chars().count().div_ceil(3).max(1);
    known
        .iter()
        .map(|other| (distance(name, other), other.as_str()))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// How many letters differ, two swapped neighbours counting as one, upper and lower case as none.
fn distance(left: &str, right: &str) -> usize {
    let letters = |text: &str| text.to_lowercase().chars().collect::<Vec<_>>();
    let (left, right) = (letters(left), letters(right));
    let mut rows: Vec<Vec<usize>> = vec![(0..=right.len()).collect()];
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let changed = rows[i][j] + usize::from(a != b);
            let mut best = changed.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn an_unknown_column_is_answered_with_the_nearest_and_all_there_are() {
        let known = || ["amount", "id", "when"].into_iter();
        let text = |name| RelationalError::unknown_column(name, known()).to_string();
        for meant in ["amonut", "Amount", "amoun", "amounts"] {
            assert!(text(meant).contains("did you mean \"amount\"?"), "{}", text(meant));
        }
        let far = text("customer");
        assert!(!far.contains("did you mean") && far.contains("amount, id, when"), "{far}");
    }

    #[test]
    fn out_of_memory_says_what_was_needed_and_keeps_its_source() {
        let full = ResourceError::OutOfBudget { requested: 64, remaining: 1 };
        let error = RelationalError::from(full.clone()).needing("sort of 8 rows", Some(128));
        assert!(error.is_out_of_memory());
        assert!(error.to_string().contains("sort of 8 rows, which needs 128 bytes"), "{error}");
        assert_eq!(error.source().map(ToString::to_string), Some(full.to_string()));
        let lost = RelationalError::from(ResourceError::DeviceLost).needing("sort", None);
        assert_eq!(lost, RelationalError::Resource(ResourceError::DeviceLost));
    }
}
