//! A report of sorts and joins on several streams of the host device.
//!
//!     cargo run --release -p xlog-trace --example report -- report.html

use std::{fs::File, io::BufWriter, sync::Arc};

use xlog_driver::host::HostDriver;
use xlog_trace::Trace;

#[path = "report_pages/joins.rs"]
mod joins;

fn main() -> Result<(), joins::Failure> {
    let path = std::env::args().nth(1).ok_or("name the file to write, report.html say")?;
    let trace = Trace::new(Arc::new(HostDriver::new(0)));
    joins::run(trace.driver(), 2, 200_000)?;
    let recording = trace.finish();
    let mut file = BufWriter::new(File::create(&path)?);
    recording.write_report(&mut file, None)?;
    println!("{} launches, {} waits: {path}", recording.launches(), recording.waits.len());
    Ok(())
}
