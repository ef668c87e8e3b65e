//! A hundred thousand reads of one block, then a write on another stream: nothing may grow, and
//! the write may not pay for the reads.

use std::time::Instant;

use super::{
    lab::{Lab, Touch},
    measure::median,
    pairs::{launch_built, launch_raw},
    report::{Report, Row},
};
use crate::Failure;
use xlog_cuda::{LaunchDims, launch::LaunchBuilder};

const READS: usize = 100_000;
const ROUNDS: usize = 5;

/// Reads on one stream, the write on another.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let reads = if lab.quick { READS / 10 } else { READS };
    let streams = lab.streams(2)?;
    let (reader, writer) = (streams[0], streams[1]);
    let subject = lab.subject(Touch::Write, 1)?;
    let read = lab.runtime.load_kernel(Touch::Read.kernel(1))?;
    let raw_streams = lab.raw_streams(2)?;
    let events = lab.raw_events(2)?;
    let raw_subject = lab.subject(Touch::Write, 1)?;
    let raw_read = lab.subject(Touch::Read, 1)?;
    let (mut raw, mut driver, mut recorded) = (Vec::new(), Vec::new(), Vec::new());
    let mut growth = 0;
    let mut launches = 0;
    let mut before = lab.pool.stats();
    // The first round warms up: event pools and caches reach their size.
    for round in 0..=ROUNDS {
        let memory = resident_bytes();
        if round == 1 {
            before = lab.pool.stats();
            launches = 0;
        }
        for _ in 0..reads {
            LaunchBuilder::new(&lab.runtime, &read, reader)
                .input(&subject.blocks[0])
                .launch(LaunchDims::linear(1, 1))?;
        }
        let start = Instant::now();
        launch_built(lab, &subject, writer)?;
        let took = start.elapsed().as_nanos() as f64;
        launches += reads + 1;
        lab.settle()?;
        // The same with nothing recorded: as many launches in flight, then one on another stream.
        for _ in 0..reads {
            launch_raw(lab, &raw_read, raw_streams[0])?;
        }
        let start = Instant::now();
        launch_raw(lab, &raw_subject, raw_streams[1])?;
        let took_raw = start.elapsed().as_nanos() as f64;
        lab.settle()?;
        // And with the events written by hand: an event a read, one wait, one more event.
        for _ in 0..reads {
            launch_raw(lab, &raw_read, raw_streams[0])?;
            events.record(raw_streams[0], 0)?;
        }
        let start = Instant::now();
        events.wait(raw_streams[1], 0)?;
        launch_raw(lab, &raw_subject, raw_streams[1])?;
        events.record(raw_streams[1], 1)?;
        let took_driver = start.elapsed().as_nanos() as f64;
        lab.settle()?;
        if round > 0 {
            recorded.push(took);
            raw.push(took_raw);
            driver.push(took_driver);
            growth = growth.max(resident_bytes() - memory);
        }
    }
    let after = lab.pool.stats();
    subject.verify(ROUNDS as u64 + 1)?;
    raw_subject.verify(2 * (ROUNDS as u64 + 1))?;
    for (form, times, growth) in [("driver", driver, None), ("builder", recorded, Some(growth))] {
        let differences = times.iter().zip(&raw).map(|(time, raw)| time - raw).collect();
        report.add(&Row {
            pattern: "many-reads".into(),
            form,
            access: "write",
            blocks: 1,
            streams: streams.len(),
            threads: 1,
            raw_ns: Some(median(raw.clone())),
            recorded_ns: median(times),
            above_raw_ns: Some(median(differences)),
            records_per_launch: (after.records - before.records) as f64 / launches as f64,
            waits_per_launch: (after.waits - before.waits) as f64 / launches as f64,
            memory_growth_bytes: growth,
        });
    }
    Ok(())
}

/// Memory the process holds, where `/proc` tells; 0 elsewhere.
fn resident_bytes() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.as_deref().and_then(|text| text.split_whitespace().nth(1));
    resident.and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4096
}
