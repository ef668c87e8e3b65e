//! Uploads, downloads, copies and fills, each ordered like any launch.

use std::sync::Arc;

use xlog_core::MemoryBudget;
use xlog_cuda::{
    GpuMemoryManager, LaunchDims,
    device_runtime::{AllocTag, DirectCudaResource, StreamId, XlogDeviceRuntime},
    kernels,
    launch::{DeviceElement, LaunchBuilder},
    memory::TrackedCudaSlice,
};

use super::super::support::{Random, assert_says, assert_works, comes_true, untracked};
use crate::{DriverCall, Gate, Rig, TestDevice, fail};

/// What the runtime stages at a time.
const PIECE: usize = 8 << 20;

fn round_trip<T: DeviceElement + PartialEq + std::fmt::Debug>(
    rig: &Rig,
    [up, down]: [StreamId; 2],
    value: impl Fn(u64) -> T,
) {
    let mut random = Random::new();
    let values: Vec<T> = (0..777).map(|_| value(random.next())).collect();
    let mut slice = rig.manager.alloc_on::<T>(777, up, AllocTag("typed")).unwrap_or_else(fail);
    slice.upload(&values).unwrap_or_else(fail);
    assert_eq!(slice.download().unwrap_or_else(fail), values);
    let reversed: Vec<T> = values.iter().rev().copied().collect();
    slice.upload_on(&reversed, down).unwrap_or_else(fail);
    let download = slice.start_download(up).unwrap_or_else(fail);
    assert_eq!(download.wait().unwrap_or_else(fail), reversed);
}

pub(super) fn every_type_comes_back_as_it_was_uploaded(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    for streams in [[a, b], [b, a], [StreamId::DEFAULT, a], [a, StreamId::DEFAULT]] {
        round_trip(&rig, streams, |x| x as u8);
        round_trip(&rig, streams, |x| x as u32);
        round_trip(&rig, streams, |x| x);
        round_trip(&rig, streams, |x| x as i32);
        round_trip(&rig, streams, |x| x as i64);
        round_trip(&rig, streams, |x| x as i32 as f32);
        round_trip(&rig, streams, |x| x as i64 as f64);
    }
}

pub(super) fn a_large_upload_goes_in_pieces(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    for bytes in [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 12345] {
        let mut random = Random::new();
        let mut values = vec![0u8; bytes];
        values.chunks_mut(8).for_each(|chunk| {
            let word = random.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        });
        let mut slice =
            rig.manager.alloc_on::<u8>(bytes, a, AllocTag("large")).unwrap_or_else(fail);
        let copies = rig.driver.count(DriverCall::CopyToDevice);
        slice.upload_on(&values, b).unwrap_or_else(fail);
        let pieces = rig.driver.count(DriverCall::CopyToDevice) - copies;
        assert_eq!(pieces, bytes.div_ceil(PIECE) as u64);
        assert!(slice.download().unwrap_or_else(fail) == values, "{bytes} bytes differ");
    }
    // A failure in the second piece is an error, and leaves the slice usable.
    let mut slice =
        rig.manager.alloc_on::<u8>(2 * PIECE, a, AllocTag("large")).unwrap_or_else(fail);
    rig.driver.fail_after(DriverCall::CopyToDevice, 1, 1);
    assert!(slice.upload_on(&vec![1; 2 * PIECE], b).is_err());
    slice.upload_on(&vec![2; 2 * PIECE], a).unwrap_or_else(fail);
    assert!(slice.download().unwrap_or_else(fail).iter().all(|byte| *byte == 2));
}

pub(super) fn uploaded_values_are_copied_before_the_call_returns(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let mut slice = rig.zeros(1000, stream);
    slice.upload_on(&[0; 1000], stream).unwrap_or_else(fail);
    // The staging buffer is at rest: pinned memory is not asked for under a held stream.
    rig.runtime.synchronize(stream).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, stream);
    let mut values = vec![5u32; 1000];
    slice.upload_on(&values, stream).unwrap_or_else(fail);
    values.fill(6);
    gate.open();
    assert_eq!(slice.download().unwrap_or_else(fail), [5; 1000]);
}

pub(super) fn copies_and_fills_run_on_the_chosen_stream(device: TestDevice) {
    let rig = Rig::new(device);
    let [home, chosen] = rig.streams();
    let (mut from, mut to) = (rig.zeros(100, home), rig.zeros(100, home));
    from.upload_on(&[1; 100], chosen).unwrap_or_else(fail);
    to.copy_from(&from, chosen).unwrap_or_else(fail);
    rig.runtime.fence().unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, chosen);
    from.fill_bytes(0xab, chosen).unwrap_or_else(fail);
    to.copy_from(&from, chosen).unwrap_or_else(fail);
    assert!(rig.is_idle(home), "nothing went to the slice's own stream");
    assert!(!comes_true(|| rig.is_idle(chosen)));
    // Reading back on the home stream waits for the chosen one.
    let download = to.start_download(home).unwrap_or_else(fail);
    assert!(!comes_true(|| rig.is_idle(home)));
    gate.open();
    assert_eq!(download.wait().unwrap_or_else(fail), [0xabab_abab; 100]);
    from.upload_on(&[9; 100], chosen).unwrap_or_else(fail);
    to.copy_from(&from, home).unwrap_or_else(fail);
    assert_eq!(to.download().unwrap_or_else(fail), [9; 100]);
}

pub(super) fn a_download_does_not_block_until_it_is_waited_for(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let slice = rig.zeros(100, stream);
    rig.fill(&slice, 1, stream).unwrap_or_else(fail);
    assert_eq!(slice.download().unwrap_or_else(fail), [1; 100]);
    let gate = Gate::new(&rig);
    gate.hold(&rig, stream);
    rig.fill(&slice, 2, stream).unwrap_or_else(fail);
    let download = slice.start_download(stream).unwrap_or_else(fail);
    assert!(!download.is_done().unwrap_or_else(fail), "the stream is held");
    // What is enqueued behind it does not change what it brings.
    rig.fill(&slice, 3, stream).unwrap_or_else(fail);
    assert!(!comes_true(|| download.is_done().unwrap_or_else(fail)));
    gate.open();
    rig.runtime.synchronize(stream).unwrap_or_else(fail);
    assert!(download.is_done().unwrap_or_else(fail));
    assert_eq!(download.wait().unwrap_or_else(fail), [2; 100]);
}

pub(super) fn a_dropped_download_keeps_its_memory_until_the_copy_is_done(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (source, mut other) = (rig.zeros(1000, a), rig.zeros(1000, b));
    rig.fill(&source, 1, a).unwrap_or_else(fail);
    // One staging buffer of that size is at rest.
    other.upload_on(&[0; 1000], b).unwrap_or_else(fail);
    rig.runtime.fence().unwrap_or_else(fail);
    let (first, second) = (Gate::new(&rig), Gate::new(&rig));
    first.hold(&rig, a);
    second.hold(&rig, b);
    drop(source.start_download(a).unwrap_or_else(fail));
    // Were the buffer handed out again, the dropped copy would arrive in the middle of this one.
    other.upload_on(&[2; 1000], b).unwrap_or_else(fail);
    first.open();
    rig.runtime.synchronize(a).unwrap_or_else(fail);
    second.open();
    assert_eq!(other.download().unwrap_or_else(fail), [2; 1000]);
}

pub(super) fn a_download_on_another_stream_waits_for_the_writer(device: TestDevice) {
    let rig = Rig::new(device);
    let [writer, reader] = rig.streams();
    let mut slice = rig.zeros(100, writer);
    rig.fill(&slice, 0, writer).unwrap_or_else(fail);
    // Two staging buffers, so that no pinned memory is asked for under a held stream.
    let first = slice.start_download(writer).unwrap_or_else(fail);
    slice.upload_on(&[0; 100], writer).unwrap_or_else(fail);
    assert_eq!(first.wait().unwrap_or_else(fail), [0; 100]);
    rig.runtime.synchronize(writer).unwrap_or_else(fail);
    for upload in [false, true] {
        let gate = Gate::new(&rig);
        gate.hold(&rig, writer);
        if upload {
            slice.upload_on(&[8; 100], writer).unwrap_or_else(fail);
        } else {
            rig.fill(&slice, 8, writer).unwrap_or_else(fail);
        }
        let download = slice.start_download(reader).unwrap_or_else(fail);
        assert!(!comes_true(|| download.is_done().unwrap_or_else(fail)));
        gate.open();
        assert_eq!(download.wait().unwrap_or_else(fail), [8; 100]);
        slice.fill_bytes(0, writer).unwrap_or_else(fail);
    }
}

pub(super) fn an_upload_waits_for_the_readers_before_it(device: TestDevice) {
    let rig = Rig::new(device);
    let [reader, writer] = rig.streams();
    let (mut slice, seen) = (rig.zeros(100, reader), rig.zeros(100, reader));
    slice.upload_on(&[4; 100], writer).unwrap_or_else(fail);
    rig.copy(&slice, &seen, reader).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, reader);
    rig.copy(&slice, &seen, reader).unwrap_or_else(fail);
    slice.upload_on(&[5; 100], writer).unwrap_or_else(fail);
    assert!(!comes_true(|| rig.is_idle(writer)));
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [4; 100]);
    assert_eq!(slice.download().unwrap_or_else(fail), [5; 100]);
}

pub(super) fn lengths_that_differ_are_refused_with_nothing_enqueued(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (tracked, bare) = (rig.zeros(10, stream), untracked(&rig, 10));
    let (longer, bare_longer) = (rig.zeros(11, stream), untracked(&rig, 11));
    let before = rig.books();
    for (mut slice, other) in [(tracked, longer), (bare, bare_longer)] {
        for wrong in [&[0u32; 9][..], &[0; 11], &[]] {
            let refused = slice.upload(wrong).expect_err("another length").to_string();
            assert_says(&refused, &[&format!("{} values", wrong.len()), "range of 10"]);
            assert!(slice.upload_on(wrong, stream).is_err());
        }
        let refused = slice.copy_from(&other, stream).expect_err("another length").to_string();
        assert_says(&refused, &["11 values", "range of 10"]);
        assert_eq!(rig.books(), before);
        std::mem::forget((slice, other));
    }
    assert_works(&rig, stream);
}

pub(super) fn copies_between_devices_are_refused(device: TestDevice) {
    let (rig, other) = (Rig::new(device), Rig::new(device));
    let mut here = rig.zeros(10, StreamId::DEFAULT);
    let there = other.zeros(10, StreamId::DEFAULT);
    let (before, theirs) = (rig.books(), other.books());
    let refused = here.copy_from(&there, StreamId::DEFAULT).expect_err("two devices");
    assert_says(&refused.to_string(), &["different devices", "download and upload"]);
    assert_eq!((rig.books(), other.books()), (before, theirs));
    for unknown in [StreamId(4711), StreamId(u32::MAX)] {
        let before = rig.books();
        assert!(here.upload_on(&[1; 10], unknown).is_err());
        assert!(here.fill_bytes(1, unknown).is_err());
        assert!(here.start_download(unknown).is_err());
        let source = rig.manager.alloc::<u32>(10).unwrap_or_else(fail);
        assert!(here.copy_from(&source, unknown).is_err());
        drop(source);
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!(rig.books().ignoring_frees(), before.ignoring_frees());
    }
    assert_eq!(here.download().unwrap_or_else(fail), [0; 10]);
}

pub(super) fn untracked_memory_is_copied_with_the_device_at_rest(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let direct = DirectCudaResource::new(Arc::clone(&rig.device), 0);
    let runtime = Arc::new(XlogDeviceRuntime::with_resource(
        Arc::clone(&rig.device),
        0,
        Arc::clone(&rig.pool),
        Box::new(direct),
    ));
    let manager = GpuMemoryManager::with_runtime(
        Arc::clone(&rig.device),
        MemoryBudget::unlimited(),
        Arc::clone(&runtime),
    );
    let plain: TrackedCudaSlice<u32> = manager.alloc(100).unwrap_or_else(fail);
    for mut slice in [untracked(&rig, 100), plain] {
        let values: Vec<u32> = (0..100).collect();
        slice.upload_on(&values, stream).unwrap_or_else(fail);
        // Work past the recorder, which nobody can know of, is over before the copy.
        let gate = Gate::new(&rig);
        gate.hold(&rig, stream);
        super::super::support::fill_raw(&rig, &slice, 7, stream);
        let seen = std::thread::scope(|scope| {
            let reading = scope.spawn(|| slice.download().unwrap_or_else(fail));
            assert!(!comes_true(|| reading.is_finished()), "read under a running kernel");
            gate.open();
            reading.join().expect("no panic")
        });
        assert_eq!(seen, [7; 100]);
        let download = slice.start_download(stream).unwrap_or_else(fail);
        assert!(download.is_done().unwrap_or_else(fail), "it waited already");
        assert_eq!(download.wait().unwrap_or_else(fail), [7; 100]);
        slice.fill_bytes(1, stream).unwrap_or_else(fail);
        let mut tracked = rig.zeros(100, stream);
        tracked.copy_from(&slice, stream).unwrap_or_else(fail);
        assert_eq!(tracked.download().unwrap_or_else(fail), [0x0101_0101; 100]);
        rig.fill(&tracked, 3, stream).unwrap_or_else(fail);
        slice.copy_from(&tracked, stream).unwrap_or_else(fail);
        assert_eq!(slice.download().unwrap_or_else(fail), [3; 100]);
    }
    let kernel = runtime.load_kernel(&kernels::EMPTY_1).unwrap_or_else(fail);
    let slice = manager.alloc::<u32>(1).unwrap_or_else(fail);
    let mut launched = LaunchBuilder::new(&runtime, &kernel, stream);
    launched.in_out(&slice);
    assert!(launched.launch(LaunchDims::linear(1, 1)).is_err(), "not tracked, not launched");
}
