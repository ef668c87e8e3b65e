//! How many launches a second a checked device takes, on one core: run it with `--release`.

use std::time::{Duration, Instant};

use xlog_cuda::{
    LaunchDims,
    device_runtime::{AllocTag, DeviceStack, ResourceResult, StreamId},
    kernels,
    launch::LaunchBuilder,
};
use xlog_testkit::{
    CheckedDevice,
    oracle::{Edit, Trace},
};

const LENGTH: usize = 256;
const LAUNCHES: usize = 200;

/// Launches over eight streams and twelve blocks, some of which are replaced on the way.
fn program(stack: &DeviceStack, seed: u64) -> ResourceResult<()> {
    let (runtime, manager) = (&stack.runtime, stack.manager());
    let mut state = seed;
    let mut below = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 33) as usize % end
    };
    let mut streams = vec![StreamId::DEFAULT];
    for _ in 0..7 {
        streams.push(stack.streams().acquire()?);
    }
    let fresh = |stream| {
        let mut slice = manager.alloc_on::<u32>(LENGTH, stream, AllocTag("throughput"))?;
        slice.fill_bytes(0, stream).map(|()| slice)
    };
    let mut blocks = Vec::new();
    for index in 0..12 {
        blocks.push(fresh(streams[index % 8])?);
    }
    let mix = runtime.load_kernel(&kernels::MIX_U32)?;
    for _ in 0..LAUNCHES {
        let (stream, one, other) = (streams[below(8)], below(12), below(12));
        if below(16) == 0 || one == other {
            blocks[one] = fresh(stream)?;
            continue;
        }
        LaunchBuilder::new(runtime, &mix, stream)
            .input(&blocks[one])
            .in_out(&blocks[other])
            .value(7u32)
            .value(LENGTH as u64)
            .launch(LaunchDims::for_elements(LENGTH))?;
    }
    runtime.fence()
}

/// Launches and programs a second, and the last trace.
fn measure(production: bool) -> ResourceResult<Trace> {
    let (start, mut programs, mut operations) = (Instant::now(), 0u64, 0);
    let trace = loop {
        let checked = CheckedDevice::new(programs);
        let stack = if production { checked.production_stack() } else { checked.plain_stack() }?;
        program(&stack, programs)?;
        drop(stack);
        checked.assert_clean();
        operations += checked.oracle.operations();
        programs += 1;
        if start.elapsed() > Duration::from_secs(3) {
            break checked.oracle.trace();
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{}: {:.0} launches a second, {:.0} programs of {LAUNCHES} a second",
        if production { "production stack" } else { "plain stack" },
        operations as f64 / seconds,
        programs as f64 / seconds
    );
    Ok(trace)
}

/// How long it takes to judge a trace again without each of its waits.
fn judge(trace: &Trace) {
    let start = Instant::now();
    let analysis = trace.analysis();
    let (mut waits, mut needed, mut tight) = (0, 0, 0);
    for wait in trace.waits() {
        waits += 1;
        needed += usize::from(analysis.has_race(Some(Edit::Remove(wait))));
        tight += usize::from(analysis.has_race(Some(Edit::EndEarlier(wait))));
    }
    println!(
        "{} steps, {waits} waits tried in {:.2} ms: {needed} needed, {tight} cover nothing more",
        trace.steps.len(),
        start.elapsed().as_secs_f64() * 1e3
    );
}

fn main() -> ResourceResult<()> {
    for production in [false, true] {
        judge(&measure(production)?);
    }
    Ok(())
}
