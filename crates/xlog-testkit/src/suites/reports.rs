//! What a kernel reports to the host: memory of the host's as an argument, read when the launch is
//! done and not before.

use xlog_cuda::{
    LaunchDims,
    device_runtime::{ResourceResult, StreamId},
    kernels,
    launch::LaunchBuilder,
    memory::Download,
};

use super::support::{assert_says, is_injected, misuse, warm_up};
use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, fail};

pub(super) const CASES: &[TestCase] = cases![
    a_report_arrives_when_the_kernel_is_done,
    a_report_waits_for_what_the_kernel_reads,
    a_report_that_was_dropped_keeps_its_memory_to_the_end,
    a_builder_reports_again,
    reports_and_launches_are_not_mixed_up,
    a_failed_launch_reports_nothing_and_loses_nothing,
    a_report_whose_record_fails_is_not_read_too_soon,
];

const LEN: usize = 16;
const DIMS: LaunchDims = LaunchDims::linear(1, LEN as u32);

/// Reports `LEN` times `value`.
fn report(rig: &Rig, value: u32, stream: StreamId) -> ResourceResult<Download<u32>> {
    let fill = rig.kernel(&kernels::FILL_U32);
    LaunchBuilder::new(&rig.runtime, &fill, stream)
        .report::<u32>(LEN)
        .value(value)
        .value(LEN as u64)
        .launch_reporting(DIMS)
}

fn a_report_arrives_when_the_kernel_is_done(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    report(&rig, 1, a).and_then(Download::wait).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    let (records, copies) = (rig.pool.stats().records, rig.driver.count(DriverCall::CopyToHost));
    let answer = report(&rig, 7, a).unwrap_or_else(fail);
    let early = answer.is_done().unwrap_or_else(fail);
    gate.open();
    assert!(!early, "the kernel has not run");
    assert_eq!(answer.wait().unwrap_or_else(fail), [7; LEN]);
    assert_eq!(rig.pool.stats().records - records, 1, "one event");
    assert_eq!(rig.driver.count(DriverCall::CopyToHost), copies, "no copy");
}

fn a_report_waits_for_what_the_kernel_reads(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let (data, copy) = (rig.zeros(LEN, a), rig.kernel(&kernels::COPY_U32));
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    let mut launch = LaunchBuilder::new(&rig.runtime, &copy, b);
    launch.input(&data).report::<u32>(LEN).value(LEN as u64);
    let answer = launch.launch_reporting::<u32>(DIMS).unwrap_or_else(fail);
    // The launch after it waits for its read, as for any.
    rig.fill(&data, 9, a).unwrap_or_else(fail);
    gate.open();
    assert_eq!(answer.wait().unwrap_or_else(fail), [7; LEN]);
    assert_eq!(data.download().unwrap_or_else(fail), [9; LEN]);
}

/// If the memory of a report that nobody waits for went round while its kernel is held, the kernel
/// would write over the next report.
fn a_report_that_was_dropped_keeps_its_memory_to_the_end(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    for stream in [a, b] {
        report(&rig, 1, stream).and_then(Download::wait).unwrap_or_else(fail);
    }
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    drop(report(&rig, 7, a).unwrap_or_else(fail));
    let kept = report(&rig, 9, b).unwrap_or_else(fail);
    rig.runtime.synchronize(b).unwrap_or_else(fail);
    gate.open();
    rig.runtime.synchronize(a).unwrap_or_else(fail);
    assert_eq!(kept.wait().unwrap_or_else(fail), [9; LEN]);
}

fn a_builder_reports_again(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let (data, copy) = (rig.filled(LEN, 3, a), rig.kernel(&kernels::COPY_U32));
    let mut launch = LaunchBuilder::new(&rig.runtime, &copy, a);
    launch.input(&data).report::<u32>(LEN).value(LEN as u64);
    let first = launch.launch_reporting::<u32>(DIMS).unwrap_or_else(fail);
    rig.fill(&data, 4, a).unwrap_or_else(fail);
    let second = launch.launch_reporting::<u32>(DIMS).unwrap_or_else(fail);
    assert_eq!(second.wait().unwrap_or_else(fail), [4; LEN]);
    assert_eq!(first.wait().unwrap_or_else(fail), [3; LEN], "memory of its own");
}

fn reports_and_launches_are_not_mixed_up(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let data = rig.zeros(LEN, a);
    let (fill, copy) = (rig.kernel(&kernels::FILL_U32), rig.kernel(&kernels::COPY_U32));
    let start = || LaunchBuilder::new(&rig.runtime, &fill, a);
    let books = rig.books();

    let refusal = misuse(start().report::<u32>(LEN).value(1u32).value(LEN as u64).launch(DIMS));
    assert_says(&refusal, &["xlog_fill_u32", "reports", "launch_reporting"]);
    let mut plain = start();
    plain.output(&data).value(1u32).value(LEN as u64);
    assert_says(&misuse(plain.launch_reporting::<u32>(DIMS)), &["no report", "launch"]);
    let mut other = start();
    other.report::<u32>(LEN).value(1u32).value(LEN as u64);
    assert_says(&misuse(other.launch_reporting::<u64>(DIMS)), &["u32", "u64", "out"]);
    let mut short = start();
    short.report::<u32>(LEN - 1).value(1u32).value(LEN as u64);
    assert_says(&misuse(short.launch_reporting::<u32>(DIMS)), &["16 values", "15"]);
    let mut wrong = start();
    wrong.report::<u64>(LEN).value(1u32).value(LEN as u64);
    assert_says(&misuse(wrong.launch_reporting::<u64>(DIMS)), &["parameter 0", "u64"]);
    let mut read = LaunchBuilder::new(&rig.runtime, &copy, a);
    read.report::<u32>(LEN).report::<u32>(LEN).value(LEN as u64);
    assert_says(&misuse(read.launch_reporting::<u32>(DIMS)), &["parameter 0", "In u32"]);
    let none = LaunchDims::linear(0, 1);
    let mut nothing = start();
    nothing.report::<u32>(LEN).value(1u32).value(LEN as u64);
    assert_says(&misuse(nothing.launch_reporting::<u32>(none)), &["runs nothing"]);

    assert_eq!(rig.books(), books, "nothing was enqueued");
    assert_eq!(report(&rig, 5, a).and_then(Download::wait).unwrap_or_else(fail), [5; LEN]);
}

fn a_failed_launch_reports_nothing_and_loses_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    report(&rig, 1, a).and_then(Download::wait).unwrap_or_else(fail);
    let before = rig.runtime.staging().report();
    rig.driver.fail_after(DriverCall::Launch, 0, 1);
    assert!(report(&rig, 2, a).is_err_and(|error| is_injected(&error)));
    assert_eq!(
        rig.runtime.staging().report().in_use_buffers,
        before.in_use_buffers,
        "the buffer came back"
    );
    assert_eq!(report(&rig, 3, a).and_then(Download::wait).unwrap_or_else(fail), [3; LEN]);
}

/// Without an event the stream is waited for, and the error says so; the memory is not handed out
/// while the kernel may still write it.
fn a_report_whose_record_fails_is_not_read_too_soon(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, _other] = rig.streams();
    report(&rig, 1, a).and_then(Download::wait).unwrap_or_else(fail);
    rig.driver.fail_after(DriverCall::RecordEvent, 0, 1);
    assert!(report(&rig, 2, a).is_err_and(|error| is_injected(&error)));
    assert_eq!(report(&rig, 3, a).and_then(Download::wait).unwrap_or_else(fail), [3; LEN]);
}
