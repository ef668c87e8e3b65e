//! What a file's name and first bytes say about it.

use std::{fmt, path::Path, str::FromStr};

use crate::error::{FileError, FileResult};

/// How a table is written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Fields with commas between them.
    Csv,
    /// Fields with tabs between them.
    Tsv,
    /// JSON, one object on each line.
    JsonLines,
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC: a file or a stream when read, a file when written.
    Arrow,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 5] = [Self::Csv, Self::Tsv, Self::JsonLines, Self::Parquet, Self::Arrow];

    /// Its name, which parses as it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }

    /// The format that a file's name ends in, that of a compressed file before that ending.
    ///
    /// ```
    /// use xlog_io::Format;
    ///
    /// assert_eq!(Format::of_name("sales.csv.gz"), Some(Format::Csv));
    /// assert_eq!(Format::of_name("sales"), None);
    /// ```
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let path = Path::new(name);
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        if Compression::of_ending(&ending).is_some() {
            return Self::of_name(path.file_stem()?.to_str()?);
        }
        match ending.as_str() {
            "csv" => Some(Self::Csv),
            "tsv" | "tab" => Some(Self::Tsv),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            "parquet" | "pq" => Some(Self::Parquet),
            "arrow" | "arrows" | "ipc" | "feather" => Some(Self::Arrow),
            _ => None,
        }
    }

    /// Whether it is no text.
    pub(crate) fn is_binary(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow)
    }

    /// The format that a file's first bytes are those of, where they are of one only.
    pub(crate) fn of_magic(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'P', b'A', b'R', b'1', ..] => Some(Self::Parquet),
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] | [0xff, 0xff, 0xff, 0xff, ..] => {
                Some(Self::Arrow)
            }
            [b'{', ..] => Some(Self::JsonLines),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|known| known.name()).collect();
            format!("{text:?} is no format; the formats are {}", names.join(", "))
        })
    }
}

/// How a file as a whole is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// `.gz`.
    Gzip,
    /// `.zst`.
    Zstd,
}

impl Compression {
    /// The compression that a file's name ends in.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let ending = Path::new(name).extension()?.to_str()?.to_ascii_lowercase();
        Self::of_ending(&ending)
    }

    fn of_ending(ending: &str) -> Option<Self> {
        match ending {
            "gz" | "gzip" => Some(Self::Gzip),
            "zst" | "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The compression of a file with this name and these first bytes. A name that promises one
    /// that the bytes do not keep is an error.
    pub(crate) fn of_file(name: &str, bytes: &[u8]) -> FileResult<Option<Self>> {
        let found = match bytes {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            _ => None,
        };
        let known = [("bzip2", &b"BZh"[..]), ("xz", b"\xfd7zXZ\0"), ("zip", b"PK\x03\x04")];
        if let Some((other, _)) = known.iter().find(|(_, magic)| bytes.starts_with(magic)) {
            let message =
                format!("it is compressed with {other}, which is not supported; unpack it first");
            return Err(FileError::new(name, message));
        }
        match (found, Self::of_name(name)) {
            (None, Some(promised)) if !bytes.is_empty() => {
                let message = format!(
                    "its name says {promised}, its contents do not; give it its right name"
                );
                Err(FileError::new(name, message))
            }
            (found, _) => Ok(found),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_formats_and_compressions() {
        assert_eq!(Format::of_name("a/b.d/c.CSV.GZ"), Some(Format::Csv));
        assert_eq!(Format::of_name("c.ndjson.zst"), Some(Format::JsonLines));
        assert_eq!(Format::of_name("c.gz"), None);
        assert_eq!(Format::of_name("csv"), None);
        assert_eq!(Compression::of_name("c.csv.gz"), Some(Compression::Gzip));
        assert_eq!(Compression::of_name("c.csv"), None);
        for format in Format::ALL {
            assert_eq!(Format::of_name(&format!("x.{format}")), Some(format));
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert!("xml".parse::<Format>().unwrap_err().contains("parquet"));
    }

    #[test]
    fn a_name_that_lies_is_an_error() {
        assert_eq!(Compression::of_file("a.csv", b"\x1f\x8b\x08"), Ok(Some(Compression::Gzip)));
        assert_eq!(Compression::of_file("a.gz", b""), Ok(None));
        assert!(Compression::of_file("a.gz", b"a,b").unwrap_err().message.contains("gzip"));
        assert!(Compression::of_file("a", b"BZh9").unwrap_err().message.contains("bzip2"));
    }
}
