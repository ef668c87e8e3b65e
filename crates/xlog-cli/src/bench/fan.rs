//! Eight streams read a block, one writes it: how many events and waits that takes.

use xlog_cuda::device_runtime::StreamId;

use super::{
    lab::{Lab, Subject, Touch},
    measure::{Effort, alternate},
    pairs::{launch_built, launch_raw},
    report::{Report, Row},
};
use crate::Failure;

const READERS: usize = 8;

/// Rounds of eight reads and a write, through the builder.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let streams = lab.streams(READERS + 1)?;
    let write = lab.subject(Touch::Write, 1)?;
    // Raw launches have no order between streams: they write a block of their own.
    let raw_write = lab.subject(Touch::Write, 1)?;
    let read_kernel = lab.runtime.load_kernel(Touch::Read.kernel(1))?;
    // The same block, read: the subject of the write lends it.
    let mut arguments = xlog_driver::Arguments::new();
    arguments.push_pointer(write.blocks[0].ptr());
    let launch_read = |stream: StreamId| -> Result<(), Failure> {
        xlog_cuda::launch::LaunchBuilder::new(&lab.runtime, &read_kernel, stream)
            .input(&write.blocks[0])
            .launch(xlog_cuda::LaunchDims::linear(1, 1))?;
        Ok(())
    };
    let raw_streams = lab.raw_streams(READERS + 1)?;
    let read = Subject { touch: Touch::Read, kernel: read_kernel, blocks: Vec::new(), arguments };
    let before = lab.pool.stats();
    let mut raw = |n: usize| {
        for launch in 0..n {
            let turn = launch % (READERS + 1);
            let subject = if turn < READERS { &read } else { &raw_write };
            launch_raw(lab, subject, raw_streams[turn])?;
        }
        Ok(())
    };
    let mut recorded = |n: usize| {
        for launch in 0..n {
            let turn = launch % (READERS + 1);
            if turn < READERS {
                launch_read(streams[turn])?;
            } else {
                launch_built(lab, &write, streams[turn])?;
            }
        }
        Ok(())
    };
    let effort = Effort { batch: 8 * (READERS + 1), ..Effort::new(lab.quick) };
    let (timings, launches) =
        alternate(&lab.core, effort, &mut [&mut raw, &mut recorded], || Ok(lab.settle()?))?;
    let after = lab.pool.stats();
    write.verify(launches / (READERS as u64 + 1))?;
    raw_write.verify(launches / (READERS as u64 + 1))?;
    let launches = launches as f64;
    report.add(&Row {
        pattern: "fan".into(),
        form: "builder",
        access: "mixed",
        blocks: 1,
        streams: READERS + 1,
        threads: 1,
        raw_ns: Some(timings[0].ns),
        recorded_ns: timings[1].ns,
        above_raw_ns: Some(timings[1].above_first),
        records_per_launch: (after.records - before.records) as f64 / launches,
        waits_per_launch: (after.waits - before.waits) as f64 / launches,
        rounds: timings[1].rounds,
        rounds_left_out: timings[1].left_out,
        memory_growth_bytes: None,
    });
    Ok(())
}
