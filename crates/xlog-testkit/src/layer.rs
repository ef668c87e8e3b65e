//! A driver that watches, fails or goes deaf on purpose.
//!
//! [`LayeredDriver`] wraps any driver. It counts every call, fails the ones a plan names, and can
//! be made deaf: event waits then answer `Ok` and do nothing, which is how a missing wait looks
//! from outside. It knows nothing of the runtime above it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use xlog_driver::{
    Arguments, DeviceInfo, DeviceWatcher, Driver, DriverError, DriverResult, KernelDefinition,
    LaunchDims, MemoryInfo, RawEvent, RawFunction, RawStamp, RawStream, StreamProgress, WorkStamps,
};

use crate::{Stall, check::Draw, stall::StalledCall};

/// A call of the driver contract that can be counted and made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
#[allow(missing_docs)] // each is the method of `Driver` it is named for
pub enum DriverCall {
    Memory,
    SynchronizeDevice,
    CreateStream,
    DestroyStream,
    SynchronizeStream,
    StreamProgress,
    IsCapturing,
    CreateEvent,
    DestroyEvent,
    RecordEvent,
    WaitEvent,
    EventDone,
    SynchronizeEvent,
    Allocate,
    Free,
    AllocateOn,
    FreeOn,
    AllocatePinned,
    FreePinned,
    CopyToDevice,
    CopyToHost,
    CopyOnDevice,
    FillBytes,
    LoadKernel,
    Launch,
}

/// How many kinds of call there are.
const CALLS: usize = DriverCall::Launch as usize + 1;

/// The code an injected failure carries: CUDA's "unknown error", which no call gives by itself.
pub const INJECTED: i32 = 999;

/// Failures to come.
#[derive(Debug)]
struct Planned {
    /// Of which call; of any, if there is none.
    call: Option<DriverCall>,
    chance: Chance,
    fail: u64,
    sticky: bool,
}

/// When a planned failure happens.
#[derive(Debug)]
enum Chance {
    /// After so many more calls.
    After(u64),
    /// At one call in so many, on average, drawn from this state.
    OneIn(u64, Draw),
}

impl Planned {
    /// Whether this call is one of those that fail.
    fn strikes(&mut self, call: DriverCall) -> bool {
        if self.fail == 0 || self.call.is_some_and(|planned| planned != call) {
            return false;
        }
        let now = match &mut self.chance {
            Chance::After(0) => true,
            Chance::After(pass) => {
                *pass -= 1;
                false
            }
            Chance::OneIn(calls, draw) => draw.number().is_multiple_of((*calls).max(1)),
        };
        self.fail -= u64::from(now);
        now
    }
}

/// A driver behind a layer that counts, fails and goes deaf.
#[derive(Debug)]
pub struct LayeredDriver {
    inner: Arc<dyn Driver>,
    counts: [AtomicU64; CALLS],
    failed: [AtomicU64; CALLS],
    plan: Mutex<Vec<Planned>>,
    stalls: Mutex<Vec<Arc<StalledCall>>>,
    deaf: AtomicBool,
    capturing: AtomicBool,
    spelled_out: AtomicBool,
}

impl LayeredDriver {
    /// A layer over `inner` that, so far, only counts.
    #[must_use]
    pub fn new(inner: Arc<dyn Driver>) -> Self {
        Self {
            inner,
            counts: [const { AtomicU64::new(0) }; CALLS],
            failed: [const { AtomicU64::new(0) }; CALLS],
            plan: Mutex::default(),
            stalls: Mutex::default(),
            deaf: AtomicBool::new(false),
            capturing: AtomicBool::new(false),
            spelled_out: AtomicBool::new(false),
        }
    }

    /// How often `call` was made, failed ones included.
    #[must_use]
    pub fn count(&self, call: DriverCall) -> u64 {
        self.counts[call as usize].load(Ordering::SeqCst)
    }

    /// How often `call` was made and not made to fail.
    #[must_use]
    pub fn passed(&self, call: DriverCall) -> u64 {
        self.count(call) - self.failed[call as usize].load(Ordering::SeqCst)
    }

    /// How many calls were made to fail, of every kind.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.failed.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// How often `call` is made while `work` runs, by whomever.
    pub fn count_during(&self, call: DriverCall, work: impl FnOnce()) -> u64 {
        let before = self.count(call);
        work();
        self.count(call) - before
    }

    /// Stops the next call of this kind before it reaches the device, until the answer is dropped.
    #[must_use]
    pub fn stall(&self, call: DriverCall) -> Stall {
        let stalled = StalledCall::new(call);
        self.stalls.lock().push(Arc::clone(&stalled));
        Stall(stalled)
    }

    /// Lets `pass` more calls of this kind through, then fails the next `fail`.
    pub fn fail_after(&self, call: DriverCall, pass: u64, fail: u64) {
        self.plan_for(Some(call), Chance::After(pass), fail, false);
    }

    /// Lets `pass` more calls through, of whatever kind, then fails the next one.
    pub fn fail_call(&self, pass: u64) {
        self.plan_for(None, Chance::After(pass), 1, false);
    }

    /// The same with an error that loses the device.
    pub fn lose_device_at_call(&self, pass: u64) {
        self.plan_for(None, Chance::After(pass), u64::MAX, true);
    }

    /// Fails calls of every kind by chance, one in `calls` on average and `at_most` in all. The
    /// same seed and the same calls fail at the same places.
    pub fn fail_randomly(&self, seed: u64, calls: u64, at_most: u64) {
        self.plan_for(None, Chance::OneIn(calls, Draw::new(seed)), at_most, false);
    }

    fn plan_for(&self, call: Option<DriverCall>, chance: Chance, fail: u64, sticky: bool) {
        self.plan.lock().push(Planned { call, chance, fail, sticky });
    }

    /// How many calls were made, of every kind, failed ones included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// Fails every call of this kind from now on.
    pub fn fail_always(&self, call: DriverCall) {
        self.fail_after(call, 0, u64::MAX);
    }

    /// Fails the next call of this kind with an error that loses the device.
    pub fn lose_device_at(&self, call: DriverCall) {
        self.plan_for(Some(call), Chance::After(0), u64::MAX, true);
    }

    /// Fails nothing any more.
    pub fn heal(&self) {
        self.plan.lock().clear();
    }

    /// Whether streams ignore the events they are told to wait for.
    pub fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::SeqCst);
    }

    /// Whether every "it is done" that the device answers is followed by a wait for just that,
    /// which is over at once. Nothing changes but for tools beside the program, which learn from
    /// waits and not from answers what the program knows.
    pub fn set_spelled_out(&self, spelled_out: bool) {
        self.spelled_out.store(spelled_out, Ordering::SeqCst);
    }

    /// Whether every stream says that it is being captured.
    pub fn set_capturing(&self, capturing: bool) {
        self.capturing.store(capturing, Ordering::SeqCst);
    }

    fn enter(&self, call: DriverCall) -> DriverResult<()> {
        self.counts[call as usize].fetch_add(1, Ordering::SeqCst);
        let stalled = {
            let mut stalls = self.stalls.lock();
            let index = stalls.iter().position(|stalled| stalled.catches(call));
            index.map(|index| stalls.swap_remove(index))
        };
        if let Some(stalled) = stalled {
            stalled.hold();
        }
        let mut plan = self.plan.lock();
        for planned in plan.iter_mut() {
            if planned.strikes(call) {
                self.failed[call as usize].fetch_add(1, Ordering::SeqCst);
                let error = DriverError::new(format!("{call:?}"), INJECTED, "injected failure");
                return Err(if planned.sticky { error.sticky() } else { error });
            }
        }
        Ok(())
    }
}

/// Counts a call, fails it if planned, and passes it on.
macro_rules! pass {
    ($self:ident, $call:ident, $inner:expr) => {{
        $self.enter(DriverCall::$call)?;
        // SAFETY: the caller's promises are the inner driver's, word for word.
        #[allow(unused_unsafe)]
        unsafe {
            $inner
        }
    }};
}

impl Driver for LayeredDriver {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn watcher(&self) -> Option<Arc<dyn DeviceWatcher>> {
        self.inner.watcher()
    }
    fn memory(&self) -> DriverResult<MemoryInfo> {
        pass!(self, Memory, self.inner.memory())
    }
    fn synchronize_device(&self) -> DriverResult<()> {
        pass!(self, SynchronizeDevice, self.inner.synchronize_device())
    }
    fn create_stream(&self) -> DriverResult<RawStream> {
        pass!(self, CreateStream, self.inner.create_stream())
    }
    unsafe fn destroy_stream(&self, stream: RawStream) -> DriverResult<()> {
        pass!(self, DestroyStream, self.inner.destroy_stream(stream))
    }
    unsafe fn synchronize_stream(&self, stream: RawStream) -> DriverResult<()> {
        pass!(self, SynchronizeStream, self.inner.synchronize_stream(stream))
    }
    unsafe fn stream_progress(&self, stream: RawStream) -> DriverResult<StreamProgress> {
        let progress = pass!(self, StreamProgress, self.inner.stream_progress(stream))?;
        if progress == StreamProgress::Idle && self.spelled_out.load(Ordering::SeqCst) {
            // SAFETY: the caller's stream.
            unsafe { self.inner.synchronize_stream(stream) }?;
        }
        Ok(progress)
    }
    unsafe fn is_capturing(&self, stream: RawStream) -> DriverResult<bool> {
        if self.capturing.load(Ordering::SeqCst) {
            return self.enter(DriverCall::IsCapturing).map(|()| true);
        }
        pass!(self, IsCapturing, self.inner.is_capturing(stream))
    }
    fn create_event(&self) -> DriverResult<RawEvent> {
        pass!(self, CreateEvent, self.inner.create_event())
    }
    unsafe fn destroy_event(&self, event: RawEvent) -> DriverResult<()> {
        pass!(self, DestroyEvent, self.inner.destroy_event(event))
    }
    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        pass!(self, RecordEvent, self.inner.record_event(event, stream))
    }
    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        if self.deaf.load(Ordering::SeqCst) {
            return self.enter(DriverCall::WaitEvent);
        }
        pass!(self, WaitEvent, self.inner.wait_event(stream, event))
    }
    unsafe fn event_done(&self, event: RawEvent) -> DriverResult<bool> {
        let done = pass!(self, EventDone, self.inner.event_done(event))?;
        if done && self.spelled_out.load(Ordering::SeqCst) {
            // SAFETY: the caller's event.
            unsafe { self.inner.synchronize_event(event) }?;
        }
        Ok(done)
    }
    unsafe fn synchronize_event(&self, event: RawEvent) -> DriverResult<()> {
        pass!(self, SynchronizeEvent, self.inner.synchronize_event(event))
    }
    // Stamps are not the program's: they are passed on, and neither counted nor made to fail.
    fn create_stamp(&self) -> DriverResult<Option<RawStamp>> {
        self.inner.create_stamp()
    }
    unsafe fn open_stamps(&self, stamps: WorkStamps, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller's promises are the inner driver's, word for word.
        unsafe { self.inner.open_stamps(stamps, stream) }
    }
    unsafe fn close_stamps(&self, stamps: WorkStamps, stream: RawStream) -> DriverResult<()> {
        // SAFETY: the caller's promises are the inner driver's, word for word.
        unsafe { self.inner.close_stamps(stamps, stream) }
    }
    unsafe fn stamp_time(&self, stamp: RawStamp) -> DriverResult<Option<Instant>> {
        // SAFETY: the caller's promises are the inner driver's, word for word.
        unsafe { self.inner.stamp_time(stamp) }
    }
    unsafe fn destroy_stamp(&self, stamp: RawStamp) -> DriverResult<()> {
        // SAFETY: the caller's promises are the inner driver's, word for word.
        unsafe { self.inner.destroy_stamp(stamp) }
    }
    fn allocate(&self, bytes: usize) -> DriverResult<u64> {
        pass!(self, Allocate, self.inner.allocate(bytes))
    }
    unsafe fn free(&self, pointer: u64) -> DriverResult<()> {
        pass!(self, Free, self.inner.free(pointer))
    }
    unsafe fn allocate_on(&self, bytes: usize, stream: RawStream) -> DriverResult<u64> {
        pass!(self, AllocateOn, self.inner.allocate_on(bytes, stream))
    }
    unsafe fn free_on(&self, pointer: u64, stream: RawStream) -> DriverResult<()> {
        pass!(self, FreeOn, self.inner.free_on(pointer, stream))
    }
    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8> {
        pass!(self, AllocatePinned, self.inner.allocate_pinned(bytes))
    }
    unsafe fn free_pinned(&self, pointer: *mut u8) -> DriverResult<()> {
        pass!(self, FreePinned, self.inner.free_pinned(pointer))
    }
    unsafe fn copy_to_device(
        &self,
        destination: u64,
        source: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        pass!(self, CopyToDevice, self.inner.copy_to_device(destination, source, bytes, stream))
    }
    unsafe fn copy_to_host(
        &self,
        destination: *mut u8,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        pass!(self, CopyToHost, self.inner.copy_to_host(destination, source, bytes, stream))
    }
    unsafe fn copy_on_device(
        &self,
        destination: u64,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        pass!(self, CopyOnDevice, self.inner.copy_on_device(destination, source, bytes, stream))
    }
    unsafe fn fill_bytes(
        &self,
        destination: u64,
        value: u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        pass!(self, FillBytes, self.inner.fill_bytes(destination, value, bytes, stream))
    }
    fn load_kernel(&self, kernel: &'static KernelDefinition) -> DriverResult<RawFunction> {
        pass!(self, LoadKernel, self.inner.load_kernel(kernel))
    }
    unsafe fn launch(
        &self,
        function: RawFunction,
        dims: LaunchDims,
        arguments: &Arguments,
        stream: RawStream,
    ) -> DriverResult<()> {
        pass!(self, Launch, self.inner.launch(function, dims, arguments, stream))
    }
}
