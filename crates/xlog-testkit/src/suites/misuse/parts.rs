//! Pools, runtimes and kernels put together wrongly.

use std::sync::Arc;

use xlog_core::Access;
use xlog_cuda::{
    CudaDevice,
    device_runtime::{
        AllocTag, AsyncCudaResource, BlockId, DeviceMemoryResource, DirectCudaResource,
        ResourceError, ResourceResult, StreamId, StreamPool, XlogDeviceRuntime,
    },
    kernels,
    launch::LaunchRecorder,
};
use xlog_driver::{Driver, RawStream};

use super::super::support::{
    assert_says, assert_unclaimed, assert_works, block_of, is_injected, misuse,
};
use crate::{DriverCall, Rig, TestDevice, fail};

pub(super) fn a_pool_refuses_what_it_cannot_do(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let before = rig.books();
    assert_says(&misuse(rig.pool.release(StreamId::DEFAULT)), &["cannot be released"]);
    assert_eq!(rig.books(), before);
    assert!(rig.pool.contains(StreamId::DEFAULT) && rig.pool.contains(stream));
    // A stream the driver refuses to make is an error, and takes no room.
    rig.driver.fail_after(DriverCall::CreateStream, 0, 1);
    assert!(rig.pool.acquire().as_ref().is_err_and(is_injected));
    assert_eq!(rig.books(), before);
    assert_works(&rig, rig.pool.acquire().unwrap_or_else(fail));
}

pub(super) fn a_pool_too_large_is_refused(device: TestDevice) {
    let rig = Rig::new(device);
    for capacity in [63, 1000, usize::MAX] {
        let refused = StreamPool::with_capacity(Arc::clone(&rig.device), capacity);
        assert_says(&misuse(refused), &[&capacity.to_string(), "62"]);
    }
    let none = StreamPool::with_capacity(Arc::clone(&rig.device), 0).unwrap_or_else(fail);
    assert_says(&misuse(none.acquire()), &["0 of 0"]);
    assert!(none.contains(StreamId::DEFAULT));
}

pub(super) fn a_full_pool_is_an_error_and_recovers(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; 32] = rig.streams();
    let before = rig.books();
    assert_says(&misuse(rig.pool.acquire()), &["32 of 32", "with_capacity"]);
    assert_eq!(rig.books(), before);
    rig.pool.release(streams[5]).unwrap_or_else(fail);
    let fresh = rig.pool.acquire().unwrap_or_else(fail);
    assert!(!streams.contains(&fresh), "an id is never used again");
    assert!(rig.pool.resolve(streams[5]).is_none());
    misuse(rig.pool.acquire());
    assert_works(&rig, fresh);
}

pub(super) fn a_stream_in_use_is_not_released(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream, other] = rig.streams();
    let data = rig.zeros(8, stream);
    assert_says(&misuse(rig.pool.release(stream)), &["live blocks", "reap_pending"]);
    let mut recorder = LaunchRecorder::new_strict(other);
    recorder.read(&data).preflight(&rig.runtime).unwrap_or_else(fail);
    assert_says(&misuse(rig.pool.release(other)), &["between its preflight and its commit"]);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    rig.pool.release(other).unwrap_or_else(fail);
    drop(data);
    misuse(rig.pool.release(stream));
    assert_works(&rig, stream);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    rig.pool.release(stream).unwrap_or_else(fail);
    misuse(rig.pool.release(stream));
    assert_works(&rig, StreamId::DEFAULT);
}

pub(super) fn default_streams_of_the_driver_are_not_adopted(device: TestDevice) {
    let rig = Rig::new(device);
    let before = rig.books();
    for raw in [0, 1, 2] {
        // SAFETY: refused before the handle is looked at, which is what is shown here.
        let adopted = unsafe { rig.pool.adopt(RawStream(raw)) };
        assert_says(&misuse(adopted), &["default streams", "non-blocking"]);
    }
    assert_eq!(rig.books(), before);
    // Another library's stream takes part like any other, and stays that library's.
    let raw = rig.driver.create_stream().unwrap_or_else(fail);
    // SAFETY: the stream is this device's, and is destroyed after it is released.
    let adopted = unsafe { rig.pool.adopt(raw) }.unwrap_or_else(fail);
    assert_eq!(rig.pool.resolve(adopted), Some(raw));
    assert_works(&rig, adopted);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    rig.pool.release(adopted).unwrap_or_else(fail);
    // SAFETY: as above; nobody uses it any more.
    unsafe { rig.driver.destroy_stream(raw) }.unwrap_or_else(fail);
}

pub(super) fn a_captured_stream_is_refused_with_nothing_enqueued(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream, other] = rig.streams();
    let mut data = rig.zeros(8, stream);
    // Only a stream whose handle is known outside can be captured by somebody.
    rig.pool.resolve(stream).expect("a stream of the pool");
    let id = BlockId::from_block(block_of(&data));
    rig.driver.set_capturing(true);
    let before = rig.books();
    let mut recorder = LaunchRecorder::new_strict(stream);
    recorder.write(&data);
    let answers: [ResourceResult<()>; 7] = [
        recorder.preflight(&rig.runtime),
        rig.increment(&data, 1, stream),
        data.upload_on(&[1; 8], stream),
        rig.runtime.prepare_block_use(id, stream, Access::Read),
        rig.runtime.allocate(8, stream, AllocTag::UNTAGGED).map(drop),
        rig.runtime.synchronize(stream),
        rig.pool.join(stream),
    ];
    for answer in answers {
        assert_says(&misuse(answer), &["captured into a graph", &stream.0.to_string()]);
    }
    let raw = rig.driver.create_stream().unwrap_or_else(fail);
    // SAFETY: the stream is this device's; it is not adopted in the end.
    assert_says(&misuse(unsafe { rig.pool.adopt(raw) }), &["captured"]);
    assert_eq!(rig.books(), before);
    rig.driver.set_capturing(false);
    // SAFETY: nobody has it but this test.
    unsafe { rig.driver.destroy_stream(raw) }.unwrap_or_else(fail);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_unclaimed(&rig, &data, other);
    assert_works(&rig, stream);
}

/// Every call of a runtime whose parts do not belong together.
fn assert_mismatched(runtime: &XlogDeviceRuntime) {
    let tag = AllocTag("mismatched");
    let block = runtime.allocate(64, StreamId::DEFAULT, tag);
    let id = BlockId {
        ptr: 0x100,
        generation: xlog_cuda::device_runtime::Generation(1),
        alloc_stream: StreamId::DEFAULT,
        device_ordinal: runtime.device_ordinal(),
    };
    let answers: [ResourceResult<()>; 7] = [
        block.map(drop),
        runtime.reap_pending(),
        runtime.try_reap(),
        runtime.prepare_block_use(id, StreamId::DEFAULT, Access::Read),
        runtime.finish_block_use(id, StreamId::DEFAULT, Access::Read),
        runtime.synchronize(StreamId::DEFAULT),
        runtime.load_kernel(&kernels::FILL_U32).map(drop),
    ];
    for answer in answers {
        assert!(matches!(answer, Err(ResourceError::Driver(_))), "{answer:?}");
    }
    assert_eq!(runtime.bytes_outstanding(), 0);
}

pub(super) fn parts_that_do_not_belong_together_are_refused_by_every_call(device: TestDevice) {
    let (rig, other) = (Rig::new(device), Rig::new(device));
    let make = |of: &Rig, pool: &Arc<StreamPool>| {
        AsyncCudaResource::new(Arc::clone(&of.device), 0, Arc::clone(pool))
    };
    let runtime = |of: &Rig, ordinal, pool: &Arc<StreamPool>, resource| {
        let parts = (Arc::clone(&of.device), Arc::clone(pool));
        XlogDeviceRuntime::with_resource(parts.0, ordinal, parts.1, resource)
    };
    // A pool of another device; a resource of another pool; a resource of another number.
    assert_mismatched(&runtime(&rig, 0, &other.pool, Box::new(make(&rig, &rig.pool))));
    assert_mismatched(&runtime(&rig, 0, &rig.pool, Box::new(make(&other, &other.pool))));
    assert_mismatched(&runtime(&rig, 1, &rig.pool, Box::new(make(&rig, &rig.pool))));
    let second = Arc::new(StreamPool::with_defaults(Arc::clone(&rig.device)));
    assert_mismatched(&runtime(&rig, 0, &rig.pool, Box::new(make(&rig, &second))));
    let refused = XlogDeviceRuntime::try_with_resource(
        Arc::clone(&rig.device),
        0,
        Arc::clone(&other.pool),
        Box::new(make(&rig, &rig.pool)),
    );
    assert_says(&refused.expect_err("two devices").to_string(), &["another device"]);
    let good = XlogDeviceRuntime::try_with_resource(
        Arc::clone(&rig.device),
        0,
        Arc::clone(&rig.pool),
        Box::new(Arc::clone(&rig.resource)),
    );
    assert!(good.is_ok());
    // The resource by itself refuses, too.
    let split = make(&rig, &other.pool);
    let refused = split.allocate(8, StreamId::DEFAULT, AllocTag::UNTAGGED);
    assert_says(&refused.expect_err("two devices").to_string(), &["another device"]);
    assert!(split.reap_pending().is_err() && split.live_bytes() == 0);
    if device == TestDevice::Cuda {
        // Only the host device takes whatever number it is given.
        assert_mismatched(&runtime(&rig, 3, &rig.pool, Box::new(make(&rig, &rig.pool))));
        let direct = DirectCudaResource::new(Arc::clone(&rig.device), 3);
        assert!(direct.allocate(8, StreamId::DEFAULT, AllocTag::UNTAGGED).is_err());
    } else {
        let direct = DirectCudaResource::new(Arc::new(CudaDevice::host()), 3);
        let block = direct.allocate(8, StreamId::DEFAULT, AllocTag::UNTAGGED);
        direct.deallocate(block.unwrap_or_else(fail)).unwrap_or_else(fail);
    }
    assert_works(&rig, StreamId::DEFAULT);
    assert_works(&other, StreamId::DEFAULT);
}

pub(super) fn a_kernel_that_does_not_load_is_an_error(device: TestDevice) {
    let rig = Rig::new(device);
    rig.driver.fail_after(DriverCall::LoadKernel, 0, 2);
    assert!(rig.runtime.load_kernel(&kernels::FILL_U32).as_ref().is_err_and(is_injected));
    assert!(rig.device.load_kernel(&kernels::FILL_U32).as_ref().is_err_and(is_injected));
    let kernel = rig.runtime.load_kernel(&kernels::FILL_U32).unwrap_or_else(fail);
    assert!(std::ptr::eq(kernel.definition(), &kernels::FILL_U32));
    assert_works(&rig, StreamId::DEFAULT);
}
