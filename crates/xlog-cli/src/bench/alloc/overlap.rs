//! RMM's multi-stream benchmark: work on several streams, each launch with memory of its own that
//! is freed right behind it. The streams must run at the same time.

use std::time::Instant;

use xlog_cuda::{
    LaunchDims,
    device_runtime::{AllocTag, StreamId},
    kernels,
    launch::LaunchBuilder,
};

use super::{
    Lab,
    report::{Report, Row},
};
use crate::{Failure, bench::measure::median};

const STREAMS: usize = 4;
const LAUNCHES: usize = 16;
const LEN: usize = 1 << 14;
/// How long each launch keeps its stream busy.
const BUSY_NS: u64 = 200_000;

/// The same work on each of four streams, and on one of them alone.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let streams: Vec<StreamId> =
        (0..STREAMS).map(|_| Ok(lab.stream(&lab.default)?.0)).collect::<Result<_, Failure>>()?;
    let busy = lab.default.runtime.load_kernel(&kernels::GATE)?;
    let manager = lab.default.manager();
    let work = |streams: &[StreamId]| -> Result<f64, Failure> {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            for stream in streams {
                let mut scratch = manager.alloc_on::<u32>(LEN, *stream, AllocTag("scratch"))?;
                scratch.fill_bytes(0, *stream)?;
                LaunchBuilder::new(&lab.default.runtime, &busy, *stream)
                    .input(&scratch)
                    .value(BUSY_NS)
                    .launch(LaunchDims::linear(1, 1))?;
            }
        }
        lab.device.synchronize()?;
        Ok(start.elapsed().as_nanos() as f64)
    };
    let rounds = if lab.quick { 2 } else { 7 };
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    work(&streams)?;
    for _ in 0..rounds {
        alone.push(work(&streams[..1])?);
        together.push(work(&streams)?);
    }
    let (alone, together) = (median(alone), median(together));
    report.add(&Row {
        case: "overlap",
        resource: "default",
        size: 4 * LEN,
        threads: 1,
        ns_per_pair: together / (STREAMS * LAUNCHES) as f64,
        driver_ns_per_pair: None,
        also: Some(("times_one_stream", together / alone)),
    });
    Ok(())
}
