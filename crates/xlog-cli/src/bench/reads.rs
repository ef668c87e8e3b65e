//! A hundred thousand reads of one block, then a write on another stream: nothing may grow, and
//! the write may not pay for the reads.
//!
//! Measured twice. `many-reads`: the writing stream has work of its own meanwhile, one launch for a
//! thousand reads. `many-reads-asleep`: it has none for a third of a second, and then everything
//! the launch needs, in the driver above all, comes from far away: by hand it takes nearly twice as
//! long too.

use std::time::Instant;

use super::{
    lab::{Lab, Touch},
    measure::median,
    pairs::{launch_built, launch_raw},
    quiet_core::Ear,
    report::{Report, Row},
};
use crate::Failure;
use xlog_cuda::{LaunchDims, launch::LaunchBuilder};

const READS: usize = 100_000;
const ROUNDS: usize = 5;
/// Reads between the last look at the core and the write.
const LAST_READS: usize = 300;

/// Reads between two launches of the writing stream's own.
const OWN_WORK_EVERY: usize = 1_000;

/// Reads on one stream, the write on another.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    measure(lab, "many-reads", true, report)?;
    measure(lab, "many-reads-asleep", false, report)
}

fn measure(lab: &Lab, pattern: &str, awake: bool, report: &mut Report) -> Result<(), Failure> {
    let reads = if lab.quick { READS / 10 } else { READS };
    let streams = lab.streams(2)?;
    let (reader, writer) = (streams[0], streams[1]);
    let subject = lab.subject(Touch::Write, 1)?;
    let read = lab.runtime.load_kernel(Touch::Read.kernel(1))?;
    let raw_streams = lab.raw_streams(2)?;
    let events = lab.raw_events(2)?;
    let raw_subject = lab.subject(Touch::Write, 1)?;
    let mut rounds_run = 0;
    let raw_read = lab.subject(Touch::Read, 1)?;
    let (own, raw_own) = (lab.subject(Touch::Write, 1)?, lab.subject(Touch::Write, 1)?);
    let is_own = |left: usize| awake && left % OWN_WORK_EVERY == OWN_WORK_EVERY / 2;
    let mut round = |ear: &Ear<'_>| -> Result<Round, Failure> {
        let (memory, before) = (resident_bytes(), lab.pool.stats());
        let mut read_recorded = |left: usize| {
            if is_own(left) {
                launch_built(lab, &own, writer)?;
            }
            LaunchBuilder::new(&lab.runtime, &read, reader)
                .input(&subject.blocks[0])
                .launch(LaunchDims::linear(1, 1))?;
            Ok(())
        };
        let recorded =
            after_reads(reads, ear, &mut read_recorded, || launch_built(lab, &subject, writer))?;
        let after = lab.pool.stats();
        lab.settle()?;
        // The same with nothing recorded: as many launches in flight, then one on another stream.
        let mut read_raw = |left: usize| {
            if is_own(left) {
                launch_raw(lab, &raw_own, raw_streams[1])?;
            }
            launch_raw(lab, &raw_read, raw_streams[0])
        };
        let raw = after_reads(reads, ear, &mut read_raw, || {
            launch_raw(lab, &raw_subject, raw_streams[1])
        })?;
        lab.settle()?;
        // And with the events written by hand: an event a read, one wait, one more event.
        let mut read_driver = |left: usize| {
            if is_own(left) {
                launch_raw(lab, &raw_own, raw_streams[1])?;
                events.record(raw_streams[1], 1)?;
            }
            launch_raw(lab, &raw_read, raw_streams[0])?;
            Ok(events.record(raw_streams[0], 0)?)
        };
        let driver = after_reads(reads, ear, &mut read_driver, || {
            events.wait(raw_streams[1], 0)?;
            launch_raw(lab, &raw_subject, raw_streams[1])?;
            Ok(events.record(raw_streams[1], 1)?)
        })?;
        lab.settle()?;
        rounds_run += 1;
        let (records, waits) = (after.records - before.records, after.waits - before.waits);
        Ok(Round { recorded, raw, driver, growth: resident_bytes() - memory, records, waits })
    };
    // The first round warms up: event pools and caches reach their size.
    lab.core.rounds(1, &mut round)?;
    let rounds = lab.core.rounds(ROUNDS, round)?;
    subject.verify(rounds_run)?;
    raw_subject.verify(2 * rounds_run)?;
    let own_work = (0..reads).filter(|left| is_own(*left)).count() as u64;
    own.verify(own_work * rounds_run)?;
    raw_own.verify(2 * own_work * rounds_run)?;
    let of = |value: fn(&Round) -> f64| median(rounds.kept.iter().map(value).collect());
    let launches = (reads as u64 + own_work + 1) as f64;
    let growth = rounds.kept.iter().map(|round| round.growth).max();
    let (of_driver, of_builder) = (
        (of(|round| round.driver), of(|round| round.driver - round.raw)),
        (of(|round| round.recorded), of(|round| round.recorded - round.raw)),
    );
    for (form, (ns, above), growth) in
        [("driver", of_driver, None), ("builder", of_builder, growth)]
    {
        report.add(&Row {
            pattern: pattern.into(),
            form,
            access: "write",
            blocks: 1,
            streams: streams.len(),
            threads: 1,
            raw_ns: Some(of(|round| round.raw)),
            recorded_ns: ns,
            above_raw_ns: Some(above),
            records_per_launch: of(|round| round.records as f64) / launches,
            waits_per_launch: of(|round| round.waits as f64) / launches,
            rounds: rounds.kept.len(),
            rounds_left_out: rounds.left_out,
            memory_growth_bytes: growth,
        });
    }
    Ok(())
}

/// What one round found out.
struct Round {
    /// Nanoseconds the write took, each way.
    recorded: f64,
    raw: f64,
    driver: f64,
    growth: i64,
    records: u64,
    waits: u64,
}

/// Times a write behind that many reads.
fn after_reads(
    reads: usize,
    ear: &Ear<'_>,
    read: &mut dyn FnMut(usize) -> Result<(), Failure>,
    write: impl FnOnce() -> Result<(), Failure>,
) -> Result<f64, Failure> {
    for left in (0..reads).rev() {
        read(left)?;
        // Not just before the write: the reads shall be in flight when it comes.
        if left == LAST_READS {
            ear.listen();
        }
    }
    let start = Instant::now();
    write()?;
    let took = start.elapsed().as_nanos() as f64;
    ear.listen();
    Ok(took)
}

/// Memory the process holds, where `/proc` tells; 0 elsewhere.
fn resident_bytes() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.as_deref().and_then(|text| text.split_whitespace().nth(1));
    resident.and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4096
}
