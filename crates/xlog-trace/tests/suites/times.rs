//! Times of a trace: in order, and the device's own.

use xlog_cuda::CudaDevice;
use xlog_driver::{Driver, WorkStamps};
use xlog_testkit::{DriverCall, LayeredDriver, TestCase, TestDevice, cases};
use xlog_trace::Trace;

use super::support::{Held, buffer, fill, streams, traced};

pub(crate) const CASES: &[TestCase] = cases![
    stamps_are_passed_in_the_order_of_their_stream,
    a_stamp_behind_held_work_has_no_time_yet,
    work_begins_after_it_was_enqueued_and_ends_before_the_next_on_its_stream_begins,
    work_that_waits_begins_after_what_it_waits_for_has_ended,
    many_launches_all_get_their_times,
    a_call_that_failed_is_not_in_the_trace,
    a_full_trace_counts_what_it_leaves_out,
];

/// How far a device's clock may be off the host's, in nanoseconds.
fn tolerance(device: TestDevice) -> u64 {
    match device {
        TestDevice::Host => 0,
        TestDevice::Cuda => 50_000,
    }
}

fn new_stamps(driver: &dyn Driver) -> WorkStamps {
    let stamp = || driver.create_stamp().expect("a stamp").expect("a device that keeps time");
    WorkStamps { begin: stamp(), end: stamp() }
}

fn stamps_are_passed_in_the_order_of_their_stream(device: TestDevice) {
    let driver = device.driver();
    let (stream, memory) =
        (driver.create_stream().expect("a stream"), driver.allocate(4096).expect("memory"));
    let stamps: Vec<_> = (0..100).map(|_| new_stamps(&*driver)).collect();
    let mut times = Vec::new();
    // SAFETY: stream, memory and stamps are this driver's; nobody else uses them.
    unsafe {
        for stamps in &stamps {
            driver.open_stamps(*stamps, stream).expect("open");
            driver.fill_bytes(memory, 1, 4096, stream).expect("a fill");
            driver.close_stamps(*stamps, stream).expect("closed");
        }
        // Without stamps of its own, and nobody else's times.
        driver.fill_bytes(memory, 2, 4096, stream).expect("a fill");
        driver.synchronize_stream(stream).expect("the end");
        for stamp in stamps.iter().flat_map(|stamps| [stamps.begin, stamps.end]) {
            times.push(driver.stamp_time(stamp).expect("a time").expect("passed by now"));
            driver.destroy_stamp(stamp).expect("no stamp");
        }
        driver.free(memory).expect("no memory");
        driver.destroy_stream(stream).expect("no stream");
    }
    assert!(times.is_sorted(), "{times:?}");
}

fn a_stamp_behind_held_work_has_no_time_yet(device: TestDevice) {
    let stack = CudaDevice::with_driver(device.driver()).into_stack().expect("a stack");
    let [stream] = streams(&stack);
    let data = buffer(&stack, stream, "data");
    let driver = stack.runtime.device().driver();
    let stamps = new_stamps(driver);
    let held = Held::new(&stack.runtime, &[stream]);
    let raw = stack.streams().resolve(stream).expect("a handle");
    // SAFETY: stream, memory and stamps are this driver's; nobody else uses them.
    unsafe {
        driver.open_stamps(stamps, raw).expect("open");
        driver.fill_bytes(data.ptr(), 1, 64, raw).expect("a fill");
        driver.close_stamps(stamps, raw).expect("closed");
        assert_eq!(driver.stamp_time(stamps.end).expect("an answer"), None);
        drop(held);
        driver.synchronize_stream(raw).expect("the end");
        for stamp in [stamps.begin, stamps.end] {
            assert!(driver.stamp_time(stamp).expect("an answer").is_some());
            driver.destroy_stamp(stamp).expect("no stamp");
        }
    }
}

fn work_begins_after_it_was_enqueued_and_ends_before_the_next_on_its_stream_begins(
    device: TestDevice,
) {
    let (trace, stack) = traced(device);
    let [stream] = streams(&stack);
    let data = buffer(&stack, stream, "data");
    for value in 0..50 {
        fill(&stack.runtime, &data, value, stream);
    }
    let recording = trace.finish();
    assert_eq!(recording.launches(), 50);
    let mut last_end = 0;
    for operation in &recording.operations {
        let (begin, end) = operation.device.expect("device times");
        assert!(operation.call.0 <= operation.call.1);
        assert!(operation.call.0 <= begin + tolerance(device), "{operation:?}");
        assert!(last_end <= begin && begin <= end, "{operation:?} after {last_end}");
        assert!(end <= recording.end);
        last_end = end;
    }
}

fn work_that_waits_begins_after_what_it_waits_for_has_ended(device: TestDevice) {
    let (trace, stack) = traced(device);
    let [one, two] = streams(&stack);
    let data = buffer(&stack, one, "data");
    for value in 0..20 {
        fill(&stack.runtime, &data, value, if value % 2 == 0 { one } else { two });
    }
    let recording = trace.finish();
    assert!(!recording.waits.is_empty());
    for wait in &recording.waits {
        let times = |index: Option<u32>| {
            let operation = &recording.operations[index.expect("work") as usize];
            operation.device.expect("device times")
        };
        assert!(times(wait.from).1 <= times(wait.to).0, "{wait:?}");
    }
}

fn many_launches_all_get_their_times(device: TestDevice) {
    let (trace, stack) = traced(device);
    let [one, two] = streams(&stack);
    let buffers = [buffer(&stack, one, "one"), buffer(&stack, two, "two")];
    for value in 0..3000 {
        fill(&stack.runtime, &buffers[0], value, one);
        fill(&stack.runtime, &buffers[1], value, two);
    }
    let recording = trace.finish();
    assert_eq!(recording.launches(), 6000);
    assert!(recording.operations.iter().all(|operation| operation.device.is_some()));
}

fn a_call_that_failed_is_not_in_the_trace(device: TestDevice) {
    let layer = std::sync::Arc::new(LayeredDriver::new(device.driver()));
    let trace = Trace::new(std::sync::Arc::clone(&layer) as _);
    let driver = trace.driver();
    let stream = driver.create_stream().expect("a stream");
    let memory = driver.allocate(64).expect("memory");
    layer.fail_after(DriverCall::FillBytes, 1, 1);
    // SAFETY: stream and memory are this driver's.
    unsafe {
        driver.fill_bytes(memory, 1, 64, stream).expect("the first one");
        driver.fill_bytes(memory, 2, 64, stream).expect_err("planned to fail");
        driver.fill_bytes(memory, 3, 64, stream).expect("the third one");
        driver.free(memory).expect("no memory");
    }
    let recording = trace.finish();
    assert_eq!(recording.operations.len(), 2);
    assert!(recording.operations.iter().all(|operation| operation.device.is_some()));
}

fn a_full_trace_counts_what_it_leaves_out(device: TestDevice) {
    let trace = Trace::with_limit(device.driver(), 10);
    let driver = trace.driver();
    let stream = driver.create_stream().expect("a stream");
    let memory = driver.allocate(64).expect("memory");
    for value in 0..20 {
        // SAFETY: stream and memory are this driver's.
        unsafe { driver.fill_bytes(memory, value, 64, stream) }.expect("a fill");
    }
    let recording = trace.finish();
    assert_eq!(recording.operations.len(), 9, "beside the allocation");
    assert_eq!(recording.left_out, 11);
}
