//! Threads with streams of their own: how many pairs they get done together.

use std::{
    sync::{Barrier, OnceLock},
    time::{Duration, Instant},
};

use xlog_cuda::device_runtime::{AllocTag, StreamId};

use super::{
    Lab,
    report::{Report, Row},
};
use crate::{Failure, bench::measure::median};

const THREADS: usize = 8;
const SIZE: usize = 64 << 10;
/// Pairs between two looks at the clock.
const BATCH: u64 = 100;

/// One thread, and eight.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let streams: Vec<StreamId> =
        (0..THREADS).map(|_| Ok(lab.stream(&lab.default)?.0)).collect::<Result<_, Failure>>()?;
    let (rounds, window) = if lab.quick { (3, 2) } else { (41, 10) };
    let window = Duration::from_millis(window);
    let mut alone = None;
    for threads in [1, THREADS] {
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let (start, end) = (Barrier::new(threads), OnceLock::new());
            // As many as it gets done while all the others are at it too.
            let one_thread = |stream: StreamId| -> Result<u64, String> {
                let pair = || {
                    let block = lab.default.runtime.allocate(SIZE, stream, AllocTag("bench"))?;
                    lab.default.runtime.deallocate(block)
                };
                let run = |n: u64| (0..n).try_for_each(|_| pair()).map_err(|e| e.to_string());
                run(2_000)?;
                start.wait();
                // One window for all: whoever comes late gets less done.
                let (end, mut done) = (*end.get_or_init(|| Instant::now() + window), 0);
                while Instant::now() < end {
                    run(BATCH)?;
                    done += BATCH;
                }
                Ok(done)
            };
            let one_thread = &one_thread;
            let each: Vec<u64> = std::thread::scope(|scope| {
                let running: Vec<_> = streams[..threads]
                    .iter()
                    .map(|stream| scope.spawn(move || one_thread(*stream)))
                    .collect();
                running
                    .into_iter()
                    .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
                    .collect::<Result<_, String>>()
            })?;
            times.push(window.as_nanos() as f64 / each.iter().sum::<u64>() as f64);
        }
        let ns = median(times);
        let times_one = alone.get_or_insert(ns).max(f64::MIN_POSITIVE) / ns;
        report.add(&Row {
            case: "threads",
            resource: "default",
            size: SIZE,
            threads,
            ns_per_pair: ns,
            driver_ns_per_pair: None,
            also: Some(("times_one_thread", times_one)),
        });
    }
    Ok(())
}
