//! What to read and what to write.

use std::num::NonZeroUsize;

use crate::{column_type::ColumnType, format::Format};

/// The bytes of text that one batch is made of, unless told otherwise.
pub(crate) const BLOCK_BYTES: usize = 4 << 20;

/// What to read: one table, from one file or from several with the same columns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputSpec {
    /// Names of files; `*`, `?` and `[...]` stand for all names they match, in alphabetical order,
    /// and `-` is standard input.
    pub paths: Vec<String>,
    /// The format of all of them; without it, what each name ends in or what the first bytes say.
    pub format: Option<Format>,
    /// The types of columns by name, for CSV and JSON lines; the others are inferred.
    pub types: Vec<(String, ColumnType)>,
    /// The columns to read, and no others are looked at; `None` for all. They come in the order of
    /// the file.
    pub columns: Option<Vec<String>>,
    /// Whether columns of types that are not supported (lists, binary) are left out where nobody
    /// chose columns. Otherwise they are an error. One that is chosen always is.
    pub leave_out_unsupported: bool,
    /// How CSV is written.
    pub csv: CsvOptions,
    /// Threads that read; as many as there are processors without it.
    pub threads: Option<NonZeroUsize>,
    /// Bytes of text that make a batch of CSV or JSON lines.
    pub block_bytes: usize,
}

impl InputSpec {
    /// Everything in these files, as their names say.
    #[must_use]
    pub fn new(paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            format: None,
            types: Vec::new(),
            columns: None,
            leave_out_unsupported: false,
            csv: CsvOptions::default(),
            threads: None,
            block_bytes: BLOCK_BYTES,
        }
    }

    pub(crate) fn threads(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or_else(available, NonZeroUsize::get)
    }
}

/// How CSV is written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CsvOptions {
    /// Between fields. Without it a comma, or, where the first line has none, whichever of
    /// semicolon, tab and bar it has; a tab in TSV.
    pub delimiter: Option<u8>,
    /// Whether the first line names the columns; they are `column1`, `column2` and so on if not.
    pub header: bool,
    /// Around fields with separators in them; `None` where it is a character like any other.
    pub quote: Option<u8>,
    /// Texts that stand for no value, besides the empty one. In quotes they are text.
    pub nulls: Vec<String>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self { delimiter: None, header: true, quote: Some(b'"'), nulls: Vec::new() }
    }
}

/// Where to write a table, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputSpec {
    /// The file's name; `-` is standard output.
    pub path: String,
    /// Its format; without it, what its name ends in.
    pub format: Option<Format>,
}

impl OutputSpec {
    /// A file, in the format that its name ends in.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), format: None }
    }

    /// The same in a format that is given.
    #[must_use]
    pub fn with_format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }
}
