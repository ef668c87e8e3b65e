//! Writes down what is enqueued on a device, and enqueues it again without the runtime.
//!
//! The bare replay of an operator is what it would cost by hand, with every buffer allocated and
//! every wait known beforehand: the launches, fills and copies of one run, on their streams, and
//! the places where the host waited for a size.

use std::{
    collections::HashMap,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread::ThreadId,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use xlog_driver::{
    Arguments, DeviceInfo, DeviceWatcher, Driver, DriverResult, KernelDefinition, LaunchDims,
    MemoryInfo, RawEvent, RawFunction, RawStream, StreamProgress,
};

/// One thing on the tape.
#[derive(Clone, Debug)]
enum Entry {
    Launch(RawFunction, LaunchDims, Box<Arguments>, RawStream),
    Fill(u64, u8, usize, RawStream),
    CopyOnDevice(u64, u64, usize, RawStream),
    /// Addresses on the host as numbers: the memory is the runtime's staging memory.
    CopyToHost(usize, u64, usize, RawStream),
    CopyToDevice(u64, usize, usize, RawStream),
    /// The host waited for a stream, or for an event that was last recorded on it.
    Wait(RawStream),
}

/// What was enqueued, thread by thread.
#[derive(Debug, Default)]
pub(super) struct Tape {
    threads: Vec<Vec<Entry>>,
}

impl Tape {
    /// Launches on it.
    pub(super) fn launches(&self) -> usize {
        let launch = |entry: &&Entry| matches!(entry, Entry::Launch(..));
        self.threads.iter().flatten().filter(launch).count()
    }

    /// Whether no two streams cleared the same memory. Memory that was free for certain may have
    /// gone from one to the other without a wait, and a replay would let both use it at once.
    pub(super) fn keeps_streams_apart(&self) -> bool {
        let mut cleared = HashMap::new();
        self.threads.iter().flatten().all(|entry| match *entry {
            Entry::Fill(to, _, _, stream) => *cleared.entry(to).or_insert(stream) == stream,
            _ => true,
        })
    }

    /// Enqueues everything again, a thread for each that did before, and waits for the device.
    /// Answers how long that took.
    ///
    /// # Safety
    /// The device, its streams, the kernels' memory and the staging memory are those of the
    /// recording, and nothing else uses that memory.
    pub(super) unsafe fn replay(&self, driver: &dyn Driver) -> DriverResult<Duration> {
        if let [one] = &self.threads[..] {
            let start = Instant::now();
            // SAFETY: the caller's promise.
            unsafe { play(one, driver) }?;
            return Ok(start.elapsed());
        }
        let barrier = Barrier::new(self.threads.len() + 1);
        std::thread::scope(|scope| {
            let players: Vec<_> = self
                .threads
                .iter()
                .map(|entries| {
                    scope.spawn(|| {
                        barrier.wait();
                        // SAFETY: the caller's promise.
                        unsafe { play(entries, driver) }
                    })
                })
                .collect();
            barrier.wait();
            let start = Instant::now();
            let mut answer = Ok(());
            for player in players {
                answer = answer.and(player.join().unwrap_or(Ok(())));
            }
            answer.map(|()| start.elapsed())
        })
    }
}

/// Enqueues what one thread did, and waits for the streams it used.
///
/// # Safety
/// As for [`Tape::replay`].
unsafe fn play(entries: &[Entry], driver: &dyn Driver) -> DriverResult<()> {
    let mut used = Vec::new();
    for entry in entries {
        // SAFETY: the caller's promise.
        let stream = unsafe {
            match *entry {
                Entry::Launch(function, dims, ref arguments, stream) => {
                    driver.launch(function, dims, arguments, stream)?;
                    stream
                }
                Entry::Fill(to, value, bytes, stream) => {
                    driver.fill_bytes(to, value, bytes, stream)?;
                    stream
                }
                Entry::CopyOnDevice(to, from, bytes, stream) => {
                    driver.copy_on_device(to, from, bytes, stream)?;
                    stream
                }
                Entry::CopyToHost(to, from, bytes, stream) => {
                    driver.copy_to_host(to as *mut u8, from, bytes, stream)?;
                    stream
                }
                Entry::CopyToDevice(to, from, bytes, stream) => {
                    driver.copy_to_device(to, from as *const u8, bytes, stream)?;
                    stream
                }
                Entry::Wait(stream) => {
                    driver.synchronize_stream(stream)?;
                    stream
                }
            }
        };
        if !used.contains(&stream) {
            used.push(stream);
        }
    }
    // SAFETY: the caller's promise.
    used.into_iter().try_for_each(|stream| unsafe { driver.synchronize_stream(stream) })
}

/// A driver with a recorder beside it.
#[derive(Debug)]
pub(super) struct TapeDriver {
    inner: Arc<dyn Driver>,
    recording: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which threads first came.
    threads: Vec<(ThreadId, Vec<Entry>)>,
    /// The stream on which each event was last recorded.
    events: HashMap<u64, RawStream>,
}

impl TapeDriver {
    pub(super) fn new(inner: Arc<dyn Driver>) -> Self {
        Self { inner, recording: AtomicBool::new(false), state: Mutex::default() }
    }

    /// What `work` enqueues.
    pub(super) fn record<R>(&self, work: impl FnOnce() -> R) -> (Tape, R) {
        self.state.lock().threads.clear();
        self.recording.store(true, Ordering::SeqCst);
        let answer = work();
        self.recording.store(false, Ordering::SeqCst);
        let threads = std::mem::take(&mut self.state.lock().threads);
        (Tape { threads: threads.into_iter().map(|(_, entries)| entries).collect() }, answer)
    }

    #[inline]
    fn note(&self, entry: impl FnOnce(&mut State) -> Option<Entry>) {
        if self.recording.load(Ordering::Relaxed) {
            self.write_down(entry);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_down(&self, entry: impl FnOnce(&mut State) -> Option<Entry>) {
        let mut state = self.state.lock();
        let Some(entry) = entry(&mut state) else { return };
        let thread = std::thread::current().id();
        let index = state.threads.iter().position(|(id, _)| *id == thread).unwrap_or_else(|| {
            state.threads.push((thread, Vec::new()));
            state.threads.len() - 1
        });
        state.threads[index].1.push(entry);
    }
}

/// Passes calls on as they are.
macro_rules! pass_on {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) -> $answer:ty;)*) => {
        $(fn $name(&self $(, $argument: $kind)*) -> $answer {
            self.inner.$name($($argument),*)
        })*
    };
}

macro_rules! pass_on_promised {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) -> $answer:ty;)*) => {
        $(unsafe fn $name(&self $(, $argument: $kind)*) -> $answer {
            // SAFETY: the caller's promises are the inner driver's, word for word.
            unsafe { self.inner.$name($($argument),*) }
        })*
    };
}

impl Driver for TapeDriver {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    pass_on! {
        fn watcher(&self) -> Option<Arc<dyn DeviceWatcher>>;
        fn memory(&self) -> DriverResult<MemoryInfo>;
        fn synchronize_device(&self) -> DriverResult<()>;
        fn create_stream(&self) -> DriverResult<RawStream>;
        fn create_event(&self) -> DriverResult<RawEvent>;
        fn allocate(&self, bytes: usize) -> DriverResult<u64>;
        fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8>;
        fn load_kernel(&self, kernel: &'static KernelDefinition) -> DriverResult<RawFunction>;
    }
    pass_on_promised! {
        fn destroy_stream(&self, stream: RawStream) -> DriverResult<()>;
        fn stream_progress(&self, stream: RawStream) -> DriverResult<StreamProgress>;
        fn is_capturing(&self, stream: RawStream) -> DriverResult<bool>;
        fn destroy_event(&self, event: RawEvent) -> DriverResult<()>;
        fn wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()>;
        fn event_done(&self, event: RawEvent) -> DriverResult<bool>;
        fn free(&self, pointer: u64) -> DriverResult<()>;
        fn allocate_on(&self, bytes: usize, stream: RawStream) -> DriverResult<u64>;
        fn free_on(&self, pointer: u64, stream: RawStream) -> DriverResult<()>;
        fn free_pinned(&self, pointer: *mut u8) -> DriverResult<()>;
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> DriverResult<()> {
        self.note(|_| Some(Entry::Wait(stream)));
        // SAFETY: the caller's promise.
        unsafe { self.inner.synchronize_stream(stream) }
    }
    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        self.note(|state| {
            state.events.insert(event.0, stream);
            None
        });
        // SAFETY: the caller's promise.
        unsafe { self.inner.record_event(event, stream) }
    }
    unsafe fn synchronize_event(&self, event: RawEvent) -> DriverResult<()> {
        self.note(|state| state.events.get(&event.0).map(|stream| Entry::Wait(*stream)));
        // SAFETY: the caller's promise.
        unsafe { self.inner.synchronize_event(event) }
    }
    unsafe fn copy_to_device(
        &self,
        to: u64,
        from: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        self.note(|_| Some(Entry::CopyToDevice(to, from as usize, bytes, stream)));
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy_to_device(to, from, bytes, stream) }
    }
    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        self.note(|_| Some(Entry::CopyToHost(to as usize, from, bytes, stream)));
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy_to_host(to, from, bytes, stream) }
    }
    unsafe fn copy_on_device(
        &self,
        to: u64,
        from: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        self.note(|_| Some(Entry::CopyOnDevice(to, from, bytes, stream)));
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy_on_device(to, from, bytes, stream) }
    }
    unsafe fn fill_bytes(
        &self,
        to: u64,
        value: u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        self.note(|_| Some(Entry::Fill(to, value, bytes, stream)));
        // SAFETY: the caller's promise.
        unsafe { self.inner.fill_bytes(to, value, bytes, stream) }
    }
    unsafe fn launch(
        &self,
        function: RawFunction,
        dims: LaunchDims,
        arguments: &Arguments,
        stream: RawStream,
    ) -> DriverResult<()> {
        self.note(|_| Some(Entry::Launch(function, dims, Box::new(arguments.clone()), stream)));
        // SAFETY: the caller's promise.
        unsafe { self.inner.launch(function, dims, arguments, stream) }
    }
}
