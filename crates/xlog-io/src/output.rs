//! Files that appear whole or not at all.
//!
//! What is written goes to a file of another name in the same folder, which takes the right name
//! once it is finished and goes away otherwise. What is no regular file (a pipe, a device) is
//! written as it is. Nothing is synced: a file survives the program, not a power cut.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    error::{FileError, FileResult},
    format::Compression,
};

/// What standard output is called in messages.
const STANDARD_OUTPUT: &str = "standard output";

/// Where bytes go in the end.
struct Target {
    out: Box<dyn Write + Send>,
    /// The file's name while it is written, and its right name.
    renamed: Option<(PathBuf, PathBuf)>,
    /// The first thing that went wrong, which formats wrap beyond recognition.
    failure: Arc<Mutex<Option<FileError>>>,
    name: String,
}

impl Target {
    fn note(&self, error: io::Error) -> io::Error {
        let noted = FileError::from_io(&self.name, "write", &error);
        self.failure.lock().get_or_insert(noted);
        error
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|error| self.note(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(|error| self.note(error))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.renamed {
            // There is nobody to tell; whatever was in the way of it shows elsewhere.
            let _ = fs::remove_file(temporary);
        }
    }
}

enum Packed {
    Plain(BufWriter<Target>),
    Gzip(flate2::write::GzEncoder<BufWriter<Target>>),
    Zstd(zstd::Encoder<'static, BufWriter<Target>>),
}

/// An output under way.
pub(crate) struct Output {
    packed: Packed,
    failure: Arc<Mutex<Option<FileError>>>,
    pub(crate) name: String,
}

impl Output {
    /// Starts writing a file, packed as its name says; `-` is standard output.
    pub(crate) fn create(path: &str) -> FileResult<Self> {
        let name = if path == "-" { STANDARD_OUTPUT } else { path }.to_owned();
        let failure = Arc::new(Mutex::new(None));
        let refuse = |error: io::Error| FileError::from_io(&name, "write", &error);
        let (out, renamed): (Box<dyn Write + Send>, _) = match path {
            "-" => (Box::new(io::stdout()), None),
            path => open(Path::new(path)).map_err(refuse)?,
        };
        let target = Target { out, renamed, failure: Arc::clone(&failure), name: name.clone() };
        let out = BufWriter::with_capacity(1 << 18, target);
        let packed = match Compression::of_name(path) {
            None => Packed::Plain(out),
            Some(Compression::Gzip) => {
                Packed::Gzip(flate2::write::GzEncoder::new(out, flate2::Compression::default()))
            }
            Some(Compression::Zstd) => Packed::Zstd(zstd::Encoder::new(out, 0).map_err(refuse)?),
        };
        Ok(Self { packed, failure, name })
    }

    /// Writes what is left.
    pub(crate) fn complete(self) -> FileResult<CompleteFile> {
        let Self { packed, failure, name } = self;
        let refuse = |error: io::Error| {
            let noted = failure.lock().take();
            noted.unwrap_or_else(|| FileError::from_io(&name, "write", &error))
        };
        let out = match packed {
            Packed::Plain(out) => Ok(out),
            Packed::Gzip(encoder) => encoder.finish(),
            Packed::Zstd(encoder) => encoder.finish(),
        };
        let mut out = out.map_err(refuse)?;
        out.flush().map_err(refuse)?;
        let target = out.into_inner().map_err(|error| refuse(error.into_error()))?;
        Ok(CompleteFile(target))
    }

    /// What to answer for an error that a format's crate has wrapped.
    pub(crate) fn failed(&self, error: impl std::fmt::Display) -> FileError {
        self.failure().error(&self.name, error)
    }

    /// What went wrong with the file itself, for when the output is out of reach.
    pub(crate) fn failure(&self) -> Failure {
        Failure(Arc::clone(&self.failure))
    }
}

/// A file that is written to its end, and has yet to get its name. Dropping it leaves nothing
/// behind.
#[must_use = "a file that is not published is removed"]
pub struct CompleteFile(Target);

impl CompleteFile {
    /// Gives the file its name.
    pub fn publish(mut self) -> FileResult<()> {
        if let Some((temporary, path)) = &self.0.renamed {
            let renamed = fs::rename(temporary, path);
            renamed.map_err(|error| FileError::from_io(&self.0.name, "write", &error))?;
            self.0.renamed = None;
        }
        Ok(())
    }
}

impl std::fmt::Debug for CompleteFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CompleteFile").field(&self.0.name).finish()
    }
}

/// What went wrong with a file, if anything did.
#[derive(Clone)]
pub(crate) struct Failure(Arc<Mutex<Option<FileError>>>);

impl Failure {
    pub(crate) fn error(&self, name: &str, error: impl std::fmt::Display) -> FileError {
        let noted = self.0.lock().take();
        noted.unwrap_or_else(|| FileError::new(name, format!("cannot write it: {error}")))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.packed {
            Packed::Plain(out) => out.write(bytes),
            Packed::Gzip(encoder) => encoder.write(bytes),
            Packed::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.packed {
            Packed::Plain(out) => out.flush(),
            Packed::Gzip(encoder) => encoder.flush(),
            Packed::Zstd(encoder) => encoder.flush(),
        }
    }
}

type Opened = (Box<dyn Write + Send>, Option<(PathBuf, PathBuf)>);

/// Opens what is there as it is, and a file of another name for what is not or is to be replaced.
fn open(path: &Path) -> io::Result<Opened> {
    let mut path = path.to_owned();
    let mut permissions = None;
    if let Ok(metadata) = fs::metadata(&path) {
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            let file = OpenOptions::new().write(true).open(&path)?;
            return Ok((Box::new(file), None));
        }
        if metadata.permissions().readonly() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // A link stays one, and the file behind it keeps who may read it.
        path = fs::canonicalize(&path)?;
        permissions = Some(metadata.permissions());
    }
    let (file, temporary) = create_beside(&path)?;
    let opened: Opened = (Box::new(file), Some((temporary.clone(), path)));
    if let Some(permissions) = permissions {
        fs::set_permissions(&temporary, permissions).inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })?;
    }
    Ok(opened)
}

/// A new file in the same folder, under a name that nobody else has.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_string_lossy();
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unfinished = format!(".{name}.{}-{number}.unfinished", std::process::id());
        let temporary = path.with_file_name(unfinished);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (file, temporary)),
        }
    }
}
