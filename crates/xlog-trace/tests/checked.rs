//! A trace over a device that somebody else watches, and what that one finds.

use std::sync::Arc;

use xlog_cuda::{
    CudaDevice, LaunchDims,
    device_runtime::{AllocTag, StreamId},
    kernels,
    launch::LaunchBuilder,
};
use xlog_driver::{Driver, host::HostDriver};
use xlog_testkit::{LayeredDriver, oracle::Oracle};
use xlog_trace::{Hazard, Trace};

/// Writes a buffer on one stream and reads it on another, under a trace and an oracle.
fn findings(deaf: bool) -> (Vec<Hazard>, usize) {
    let oracle = Arc::new(Oracle::new());
    let host = HostDriver::new(0).watched_by(Arc::clone(&oracle) as _);
    let layer = Arc::new(LayeredDriver::new(Arc::new(host)));
    layer.set_deaf(deaf);
    let trace = Trace::new(Arc::clone(&layer) as Arc<dyn Driver>);
    let stack = CudaDevice::with_driver(trace.driver()).into_stack().expect("a stack");
    let (writer, reader) =
        (stack.streams().acquire().expect("1"), stack.streams().acquire().expect("2"));
    let data = stack.manager().alloc_on::<u32>(1000, writer, AllocTag("racy")).expect("memory");
    let fill = stack.runtime.load_kernel(&kernels::FILL_U32).expect("a kernel");
    let launch = |stream: StreamId| {
        LaunchBuilder::new(&stack.runtime, &fill, stream)
            .output(&data)
            .value(7u32)
            .value(1000u64)
            .launch(LaunchDims::for_elements(1000))
            .expect("a launch");
    };
    launch(writer);
    launch(reader);
    let recording = trace.finish();
    assert!(recording.operations.iter().all(|operation| operation.device.is_some()));
    let hazard = |finding: &xlog_testkit::oracle::Finding| Hazard {
        title: finding.kind.name().to_owned(),
        text: finding.to_string(),
    };
    (oracle.findings().iter().map(hazard).collect(), recording.waits.len())
}

#[test]
fn whoever_watches_the_device_below_is_told_what_the_runtime_tells() {
    // With blocks and declarations passed on nothing is undeclared, and nothing races.
    assert_eq!(findings(false), (vec![], 1));
}

#[test]
fn a_missing_wait_is_a_hazard_for_the_report() {
    let (hazards, waits) = findings(true);
    assert_eq!(waits, 1, "asked for, and swallowed below the trace");
    assert!(hazards.iter().any(|hazard| hazard.title == "write-after-write race"), "{hazards:?}");
    assert!(hazards.iter().any(|hazard| hazard.text.contains("racy")));
}
