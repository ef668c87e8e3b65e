//! Threads with streams of their own: how many pairs they get done together.

use std::{sync::Barrier, time::Instant};

use xlog_cuda::device_runtime::{AllocTag, StreamId};

use super::{
    Lab,
    report::{Report, Row},
};
use crate::{Failure, bench::measure::median};

const THREADS: usize = 8;
const SIZE: usize = 64 << 10;

/// One thread, and eight.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let streams: Vec<StreamId> =
        (0..THREADS).map(|_| Ok(lab.stream(&lab.default)?.0)).collect::<Result<_, Failure>>()?;
    let (rounds, pairs) = if lab.quick { (5, 2_000) } else { (41, 20_000) };
    let mut alone = None;
    for threads in [1, THREADS] {
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = Barrier::new(threads);
            let one_thread = |stream: StreamId| -> Result<(Instant, Instant), String> {
                let pair = || {
                    let block = lab.default.runtime.allocate(SIZE, stream, AllocTag("bench"))?;
                    lab.default.runtime.deallocate(block)
                };
                let run = |n: usize| (0..n).try_for_each(|_| pair()).map_err(|e| e.to_string());
                run(pairs / 10)?;
                start.wait();
                let begin = Instant::now();
                run(pairs)?;
                Ok((begin, Instant::now()))
            };
            let one_thread = &one_thread;
            let each: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
                let running: Vec<_> = streams[..threads]
                    .iter()
                    .map(|stream| scope.spawn(move || one_thread(*stream)))
                    .collect();
                running
                    .into_iter()
                    .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
                    .collect::<Result<_, String>>()
            })?;
            // From the first that begins to the last that ends.
            let begin = each.iter().map(|(begin, _)| *begin).min();
            let end = each.iter().map(|(_, end)| *end).max();
            let took = begin.zip(end).map_or(0.0, |(b, e)| (e - b).as_nanos() as f64);
            times.push(took / (threads * pairs) as f64);
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
