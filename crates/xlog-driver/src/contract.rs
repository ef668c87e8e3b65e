//! What the runtime needs of a device.

use std::{fmt, sync::Arc, time::Instant};

use crate::{
    Arguments, DeviceInfo, DeviceWatcher, DriverResult, KernelDefinition, LaunchDims, MemoryInfo,
};

/// A stream of a driver: an in-order queue of work. Meaningful only to the driver that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawStream(pub u64);

/// An event of a driver: a place in a stream that others can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawEvent(pub u64);

/// A place in a stream whose time is kept. Meaningful only to the driver that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawStamp(pub u64);

/// The stamps of one kernel, copy or fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkStamps {
    /// Passed when the work begins.
    pub begin: RawStamp,
    /// Passed when the work has ended.
    pub end: RawStamp,
}

/// A kernel loaded on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawFunction(pub u64);

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamProgress {
    /// Everything enqueued before the question was asked is done.
    Idle,
    /// Something enqueued before the question was asked is still to be done.
    Busy,
}

/// One device, as the runtime drives it.
///
/// Every call may be made from any thread, at any time, also while the process is shutting the
/// driver down; each binds what the calling thread needs by itself. Work is ordered by streams
/// alone: a call that takes a stream enqueues behind what that stream already holds, and may block
/// while the stream's queue is full. Streams never wait for a legacy default stream.
///
/// # Safety of the unsafe methods
///
/// The caller validates. Streams, events and functions must come from this driver and not have
/// been destroyed; device pointers must lie in memory this driver allocated (or that is mapped
/// into its address space) with `bytes` bytes behind them, and host pointers likewise. Whatever an
/// enqueued operation names must stay alive, and unwritten by others, until the stream has passed
/// it. Ordering work against other streams is the caller's part too.
pub trait Driver: Send + Sync + fmt::Debug {
    /// The device's fixed properties.
    fn info(&self) -> &DeviceInfo;

    /// Who watches the device, if anybody does: the runtime tells it what only the runtime knows.
    /// The answer never changes.
    fn watcher(&self) -> Option<Arc<dyn DeviceWatcher>> {
        None
    }

    /// The device's memory now.
    fn memory(&self) -> DriverResult<MemoryInfo>;

    /// Waits until everything enqueued on every stream is done.
    fn synchronize_device(&self) -> DriverResult<()>;

    /// A new stream, independent of every other.
    fn create_stream(&self) -> DriverResult<RawStream>;

    /// Destroys a stream once it has run dry; does not wait for that.
    ///
    /// # Safety
    /// As the trait says; nobody uses the stream afterwards.
    unsafe fn destroy_stream(&self, stream: RawStream) -> DriverResult<()>;

    /// Waits until everything enqueued on `stream` so far is done.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn synchronize_stream(&self, stream: RawStream) -> DriverResult<()>;

    /// How far `stream` has come, without waiting.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn stream_progress(&self, stream: RawStream) -> DriverResult<StreamProgress>;

    /// Whether `stream` is being captured into a graph.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn is_capturing(&self, stream: RawStream) -> DriverResult<bool>;

    /// A new event without timing, not yet recorded: waiting for it waits for nothing.
    fn create_event(&self) -> DriverResult<RawEvent>;

    /// Destroys an event; work that already waits for it is not disturbed.
    ///
    /// # Safety
    /// As the trait says; nobody uses the event afterwards.
    unsafe fn destroy_event(&self, event: RawEvent) -> DriverResult<()>;

    /// Makes `event` stand for everything on `stream` so far, and no longer for what it stood for.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> DriverResult<()>;

    /// Lets `stream` go on only once what `event` stands for *now* is done.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()>;

    /// Whether what `event` stands for is done; true for one never recorded.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn event_done(&self, event: RawEvent) -> DriverResult<bool>;

    /// Waits, on this thread, until what `event` stands for is done.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn synchronize_event(&self, event: RawEvent) -> DriverResult<()>;

    /// A new stamp, not yet on a stream; `None` from a device that keeps no time. For tracing:
    /// stamps order nothing, and nobody can wait for one.
    fn create_stamp(&self) -> DriverResult<Option<RawStamp>> {
        Ok(None)
    }

    /// Has the device note, at two stamps, when it begins and ends the next kernel, copy or fill on
    /// `stream`. The caller enqueues that, and then [closes](Self::close_stamps) what this opens,
    /// also if it was refused; nobody else enqueues there meanwhile. Stamps are used again once
    /// both times were answered, or if the work was refused.
    ///
    /// # Safety
    /// As the trait says; the stamps are this driver's, and not destroyed.
    unsafe fn open_stamps(&self, stamps: WorkStamps, stream: RawStream) -> DriverResult<()> {
        let _ = (stamps, stream);
        Ok(())
    }

    /// Says that the work between two stamps is enqueued, or was refused.
    ///
    /// # Safety
    /// As for [`open_stamps`](Self::open_stamps), which was called with the same.
    unsafe fn close_stamps(&self, stamps: WorkStamps, stream: RawStream) -> DriverResult<()> {
        let _ = (stamps, stream);
        Ok(())
    }

    /// When the device passed a stamp, on the host's clock; `None` if it has not yet. A device that
    /// cannot tell when work begins answers with when its stream came to the work, which can be
    /// while that was still being enqueued.
    ///
    /// # Safety
    /// As for [`open_stamps`](Self::open_stamps).
    unsafe fn stamp_time(&self, stamp: RawStamp) -> DriverResult<Option<Instant>> {
        let _ = stamp;
        Ok(None)
    }

    /// Destroys a stamp; a stream that holds it is not disturbed.
    ///
    /// # Safety
    /// As for [`open_stamps`](Self::open_stamps); nobody uses the stamp afterwards.
    unsafe fn destroy_stamp(&self, stamp: RawStamp) -> DriverResult<()> {
        let _ = stamp;
        Ok(())
    }

    /// Device memory that is valid on every stream as soon as the call returns.
    fn allocate(&self, bytes: usize) -> DriverResult<u64>;

    /// Gives memory from [`allocate`](Self::allocate) back, waiting for the device first.
    ///
    /// # Safety
    /// As the trait says; nobody uses the memory afterwards.
    unsafe fn free(&self, pointer: u64) -> DriverResult<()>;

    /// Device memory that is valid on `stream` from here on, and elsewhere only behind a wait for
    /// this point of it.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn allocate_on(&self, bytes: usize, stream: RawStream) -> DriverResult<u64>;

    /// Gives memory from [`allocate_on`](Self::allocate_on) back once `stream` has come this far.
    /// An allocation on the same stream may get the address at once.
    ///
    /// # Safety
    /// As the trait says; work on other streams that uses the memory is done by then.
    unsafe fn free_on(&self, pointer: u64, stream: RawStream) -> DriverResult<()>;

    /// Host memory the device can copy from and to without a detour, and that kernels can reach
    /// under the same address.
    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8>;

    /// Gives memory from [`allocate_pinned`](Self::allocate_pinned) back.
    ///
    /// # Safety
    /// As the trait says; no copy that uses it is still to be done.
    unsafe fn free_pinned(&self, pointer: *mut u8) -> DriverResult<()>;

    /// Enqueues a copy from host to device memory.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn copy_to_device(
        &self,
        destination: u64,
        source: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()>;

    /// Enqueues a copy from device to host memory.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn copy_to_host(
        &self,
        destination: *mut u8,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()>;

    /// Enqueues a copy within device memory; the ranges do not overlap.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn copy_on_device(
        &self,
        destination: u64,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()>;

    /// Enqueues setting every byte of a range to `value`.
    ///
    /// # Safety
    /// As the trait says.
    unsafe fn fill_bytes(
        &self,
        destination: u64,
        value: u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()>;

    /// Makes a kernel ready to launch; asking again gives the same function.
    fn load_kernel(&self, kernel: &'static KernelDefinition) -> DriverResult<RawFunction>;

    /// Enqueues a kernel. `arguments` are copied before the call returns.
    ///
    /// # Safety
    /// As the trait says; the arguments match the kernel's parameters in number, order and type.
    unsafe fn launch(
        &self,
        function: RawFunction,
        dims: LaunchDims,
        arguments: &Arguments,
        stream: RawStream,
    ) -> DriverResult<()>;
}
