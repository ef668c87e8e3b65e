//! What a launch in flight is worth when a step of it fails, is refused or never comes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use xlog_core::Access;
use xlog_cuda::{
    device_runtime::{
        AllocTag, AsyncCudaResource, BlockId, BlockUse, DeviceBlock, DeviceMemoryResource,
        ResourceError, ResourceResult, StreamId,
    },
    launch::{LaunchRecorder, dropped_recorders},
    memory::TrackedCudaSlice,
};

use super::super::support::{
    assert_says, assert_unclaimed, assert_works, comes_true, eventually, fill_raw, is_injected,
    misuse,
};
use crate::{DriverCall, Gate, Rig, TestDevice, fail};

/// Runs `work` while its stream is held, opens the gate once `work` waits for the stream, and
/// gives the answer.
fn while_held<T: Send>(rig: &Rig, gate: &Gate, work: impl FnOnce() -> T + Send) -> T {
    let before = rig.driver.count(DriverCall::SynchronizeStream);
    std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        eventually("the stream is synchronised", || {
            rig.driver.count(DriverCall::SynchronizeStream) > before || worker.is_finished()
        });
        gate.open();
        worker.join().expect("no panic")
    })
}

/// What `data` holds, read on `stream`.
fn seen_on(data: &TrackedCudaSlice<u32>, stream: StreamId) -> Vec<u32> {
    data.start_download(stream).and_then(|download| download.wait()).unwrap_or_else(fail)
}

pub(super) fn a_failed_record_is_made_good_by_synchronising(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let data = rig.zeros(64, a);
    fill_raw(&rig, &data, 0, a);
    let gate = Gate::new(&rig);
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.write(&data).preflight(&rig.runtime).unwrap_or_else(fail);
    gate.hold(&rig, a);
    fill_raw(&rig, &data, 6, a);
    rig.driver.fail_after(DriverCall::RecordEvent, 0, 1);
    let committed = while_held(&rig, &gate, || recorder.commit(&rig.runtime));
    assert!(committed.as_ref().is_err_and(is_injected), "{committed:?}");
    assert!(rig.is_idle(a), "the work was over before the error came back");
    rig.driver.heal();
    assert_eq!(seen_on(&data, b), [6; 64]);
    assert_unclaimed(&rig, &data, b);
    assert_eq!(rig.pool.stats().leaked_blocks, 0);
}

pub(super) fn a_failed_record_of_a_copy_is_made_good_by_synchronising(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let mut data = rig.zeros(64, a);
    data.upload_on(&[1; 64], a).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.driver.fail_after(DriverCall::RecordEvent, 0, 2);
    let uploaded = while_held(&rig, &gate, || data.upload_on(&[8; 64], a));
    assert!(uploaded.as_ref().is_err_and(is_injected), "{uploaded:?}");
    rig.driver.heal();
    assert!(rig.is_idle(a), "the copy was over before the error came back");
    assert_eq!(seen_on(&data, b), [8; 64], "the copy was in flight, and is protected");
    assert_unclaimed(&rig, &data, b);
}

/// A block written by held work on `a` that could be neither recorded nor waited for.
fn unprotected(rig: &Rig, gate: &Gate, a: StreamId) -> TrackedCudaSlice<u32> {
    let data = rig.zeros(64, a);
    fill_raw(rig, &data, 0, a);
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.write(&data).preflight(&rig.runtime).unwrap_or_else(fail);
    gate.hold(rig, a);
    fill_raw(rig, &data, 6, a);
    rig.driver.fail_after(DriverCall::RecordEvent, 0, 1);
    rig.driver.fail_after(DriverCall::SynchronizeStream, 0, 1);
    let committed = recorder.commit(&rig.runtime);
    assert!(committed.as_ref().is_err_and(is_injected), "{committed:?}");
    rig.driver.heal();
    data
}

pub(super) fn a_use_neither_recorded_nor_waited_for_leaks_its_block(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let gate = Gate::new(&rig);
    let data = unprotected(&rig, &gate, a);
    let (address, live) = (data.ptr(), rig.resource.live_bytes());
    drop(data);
    assert_eq!(rig.pool.stats().leaked_blocks, 1);
    assert_eq!(rig.resource.live_bytes(), live, "neither memory nor accounting is lost");
    assert_eq!(rig.resource.pending_free_bytes(), 0);
    // The address never comes back: not while the work runs, not after it, not after a reap.
    let allocate =
        |stream| rig.manager.alloc_on::<u32>(64, stream, AllocTag("next")).unwrap_or_else(fail);
    let held: Vec<_> = [a, b, a, b].map(allocate).into();
    gate.open();
    rig.runtime.synchronize(a).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    let more: Vec<_> = [a, b, a, b].map(allocate).into();
    assert!(held.iter().chain(&more).all(|slice| slice.ptr() != address));
    drop((held, more));
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.pool.stats().leaked_blocks, 1, "counted once");
    assert_eq!(rig.resource.live_bytes(), live);
    assert_works(&rig, b);
}

pub(super) fn a_leaked_block_takes_no_more_uses(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let seen = rig.zeros(64, b);
    rig.copy(&seen, &rig.zeros(64, b), b).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    let data = unprotected(&rig, &gate, a);
    // A reader that went ahead would see the bytes of before: nothing can make it wait.
    let launches = rig.driver.count(DriverCall::Launch);
    let copied = rig.copy(&data, &seen, b);
    assert_says(&copied.expect_err("refused").to_string(), &["neither recorded nor waited for"]);
    let mut recorder = LaunchRecorder::new_strict(b);
    let refusal = misuse(recorder.read(&data).preflight(&rig.runtime));
    assert_says(&refusal, &["neither recorded nor waited for"]);
    misuse(recorder.commit(&rig.runtime));
    assert_eq!(rig.driver.count(DriverCall::Launch), launches);
    assert_unclaimed(&rig, &seen, b);
    gate.open();
}

pub(super) fn a_dropped_recorder_is_reported_and_safe(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (data, seen) = (rig.zeros(64, a), rig.zeros(64, b));
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    fill_raw(&rig, &data, 0, a);
    let gate = Gate::new(&rig);
    let before = dropped_recorders();
    {
        let mut recorder = LaunchRecorder::new_strict(a);
        recorder.write(&data).preflight(&rig.runtime).unwrap_or_else(fail);
        gate.hold(&rig, a);
        fill_raw(&rig, &data, 3, a);
    }
    assert!(dropped_recorders() > before);
    assert_eq!(rig.pool.stats().dropped_recorders, 1);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    assert!(!comes_true(|| rig.is_idle(b)), "the reader waits for the dropped launch");
    // So does a free: the memory is not handed out under the running kernel.
    drop(data);
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [3; 64]);
    assert_works(&rig, b);
}

pub(super) fn a_recorder_dropped_before_preflight_is_reported(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let data = rig.zeros(8, a);
    let before = dropped_recorders();
    let mut recorder = LaunchRecorder::new_permissive(a);
    recorder.read(&data);
    drop(recorder);
    assert!(dropped_recorders() > before);
    assert_eq!(rig.resource.pending_use_event_count(data.ptr()), Some(1), "nothing was in flight");
    assert_unclaimed(&rig, &data, a);
}

pub(super) fn a_late_use_of_a_dropped_recorder_is_safe(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (first, late, seen) = (rig.zeros(64, a), rig.zeros(64, a), rig.zeros(64, b));
    rig.copy(&late, &seen, b).unwrap_or_else(fail);
    fill_raw(&rig, &first, 0, a);
    for empty_at_preflight in [false, true] {
        let gate = Gate::new(&rig);
        let mut recorder = LaunchRecorder::new_strict(a);
        if !empty_at_preflight {
            recorder.read(&first);
        }
        recorder.preflight(&rig.runtime).unwrap_or_else(fail);
        recorder.write(&late);
        gate.hold(&rig, a);
        let value = 30 + u32::from(empty_at_preflight);
        fill_raw(&rig, &late, value, a);
        drop(recorder);
        rig.copy(&late, &seen, b).unwrap_or_else(fail);
        assert!(!comes_true(|| rig.is_idle(b)), "the reader waits for the dropped launch");
        gate.open();
        assert_eq!(seen.download().unwrap_or_else(fail), [value; 64]);
    }
    assert_eq!(rig.pool.stats().dropped_recorders, 2);
}

pub(super) fn a_refused_commit_publishes_what_can_be_published(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (data, stale, seen) = (rig.zeros(64, a), rig.zeros(64, a), rig.zeros(64, b));
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    fill_raw(&rig, &data, 0, a);
    let gate = Gate::new(&rig);
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.read(&stale).write(&data);
    drop(stale);
    gate.hold(&rig, a);
    fill_raw(&rig, &data, 5, a);
    // Refused, and one block of it is gone: the other is in use by work in flight all the same.
    assert_says(&misuse(recorder.commit(&rig.runtime)), &["without a successful preflight"]);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    assert!(!comes_true(|| rig.is_idle(b)), "the reader waits for the refused launch");
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [5; 64]);
}

/// A layer that sees single uses, and fails to finish them when told to.
struct Watching {
    inner: Arc<AsyncCudaResource>,
    fail: Arc<AtomicBool>,
}

impl DeviceMemoryResource for Watching {
    fn allocate(&self, bytes: usize, on: StreamId, tag: AllocTag) -> ResourceResult<DeviceBlock> {
        self.inner.allocate(bytes, on, tag)
    }
    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        self.inner.deallocate(block)
    }
    fn device_ordinal(&self) -> u32 {
        self.inner.device_ordinal()
    }
    fn bytes_outstanding(&self) -> usize {
        self.inner.bytes_outstanding()
    }
    fn reap_pending(&self) -> ResourceResult<()> {
        self.inner.reap_pending()
    }
    fn supports_block_use_tracking(&self) -> bool {
        self.inner.supports_block_use_tracking()
    }
    fn prepare_block_use(&self, id: BlockId, on: StreamId, access: Access) -> ResourceResult<()> {
        self.inner.prepare_block_use(id, on, access)
    }
    fn finish_block_use(&self, id: BlockId, on: StreamId, access: Access) -> ResourceResult<()> {
        if self.fail.load(Ordering::SeqCst) {
            return Err(ResourceError::from("the layer is out of order"));
        }
        self.inner.finish_block_use(id, on, access)
    }
}

/// A rig whose runtime has a layer that sees single uses, and the switch that makes it fail.
pub(super) fn watched(device: TestDevice) -> (Rig, Arc<AtomicBool>) {
    let fail = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&fail);
    (Rig::decorated(device, |inner| Box::new(Watching { inner, fail })), switch)
}

pub(super) fn a_layer_that_fails_to_record_leaves_nothing_unprotected(device: TestDevice) {
    let (rig, failing) = watched(device);
    let [a, b] = rig.streams();
    let (data, seen) = (rig.zeros(64, a), rig.zeros(64, b));
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    fill_raw(&rig, &data, 0, a);
    let gate = Gate::new(&rig);
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.write(&data).preflight(&rig.runtime).unwrap_or_else(fail);
    gate.hold(&rig, a);
    fill_raw(&rig, &data, 2, a);
    failing.store(true, Ordering::SeqCst);
    let committed = recorder.commit(&rig.runtime).expect_err("the layer failed");
    assert_says(&committed.to_string(), &["out of order"]);
    failing.store(false, Ordering::SeqCst);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    assert!(!comes_true(|| rig.is_idle(b)), "the reader waits for the launch");
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [2; 64]);
    // The batch form a layer inherits passes every use on, one by one.
    let uses =
        [BlockUse::new(BlockId::from_block(seen.runtime_block().expect("a block")), Access::Write)];
    rig.runtime.prepare_uses(&uses, a).unwrap_or_else(fail);
    rig.runtime.finish_uses(&uses, a).unwrap_or_else(fail);
    assert_unclaimed(&rig, &seen, b);
}

pub(super) fn a_copy_whose_stream_check_fails_holds_no_claim(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let mut data = rig.zeros(64, a);
    // A stream whose handle is known outside is asked whether it is being captured.
    rig.pool.resolve(a).expect("a stream of the pool");
    for pass in 0..3 {
        rig.driver.fail_after(DriverCall::IsCapturing, pass, 1);
        let _ = data.upload_on(&[pass as u32; 64], a);
        rig.driver.heal();
        assert_unclaimed(&rig, &data, b);
        assert_eq!(seen_on(&data, b).len(), 64);
    }
}
