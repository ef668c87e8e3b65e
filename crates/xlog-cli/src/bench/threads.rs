//! Eight threads, each on a stream of its own, all reading the same blocks: what is left of the
//! raw driver's throughput.

use std::{
    sync::Barrier,
    time::{Duration, Instant},
};

use super::{
    lab::{Lab, Touch},
    measure::median,
    pairs::{launch_built, launch_raw},
    report::{Report, Row},
};
use crate::Failure;

const THREADS: usize = 8;
const BATCH: usize = 400;

/// Alternates raw and recorded batches on all threads at once.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let streams = lab.streams(THREADS)?;
    let raw_streams = lab.raw_streams(THREADS)?;
    for blocks in [1, 8] {
        let subject = lab.subject(Touch::Read, blocks)?;
        let rounds = if lab.quick { 5 } else { 41 };
        let before = lab.pool.stats();
        let barrier = Barrier::new(THREADS);
        // Each thread times its own batches between the same barriers; a round takes as long as
        // the thread that started first to the one that ended last.
        let one_thread = |thread: usize| -> Result<Vec<[(Instant, Instant); 2]>, String> {
            let mut spans = Vec::new();
            for _ in 0..rounds {
                let span = |recorded: bool| -> Result<(Instant, Instant), String> {
                    barrier.wait();
                    let start = Instant::now();
                    for _ in 0..BATCH {
                        let launched = if recorded {
                            launch_built(lab, &subject, streams[thread])
                        } else {
                            launch_raw(lab, &subject, raw_streams[thread])
                        };
                        launched.map_err(|error| error.to_string())?;
                    }
                    let end = Instant::now();
                    lab.settle().map_err(|error| error.to_string())?;
                    Ok((start, end))
                };
                spans.push([span(false)?, span(true)?]);
            }
            Ok(spans)
        };
        let spans: Vec<Vec<[(Instant, Instant); 2]>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS).map(|thread| scope.spawn(move || one_thread(thread))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
                .collect::<Result<_, String>>()
        })?;
        let per_launch = |way: usize| -> Vec<f64> {
            (0..rounds)
                .map(|round| span_of(spans.iter().map(|spans| spans[round][way])))
                .map(|span| span.as_nanos() as f64 / (THREADS * BATCH) as f64)
                .collect()
        };
        let (raw, recorded) = (per_launch(0), per_launch(1));
        let differences = recorded.iter().zip(&raw).map(|(recorded, raw)| recorded - raw).collect();
        let after = lab.pool.stats();
        subject.verify(0)?;
        let launches = (THREADS * BATCH * rounds) as f64;
        report.add(&Row {
            pattern: "threads".into(),
            form: "builder",
            access: "read",
            blocks,
            streams: THREADS,
            threads: THREADS,
            raw_ns: Some(median(raw)),
            recorded_ns: median(recorded),
            above_raw_ns: Some(median(differences)),
            records_per_launch: (after.records - before.records) as f64 / launches,
            waits_per_launch: (after.waits - before.waits) as f64 / launches,
            rounds,
            rounds_left_out: 0,
            memory_growth_bytes: None,
        });
    }
    Ok(())
}

/// From the first start to the last end.
fn span_of(spans: impl Iterator<Item = (Instant, Instant)>) -> Duration {
    let (mut start, mut end) = (None::<Instant>, None::<Instant>);
    for (s, e) in spans {
        start = Some(start.map_or(s, |start| start.min(s)));
        end = Some(end.map_or(e, |end| end.max(e)));
    }
    match (start, end) {
        (Some(start), Some(end)) => end - start,
        _ => Duration::ZERO,
    }
}
