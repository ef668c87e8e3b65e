//! What a reader or writer answers when a file is at fault.

use std::{fmt, io};

/// The answer of everything that reads or writes files.
pub type FileResult<T> = Result<T, FileError>;

/// The message of an output whose reader has gone away, which is how such an error is known.
const BROKEN_PIPE: &str = "nobody reads the output any more";

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

impl FileError {
    /// What is wrong with a file as a whole.
    ///
    /// ```
    /// use xlog_io::FileError;
    ///
    /// let error = FileError::new("a.csv", "it is empty").at_line(3).in_column("id");
    /// assert_eq!(error.to_string(), "a.csv, line 3, column id: it is empty");
    /// ```
    #[must_use]
    pub fn new(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self { file: file.into(), line: None, column: None, message: message.into() }
    }

    /// The same, at a line counted from 1.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }

    /// The same, in a column.
    #[must_use]
    pub fn in_column(mut self, column: impl Into<String>) -> Self {
        self.column = Some(column.into());
        self
    }

    /// What the operating system answered when something was tried (`read`, `write`) with a file.
    #[must_use]
    pub fn from_io(file: impl Into<String>, tried: &str, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let message = match error.kind() {
            Kind::BrokenPipe => BROKEN_PIPE.to_owned(),
            Kind::NotFound if tried == "read" => "there is no such file; check its name".into(),
            Kind::NotFound => "there is no such folder; create it first".into(),
            Kind::PermissionDenied => {
                format!("it is not allowed to {tried} it; check the permissions of file and folder")
            }
            Kind::IsADirectory => "it is a folder; name the files in it, as FOLDER/*.csv".into(),
            Kind::StorageFull | Kind::QuotaExceeded => {
                "the disk is full; free some space or write elsewhere".into()
            }
            Kind::ReadOnlyFilesystem => "the disk is read-only; write elsewhere".into(),
            _ => format!("cannot {tried} it: {error}"),
        };
        Self::new(file, message)
    }

    /// Whether the program that read the output has gone away, as `head` does. Nothing is wrong
    /// then, and a command ends without a word.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        self.message == BROKEN_PIPE
    }
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
