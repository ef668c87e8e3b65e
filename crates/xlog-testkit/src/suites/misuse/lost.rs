//! After an error that takes the device with it, everything says so and nothing moves.

use std::sync::Arc;

use xlog_core::{Access, MemoryBudget};
use xlog_cuda::{
    GpuMemoryManager, LaunchDims,
    device_runtime::{
        AllocTag, BlockId, BlockUse, DeviceMemoryResource, DirectCudaResource, ResourceError,
        ResourceResult, XlogDeviceRuntime,
    },
    kernels,
    launch::LaunchRecorder,
};
use xlog_driver::{Arguments, Driver};

use super::super::support::{block_of, fill_raw, untracked};
use crate::{DriverCall, Gate, INJECTED, Rig, TestDevice, fail};

/// What must not move any more.
fn counters(rig: &Rig) -> [usize; 7] {
    let stats = rig.pool.stats();
    [
        rig.resource.live_bytes(),
        rig.resource.pending_free_bytes(),
        rig.resource.pending_per_stream_total(),
        rig.runtime.bytes_outstanding(),
        stats.blocks,
        stats.streams,
        stats.records as usize,
    ]
}

#[track_caller]
fn assert_lost<T: std::fmt::Debug>(what: &str, answer: ResourceResult<T>) {
    assert!(matches!(answer, Err(ResourceError::DeviceLost)), "{what}: {answer:?}");
}

pub(super) fn a_lost_device_answers_so_everywhere_and_its_counters_freeze(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let mut data = rig.zeros(64, a);
    let (other, pending, mut bare) = (rig.zeros(64, b), rig.zeros(64, a), untracked(&rig, 64));
    rig.copy(&data, &other, b).unwrap_or_else(fail);
    rig.increment(&data, 1, a).unwrap_or_else(fail);
    drop(pending);
    let direct = DirectCudaResource::new(Arc::clone(&rig.device), 0);
    let plain = direct.allocate(64, a, AllocTag("plain")).unwrap_or_else(fail);
    let extra = rig.runtime.allocate(64, a, AllocTag("extra")).unwrap_or_else(fail);
    let spare = rig.runtime.allocate(64, a, AllocTag("spare")).unwrap_or_else(fail);
    let download = data.start_download(a).unwrap_or_else(fail);
    let late = data.start_download(a).unwrap_or_else(fail);
    rig.runtime.fence().unwrap_or_else(fail);

    rig.driver.lose_device_at(DriverCall::Launch);
    let first = rig.increment(&data, 1, a);
    assert!(matches!(&first, Err(ResourceError::Driver(e)) if e.code() == INJECTED), "{first:?}");
    assert_eq!(rig.device.lost_reason().map(|reason| reason.code()), Some(INJECTED));
    let before = counters(&rig);

    let (runtime, pool, resource) = (&rig.runtime, &rig.pool, &rig.resource);
    let id = BlockId::from_block(block_of(&data));
    let uses = [BlockUse::new(id, Access::Write)];
    assert_lost("launch", rig.increment(&data, 1, b));
    assert_lost("allocate", runtime.allocate(8, a, AllocTag::UNTAGGED));
    assert_lost("prepare", runtime.prepare_block_use(id, b, Access::Read));
    assert_lost("finish", runtime.finish_block_use(id, b, Access::Read));
    assert_lost("record", runtime.record_block_use(block_of(&data), b));
    assert_lost("prepare all", runtime.prepare_uses(&uses, b));
    assert_lost("finish all", runtime.finish_uses(&uses, b));
    assert_lost("reap", runtime.reap_pending());
    assert_lost("try reap", runtime.try_reap());
    assert_lost("synchronize", runtime.synchronize(a));
    assert_lost("fence", runtime.fence());
    assert_lost("load", runtime.load_kernel(&kernels::GATE));
    let (returned, error) = runtime.try_deallocate(extra).expect_err("lost");
    assert_eq!(error, ResourceError::DeviceLost);
    assert_lost("deallocate", runtime.deallocate(returned));
    assert_lost("resource allocate", resource.allocate(8, a, AllocTag::UNTAGGED));
    assert_lost("resource prepare", resource.prepare_uses(&uses, b));
    assert_lost("resource finish", resource.finish_uses(&uses, b));
    assert_lost("resource reap", resource.reap_pending());
    assert_lost("resource try reap", resource.try_reap());
    assert_lost("resource deallocate", resource.deallocate(spare));
    assert_lost("plain allocate", direct.allocate(8, a, AllocTag::UNTAGGED));
    assert_lost("plain reap", direct.reap_pending());
    assert_lost("plain deallocate", direct.deallocate(plain));
    assert_lost("acquire", pool.acquire());
    assert_lost("release", pool.release(b));
    assert_lost("pool synchronize", pool.synchronize(a));
    assert_lost("join", pool.join(a));
    assert_lost("trim", pool.trim());
    let raw = pool.resolve(a).expect("a stream of the pool");
    // SAFETY: the stream is this device's; the call is refused.
    assert_lost("adopt", unsafe { pool.adopt(raw) });
    assert_lost("memory", rig.device.memory());
    assert_lost("device synchronize", rig.device.synchronize());
    assert_lost("device load", rig.device.load_kernel(&kernels::GATE));
    assert_lost("manager", rig.manager.alloc::<u32>(8));
    let manager = GpuMemoryManager::new(Arc::clone(&rig.device), MemoryBudget::unlimited());
    assert_lost("runtime-less manager", manager.alloc::<u32>(8));
    assert_lost("upload", data.upload(&[1; 64]));
    assert_lost("fill", data.fill_bytes(1, b));
    assert_lost("copy", data.copy_from(&other, b));
    assert_lost("download", data.download());
    assert_lost("start download", data.start_download(b));
    assert_lost("runtime-less upload", bare.upload(&[1; 64]));
    assert_lost("runtime-less download", bare.download());
    assert_lost("is done", download.is_done());
    assert_lost("wait", late.wait());
    let mut recorder = LaunchRecorder::new_strict(a);
    assert_lost("preflight", recorder.read(&data).preflight(runtime));
    drop(recorder);
    let again = XlogDeviceRuntime::try_with_resource(
        Arc::clone(&rig.device),
        0,
        Arc::clone(pool),
        Box::new(Arc::clone(resource)),
    );
    assert_lost("another runtime", again);
    drop((data, other, bare, download));
    assert_eq!(counters(&rig), before, "counters freeze");
    assert_eq!(direct.bytes_outstanding(), 64);
    // Healing the driver does not bring the device back.
    rig.driver.heal();
    assert_lost("healed", rig.manager.alloc::<u32>(8));
    assert_eq!(counters(&rig), before);
}

pub(super) fn whatever_call_loses_the_device_everything_after_it_says_so(device: TestDevice) {
    let calls = [
        DriverCall::Memory,
        DriverCall::SynchronizeDevice,
        DriverCall::CreateStream,
        DriverCall::SynchronizeStream,
        DriverCall::RecordEvent,
        DriverCall::WaitEvent,
        DriverCall::AllocateOn,
        DriverCall::FreeOn,
        DriverCall::CopyToDevice,
        DriverCall::CopyToHost,
        DriverCall::CopyOnDevice,
        DriverCall::FillBytes,
        DriverCall::LoadKernel,
        DriverCall::Launch,
    ];
    for call in calls {
        let rig = Rig::new(device);
        let [a, b] = rig.streams();
        let (mut data, mut other) = (rig.zeros(64, a), rig.zeros(64, b));
        rig.increment(&data, 1, a).unwrap_or_else(fail);
        // A staging buffer, so that no pinned memory is asked for under a held stream.
        assert_eq!(other.download().unwrap_or_else(fail), [0; 64]);
        let gate = Gate::new(&rig);
        gate.hold(&rig, a);
        rig.increment(&data, 1, a).unwrap_or_else(fail);
        let spare = rig.zeros(64, b);
        rig.driver.lose_device_at(call);
        let cause: ResourceResult<()> = match call {
            DriverCall::Memory => rig.device.memory().map(drop),
            DriverCall::SynchronizeDevice => rig.device.synchronize(),
            DriverCall::CreateStream => rig.pool.acquire().map(drop),
            DriverCall::SynchronizeStream => rig.runtime.synchronize(b),
            DriverCall::RecordEvent => rig.increment(&other, 1, b),
            DriverCall::WaitEvent => rig.increment(&data, 1, b),
            DriverCall::AllocateOn => rig.manager.alloc::<u32>(8).map(drop),
            DriverCall::FreeOn => {
                drop(spare);
                Err("a drop says nothing".into())
            }
            DriverCall::CopyToDevice => other.upload_on(&[1; 64], b),
            DriverCall::CopyToHost => other.download().map(drop),
            DriverCall::CopyOnDevice => other.copy_from(&data, a),
            DriverCall::FillBytes => data.fill_bytes(1, a),
            // One that nobody has loaded yet: the others are known.
            DriverCall::LoadKernel => rig.runtime.load_kernel(&kernels::EMPTY_READ_8).map(drop),
            _ => rig.increment(&other, 1, b),
        };
        assert!(matches!(cause, Err(ResourceError::Driver(_))), "{call:?}: {cause:?}");
        assert_eq!(rig.device.lost_reason().map(|reason| reason.code()), Some(INJECTED));
        let before = counters(&rig);
        assert_lost("launch", rig.increment(&data, 1, b));
        assert_lost("alloc", rig.manager.alloc::<u32>(8));
        assert_lost("reap", rig.runtime.reap_pending());
        drop((data, other));
        assert_eq!(counters(&rig), before, "{call:?}");
        rig.driver.heal();
        gate.open();
    }
}

pub(super) fn launches_between_preflight_and_commit_survive_the_loss(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (data, other) = (rig.zeros(64, a), rig.zeros(64, b));
    let mut committed = LaunchRecorder::new_strict(a);
    committed.write(&data).preflight(&rig.runtime).unwrap_or_else(fail);
    let mut dropped = LaunchRecorder::new_strict(b);
    dropped.write(&other).preflight(&rig.runtime).unwrap_or_else(fail);
    fill_raw(&rig, &data, 1, a);
    rig.driver.lose_device_at(DriverCall::Memory);
    assert!(rig.device.memory().is_err());
    assert_lost("commit", committed.commit(&rig.runtime));
    drop(dropped);
    assert_lost("launch", rig.increment(&data, 1, a));
    let live = rig.resource.live_bytes();
    drop((data, other));
    assert_eq!(rig.resource.live_bytes(), live);
}

pub(super) fn a_kernel_that_faults_loses_the_device(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let data = rig.zeros(8, a);
    rig.driver.lose_device_at(DriverCall::SynchronizeStream);
    let noticed = rig.runtime.synchronize(a).expect_err("the device is lost");
    assert!(matches!(noticed, ResourceError::Driver(_)), "the first to notice hears why");
    assert_lost("launch", rig.increment(&data, 1, a));
    if device == TestDevice::Host {
        faults_on_the_host(device);
    }
}

/// Real faults. A GPU that has one takes every later test of the process with it.
fn faults_on_the_host(device: TestDevice) {
    for (address, text) in [(0, "null pointer"), (0x1001, "misaligned")] {
        let rig = Rig::new(device);
        let [a, b] = rig.streams();
        let data = rig.zeros(64, a);
        let mut arguments = Arguments::new();
        arguments.push_pointer(address);
        arguments.push_value(1u32);
        arguments.push_value(64u64);
        rig.launch_raw(&kernels::FILL_U32, &arguments, LaunchDims::for_elements(64), b);
        let noticed = rig.runtime.synchronize(b).expect_err("the kernel faulted");
        assert!(noticed.to_string().contains(text), "{noticed}");
        let before = counters(&rig);
        assert_lost("launch", rig.increment(&data, 1, a));
        assert_lost("alloc", rig.manager.alloc::<u32>(8));
        assert_lost("download", data.download());
        assert!(rig.driver.synchronize_device().is_err(), "the driver itself answers the same");
        drop(data);
        assert_eq!(counters(&rig), before);
        assert!(rig.device.lost_reason().is_some_and(|reason| reason.is_sticky()));
    }
}
