//! Task Bench's dependence patterns, width 8, 8 steps, a stream for each column, submitted by one
//! thread, with tasks that enqueue nothing: what is left is the runtime, and the fence at the end.
//!
//! A task of step `t` in column `i` writes a block of its own and reads those of step `t - 1` that
//! the pattern names; every round runs over the same blocks.

use std::time::Instant;

use xlog_cuda::{
    LaunchDims,
    device_runtime::StreamId,
    kernels::{MIX_U32, mix_u32},
    launch::{LaunchBuilder, LaunchRecorder},
    memory::TrackedCudaSlice,
};

use super::{
    lab::Lab,
    measure::median,
    quiet_core::Ear,
    report::{Report, Row},
};
use crate::Failure;

const WIDTH: usize = 8;
const STEPS: usize = 8;
const TASKS: usize = WIDTH * STEPS;

/// Which columns of the step before a task reads.
type Inputs = fn(step: usize, column: usize) -> Vec<usize>;

const PATTERNS: [(&str, Inputs); 6] = [
    ("task-bench-trivial", |_, _| Vec::new()),
    ("task-bench-stencil", |_, column| {
        (column.saturating_sub(1)..=(column + 1).min(WIDTH - 1)).collect()
    }),
    ("task-bench-fft", |step, column| {
        let apart = 1 << (step.saturating_sub(1) % WIDTH.ilog2() as usize);
        vec![column, column ^ apart]
    }),
    ("task-bench-sweep", |_, column| (column.saturating_sub(1)..=column).collect()),
    ("task-bench-tree", |_, column| vec![column / 2]),
    ("task-bench-random", |step, column| {
        let draw = |salt| mix_u32(step as u32, column as u32, salt) as usize % WIDTH;
        vec![draw(1), draw(2)]
    }),
];

/// All six patterns.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let streams = lab.streams(WIDTH)?;
    let blocks: Vec<_> = (0..TASKS).map(|_| lab.zeros(64)).collect::<Result<_, _>>()?;
    lab.settle()?;
    for (pattern, inputs) in PATTERNS {
        let graph: Vec<Vec<usize>> =
            (0..TASKS).map(|task| inputs(task / WIDTH, task % WIDTH)).collect();
        verify(lab, &streams, &graph)?;
        let rounds = if lab.quick { 20 } else { 400 };
        let mut counted = (0, 0);
        let mut round = |_: &Ear<'_>| {
            let before = lab.pool.stats();
            let start = Instant::now();
            submit(lab, &streams, &blocks, &graph)?;
            lab.runtime.fence()?;
            let took = start.elapsed().as_nanos() as f64 / TASKS as f64;
            let after = lab.pool.stats();
            counted = (after.records - before.records, after.waits - before.waits);
            Ok(took)
        };
        lab.core.rounds(20, &mut round)?; // events, caches
        let times = lab.core.rounds(rounds, round)?;
        report.add(&Row {
            pattern: pattern.to_owned(),
            form: "recorder",
            access: "mixed",
            blocks: graph.iter().map(Vec::len).max().unwrap_or(0) + 1,
            streams: WIDTH,
            threads: 1,
            raw_ns: None,
            recorded_ns: median(times.kept.clone()),
            above_raw_ns: None,
            records_per_launch: counted.0 as f64 / TASKS as f64,
            waits_per_launch: counted.1 as f64 / TASKS as f64,
            rounds: times.kept.len(),
            rounds_left_out: times.left_out,
            memory_growth_bytes: None,
        });
    }
    Ok(())
}

/// Submits every task; none enqueues anything.
fn submit(
    lab: &Lab,
    streams: &[StreamId],
    blocks: &[TrackedCudaSlice<u32>],
    graph: &[Vec<usize>],
) -> Result<(), Failure> {
    for (task, inputs) in graph.iter().enumerate() {
        let (step, column) = (task / WIDTH, task % WIDTH);
        let mut recorder = LaunchRecorder::new_strict(streams[column]);
        recorder.write(&blocks[task]);
        if step > 0 {
            for input in inputs {
                recorder.read(&blocks[(step - 1) * WIDTH + input]);
            }
        }
        recorder.preflight(&lab.runtime)?;
        recorder.commit(&lab.runtime)?;
    }
    Ok(())
}

/// The same graph with real work, compared with running it in order on this thread.
fn verify(lab: &Lab, streams: &[StreamId], graph: &[Vec<usize>]) -> Result<(), Failure> {
    let len = 64;
    let blocks: Vec<_> = (0..TASKS).map(|_| lab.zeros(len)).collect::<Result<_, _>>()?;
    let mut expected = vec![0u32; TASKS];
    let mix = lab.runtime.load_kernel(&MIX_U32)?;
    for (task, inputs) in graph.iter().enumerate().skip(WIDTH) {
        let (step, column) = (task / WIDTH, task % WIDTH);
        for source in inputs.iter().map(|input| (step - 1) * WIDTH + input) {
            LaunchBuilder::new(&lab.runtime, &mix, streams[column])
                .input(&blocks[source])
                .in_out(&blocks[task])
                .value(task as u32)
                .value(len as u64)
                .launch(LaunchDims::linear(1, 64))?;
            expected[task] = mix_u32(expected[task], expected[source], task as u32);
        }
    }
    lab.runtime.fence()?;
    for (block, expected) in blocks.iter().zip(expected) {
        if block.download()?.iter().any(|found| *found != expected) {
            Err("a task graph gave another result than running it in order")?;
        }
    }
    Ok(())
}
