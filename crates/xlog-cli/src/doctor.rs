//! `xlog doctor`: what device there is, what works on it, and what to do about what does not.

use std::sync::Arc;

use xlog_core::MemoryBudget;
use xlog_cuda::{
    CudaDevice, GpuMemoryManager, LaunchDims,
    device_runtime::{
        AllocTag, AsyncCudaResource, ResourceResult, StreamId, StreamPool, XlogDeviceRuntime,
    },
    kernels,
    launch::LaunchBuilder,
};
use xlog_driver::{DeviceKind, cuda::CudaDriver};

use crate::{
    Failure,
    device::{DeviceChoice, label},
};

/// Looks at the machine and at one device.
pub(crate) fn run(choice: &DeviceChoice) -> Result<(), Failure> {
    crate::say!("xlog {}", env!("CARGO_PKG_VERSION"));
    crate::say!("  kernels             need CUDA {} or newer", written(minimum_version()));
    crate::say!("\nCUDA driver");
    match CudaDriver::probe() {
        Ok(found) => {
            crate::say!("  version             {}", found.version());
            crate::say!("  devices             {}", found.device_count);
            if let Err(error) = found.require_supported() {
                crate::say!("  ✗ {error}");
            }
        }
        Err(error) => crate::say!("  ✗ {error}"),
    }
    let device = Arc::new(choice.open()?);
    describe(&device)?;
    let failed = check_features(&device);
    crate::say!("");
    if failed == 0 {
        crate::say!("everything works on {}", label(&device));
        if device.info().kind == DeviceKind::Host {
            crate::say!(
                "the same programs run on a GPU as they are: install its driver, nothing else"
            );
        }
        return Ok(());
    }
    Err(format!("{failed} features do not work on {}; see above", label(&device)))?
}

fn minimum_version() -> u32 {
    CudaDriver::MINIMUM_DRIVER_VERSION
}

fn written(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn describe(device: &CudaDevice) -> Result<(), Failure> {
    let info = device.info();
    let memory = device.memory()?;
    crate::say!("\nDevice {}", label(device));
    crate::say!("  name                {}", info.name);
    if info.kind == DeviceKind::Cuda {
        let (major, minor) = info.compute_capability;
        crate::say!("  compute capability  {major}.{minor}");
        crate::say!("  multiprocessors     {}", info.multiprocessors);
    } else {
        crate::say!("  threads             {}", info.multiprocessors);
    }
    crate::say!("  memory              {} free of {}", size(memory.free), size(memory.total));
    Ok(())
}

/// Bytes as people read them.
fn size(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib >= 1.0 { format!("{gib:.1} GiB") } else { format!("{} MiB", bytes >> 20) }
}

/// A feature, how to try it, and what to do if it fails.
type Feature = (&'static str, fn(&Bench) -> ResourceResult<bool>, &'static str);

const FEATURES: &[Feature] = &[
    (
        "stream-ordered memory",
        stream_ordered_memory,
        "the device has no memory pools: use DirectCudaResource, or a newer GPU or driver",
    ),
    (
        "kernels",
        kernels_run,
        "the shipped PTX did not load or gave a wrong result: update the driver to R580 or newer",
    ),
    (
        "copies through pinned memory",
        copies,
        "pinned memory could not be had: raise the locked-memory limit (ulimit -l)",
    ),
    (
        "hand-over between streams",
        hand_over,
        "work on one stream did not wait for another: report this, with this output",
    ),
    (
        "free behind the last use",
        free_and_reap,
        "freed memory was not given back: report this, with this output",
    ),
];

/// A small runtime to try features on.
struct Bench {
    pool: Arc<StreamPool>,
    runtime: Arc<XlogDeviceRuntime>,
    manager: GpuMemoryManager,
}

/// Tries every feature; answers how many do not work.
fn check_features(device: &Arc<CudaDevice>) -> usize {
    crate::say!("\nFeatures");
    let pool = Arc::new(StreamPool::with_defaults(Arc::clone(device)));
    let ordinal = device.info().ordinal;
    let resource = AsyncCudaResource::new(Arc::clone(device), ordinal, Arc::clone(&pool));
    let runtime = Arc::new(XlogDeviceRuntime::with_resource(
        Arc::clone(device),
        ordinal,
        Arc::clone(&pool),
        Box::new(resource),
    ));
    let manager = GpuMemoryManager::with_runtime(
        Arc::clone(device),
        MemoryBudget::unlimited(),
        Arc::clone(&runtime),
    );
    let bench = Bench { pool, runtime, manager };
    let mut failed = 0;
    for (name, attempt, advice) in FEATURES {
        let problem = match attempt(&bench) {
            Ok(true) => {
                crate::say!("  ✓ {name}");
                continue;
            }
            Ok(false) => "wrong result".to_owned(),
            Err(error) => error.to_string(),
        };
        failed += 1;
        crate::say!("  ✗ {name}: {problem}\n    {advice}");
    }
    failed
}

const LEN: usize = 4096;

fn stream_ordered_memory(bench: &Bench) -> ResourceResult<bool> {
    let block = bench.runtime.allocate(1 << 20, StreamId::DEFAULT, AllocTag("doctor"))?;
    bench.runtime.deallocate(block)?;
    Ok(true)
}

fn kernels_run(bench: &Bench) -> ResourceResult<bool> {
    let numbers: Vec<u32> = (0..LEN as u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let mut input = bench.manager.alloc::<u32>(LEN)?;
    let mut sum = bench.manager.alloc::<u64>(1)?;
    input.upload(&numbers)?;
    sum.fill_bytes(0, StreamId::DEFAULT)?;
    let checksum = bench.runtime.load_kernel(&kernels::CHECKSUM_U32)?;
    LaunchBuilder::new(&bench.runtime, &checksum, StreamId::DEFAULT)
        .input(&input)
        .in_out(&sum)
        .value(LEN as u64)
        .launch(LaunchDims::for_elements(LEN))?;
    Ok(sum.download()? == [kernels::checksum_u32(&numbers)])
}

fn copies(bench: &Bench) -> ResourceResult<bool> {
    let numbers: Vec<u32> = (0..LEN as u32).rev().collect();
    let mut there = bench.manager.alloc::<u32>(LEN)?;
    there.upload(&numbers)?;
    let mut twice = bench.manager.alloc::<u32>(LEN)?;
    twice.copy_from(&there, StreamId::DEFAULT)?;
    Ok(twice.start_download(StreamId::DEFAULT)?.wait()? == numbers)
}

fn hand_over(bench: &Bench) -> ResourceResult<bool> {
    let (writer, reader) = (bench.pool.acquire()?, bench.pool.acquire()?);
    let (data, seen) = (bench.manager.alloc::<u32>(LEN)?, bench.manager.alloc::<u32>(LEN)?);
    let fill = bench.runtime.load_kernel(&kernels::FILL_U32)?;
    let copy = bench.runtime.load_kernel(&kernels::COPY_U32)?;
    let mut right = true;
    for value in 1..=100u32 {
        LaunchBuilder::new(&bench.runtime, &fill, writer)
            .output(&data)
            .value(value)
            .value(LEN as u64)
            .launch(LaunchDims::for_elements(LEN))?;
        LaunchBuilder::new(&bench.runtime, &copy, reader)
            .input(&data)
            .output(&seen)
            .value(LEN as u64)
            .launch(LaunchDims::for_elements(LEN))?;
        right &= seen.download()?.iter().all(|found| *found == value);
    }
    Ok(right)
}

fn free_and_reap(bench: &Bench) -> ResourceResult<bool> {
    bench.runtime.reap_pending()?;
    let before = bench.runtime.bytes_outstanding();
    drop(bench.manager.alloc::<u32>(LEN)?);
    bench.runtime.reap_pending()?;
    Ok(bench.runtime.bytes_outstanding() == before)
}
