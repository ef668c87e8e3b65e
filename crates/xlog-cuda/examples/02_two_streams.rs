//! Two streams hand one buffer back and forth. Nobody in this program waits for anything: every
//! launch says what it touches, and the runtime queues the waits.
//!
//! ```text
//! cargo run -p xlog-cuda --example 02_two_streams [host|cuda:N|auto]
//! ```

mod common;

use common::{Failure, Setup, check};
use xlog_cuda::{CudaDevice, LaunchDims, kernels, launch::LaunchBuilder};

const LEN: usize = 10_000;
const ROUNDS: u32 = 200;

fn main() -> Result<(), Failure> {
    run(common::device_from_arguments()?)
}

pub(crate) fn run(device: CudaDevice) -> Result<(), Failure> {
    let Setup { runtime, manager } =
        Setup::new(device, "one stream writes a buffer, another reads it, 200 times over");
    let pool = runtime.stream_pool();
    let (writer, reader) = (pool.acquire()?, pool.acquire()?);
    let increment = runtime.load_kernel(&kernels::INCREMENT_U32)?;
    let mix = runtime.load_kernel(&kernels::MIX_U32)?;

    let start: Vec<u32> = (0..LEN as u32).collect();
    let (mut data, mut trace) = (manager.alloc::<u32>(LEN)?, manager.alloc::<u32>(LEN)?);
    data.upload_on(&start, writer)?;
    trace.upload_on(&vec![0; LEN], reader)?;

    let before = pool.stats();
    for round in 0..ROUNDS {
        // Writes `data`: must wait until the reader is through with the round before.
        LaunchBuilder::new(&runtime, &increment, writer)
            .in_out(&data)
            .value(round)
            .value(LEN as u64)
            .launch(LaunchDims::for_elements(LEN))?;
        // Reads `data`: must wait for the write. What it leaves in `trace` depends on the order of
        // all rounds, so one that ran too early or too late shows.
        LaunchBuilder::new(&runtime, &mix, reader)
            .input(&data)
            .in_out(&trace)
            .value(round)
            .value(LEN as u64)
            .launch(LaunchDims::for_elements(LEN))?;
    }
    let after = pool.stats();
    let launches = u64::from(2 * ROUNDS);
    let (records, waits) = (after.records - before.records, after.waits - before.waits);
    println!("{launches} launches: {records} events recorded, {waits} waits queued");
    check(records == launches, "one event a launch")?;
    check(waits <= launches, "at most one wait a launch")?;

    let expected = start.iter().map(|first| {
        let (mut data, mut trace) = (*first, 0);
        for round in 0..ROUNDS {
            data += round;
            trace = kernels::mix_u32(trace, data, round);
        }
        trace
    });
    check(trace.download()?.into_iter().eq(expected), "every round saw the one before it")?;
    println!("every value is what the rounds in their order leave");
    Ok(())
}
