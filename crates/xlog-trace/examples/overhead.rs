//! What tracing adds to a launch: the same launches with a trace and without one, in turn.
//!
//!     cargo run --release -p xlog-trace --example overhead

use std::{sync::Arc, time::Instant};

use xlog_cuda::{
    CudaDevice, LaunchDims,
    device_runtime::{DeviceStack, ResourceResult},
    kernels,
    launch::LaunchBuilder,
};
use xlog_driver::{Driver, host::HostDriver};
use xlog_trace::Trace;

const LAUNCHES: u32 = 5_000;
const ROUNDS: usize = 15;

fn main() -> ResourceResult<()> {
    println!("{:<28} {:>10} {:>10} {:>10}", "nanoseconds a launch", "plain", "traced", "added");
    for (name, streams) in [("one stream", 1), ("two streams in turn", 2)] {
        let (mut plain, mut traced) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            plain.push(launches(Arc::new(HostDriver::new(0)), streams)?);
            let trace = Trace::new(Arc::new(HostDriver::new(0)));
            traced.push(launches(trace.driver(), streams)?);
            assert_eq!(trace.finish().launches(), LAUNCHES as usize);
        }
        let (plain, traced) = (median(plain), median(traced));
        println!("{name:<28} {plain:>10.0} {traced:>10.0} {:>10.0}", traced - plain);
    }
    Ok(())
}

/// Nanoseconds a launch takes, from the first one until the last one's stream is done.
fn launches(driver: Arc<dyn Driver>, streams: usize) -> ResourceResult<f64> {
    let stack: DeviceStack = CudaDevice::with_driver(driver).into_stack()?;
    let streams: Vec<_> =
        (0..streams).map(|_| stack.streams().acquire()).collect::<ResourceResult<_>>()?;
    let data = stack.manager().alloc::<u32>(64)?;
    let kernel = stack.runtime.load_kernel(&kernels::INCREMENT_U32)?;
    let begun = Instant::now();
    for index in 0..LAUNCHES as usize {
        LaunchBuilder::new(&stack.runtime, &kernel, streams[index % streams.len()])
            .in_out(&data)
            .value(1u32)
            .value(64u64)
            .launch(LaunchDims::for_elements(64))?;
    }
    stack.runtime.fence()?;
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(LAUNCHES))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
