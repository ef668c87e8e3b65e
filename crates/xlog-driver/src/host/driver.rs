//! The host device behind the driver contract.

use std::{collections::HashMap, fmt, sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::{
    fault::FaultCell,
    memory::HostMemory,
    operation::Operation,
    pages::{self, PAGE},
    stamp::HostStamp,
    stream::{Entry, Place, StreamCore},
};
use crate::{
    Arguments, CopyKind, DeviceCall, DeviceInfo, DeviceKind, DeviceWatcher, Driver, DriverError,
    DriverResult, KernelDefinition, LaunchDims, MemoryInfo, OperationId, RawEvent, RawFunction,
    RawStamp, RawStream, StreamProgress, WorkStamps,
};

/// Memory of a host device where the machine does not tell how much it has.
const DEFAULT_MEMORY: u64 = 16 << 30;

/// The host device, in its parallel mode: as fast as the CPU allows.
///
/// ```
/// use xlog_driver::{Driver, host::HostDriver};
///
/// let driver = HostDriver::new(0);
/// let stream = driver.create_stream()?;
/// // SAFETY: the stream is this driver's, and nothing is enqueued on it.
/// unsafe {
///     driver.synchronize_stream(stream)?;
///     driver.destroy_stream(stream)?;
/// }
/// # Ok::<(), xlog_driver::DriverError>(())
/// ```
pub struct HostDriver {
    info: DeviceInfo,
    memory: Mutex<HostMemory>,
    pinned: Mutex<HashMap<usize, usize>>,
    streams: Mutex<Vec<Arc<StreamCore>>>,
    fault: Arc<FaultCell>,
    watch: Option<Watch>,
}

/// Who watches the device, and the one order in which it sees the calls of all threads.
struct Watch {
    watcher: Arc<dyn DeviceWatcher>,
    /// The number of the next operation. Held over a call and the word to the watcher, but never
    /// while the call waits for the device.
    next: Mutex<u64>,
}

/// What a host event stands for: a place in a stream, or nothing yet.
struct HostEvent(Mutex<Option<Place>>);

impl HostDriver {
    /// A host device that goes by `ordinal`, with as much memory as the machine has.
    #[must_use]
    pub fn new(ordinal: u32) -> Self {
        Self::with_memory(ordinal, machine_memory().unwrap_or(DEFAULT_MEMORY))
    }

    /// A host device with `bytes` bytes of memory.
    #[must_use]
    pub fn with_memory(ordinal: u32, bytes: u64) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        Self {
            info: DeviceInfo {
                kind: DeviceKind::Host,
                ordinal,
                name: "host device".into(),
                driver_version: 0,
                compute_capability: (0, 0),
                multiprocessors: u32::try_from(threads).unwrap_or(u32::MAX),
                stream_ordered_memory: true,
            },
            memory: Mutex::new(HostMemory::new(bytes)),
            pinned: Mutex::default(),
            streams: Mutex::default(),
            fault: Arc::default(),
            watch: None,
        }
    }

    /// The same device, with every call and every access told to `watcher`. Streams created before
    /// keep running unwatched, so this comes first.
    #[must_use]
    pub fn watched_by(mut self, watcher: Arc<dyn DeviceWatcher>) -> Self {
        self.watch = Some(Watch { watcher, next: Mutex::new(0) });
        self
    }

    fn enqueue(&self, stream: RawStream, operation: Operation) -> DriverResult<()> {
        self.fault.check()?;
        // SAFETY: `Driver`'s unsafe methods, the only callers, were promised a live stream.
        let core = unsafe { core(&stream) };
        let Some(watch) = &self.watch else {
            core.enqueue(Entry::Run { operation, number: OperationId(0), stamps: None });
            return Ok(());
        };
        loop {
            core.wait_for_room();
            let mut next = watch.next.lock();
            if !core.has_room() {
                continue;
            }
            let number = OperationId(*next);
            *next += 1;
            watch.watcher.called(&operation.call(number, stream));
            core.enqueue(Entry::Run { operation, number, stamps: None });
            return Ok(());
        }
    }

    /// Makes a call that does not wait for the device, and tells the watcher of it.
    fn told<T>(
        &self,
        act: impl FnOnce() -> DriverResult<T>,
        call: impl FnOnce(&T) -> Option<DeviceCall<'static>>,
    ) -> DriverResult<T> {
        let Some(watch) = &self.watch else { return act() };
        let _order = watch.next.lock();
        let answer = act()?;
        if let Some(call) = call(&answer) {
            watch.watcher.called(&call);
        }
        Ok(answer)
    }

    /// Tells the watcher of something that the caller has found out after waiting for it.
    fn tell(&self, call: impl FnOnce() -> DeviceCall<'static>) {
        if let Some(watch) = &self.watch {
            let _order = watch.next.lock();
            watch.watcher.called(&call());
        }
    }

    /// The number of the next operation; 0 if nobody watches.
    fn next_operation(&self) -> OperationId {
        OperationId(self.watch.as_ref().map_or(0, |watch| *watch.next.lock()))
    }
}

/// The stream behind a handle.
///
/// # Safety
/// `stream` came from `create_stream` and was not destroyed.
unsafe fn core(stream: &RawStream) -> &StreamCore {
    // SAFETY: the handle is the address `Arc::into_raw` gave, and its count is still held.
    unsafe { &*(stream.0 as *const StreamCore) }
}

/// The same, as a counted reference.
///
/// # Safety
/// As [`core`].
unsafe fn shared_core(stream: RawStream) -> Arc<StreamCore> {
    let pointer = stream.0 as *const StreamCore;
    // SAFETY: the handle's own count keeps the stream alive while another is taken.
    unsafe {
        Arc::increment_strong_count(pointer);
        Arc::from_raw(pointer)
    }
}

/// The stamp behind a handle, as a counted reference.
///
/// # Safety
/// `stamp` came from `create_stamp` and was not destroyed.
unsafe fn shared_stamp(stamp: RawStamp) -> Arc<HostStamp> {
    let pointer = stamp.0 as *const HostStamp;
    // SAFETY: the handle's own count keeps the stamp alive while another is taken.
    unsafe {
        Arc::increment_strong_count(pointer);
        Arc::from_raw(pointer)
    }
}

/// The event behind a handle.
///
/// # Safety
/// `event` came from `create_event` and was not destroyed.
unsafe fn host_event(event: &RawEvent) -> &HostEvent {
    // SAFETY: the handle is the address `Box::into_raw` gave.
    unsafe { &*(event.0 as *const HostEvent) }
}

impl Driver for HostDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn watcher(&self) -> Option<Arc<dyn DeviceWatcher>> {
        self.watch.as_ref().map(|watch| Arc::clone(&watch.watcher))
    }

    fn memory(&self) -> DriverResult<MemoryInfo> {
        self.fault.check()?;
        Ok(self.memory.lock().info())
    }

    fn synchronize_device(&self) -> DriverResult<()> {
        let before = self.next_operation();
        let streams: Vec<_> = self.streams.lock().clone();
        for stream in streams {
            stream.wait_for(stream.enqueued());
        }
        self.fault.check()?;
        self.tell(|| DeviceCall::DeviceDone { before });
        Ok(())
    }

    fn create_stream(&self) -> DriverResult<RawStream> {
        self.fault.check()?;
        let stream = StreamCore::start(Arc::clone(&self.fault), self.watcher())?;
        self.streams.lock().push(Arc::clone(&stream));
        let stream = RawStream(Arc::into_raw(stream) as u64);
        self.tell(|| DeviceCall::StreamCreated { stream });
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> DriverResult<()> {
        self.tell(|| DeviceCall::StreamDestroyed { stream });
        // SAFETY: a live stream, and this is the last use of its handle's count.
        let stream = unsafe { Arc::from_raw(stream.0 as *const StreamCore) };
        self.streams.lock().retain(|other| !Arc::ptr_eq(other, &stream));
        stream.close();
        Ok(())
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> DriverResult<()> {
        let before = self.next_operation();
        // SAFETY: promised by the caller.
        let core = unsafe { core(&stream) };
        core.wait_for(core.enqueued());
        self.fault.check()?;
        self.tell(|| DeviceCall::StreamDone { stream, before });
        Ok(())
    }

    unsafe fn stream_progress(&self, stream: RawStream) -> DriverResult<StreamProgress> {
        self.fault.check()?;
        let before = self.next_operation();
        // SAFETY: promised by the caller.
        let core = unsafe { core(&stream) };
        if core.finished() < core.enqueued() {
            return Ok(StreamProgress::Busy);
        }
        self.tell(|| DeviceCall::StreamDone { stream, before });
        Ok(StreamProgress::Idle)
    }

    unsafe fn is_capturing(&self, _stream: RawStream) -> DriverResult<bool> {
        self.fault.check()?;
        Ok(false)
    }

    fn create_event(&self) -> DriverResult<RawEvent> {
        self.fault.check()?;
        let event = RawEvent(Box::into_raw(Box::new(HostEvent(Mutex::new(None)))) as u64);
        self.tell(|| DeviceCall::EventCreated { event });
        Ok(event)
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> DriverResult<()> {
        self.tell(|| DeviceCall::EventDestroyed { event });
        // SAFETY: the handle is the address `Box::into_raw` gave, and this is its last use.
        drop(unsafe { Box::from_raw(event.0 as *mut HostEvent) });
        Ok(())
    }

    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        self.fault.check()?;
        // SAFETY: promised by the caller.
        let (host, core) = unsafe { (host_event(&event), shared_core(stream)) };
        let record = || {
            let number = core.enqueued();
            *host.0.lock() = Some(Place { stream: core, number });
            Ok(())
        };
        self.told(record, |()| Some(DeviceCall::EventRecorded { event, stream }))
    }

    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        self.fault.check()?;
        // SAFETY: promised by the caller.
        let (host, core) = unsafe { (host_event(&event), core(&stream)) };
        let Some(watch) = &self.watch else {
            let place = host.0.lock().clone().filter(|place| !place.is_reached());
            if let Some(place) = place {
                core.enqueue(Entry::Wait { place });
            }
            return Ok(());
        };
        loop {
            core.wait_for_room();
            let _order = watch.next.lock();
            if !core.has_room() {
                continue;
            }
            watch.watcher.called(&DeviceCall::EventWaited { stream, event });
            if let Some(place) = host.0.lock().clone() {
                core.enqueue(Entry::Wait { place });
            }
            return Ok(());
        }
    }

    unsafe fn event_done(&self, event: RawEvent) -> DriverResult<bool> {
        self.fault.check()?;
        // SAFETY: promised by the caller.
        let host = unsafe { host_event(&event) };
        let ask = || Ok(host.0.lock().as_ref().is_none_or(Place::is_reached));
        self.told(ask, |done| done.then_some(DeviceCall::EventDone { event }))
    }

    unsafe fn synchronize_event(&self, event: RawEvent) -> DriverResult<()> {
        // SAFETY: promised by the caller.
        let host = unsafe { host_event(&event) };
        let place = host.0.lock().clone();
        if let Some(place) = place {
            place.stream.wait_for(place.number);
        }
        self.fault.check()?;
        // Another thread may have recorded it anew, and that may not be done.
        let ask = || Ok(host.0.lock().as_ref().is_none_or(Place::is_reached));
        self.told(ask, |done| done.then_some(DeviceCall::EventDone { event })).map(drop)
    }

    fn create_stamp(&self) -> DriverResult<Option<RawStamp>> {
        self.fault.check()?;
        Ok(Some(RawStamp(Arc::into_raw(Arc::<HostStamp>::default()) as u64)))
    }

    unsafe fn open_stamps(&self, stamps: WorkStamps, stream: RawStream) -> DriverResult<()> {
        self.fault.check()?;
        // SAFETY: promised by the caller.
        let (begin, end) = unsafe { (shared_stamp(stamps.begin), shared_stamp(stamps.end)) };
        begin.clear();
        end.clear();
        // SAFETY: promised by the caller.
        unsafe { core(&stream) }.stamp_next(Some(Box::new([begin, end])));
        Ok(())
    }

    unsafe fn close_stamps(&self, stamps: WorkStamps, stream: RawStream) -> DriverResult<()> {
        let _ = stamps;
        // SAFETY: promised by the caller.
        unsafe { core(&stream) }.stamp_next(None);
        Ok(())
    }

    unsafe fn stamp_time(&self, stamp: RawStamp) -> DriverResult<Option<Instant>> {
        // SAFETY: promised by the caller.
        Ok(unsafe { shared_stamp(stamp) }.time())
    }

    unsafe fn destroy_stamp(&self, stamp: RawStamp) -> DriverResult<()> {
        // SAFETY: the handle is the address `Arc::into_raw` gave, and this is its last use.
        drop(unsafe { Arc::from_raw(stamp.0 as *const HostStamp) });
        Ok(())
    }

    fn allocate(&self, bytes: usize) -> DriverResult<u64> {
        self.fault.check()?;
        let allocate = || self.memory.lock().allocate(bytes, "allocate");
        self.told(allocate, |&address| Some(DeviceCall::Allocated { address, bytes, stream: None }))
    }

    unsafe fn free(&self, pointer: u64) -> DriverResult<()> {
        self.synchronize_device()?;
        let free = || self.memory.lock().free(pointer, "free");
        self.told(free, |()| Some(DeviceCall::Freed { address: pointer, stream: None }))
    }

    unsafe fn allocate_on(&self, bytes: usize, stream: RawStream) -> DriverResult<u64> {
        self.fault.check()?;
        // SAFETY: promised by the caller.
        let core = unsafe { shared_core(stream) };
        let allocate = || self.memory.lock().allocate_on(bytes, &core);
        self.told(allocate, |&address| {
            Some(DeviceCall::Allocated { address, bytes, stream: Some(stream) })
        })
    }

    unsafe fn free_on(&self, pointer: u64, stream: RawStream) -> DriverResult<()> {
        self.fault.check()?;
        // SAFETY: promised by the caller.
        let core = unsafe { shared_core(stream) };
        let free = || {
            let number = core.enqueued();
            self.memory.lock().free_on(pointer, Place { stream: core, number })
        };
        self.told(free, |()| Some(DeviceCall::Freed { address: pointer, stream: Some(stream) }))
    }

    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8> {
        self.fault.check()?;
        // Ordinary memory is as good as pinned here; zeroes keep its contents defined.
        let size = bytes.max(1);
        let pointer = pages::take(size, PAGE);
        if pointer.is_null() {
            let message = format!("{bytes} bytes of pinned memory are not to be had");
            return Err(DriverError::new("allocate_pinned", DriverError::OUT_OF_MEMORY, message));
        }
        self.pinned.lock().insert(pointer as usize, size);
        self.tell(|| DeviceCall::PinnedAllocated { address: pointer as u64, bytes });
        Ok(pointer)
    }

    unsafe fn free_pinned(&self, pointer: *mut u8) -> DriverResult<()> {
        let Some(size) = self.pinned.lock().remove(&(pointer as usize)) else {
            return Err(DriverError::new("free_pinned", 1, "not a pinned allocation"));
        };
        self.tell(|| DeviceCall::PinnedFreed { address: pointer as u64 });
        // SAFETY: `allocate_pinned` took it with this size, and its entry is gone now.
        unsafe { pages::give_back(pointer, size, PAGE) }
        Ok(())
    }

    unsafe fn copy_to_device(
        &self,
        destination: u64,
        source: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let (kind, source) = (CopyKind::ToDevice, source as u64);
        self.enqueue(stream, Operation::Copy { kind, destination, source, bytes })
    }

    unsafe fn copy_to_host(
        &self,
        destination: *mut u8,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let (kind, destination) = (CopyKind::ToHost, destination as u64);
        self.enqueue(stream, Operation::Copy { kind, destination, source, bytes })
    }

    unsafe fn copy_on_device(
        &self,
        destination: u64,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let kind = CopyKind::OnDevice;
        self.enqueue(stream, Operation::Copy { kind, destination, source, bytes })
    }

    unsafe fn fill_bytes(
        &self,
        destination: u64,
        value: u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        self.enqueue(stream, Operation::Fill { destination, value, bytes })
    }

    fn load_kernel(&self, kernel: &'static KernelDefinition) -> DriverResult<RawFunction> {
        self.fault.check()?;
        Ok(Operation::function(kernel))
    }

    unsafe fn launch(
        &self,
        function: RawFunction,
        dims: LaunchDims,
        arguments: &Arguments,
        stream: RawStream,
    ) -> DriverResult<()> {
        // SAFETY: the caller passes what `load_kernel` gave.
        let operation = unsafe { Operation::launch(function, dims, arguments) }?;
        self.enqueue(stream, operation)
    }
}

impl Drop for HostDriver {
    fn drop(&mut self) {
        for stream in self.streams.get_mut().drain(..) {
            stream.close();
        }
    }
}

impl fmt::Debug for HostDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDriver").field("info", &self.info).finish_non_exhaustive()
    }
}

/// The machine's memory in bytes, where `/proc/meminfo` tells.
fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
