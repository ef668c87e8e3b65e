//! The CUDA device behind the driver contract.

use std::time::Instant;

use super::{
    CudaProbe, context::Context, copy, device, event, failure, launch, memory, module::Modules,
    pool, pool::MemoryPool, stamp::Stamps, stream,
};
use crate::{
    Arguments, DeviceInfo, Driver, DriverResult, KernelDefinition, LaunchDims, MemoryInfo,
    RawEvent, RawFunction, RawStamp, RawStream, StreamProgress, WorkStamps,
};

/// One GPU behind NVIDIA's driver.
///
/// ```
/// use xlog_driver::{Driver, cuda::CudaDriver};
///
/// match CudaDriver::open(0) {
///     Ok(driver) => println!("{}", driver.info().name),
///     Err(missing) => println!("{missing}"), // says what to install or check
/// }
/// ```
#[derive(Debug)]
pub struct CudaDriver {
    info: DeviceInfo,
    modules: Modules,
    stamps: Stamps,
    /// `None` where the device has no stream-ordered memory. Dropped before the context it is in.
    pool: Option<MemoryPool>,
    context: Context,
}

impl CudaDriver {
    /// The oldest driver that loads the kernels shipped here, as CUDA counts it: their PTX is of
    /// CUDA 13.0, which came with R580.
    pub const MINIMUM_DRIVER_VERSION: u32 = 13_000;

    /// Opens the device `ordinal`. Without a driver, with one that is too old, or without that
    /// device, the error says what is missing and what to do.
    pub fn open(ordinal: usize) -> DriverResult<Self> {
        let probe = CudaProbe::new()?;
        probe.require_supported()?;
        let ordinal = probe.require_device(ordinal)?;
        let device = device::find(ordinal)?;
        let info = device::describe(device, ordinal, &probe)?;
        let context = Context::retain(device)?;
        let pool = match info.stream_ordered_memory {
            true => Some(MemoryPool::create(&context, device)?),
            false => None,
        };
        Ok(Self { info, modules: Modules::default(), stamps: Stamps::default(), pool, context })
    }

    /// What CUDA driver the machine has and how many devices it sees, opening none of them. A
    /// driver too old to open is reported, not refused.
    pub fn probe() -> DriverResult<CudaProbe> {
        CudaProbe::new()
    }

    /// Allocates, and if there is no memory once more without the pool's idle reserve.
    fn allocate_or_trim(&self, allocate: impl Fn() -> DriverResult<u64>) -> DriverResult<u64> {
        match (allocate(), &self.pool) {
            (Err(error), Some(pool)) if error.is_out_of_memory() => {
                pool.trim()?;
                allocate()
            }
            (answer, _) => answer,
        }
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        self.stamps.close(&self.context);
        // A destroyed stream may still be running dry, with kernels of these modules on it; where
        // that cannot be waited for, the modules stay.
        match self.context.synchronize() {
            Ok(()) => self.modules.unload(),
            Err(error) if error.code() == failure::DEINITIALIZED => {}
            Err(error) => failure::report_drop(Err(error)),
        }
    }
}

impl Driver for CudaDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> DriverResult<MemoryInfo> {
        memory::info(&self.context)
    }

    fn synchronize_device(&self) -> DriverResult<()> {
        self.context.synchronize()
    }

    fn create_stream(&self) -> DriverResult<RawStream> {
        stream::create(&self.context)
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { stream::destroy(&self.context, stream) }
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { stream::synchronize(&self.context, stream) }
    }

    unsafe fn stream_progress(&self, stream: RawStream) -> DriverResult<StreamProgress> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { stream::progress(&self.context, stream) }
    }

    unsafe fn is_capturing(&self, stream: RawStream) -> DriverResult<bool> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { stream::is_capturing(&self.context, stream) }
    }

    fn create_event(&self) -> DriverResult<RawEvent> {
        event::create(&self.context)
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { event::destroy(&self.context, event) }
    }

    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { event::record(&self.context, event, stream) }
    }

    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { event::wait(&self.context, stream, event) }
    }

    unsafe fn event_done(&self, event: RawEvent) -> DriverResult<bool> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { event::done(&self.context, event) }
    }

    unsafe fn synchronize_event(&self, event: RawEvent) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { event::synchronize(&self.context, event) }
    }

    fn create_stamp(&self) -> DriverResult<Option<RawStamp>> {
        self.stamps.create(&self.context).map(Some)
    }

    unsafe fn open_stamps(&self, stamps: WorkStamps, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract; a stamp is an event.
        unsafe { event::record(&self.context, RawEvent(stamps.begin.0), stream) }
    }

    unsafe fn close_stamps(&self, stamps: WorkStamps, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract; a stamp is an event.
        unsafe { event::record(&self.context, RawEvent(stamps.end.0), stream) }
    }

    unsafe fn stamp_time(&self, stamp: RawStamp) -> DriverResult<Option<Instant>> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { self.stamps.time(&self.context, stamp) }
    }

    unsafe fn destroy_stamp(&self, stamp: RawStamp) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract; a stamp is an event.
        unsafe { event::destroy(&self.context, RawEvent(stamp.0)) }
    }

    fn allocate(&self, bytes: usize) -> DriverResult<u64> {
        self.allocate_or_trim(|| memory::allocate(&self.context, bytes))
    }

    unsafe fn free(&self, pointer: u64) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { memory::free(&self.context, pointer) }
    }

    unsafe fn allocate_on(&self, bytes: usize, stream: RawStream) -> DriverResult<u64> {
        let Some(pool) = &self.pool else {
            let name = &self.info.name;
            return Err(format!("{name} has no stream-ordered memory: use `allocate`").into());
        };
        // SAFETY: the caller keeps the trait's contract.
        self.allocate_or_trim(|| unsafe { pool.allocate(&self.context, bytes, stream) })
    }

    unsafe fn free_on(&self, pointer: u64, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { pool::free(&self.context, pointer, stream) }
    }

    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8> {
        memory::allocate_pinned(&self.context, bytes)
    }

    unsafe fn free_pinned(&self, pointer: *mut u8) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { memory::free_pinned(&self.context, pointer) }
    }

    unsafe fn copy_to_device(
        &self,
        destination: u64,
        source: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { copy::to_device(&self.context, destination, source, bytes, stream) }
    }

    unsafe fn copy_to_host(
        &self,
        destination: *mut u8,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { copy::to_host(&self.context, destination, source, bytes, stream) }
    }

    unsafe fn copy_on_device(
        &self,
        destination: u64,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { copy::on_device(&self.context, destination, source, bytes, stream) }
    }

    unsafe fn fill_bytes(
        &self,
        destination: u64,
        value: u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { copy::fill(&self.context, destination, value, bytes, stream) }
    }

    fn load_kernel(&self, kernel: &'static KernelDefinition) -> DriverResult<RawFunction> {
        self.modules.function(&self.context, kernel)
    }

    #[inline]
    unsafe fn launch(
        &self,
        function: RawFunction,
        dims: LaunchDims,
        arguments: &Arguments,
        stream: RawStream,
    ) -> DriverResult<()> {
        // SAFETY: the caller keeps the trait's contract.
        unsafe { launch::launch(&self.context, function, dims, arguments, stream) }
    }
}
