//! Several operations under one event: they wait, and are waited for, as one.

use xlog_cuda::{
    LaunchDims,
    device_runtime::{AllocTag, ResourceError, ResourceResult, StreamId},
    kernels,
    launch::{LaunchBatch, LaunchBuilder},
    memory::{Download, TrackedCudaSlice},
};

use super::support::{assert_says, is_injected, misuse, warm_up};
use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, fail};

pub(super) const CASES: &[TestCase] = cases![
    a_batch_is_one_event_and_one_wait,
    a_batch_waits_for_what_its_steps_read,
    whoever_reads_waits_for_the_whole_batch,
    whoever_writes_waits_for_the_reads_of_a_batch,
    memory_of_a_batch_is_not_handed_out_before_it_ran,
    a_batch_keeps_memory_and_refuses_what_was_freed,
    a_batch_downloads_behind_its_last_step,
    a_batch_without_steps_does_nothing,
    a_batch_refuses_what_is_not_its_own,
    a_batch_that_fails_halfway_is_followed_as_far_as_it_came,
];

const LEN: usize = 16;
const DIMS: LaunchDims = LaunchDims::linear(1, LEN as u32);
type Words = TrackedCudaSlice<u32>;

/// Adds a copy from one slice to another.
fn copy(rig: &Rig, batch: &mut LaunchBatch<'_>, from: &Words, to: &Words, stream: StreamId) {
    let kernel = rig.kernel(&kernels::COPY_U32);
    let mut launch = LaunchBuilder::new(&rig.runtime, &kernel, stream);
    launch.input(from).output(to).value(LEN as u64);
    launch.launch_in(batch, DIMS).unwrap_or_else(fail);
}

/// `from` to `middle` to `to`, over bytes that are filled first.
fn chain(rig: &Rig, [from, middle, to]: [&Words; 3], stream: StreamId) -> ResourceResult<()> {
    let mut batch = LaunchBatch::new(&rig.runtime, stream);
    batch.fill_bytes(&middle.as_view(), 0xff)?;
    copy(rig, &mut batch, from, middle, stream);
    batch.copy(&middle.as_view(), &to.as_view())?;
    batch.submit()
}

fn a_batch_is_one_event_and_one_wait(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let [from, middle, to] = [rig.filled(LEN, 7, a), rig.zeros(LEN, b), rig.zeros(LEN, b)];
    let before = rig.pool.stats();
    chain(&rig, [&from, &middle, &to], b).unwrap_or_else(fail);
    let after = rig.pool.stats();
    assert_eq!(after.records - before.records, 1, "one event for three steps");
    assert!(after.waits - before.waits <= 1, "one wait for the other stream at most");
    assert_eq!(to.download().unwrap_or_else(fail), [7; LEN]);
    assert_eq!(middle.download().unwrap_or_else(fail), [7; LEN]);
}

fn a_batch_waits_for_what_its_steps_read(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let [from, middle, to] = [rig.zeros(LEN, a), rig.zeros(LEN, b), rig.zeros(LEN, b)];
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.fill(&from, 7, a).unwrap_or_else(fail);
    chain(&rig, [&from, &middle, &to], b).unwrap_or_else(fail);
    gate.open();
    assert_eq!(to.download().unwrap_or_else(fail), [7; LEN]);
}

fn whoever_reads_waits_for_the_whole_batch(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    warm_up(&rig, LEN, &[a, b, c]);
    let [from, middle, to] = [rig.filled(LEN, 7, a), rig.zeros(LEN, a), rig.zeros(LEN, a)];
    let [first, last] = [rig.zeros(LEN, b), rig.zeros(LEN, c)];
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    chain(&rig, [&from, &middle, &to], a).unwrap_or_else(fail);
    rig.copy(&middle, &first, b).unwrap_or_else(fail);
    rig.copy(&to, &last, c).unwrap_or_else(fail);
    gate.open();
    assert_eq!(first.download().unwrap_or_else(fail), [7; LEN]);
    assert_eq!(last.download().unwrap_or_else(fail), [7; LEN]);
}

fn whoever_writes_waits_for_the_reads_of_a_batch(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let [from, middle, to] = [rig.filled(LEN, 7, a), rig.zeros(LEN, a), rig.zeros(LEN, a)];
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    chain(&rig, [&from, &middle, &to], a).unwrap_or_else(fail);
    rig.fill(&from, 9, b).unwrap_or_else(fail);
    gate.open();
    assert_eq!(to.download().unwrap_or_else(fail), [7; LEN]);
    assert_eq!(from.download().unwrap_or_else(fail), [9; LEN]);
}

fn memory_of_a_batch_is_not_handed_out_before_it_ran(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let [from, middle, to] = [rig.filled(LEN, 7, a), rig.zeros(LEN, b), rig.zeros(LEN, a)];
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    chain(&rig, [&from, &middle, &to], a).unwrap_or_else(fail);
    drop(middle);
    let next = rig.manager.alloc_on::<u32>(LEN, b, AllocTag("next")).unwrap_or_else(fail);
    rig.fill(&next, 9, b).unwrap_or_else(fail);
    gate.open();
    assert_eq!(to.download().unwrap_or_else(fail), [7; LEN]);
    assert_eq!(next.download().unwrap_or_else(fail), [9; LEN]);
}

fn a_batch_keeps_memory_and_refuses_what_was_freed(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, _other] = rig.streams();
    let [from, to] = [rig.filled(LEN, 7, a), rig.zeros(LEN, a)];
    for keeps in [true, false] {
        let middle = rig.zeros(LEN, a);
        let mut batch = LaunchBatch::new(&rig.runtime, a);
        copy(&rig, &mut batch, &from, &middle, a);
        copy(&rig, &mut batch, &middle, &to, a);
        if keeps {
            batch.keep(middle);
            batch.submit().unwrap_or_else(fail);
            assert_eq!(to.download().unwrap_or_else(fail), [7; LEN]);
        } else {
            drop(middle);
            let refused = batch.submit();
            assert!(matches!(refused, Err(ResourceError::UseAfterFree { .. })), "{refused:?}");
        }
    }
}

fn a_batch_downloads_behind_its_last_step(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let [from, to] = [rig.filled(LEN, 7, a), rig.zeros(LEN, a)];
    drop(to.start_download(a).and_then(Download::wait).unwrap_or_else(fail));
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    let records = rig.pool.stats().records;
    let mut batch = LaunchBatch::new(&rig.runtime, a);
    copy(&rig, &mut batch, &from, &to, a);
    let answer = batch.submit_and_download(&to.as_view()).unwrap_or_else(fail);
    let early = answer.is_done().unwrap_or_else(fail);
    rig.fill(&to, 9, b).unwrap_or_else(fail);
    gate.open();
    assert!(!early, "nothing has run");
    assert_eq!(answer.wait().unwrap_or_else(fail), [7; LEN]);
    assert_eq!(to.download().unwrap_or_else(fail), [9; LEN], "the write waited for the copy");
    assert!(rig.pool.stats().records - records <= 3, "one event for launch and copy");
}

fn a_batch_without_steps_does_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, _other] = rig.streams();
    let books = rig.books();
    LaunchBatch::new(&rig.runtime, a).submit().unwrap_or_else(fail);
    assert_eq!(rig.books(), books);
}

fn a_batch_refuses_what_is_not_its_own(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let [from, to] = [rig.filled(LEN, 7, a), rig.zeros(LEN, a)];
    let kernel = rig.kernel(&kernels::COPY_U32);
    let books = rig.books();
    let mut batch = LaunchBatch::new(&rig.runtime, a);
    let mut elsewhere = LaunchBuilder::new(&rig.runtime, &kernel, b);
    elsewhere.input(&from).output(&to).value(LEN as u64);
    assert_says(&misuse(elsewhere.launch_in(&mut batch, DIMS)), &["one stream"]);
    let mut few = LaunchBuilder::new(&rig.runtime, &kernel, a);
    few.input(&from);
    assert_says(&misuse(few.launch_in(&mut batch, DIMS)), &["takes 3 arguments", "1 were given"]);
    let mut reporting = LaunchBuilder::new(&rig.runtime, &kernel, a);
    reporting.input(&from).report::<u32>(LEN).value(LEN as u64);
    assert_says(&misuse(reporting.launch_in(&mut batch, DIMS)), &["reports", "launch_reporting"]);
    let half = from.view(..LEN / 2).unwrap_or_else(fail);
    assert_says(&misuse(batch.copy(&half, &to.as_view())), &["8 values", "16"]);
    let other = Rig::new(device);
    let mut foreign = LaunchBatch::new(&other.runtime, a);
    let mut own = LaunchBuilder::new(&rig.runtime, &kernel, a);
    own.input(&from).output(&to).value(LEN as u64);
    assert_says(&misuse(own.launch_in(&mut foreign, DIMS)), &["one runtime"]);
    batch.submit().unwrap_or_else(fail);
    assert_eq!(rig.books(), books, "nothing was enqueued");
}

/// The first step ran: what it touched is followed, though the batch failed.
fn a_batch_that_fails_halfway_is_followed_as_far_as_it_came(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let [from, middle, to] = [rig.filled(LEN, 7, a), rig.zeros(LEN, a), rig.zeros(LEN, a)];
    let seen = rig.zeros(LEN, b);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    let mut batch = LaunchBatch::new(&rig.runtime, a);
    copy(&rig, &mut batch, &from, &middle, a);
    copy(&rig, &mut batch, &middle, &to, a);
    rig.driver.fail_after(DriverCall::Launch, 1, 1);
    assert!(batch.submit().is_err_and(|error| is_injected(&error)));
    rig.copy(&middle, &seen, b).unwrap_or_else(fail);
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [7; LEN], "the read waited");
    assert_eq!(to.download().unwrap_or_else(fail), [0; LEN], "the second step never ran");
}
