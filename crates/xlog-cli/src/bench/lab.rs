//! A fresh runtime to measure, over the default stack.

use std::sync::Arc;

use xlog_core::MemoryBudget;
use xlog_cuda::{
    CudaDevice, GpuMemoryManager, LoadedKernel,
    device_runtime::{
        AllocTag, AsyncCudaResource, ResourceResult, StreamId, StreamPool, XlogDeviceRuntime,
    },
    kernels,
    memory::TrackedCudaSlice,
};
use xlog_driver::{Arguments, Driver, DriverResult, KernelDefinition, RawEvent, RawStream};

use super::quiet_core::QuietCore;
use crate::Failure;

/// Everything a pattern needs.
#[derive(Debug)]
pub(super) struct Lab {
    pub(super) device: Arc<CudaDevice>,
    pub(super) pool: Arc<StreamPool>,
    pub(super) runtime: Arc<XlogDeviceRuntime>,
    pub(super) manager: GpuMemoryManager,
    pub(super) quick: bool,
    /// Where the measuring thread runs.
    pub(super) core: Arc<QuietCore>,
    /// Launches do nothing here, so that nothing they leave behind can be checked.
    pub(super) idle: bool,
}

/// How a benchmark launch touches its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// Reads them and leaves them as they are.
    Read,
    /// Adds one to the first value of each, so that launches can be counted afterwards.
    Write,
}

impl Touch {
    pub(super) const BOTH: [Self; 2] = [Self::Read, Self::Write];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// The kernel that touches that many blocks so.
    pub(super) fn kernel(self, blocks: usize) -> &'static KernelDefinition {
        match (self, blocks) {
            (Self::Read, 1) => &kernels::EMPTY_READ_1,
            (Self::Read, 4) => &kernels::EMPTY_READ_4,
            (Self::Read, _) => &kernels::EMPTY_READ_8,
            (Self::Write, 1) => &kernels::TOUCH_1,
            (Self::Write, 4) => &kernels::TOUCH_4,
            (Self::Write, _) => &kernels::TOUCH_8,
        }
    }
}

/// Blocks of a launch, its kernel, and its arguments packed for the raw driver.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) touch: Touch,
    pub(super) kernel: LoadedKernel,
    pub(super) blocks: Vec<TrackedCudaSlice<u32>>,
    pub(super) arguments: Arguments,
}

impl Lab {
    pub(super) fn new(device: Arc<CudaDevice>, core: Arc<QuietCore>, quick: bool) -> Self {
        let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
        let ordinal = device.info().ordinal;
        let resource = AsyncCudaResource::new(Arc::clone(&device), ordinal, Arc::clone(&pool));
        let runtime = Arc::new(XlogDeviceRuntime::with_resource(
            Arc::clone(&device),
            ordinal,
            Arc::clone(&pool),
            Box::new(resource),
        ));
        let manager = GpuMemoryManager::with_runtime(
            Arc::clone(&device),
            MemoryBudget::unlimited(),
            Arc::clone(&runtime),
        );
        Self { device, pool, runtime, manager, quick, core, idle: false }
    }

    /// That many more streams.
    pub(super) fn streams(&self, count: usize) -> ResourceResult<Vec<StreamId>> {
        (0..count).map(|_| self.pool.acquire()).collect()
    }

    /// That many streams of the bare driver, unknown to the runtime.
    pub(super) fn raw_streams(&self, count: usize) -> ResourceResult<RawStreams<'_>> {
        let mut streams = RawStreams { driver: self.device.driver(), streams: Vec::new() };
        for _ in 0..count {
            streams.streams.push(streams.driver.create_stream()?);
        }
        Ok(streams)
    }

    /// That many events of the bare driver.
    pub(super) fn raw_events(&self, count: usize) -> ResourceResult<RawEvents<'_>> {
        let mut events = RawEvents { driver: self.device.driver(), events: Vec::new() };
        for _ in 0..count {
            events.events.push(events.driver.create_event()?);
        }
        Ok(events)
    }

    /// A block of zeros.
    pub(super) fn zeros(&self, len: usize) -> ResourceResult<TrackedCudaSlice<u32>> {
        let mut block = self.manager.alloc_on::<u32>(len, StreamId::DEFAULT, AllocTag("bench"))?;
        block.fill_bytes(0, StreamId::DEFAULT)?;
        Ok(block)
    }

    /// A launch over that many fresh blocks.
    pub(super) fn subject(&self, touch: Touch, blocks: usize) -> ResourceResult<Subject> {
        let kernel = self.runtime.load_kernel(touch.kernel(blocks))?;
        let blocks = (0..blocks).map(|_| self.zeros(64)).collect::<ResourceResult<Vec<_>>>()?;
        let mut arguments = Arguments::new();
        for block in &blocks {
            arguments.push_pointer(block.ptr());
        }
        if touch == Touch::Write {
            arguments.push_value(1u32);
        }
        self.runtime.synchronize(StreamId::DEFAULT)?;
        Ok(Subject { touch, kernel, blocks, arguments })
    }

    /// Waits for everything on the device.
    pub(super) fn settle(&self) -> ResourceResult<()> {
        self.device.synchronize()
    }
}

/// Streams of the bare driver, destroyed with this.
pub(super) struct RawStreams<'l> {
    driver: &'l dyn Driver,
    streams: Vec<RawStream>,
}

impl std::ops::Deref for RawStreams<'_> {
    type Target = [RawStream];

    fn deref(&self) -> &[RawStream] {
        &self.streams
    }
}

impl Drop for RawStreams<'_> {
    fn drop(&mut self) {
        for stream in self.streams.drain(..) {
            // SAFETY: created by this driver, and nobody else has it. A failure leaves the stream
            // to the end of the process.
            let _ = unsafe { self.driver.destroy_stream(stream) };
        }
    }
}

/// Events of the bare driver, destroyed with this.
pub(super) struct RawEvents<'l> {
    driver: &'l dyn Driver,
    events: Vec<RawEvent>,
}

impl RawEvents<'_> {
    pub(super) fn record(&self, stream: RawStream, event: usize) -> DriverResult<()> {
        // SAFETY: both are this driver's and alive.
        unsafe { self.driver.record_event(self.events[event], stream) }
    }

    pub(super) fn wait(&self, stream: RawStream, event: usize) -> DriverResult<()> {
        // SAFETY: as above.
        unsafe { self.driver.wait_event(stream, self.events[event]) }
    }
}

impl Drop for RawEvents<'_> {
    fn drop(&mut self) {
        for event in self.events.drain(..) {
            // SAFETY: created by this driver, and nobody else has it. A failure leaves the event
            // to the end of the process.
            let _ = unsafe { self.driver.destroy_event(event) };
        }
    }
}

impl Subject {
    /// Every block must have seen exactly `launches` of them.
    pub(super) fn verify(&self, launches: u64) -> Result<(), Failure> {
        let expected = match self.touch {
            Touch::Read => 0,
            Touch::Write => launches as u32,
        };
        for block in &self.blocks {
            let found = block.download()?[0];
            if found != expected {
                return Err(format!("a block holds {found} after {launches} launches"))?;
            }
        }
        Ok(())
    }
}
