//! The bytes of an input: a file or standard input, unpacked.

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use crate::{
    error::{FileError, FileResult},
    format::{Compression, Format},
};

/// What standard input is called in messages.
pub(crate) const STANDARD_INPUT: &str = "standard input";

/// A file to read, or standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    /// `None` for standard input.
    path: Option<PathBuf>,
    /// What to call it in messages.
    pub(crate) name: String,
    /// Its bytes on disk, if it is a file that can be read again.
    pub(crate) size: Option<u64>,
}

impl Input {
    /// Looks whether there is such a file; `-` is standard input.
    pub(crate) fn new(path: &str) -> FileResult<Self> {
        if path == "-" {
            return Ok(Self { path: None, name: STANDARD_INPUT.into(), size: None });
        }
        let refuse = |error| FileError::from_io(path, "read", &error);
        let metadata = std::fs::metadata(path).map_err(refuse)?;
        if metadata.is_dir() {
            return Err(refuse(io::ErrorKind::IsADirectory.into()));
        }
        let size = metadata.is_file().then_some(metadata.len());
        Ok(Self { path: Some(path.into()), name: path.to_owned(), size })
    }

    /// The file itself, for formats that are read from wherever in it.
    pub(crate) fn open_file(&self) -> FileResult<Option<File>> {
        match (&self.path, self.size) {
            (Some(path), Some(_)) => File::open(path).map(Some).map_err(|error| self.io(&error)),
            _ => Ok(None),
        }
    }

    /// All of it, if it cannot be read in any order: it comes through a pipe, or is packed.
    pub(crate) fn contents(&self) -> FileResult<Option<Bytes>> {
        let mut stream = self.open()?;
        if self.size.is_some() && stream.compression.is_none() {
            return Ok(None);
        }
        let mut contents = Vec::new();
        while !stream.read_onto(&mut contents, 1 << 20)? {}
        Ok(Some(contents.into()))
    }

    /// Its bytes from the start, unpacked.
    pub(crate) fn open(&self) -> FileResult<Stream> {
        let consumed = Arc::new(AtomicU64::new(0));
        let raw: Box<dyn Read + Send> = match &self.path {
            Some(path) => Box::new(File::open(path).map_err(|error| self.io(&error))?),
            None => Box::new(io::stdin()),
        };
        let mut raw = Counted { raw, consumed: Arc::clone(&consumed) };
        let mut start = Vec::new();
        raw.by_ref().take(6).read_to_end(&mut start).map_err(|error| self.io(&error))?;
        let compression = Compression::of_file(&self.name, &start)?;
        let raw = io::Cursor::new(start).chain(raw);
        let reader: Box<dyn Read + Send> = match compression {
            None => Box::new(raw),
            Some(Compression::Gzip) => {
                let raw = io::BufReader::with_capacity(1 << 18, raw);
                Box::new(flate2::bufread::MultiGzDecoder::new(raw))
            }
            Some(Compression::Zstd) => {
                Box::new(zstd::Decoder::new(raw).map_err(|error| self.io(&error))?)
            }
        };
        Ok(Stream { reader, consumed, compression, name: self.name.clone() })
    }

    /// The format that the first bytes of a file are those of. What can be read once is CSV, unless
    /// somebody says otherwise: a look at it would be its only one.
    pub(crate) fn guessed_format(&self) -> FileResult<Option<Format>> {
        if self.size.is_none() {
            return Ok(Some(Format::Csv));
        }
        let mut start = Vec::new();
        self.open()?.read_onto(&mut start, 8)?;
        Ok(Format::of_magic(&start))
    }

    pub(crate) fn io(&self, error: &io::Error) -> FileError {
        FileError::from_io(&self.name, "read", error)
    }
}

/// An input that is being read.
pub(crate) struct Stream {
    reader: Box<dyn Read + Send>,
    consumed: Arc<AtomicU64>,
    pub(crate) compression: Option<Compression>,
    name: String,
}

impl Stream {
    /// Adds up to `wanted` bytes to `bytes`, fewer only at the end. The answer is whether the end
    /// was reached.
    pub(crate) fn read_onto(&mut self, bytes: &mut Vec<u8>, wanted: usize) -> FileResult<bool> {
        let before = bytes.len();
        bytes.reserve(wanted);
        let read = (&mut self.reader).take(wanted as u64).read_to_end(bytes);
        read.map_err(|error| match self.compression {
            Some(compression) if error.kind() != io::ErrorKind::PermissionDenied => {
                let message = format!(
                    "its {compression} data cannot be unpacked ({error}); it may be cut off or \
                     damaged"
                );
                FileError::new(&self.name, message)
            }
            _ => FileError::from_io(&self.name, "read", &error),
        })?;
        Ok(bytes.len() - before < wanted)
    }

    /// Reads some bytes, as [`Read`] does.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }

    /// Bytes, as they lie on disk, that were read so far.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Relaxed)
    }

    /// The same, for when the stream is out of reach.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.consumed)
    }
}

/// Counts what goes through it.
pub(crate) struct Counted<R> {
    pub(crate) raw: R,
    pub(crate) consumed: Arc<AtomicU64>,
}

impl<R: Seek> Seek for Counted<R> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.raw.seek(to)
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.raw.read(buffer)?;
        self.consumed.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
