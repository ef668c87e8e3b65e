//! Eight threads, each on a stream of its own, share one runtime and its blocks: one that all
//! read, one that all write, and one for each.
//!
//! ```text
//! cargo run -p xlog-cuda --example 03_eight_threads [host|cuda:N|auto]
//! ```

mod common;

use common::{Failure, Setup, check};
use xlog_cuda::{CudaDevice, LaunchDims, kernels, launch::LaunchBuilder, memory::TrackedCudaSlice};

const THREADS: u32 = 8;
const ROUNDS: u32 = 100;
const LEN: usize = 4096;

fn main() -> Result<(), Failure> {
    run(common::device_from_arguments()?)
}

pub(crate) fn run(device: CudaDevice) -> Result<(), Failure> {
    let setup = &Setup::new(device, "eight threads over one runtime and the same blocks");
    let numbers: Vec<u32> = (0..LEN as u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let (mut input, mut total) =
        (setup.manager.alloc::<u32>(LEN)?, setup.manager.alloc::<u32>(LEN)?);
    input.upload(&numbers)?;
    total.upload(&vec![0; LEN])?;

    // Nothing here locks, and no thread waits for another: the runtime orders the launches that
    // touch the same memory, and lets all others run at once.
    let (input, total) = (&input, &total);
    let own = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|id| scope.spawn(move || work(setup, id, input, total))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?)
            .collect::<Result<Vec<_>, Failure>>()
    })?;

    // Additions commute, so the sum is the same in whatever order the threads came; a lost update
    // would leave less.
    let sum: u32 = (0..THREADS).map(|id| (id + 1) * ROUNDS).sum();
    check(total.download()?.iter().all(|value| *value == sum), "no addition was lost")?;
    println!("{} additions to the shared block, none lost: {sum}", THREADS * ROUNDS);

    for (id, values) in (0..THREADS).zip(own) {
        let expected =
            numbers.iter().map(|&x| (0..ROUNDS).fold(id, |y, i| kernels::mix_u32(y, x, i)));
        check(values.into_iter().eq(expected), "each thread's own block is as it left it")?;
    }
    println!("{THREADS} threads read the same block, and each got its own result");
    Ok(())
}

/// What one thread does: folds the shared input into a block of its own and adds to the shared one.
fn work(
    setup: &Setup,
    id: u32,
    input: &TrackedCudaSlice<u32>,
    total: &TrackedCudaSlice<u32>,
) -> Result<Vec<u32>, Failure> {
    let runtime = &setup.runtime;
    let stream = runtime.stream_pool().acquire()?;
    let mix = runtime.load_kernel(&kernels::MIX_U32)?;
    let increment = runtime.load_kernel(&kernels::INCREMENT_U32)?;
    let mut mine = setup.manager.alloc::<u32>(LEN)?;
    mine.upload_on(&vec![id; LEN], stream)?;
    for round in 0..ROUNDS {
        LaunchBuilder::new(runtime, &mix, stream)
            .input(input)
            .in_out(&mine)
            .value(round)
            .value(LEN as u64)
            .launch(LaunchDims::for_elements(LEN))?;
        LaunchBuilder::new(runtime, &increment, stream)
            .in_out(total)
            .value(id + 1)
            .value(LEN as u64)
            .launch(LaunchDims::for_elements(LEN))?;
    }
    Ok(mine.start_download(stream)?.wait()?)
}
