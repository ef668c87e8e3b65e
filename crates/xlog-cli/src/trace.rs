//! `--trace`, `--report` and `--checked`: what happened on the device, for commands that run on
//! one.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use xlog_driver::{Driver, host::HostDriver};
use xlog_testkit::oracle::Oracle;
use xlog_trace::{Hazard, Trace};

use crate::{BadInput, Failure, device::DeviceChoice};

/// What a command writes about its run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TraceOptions {
    /// Write what happened on the device to FILE in Chrome's trace format, which Perfetto opens
    #[arg(long, value_name = "FILE", help_heading = "Tracing")]
    trace: Option<PathBuf>,
    /// Write what happened on the device to FILE as a page for any browser: streams, waits and
    /// their reasons, memory
    #[arg(long, value_name = "FILE", help_heading = "Tracing")]
    report: Option<PathBuf>,
}

/// The same for commands whose work can be checked too.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CheckedTraceOptions {
    #[command(flatten)]
    trace: TraceOptions,
    /// Hold every access of every kernel against what orders it, and end with 1 if two could race:
    /// on the host device, and many times slower
    #[arg(long, help_heading = "Tracing")]
    checked: bool,
}

/// A device's driver, traced and checked as far as the options say.
#[derive(Debug)]
pub(crate) struct TracedDriver {
    /// The driver to open the device with.
    pub(crate) driver: Arc<dyn Driver>,
    trace: Option<Trace>,
    oracle: Option<Arc<Oracle>>,
    options: TraceOptions,
}

impl TraceOptions {
    /// Opens a device's driver. A file that cannot be written is an error now, before the work.
    pub(crate) fn open(&self, device: DeviceChoice) -> Result<TracedDriver, Failure> {
        self.check_files()?;
        Ok(self.over(device.open_driver()?, None))
    }

    fn check_files(&self) -> Result<(), BadInput> {
        if let (Some(trace), Some(report)) = (&self.trace, &self.report)
            && trace == report
            && !is_device(trace)
        {
            let name = trace.display();
            let message = format!("--trace and --report both write {name}; name two files");
            return Err(BadInput(message));
        }
        for path in self.trace.iter().chain(&self.report) {
            let unusable = |error| cannot_write(path, &error);
            drop(Unfinished::create(path).map_err(unusable)?);
        }
        Ok(())
    }

    fn over(&self, mut driver: Arc<dyn Driver>, oracle: Option<Arc<Oracle>>) -> TracedDriver {
        let wanted = self.trace.is_some() || self.report.is_some();
        let trace = wanted.then(|| Trace::new(Arc::clone(&driver)));
        if let Some(trace) = &trace {
            driver = trace.driver();
        }
        TracedDriver { driver, trace, oracle, options: self.clone() }
    }
}

impl CheckedTraceOptions {
    /// Opens a device's driver, as [`TraceOptions::open`] does.
    pub(crate) fn open(&self, device: DeviceChoice) -> Result<TracedDriver, Failure> {
        if !self.checked {
            return self.trace.open(device);
        }
        if matches!(device, DeviceChoice::Cuda(_)) {
            Err(BadInput(
                "--checked looks at every access of a kernel, which only the host device can \
                 show; add --device host"
                    .into(),
            ))?;
        }
        self.trace.check_files()?;
        let oracle = Arc::new(Oracle::new());
        let driver = HostDriver::new(0).watched_by(Arc::clone(&oracle) as _);
        Ok(self.trace.over(Arc::new(driver), Some(oracle)))
    }
}

impl TracedDriver {
    /// Waits for the device and writes what the options ask for. Hazards that were found are an
    /// error, once everything is written.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let recording = self.trace.as_ref().map(Trace::finish);
        if recording.is_none() && self.oracle.is_some() {
            self.driver.synchronize_device()?;
        }
        let findings = self.oracle.as_ref().map(|oracle| oracle.findings());
        let hazards: Option<Vec<Hazard>> = findings.map(|findings| {
            let hazard = |one: &xlog_testkit::oracle::Finding| Hazard {
                title: one.kind.name().to_owned(),
                text: one.to_string(),
            };
            findings.iter().map(hazard).collect()
        });
        if let Some(recording) = &recording {
            if let Some(path) = &self.options.trace {
                write_whole(path, |output| recording.write_chrome(output))?;
            }
            if let Some(path) = &self.options.report {
                write_whole(path, |output| recording.write_report(output, hazards.as_deref()))?;
            }
        }
        match hazards.as_deref() {
            None | Some([]) => Ok(()),
            Some(found) => {
                let texts: Vec<_> = found.iter().map(|hazard| hazard.text.as_str()).collect();
                Err(format!("{} hazards were found:\n{}", texts.len(), texts.join("\n")).into())
            }
        }
    }
}

/// Writes a file whole or not at all.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), BadInput> {
    let written = Unfinished::create(path).and_then(|mut file| {
        write(&mut file.output)?;
        file.keep()
    });
    written.map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> BadInput {
    let path = path.display();
    BadInput(format!("{path}: cannot be written: {error}; name a file in a folder that can be"))
}

/// Whether there is something by that name that is written to in place: a device or a pipe.
fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file())
}

/// A file under another name, beside where it is to be; gone unless it is kept.
struct Unfinished {
    /// `None` if it is written in place.
    name: Option<PathBuf>,
    path: PathBuf,
    output: BufWriter<File>,
}

impl Unfinished {
    fn create(path: &Path) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        if is_device(path) {
            let output = BufWriter::new(File::create(path)?);
            return Ok(Self { name: None, path: path.to_owned(), output });
        }
        // A link stays one.
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.unfinished", std::process::id()));
        let name = path.with_file_name(name);
        let output = BufWriter::new(File::create(&name)?);
        Ok(Self { name: Some(name), path: path.clone(), output })
    }

    fn keep(mut self) -> io::Result<()> {
        self.output.flush()?;
        self.name.as_ref().map_or(Ok(()), |name| fs::rename(name, &self.path))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After `keep` there is none by this name.
        if let Some(name) = &self.name {
            let _ = fs::remove_file(name);
        }
    }
}
