//! Writes down what is enqueued on a device, and enqueues it again without the runtime.
//!
//! The bare replay of an operator is what it would cost by hand, with every buffer allocated and
//! every wait known beforehand: the launches, fills and copies of one run, on their streams, and
//! the places where the host waited for a size.

use std::{
    collections::{BTreeMap, HashMap},
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

    /// The same with memory of its own for each thread: a copy of every allocation it touched.
    /// Memory that was free for certain may have gone from one stream to another without a wait,
    /// and a replay in that memory would let both use it at once.
    pub(super) fn apart(self, driver: &Arc<TapeDriver>) -> DriverResult<ApartTape> {
        let mut apart = ApartTape { tape: self, driver: Arc::clone(driver), copies: Vec::new() };
        let stream = driver.inner.create_stream()?;
        let copied = apart.take_apart(stream);
        // SAFETY: the stream was made above, and is used no more.
        let destroyed = unsafe { driver.inner.destroy_stream(stream) };
        copied.and(destroyed).map(|()| apart)
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

/// A tape whose threads share no memory.
#[derive(Debug)]
pub(super) struct ApartTape {
    pub(super) tape: Tape,
    driver: Arc<TapeDriver>,
    copies: Vec<u64>,
}

impl ApartTape {
    fn take_apart(&mut self, stream: RawStream) -> DriverResult<()> {
        let (driver, state) = (&self.driver.inner, self.driver.state.lock());
        for entries in &mut self.tape.threads {
            let mut moved: HashMap<u64, u64> = HashMap::new();
            let mut other = |address: u64| -> DriverResult<u64> {
                let before = state.allocations.range(..=address).next_back();
                let Some((&base, &bytes)) =
                    before.filter(|(base, n)| address - **base < **n as u64)
                else {
                    return Ok(address);
                };
                let copy = match moved.get(&base) {
                    Some(copy) => *copy,
                    None => {
                        let copy = driver.allocate(bytes)?;
                        self.copies.push(copy);
                        moved.insert(base, copy);
                        // SAFETY: both have that many bytes, and the device is at rest.
                        unsafe {
                            driver.copy_on_device(copy, base, bytes, stream)?;
                            driver.synchronize_stream(stream)?;
                        }
                        copy
                    }
                };
                Ok(copy + (address - base))
            };
            for entry in entries {
                match entry {
                    Entry::Launch(function, _, arguments, _) => {
                        let kernel = state.kernels.get(&function.0);
                        let parameters = kernel.map_or(&[][..], |kernel| kernel.parameters);
                        for (index, parameter) in parameters.iter().enumerate() {
                            let pointer = arguments.value::<u64>(index);
                            if let (Some(_), Some(pointer)) = (parameter.kind.access(), pointer) {
                                arguments.set_pointer(index, other(pointer)?);
                            }
                        }
                    }
                    Entry::Fill(to, ..) | Entry::CopyToDevice(to, ..) => *to = other(*to)?,
                    Entry::CopyToHost(_, from, ..) => *from = other(*from)?,
                    Entry::CopyOnDevice(to, from, ..) => {
                        (*to, *from) = (other(*to)?, other(*from)?);
                    }
                    Entry::Wait(_) => {}
                }
            }
        }
        Ok(())
    }
}

impl Drop for ApartTape {
    fn drop(&mut self) {
        let driver = &self.driver.inner;
        if driver.synchronize_device().is_err() {
            return;
        }
        for copy in self.copies.drain(..) {
            // SAFETY: allocated for this tape, and no replay runs any more.
            if unsafe { driver.free(copy) }.is_err() {
                return;
            }
        }
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
    /// What is allocated, by address.
    allocations: BTreeMap<u64, usize>,
    kernels: HashMap<u64, &'static KernelDefinition>,
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
        fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8>;
    }
    pass_on_promised! {
        fn destroy_stream(&self, stream: RawStream) -> DriverResult<()>;
        fn stream_progress(&self, stream: RawStream) -> DriverResult<StreamProgress>;
        fn is_capturing(&self, stream: RawStream) -> DriverResult<bool>;
        fn destroy_event(&self, event: RawEvent) -> DriverResult<()>;
        fn wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()>;
        fn event_done(&self, event: RawEvent) -> DriverResult<bool>;
        fn free_pinned(&self, pointer: *mut u8) -> DriverResult<()>;
    }

    fn load_kernel(&self, kernel: &'static KernelDefinition) -> DriverResult<RawFunction> {
        let function = self.inner.load_kernel(kernel)?;
        self.state.lock().kernels.insert(function.0, kernel);
        Ok(function)
    }
    fn allocate(&self, bytes: usize) -> DriverResult<u64> {
        let address = self.inner.allocate(bytes)?;
        self.state.lock().allocations.insert(address, bytes);
        Ok(address)
    }
    unsafe fn free(&self, pointer: u64) -> DriverResult<()> {
        self.state.lock().allocations.remove(&pointer);
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(pointer) }
    }
    unsafe fn allocate_on(&self, bytes: usize, stream: RawStream) -> DriverResult<u64> {
        // SAFETY: the caller's promise.
        let address = unsafe { self.inner.allocate_on(bytes, stream) }?;
        self.state.lock().allocations.insert(address, bytes);
        Ok(address)
    }
    unsafe fn free_on(&self, pointer: u64, stream: RawStream) -> DriverResult<()> {
        self.state.lock().allocations.remove(&pointer);
        // SAFETY: the caller's promise.
        unsafe { self.inner.free_on(pointer, stream) }
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
