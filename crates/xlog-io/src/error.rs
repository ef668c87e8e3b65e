//! What a reader or writer answers when a file is at fault.

use std::fmt;

/// The answer of everything that reads or writes files.
pub type FileResult<T> = Result<T, FileError>;

/// What was wrong with a file, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file's name as it was given, or `standard input`.
    pub file: String,
    /// The line, counted from 1, where one is at fault.
    pub line: Option<u64>,
    /// The column's name, or its number where it has none, where one is at fault.
    pub column: Option<String>,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if let Some(column) = &self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for FileError {}
