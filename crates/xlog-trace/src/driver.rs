//! The driver that notes what goes through it.
//!
//! Every call goes to the driver underneath as it is. Around work go two stamps, by which the
//! device says when it began and ended it. Calls on one stream are noted under that stream's lock,
//! in the order in which they took effect; no lock is held while the host waits for the device,
//! except that an enqueue may wait for room in its stream, as everybody else on that stream would.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use xlog_driver::{
    Arguments, CopyKind, DeviceInfo, DeviceWatcher, Driver, DriverResult, KernelDefinition,
    LaunchDims, MemoryInfo, RawEvent, RawFunction, RawStamp, RawStream, StreamProgress, WorkStamps,
};

use crate::{
    log::{Call, Log, Span, WorkKind},
    stream::{Stamped, Times, TracedStream},
    watcher::TraceWatcher,
};

/// What the driver and the watcher share.
#[derive(Debug)]
pub(crate) struct Notes {
    begun: Instant,
    log: Mutex<Log>,
    streams: RwLock<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    /// Those that are there, by their handles.
    by_handle: FxHashMap<u64, Arc<TracedStream>>,
    /// Those that were.
    gone: Vec<Arc<TracedStream>>,
}

impl Notes {
    /// Nanoseconds since the trace began.
    pub(crate) fn now(&self) -> u64 {
        self.time(Instant::now())
    }

    fn time(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn log(&self) -> parking_lot::MutexGuard<'_, Log> {
        self.log.lock()
    }

    /// Notes a call that has just returned.
    fn push(&self, begin: u64, call: Call) {
        let span = Span { begin, end: self.now() };
        self.log.lock().push(span, call);
    }

    /// The stream behind a handle; one that another library made is met here for the first time.
    pub(crate) fn stream(&self, stream: RawStream) -> Arc<TracedStream> {
        if let Some(known) = self.streams.read().by_handle.get(&stream.0) {
            return Arc::clone(known);
        }
        let mut streams = self.streams.write();
        let new = || Arc::new(TracedStream::new(self.log.lock().add_stream()));
        Arc::clone(streams.by_handle.entry(stream.0).or_insert_with(new))
    }

    /// The handle may come back as another stream.
    fn forget_stream(&self, stream: RawStream) {
        let mut streams = self.streams.write();
        let gone = streams.by_handle.remove(&stream.0);
        streams.gone.extend(gone);
    }

    /// Every stream there was, in the order of their numbers.
    fn all_streams(&self) -> Vec<Arc<TracedStream>> {
        let streams = self.streams.read();
        let mut all: Vec<_> = streams.by_handle.values().chain(&streams.gone).cloned().collect();
        all.sort_by_key(|stream| stream.number);
        all
    }
}

/// A driver behind a trace.
#[derive(Debug)]
pub(crate) struct TracingDriver {
    inner: Arc<dyn Driver>,
    notes: Arc<Notes>,
    watcher: Arc<TraceWatcher>,
    kernels: RwLock<FxHashMap<u64, &'static KernelDefinition>>,
    /// Stamps that are on no stream.
    spare: Mutex<Vec<RawStamp>>,
    over: AtomicBool,
}

impl TracingDriver {
    pub(crate) fn new(inner: Arc<dyn Driver>, limit: usize) -> Self {
        let notes = Arc::new(Notes {
            begun: Instant::now(),
            log: Mutex::new(Log::new(limit)),
            streams: RwLock::default(),
        });
        // The first stamp has the device's clock set beside the host's, which takes a while: here,
        // and not in the middle of the program.
        let spare = inner.create_stamp().ok().flatten().into_iter().collect();
        let watcher = Arc::new(TraceWatcher::new(Arc::clone(&notes), inner.watcher()));
        Self {
            inner,
            notes,
            watcher,
            kernels: RwLock::default(),
            spare: Mutex::new(spare),
            over: AtomicBool::new(false),
        }
    }

    /// Ends the trace, once the device has done what is in it.
    pub(crate) fn close(&self) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        // A lost device does nothing any more: what is known by now is all there is.
        let _ = self.inner.synchronize_device();
        for stream in self.notes.all_streams() {
            let mut stamped = stream.order.lock();
            self.collect(&mut stamped);
            stamped.give_up(&mut self.spare.lock());
        }
        self.notes.log.lock().closed = true;
    }

    pub(crate) fn with_log<R>(&self, read: impl FnOnce(&Log) -> R) -> R {
        read(&self.notes.log.lock())
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Two stamps for the next work on a stream, if the device keeps time.
    fn open_stamps(&self, stream: RawStream) -> Option<WorkStamps> {
        let (begin, end) = (self.spare_stamp()?, self.spare_stamp()?);
        let stamps = WorkStamps { begin, end };
        // SAFETY: this driver's stamps, which are on no stream; the stream is the caller's promise.
        match unsafe { self.inner.open_stamps(stamps, stream) } {
            Ok(()) => Some(stamps),
            Err(_) => {
                self.spare.lock().extend([begin, end]);
                None
            }
        }
    }

    fn spare_stamp(&self) -> Option<RawStamp> {
        let spare = self.spare.lock().pop();
        spare.or_else(|| self.inner.create_stamp().ok().flatten())
    }

    /// Closes the stamps of work that was enqueued, if it was. Whether its times are to come.
    fn close_stamps(&self, stamps: WorkStamps, stream: RawStream, enqueued: bool) -> bool {
        // SAFETY: opened on this stream, with the stream's lock held since.
        let closed = unsafe { self.inner.close_stamps(stamps, stream) }.is_ok() && enqueued;
        if !closed {
            self.spare.lock().extend([stamps.begin, stamps.end]);
        }
        closed
    }

    /// Writes down the times of work that is done.
    fn collect(&self, stamped: &mut Stamped) {
        let mut times = Vec::new();
        stamped.collect(&*self.inner, &mut self.spare.lock(), &mut times);
        let mut log = self.notes.log.lock();
        for Times { work, begin, end } in times {
            let span = Span { begin: self.notes.time(begin), end: self.notes.time(end) };
            log.work[work as usize].device = Some(span);
        }
    }

    /// Enqueues work between two stamps.
    fn work(
        &self,
        stream: RawStream,
        kind: WorkKind,
        call: impl FnOnce() -> DriverResult<()>,
    ) -> DriverResult<()> {
        if self.is_over() {
            return call();
        }
        let traced = self.notes.stream(stream);
        let mut stamped = traced.order.lock();
        let stamps = self.open_stamps(stream);
        let begin = self.notes.now();
        let answer = call();
        let span = Span { begin, end: self.notes.now() };
        if let Some(stamps) = stamps
            && self.close_stamps(stamps, stream, answer.is_ok())
        {
            let work = self.notes.log.lock().push_work(span, traced.number, kind);
            stamped.push(work, stamps);
        } else if answer.is_ok() {
            self.notes.log.lock().push_work(span, traced.number, kind);
        }
        if stamped.is_due() {
            self.collect(&mut stamped);
        }
        answer
    }

    /// Makes a call that takes effect on a stream, and notes it if it did.
    fn on_stream<T>(
        &self,
        stream: RawStream,
        call: impl FnOnce() -> DriverResult<T>,
        note: impl FnOnce(u32, &T) -> Call,
    ) -> DriverResult<T> {
        if self.is_over() {
            return call();
        }
        let traced = self.notes.stream(stream);
        let _order = traced.order.lock();
        let begin = self.notes.now();
        let answer = call()?;
        self.notes.push(begin, note(traced.number, &answer));
        Ok(answer)
    }

    /// Makes a call of the host alone, and notes it if it worked.
    fn on_host<T>(
        &self,
        call: impl FnOnce() -> DriverResult<T>,
        note: impl FnOnce(&T) -> Call,
    ) -> DriverResult<T> {
        if self.is_over() {
            return call();
        }
        let begin = self.notes.now();
        let answer = call()?;
        self.notes.push(begin, note(&answer));
        Ok(answer)
    }
}

impl Drop for TracingDriver {
    fn drop(&mut self) {
        let mut stamps = std::mem::take(self.spare.get_mut());
        for stream in self.notes.all_streams() {
            stream.order.lock().give_up(&mut stamps);
        }
        for stamp in stamps {
            // SAFETY: a stamp of this driver, which no list names any more: its last use. One that
            // could not be destroyed ends with the device.
            let _ = unsafe { self.inner.destroy_stamp(stamp) };
        }
    }
}

impl Driver for TracingDriver {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn watcher(&self) -> Option<Arc<dyn DeviceWatcher>> {
        Some(Arc::clone(&self.watcher) as Arc<dyn DeviceWatcher>)
    }
    fn memory(&self) -> DriverResult<MemoryInfo> {
        self.inner.memory()
    }
    fn synchronize_device(&self) -> DriverResult<()> {
        self.on_host(|| self.inner.synchronize_device(), |()| Call::DeviceAwaited)
    }
    fn create_stream(&self) -> DriverResult<RawStream> {
        let stream = self.inner.create_stream()?;
        if !self.is_over() {
            self.notes.stream(stream);
        }
        Ok(stream)
    }
    unsafe fn destroy_stream(&self, stream: RawStream) -> DriverResult<()> {
        // Before the driver may give the handle to another.
        self.notes.forget_stream(stream);
        // SAFETY: the caller's promise.
        unsafe { self.inner.destroy_stream(stream) }
    }
    unsafe fn synchronize_stream(&self, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.synchronize_stream(stream) };
        self.on_host(call, |()| Call::StreamAwaited { stream: self.notes.stream(stream).number })
    }
    unsafe fn stream_progress(&self, stream: RawStream) -> DriverResult<StreamProgress> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.stream_progress(stream) }
    }
    unsafe fn is_capturing(&self, stream: RawStream) -> DriverResult<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.is_capturing(stream) }
    }
    fn create_event(&self) -> DriverResult<RawEvent> {
        self.inner.create_event()
    }
    unsafe fn destroy_event(&self, event: RawEvent) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.destroy_event(event) }
    }
    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.record_event(event, stream) };
        self.on_stream(stream, call, |stream, ()| Call::Recorded { stream, event: event.0 })
    }
    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.wait_event(stream, event) };
        self.on_stream(stream, call, |stream, ()| Call::Waited { stream, event: event.0 })
    }
    unsafe fn event_done(&self, event: RawEvent) -> DriverResult<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.event_done(event) }
    }
    unsafe fn synchronize_event(&self, event: RawEvent) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        self.on_host(|| unsafe { self.inner.synchronize_event(event) }, |()| Call::EventAwaited)
    }
    // No stamps for others: work has those of this trace.
    fn allocate(&self, bytes: usize) -> DriverResult<u64> {
        let note = |&address: &u64| Call::Allocated { address, bytes: bytes as u64, stream: None };
        self.on_host(|| self.inner.allocate(bytes), note)
    }
    unsafe fn free(&self, pointer: u64) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.free(pointer) };
        self.on_host(call, |()| Call::Freed { address: pointer, stream: None })
    }
    unsafe fn allocate_on(&self, bytes: usize, stream: RawStream) -> DriverResult<u64> {
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.allocate_on(bytes, stream) };
        self.on_stream(stream, call, |stream, &address| Call::Allocated {
            address,
            bytes: bytes as u64,
            stream: Some(stream),
        })
    }
    unsafe fn free_on(&self, pointer: u64, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.free_on(pointer, stream) };
        self.on_stream(stream, call, |stream, ()| Call::Freed {
            address: pointer,
            stream: Some(stream),
        })
    }
    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8> {
        self.on_host(|| self.inner.allocate_pinned(bytes), |_| Call::PinnedAllocated)
    }
    unsafe fn free_pinned(&self, pointer: *mut u8) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        self.on_host(|| unsafe { self.inner.free_pinned(pointer) }, |()| Call::PinnedFreed)
    }
    unsafe fn copy_to_device(
        &self,
        destination: u64,
        source: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let kind = WorkKind::Copy { kind: CopyKind::ToDevice, bytes: bytes as u64 };
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.copy_to_device(destination, source, bytes, stream) };
        self.work(stream, kind, call)
    }
    unsafe fn copy_to_host(
        &self,
        destination: *mut u8,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let kind = WorkKind::Copy { kind: CopyKind::ToHost, bytes: bytes as u64 };
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.copy_to_host(destination, source, bytes, stream) };
        self.work(stream, kind, call)
    }
    unsafe fn copy_on_device(
        &self,
        destination: u64,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let kind = WorkKind::Copy { kind: CopyKind::OnDevice, bytes: bytes as u64 };
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.copy_on_device(destination, source, bytes, stream) };
        self.work(stream, kind, call)
    }
    unsafe fn fill_bytes(
        &self,
        destination: u64,
        value: u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.fill_bytes(destination, value, bytes, stream) };
        self.work(stream, WorkKind::Fill { bytes: bytes as u64 }, call)
    }
    fn load_kernel(&self, kernel: &'static KernelDefinition) -> DriverResult<RawFunction> {
        let function = self.inner.load_kernel(kernel)?;
        // Asked for before every launch by some: the lock to write is for new ones.
        if !self.kernels.read().contains_key(&function.0) {
            self.kernels.write().insert(function.0, kernel);
        }
        Ok(function)
    }
    unsafe fn launch(
        &self,
        function: RawFunction,
        dims: LaunchDims,
        arguments: &Arguments,
        stream: RawStream,
    ) -> DriverResult<()> {
        let kernel = self.kernels.read().get(&function.0).copied();
        // SAFETY: the caller's promise.
        let call = || unsafe { self.inner.launch(function, dims, arguments, stream) };
        self.work(stream, WorkKind::Kernel { kernel, dims }, call)
    }
}
