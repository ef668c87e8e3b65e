//! Drops in any order.

use std::time::Duration;

use xlog_core::MemoryBudget;
use xlog_cuda::{
    CudaDevice, GpuMemoryManager,
    device_runtime::{AsyncCudaResource, StreamId, StreamPool, XlogDeviceRuntime},
};
use xlog_driver::Driver;

use super::{super::super::support::*, *};
use crate::{Gate, LayeredDriver, TestDevice, eventually, fail};

pub(super) fn a_buffer_outlives_its_pool_its_runtime_and_its_streams(device: TestDevice) {
    let driver = Arc::new(LayeredDriver::new(device.driver()));
    let handed_out =
        || driver.count(DriverCall::AllocatePinned) - driver.count(DriverCall::FreePinned);
    let (copying, mut idle) = {
        let device = Arc::new(CudaDevice::with_driver(Arc::clone(&driver) as Arc<dyn Driver>));
        let streams = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
        let memory = AsyncCudaResource::new(Arc::clone(&device), 0, Arc::clone(&streams));
        let runtime = Arc::new(XlogDeviceRuntime::with_resource(
            Arc::clone(&device),
            0,
            streams,
            Box::new(memory),
        ));
        let pool = runtime.staging().clone();
        let manager = GpuMemoryManager::with_runtime(device, MemoryBudget::unlimited(), runtime);
        let mut slice = manager.alloc::<u32>(1000).unwrap_or_else(fail);
        let mut buffer = pool.allocate(4000).unwrap_or_else(fail);
        buffer.fill(3);
        let up = slice.start_upload_from(buffer, StreamId::DEFAULT).unwrap_or_else(fail);
        drop(up);
        let down = pool.allocate(4000).unwrap_or_else(fail);
        let down = slice.start_download_into(down, StreamId::DEFAULT).unwrap_or_else(fail);
        (down, pool.allocate(10).unwrap_or_else(fail))
    };
    // Nothing is left but what holds on to the two buffers.
    idle.fill(1);
    assert!(handed_out() >= 2);
    let arrived = copying.wait().unwrap_or_else(fail);
    assert!(arrived.iter().all(|byte| *byte == 3));
    let other = std::thread::spawn(move || drop(arrived));
    other.join().expect("dropped on another thread");
    assert!(handed_out() >= 1, "one buffer keeps its pool");
    drop(idle);
    assert_eq!(handed_out(), 0, "the pool went with its last buffer");
}

pub(super) fn a_pool_dropped_with_copies_in_flight_waits_for_them(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let pool = pool(&rig);
    let mut target = rig.filled(1000, 0, a);
    let mut buffer = pool.allocate(4000).unwrap_or_else(fail);
    buffer.values_mut::<u32>().unwrap_or_else(fail).fill(6);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    let with_gates = with_driver(&rig);
    drop(target.start_upload_from(buffer, a).unwrap_or_else(fail));
    std::thread::scope(|scope| {
        let dropping = scope.spawn(move || drop(pool));
        let early = eventually(Duration::from_millis(20), || dropping.is_finished());
        assert_eq!((early, with_driver(&rig)), (false, with_gates), "freed under a copy");
        gate.open();
    });
    assert_eq!(with_driver(&rig), with_gates - 1);
    assert_eq!(target.download().unwrap_or_else(fail), [6; 1000]);
}

pub(super) fn plain_pinned_memory_goes_back_when_it_is_dropped(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let plain = plain(&rig);
    let mut target = rig.filled(1000, 0, a);
    let mut buffer = plain.allocate(4000).unwrap_or_else(fail);
    assert_eq!((buffer.capacity(), plain.bytes_outstanding()), (4000, 4000));
    buffer.values_mut::<u32>().unwrap_or_else(fail).fill(6);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    let copy = target.start_upload_from(buffer, a).unwrap_or_else(fail);
    std::thread::scope(|scope| {
        let dropping = scope.spawn(move || drop(copy));
        assert!(!comes_true(|| dropping.is_finished()), "freed under a copy");
        gate.open();
    });
    assert_eq!(plain.bytes_outstanding(), 0);
    assert_eq!(target.download().unwrap_or_else(fail), [6; 1000]);
    let buffer = plain.allocate(10).unwrap_or_else(fail);
    drop(plain);
    drop(buffer);
    rig.runtime.trim().unwrap_or_else(fail);
    drop(gate);
    assert_eq!(with_driver(&rig), 0);
}
