//! Memory on a device, values to it and back, and a budget that says no.
//!
//! ```text
//! cargo run -p xlog-cuda --example 01_allocate_and_copy [host|cuda:N|auto]
//! ```

mod common;

use common::{Failure, Setup, check};
use xlog_cuda::{
    CudaDevice,
    device_runtime::{AllocTag, ResourceError, StreamId},
};

fn main() -> Result<(), Failure> {
    run(common::device_from_arguments()?)
}

pub(crate) fn run(device: CudaDevice) -> Result<(), Failure> {
    let Setup { runtime, manager } =
        Setup::new(device, "allocating, copying there and back, and freeing");
    let numbers: Vec<u32> = (0..100_000).map(|i| 3 * i + 1).collect();

    // Fresh memory holds whatever was there before: it is written first.
    let mut here = manager.alloc::<u32>(numbers.len())?;
    here.upload(&numbers)?;
    check(here.download()? == numbers, "a download gives what was uploaded")?;

    // A label says in reports whose memory it is. The copy runs on the device, on another stream,
    // behind the upload: the runtime knows that it has to wait.
    let other = runtime.stream_pool().acquire()?;
    let mut there = manager.alloc_on::<u32>(numbers.len(), other, AllocTag("the copy"))?;
    there.copy_from(&here, other)?;

    // Nothing blocks until the values are asked for.
    let arriving = there.start_download(other)?;
    here.fill_bytes(0, StreamId::DEFAULT)?; // waits, on the device, until the copy has read `here`
    check(arriving.wait()? == numbers, "the copy was made before `here` was cleared")?;
    check(here.download()?.iter().all(|value| *value == 0), "`here` is cleared")?;

    // A view is part of a slice; one that would leave it is an error.
    check(here.view(..10)?.len() == 10, "a view has the length of its range")?;
    check(here.view(..numbers.len() + 1).is_err(), "a range past the end is refused")?;

    println!("the manager holds {} bytes", manager.held_bytes());
    let refused = manager.alloc::<u8>(1 << 30);
    let over_budget = matches!(&refused, Err(ResourceError::OutOfBudget { .. }));
    if let Err(error) = &refused {
        println!("a gigabyte more: {error}");
    }
    check(over_budget, "the budget refuses what does not fit")?;

    // Dropping a slice frees it behind its last use; the bytes count as pending until a reap.
    drop((here, there));
    println!("dropped, not yet reaped: {} bytes outstanding", runtime.bytes_outstanding());
    runtime.reap_pending()?;
    check(runtime.bytes_outstanding() == 0, "after a reap nothing is outstanding")?;
    println!("reaped: {} bytes outstanding", runtime.bytes_outstanding());
    Ok(())
}
