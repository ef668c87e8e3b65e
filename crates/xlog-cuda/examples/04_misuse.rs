//! What the runtime says to a program that gets it wrong. Each mistake is an error value that
//! names the next step, and none of them leaves anything changed.
//!
//! ```text
//! cargo run -p xlog-cuda --example 04_misuse [host|cuda:N|auto]
//! ```

mod common;

use common::{Failure, Setup, check};
use xlog_core::MemoryBudget;
use xlog_cuda::{
    CudaDevice, GpuMemoryManager, LaunchDims,
    device_runtime::{Access, AllocTag, BlockId, ResourceError, ResourceResult, StreamId},
    kernels,
    launch::{LaunchBuilder, LaunchRecorder},
};

fn main() -> Result<(), Failure> {
    run(common::device_from_arguments()?)
}

/// Prints the error of a mistake; fails if there is none, or if it does not say `what`.
fn refused(mistake: &str, answer: ResourceResult<()>, what: &str) -> Result<(), Failure> {
    let Err(error) = answer else { return Err(format!("{mistake}: not refused").into()) };
    println!("\n{mistake}:\n  {error}");
    check(error.to_string().contains(what), &format!("the error says \"{what}\""))
}

pub(crate) fn run(device: CudaDevice) -> Result<(), Failure> {
    let Setup { runtime, manager } = Setup::new(device, "mistakes, and the errors they get");
    let stream = runtime.stream_pool().acquire()?;
    let (mut a, b) = (manager.alloc::<u32>(16)?, manager.alloc::<u32>(16)?);
    a.upload(&[7; 16])?;

    let mut late = LaunchRecorder::new_strict(stream);
    late.read(&a).preflight(&runtime)?;
    late.read(&b);
    refused("a use recorded after preflight", late.commit(&runtime), "recorded after preflight")?;

    let mut hasty = LaunchRecorder::new_strict(stream);
    hasty.read(&a);
    let answer = hasty.commit(&runtime);
    refused("a commit without preflight", answer, "without a successful preflight")?;

    let mut first = LaunchRecorder::new_strict(stream);
    first.write(&a).preflight(&runtime)?;
    let mut second = LaunchRecorder::new_strict(StreamId::DEFAULT);
    let answer = second.read(&a).preflight(&runtime);
    refused("two launches at once on a block that one writes", answer, "which has not committed")?;
    first.commit(&runtime)?;
    second.preflight(&runtime)?; // the same recorder, now that the way is free
    second.commit(&runtime)?;

    let block = runtime.allocate(256, stream, AllocTag("short-lived"))?;
    let handle = BlockId::from_block(&block);
    runtime.deallocate(block)?;
    let answer = runtime.prepare_block_use(handle, stream, Access::Read);
    let stale = matches!(&answer, Err(ResourceError::UseAfterFree { .. }));
    check(stale, "a stale handle is a use after free")?;
    refused("a handle that outlived its block", answer, "use after free")?;

    let plain = GpuMemoryManager::new(runtime.device().clone(), MemoryBudget::unlimited());
    let unknown = plain.alloc::<u32>(16)?;
    let mut strict = LaunchRecorder::new_strict(stream);
    let answer = strict.read(&unknown).preflight(&runtime);
    refused("memory the runtime does not know", answer, "untracked buffer rejected")?;
    drop(strict);

    let fill = runtime.load_kernel(&kernels::FILL_U32)?;
    let dims = LaunchDims::for_elements(16);
    let answer = LaunchBuilder::new(&runtime, &fill, stream).input(&a).launch(dims);
    refused("an output passed as an input", answer, "parameter 0 (out)")?;

    let nowhere = StreamId(1_000_000);
    let answer = runtime.allocate(256, nowhere, AllocTag::UNTAGGED).map(drop);
    refused("a stream nobody acquired", answer, "is not in this pool")?;

    refused("a view past the end", a.view(10..20).map(drop), "out of bounds")?;

    check(a.download()? == [7; 16], "after all that, the block is as it was")?;
    println!("\nthe block that all of them named is as it was");
    Ok(())
}
