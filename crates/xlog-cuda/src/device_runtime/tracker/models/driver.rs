//! A device that does nothing, and remembers in which order it was asked to.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use xlog_driver::{
    Arguments, DeviceInfo, DeviceKind, Driver, DriverError, DriverResult, KernelDefinition,
    LaunchDims, MemoryInfo, RawEvent, RawFunction, RawStream, StreamProgress,
};

use crate::sync;

/// A place in a stream: everything before it, and the stream.
pub(crate) type Place = (u64, usize);

/// What a stream was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Work,
    Record,
    /// To wait for what an event stood for then; `None` if it was never recorded.
    Wait(Option<Place>),
    Allocate(u64),
    Free(u64),
}

#[derive(Debug, Default)]
struct Books {
    last: u64,
    streams: BTreeMap<u64, Vec<Asked>>,
    /// What each event stands for.
    events: BTreeMap<u64, Place>,
    waited_for: BTreeMap<u64, usize>,
}

/// The device.
#[derive(Debug)]
pub(crate) struct ModelDriver {
    info: DeviceInfo,
    /// Whether everything is done as soon as it is asked for; nothing ever is otherwise.
    done_at_once: AtomicBool,
    /// What the contract promises of streams: what is enqueued happens one after the other.
    order: sync::Mutex<()>,
    /// Not one of the model's locks: it neither orders nor interrupts threads.
    books: parking_lot::Mutex<Books>,
}

impl ModelDriver {
    pub(crate) fn new(done_at_once: bool) -> Self {
        let info = DeviceInfo {
            kind: DeviceKind::Host,
            ordinal: 0,
            name: "model".into(),
            driver_version: 0,
            compute_capability: (0, 0),
            multiprocessors: 1,
            stream_ordered_memory: true,
        };
        let (order, books) = (sync::Mutex::new(()), parking_lot::Mutex::default());
        Self { info, done_at_once: AtomicBool::new(done_at_once), order, books }
    }

    /// From here on everything is done at once.
    pub(crate) fn do_all(&self) {
        self.done_at_once.store(true, Ordering::Relaxed);
    }

    fn is_done(&self) -> bool {
        self.done_at_once.load(Ordering::Relaxed)
    }

    /// How much of a stream was waited for on the host.
    pub(crate) fn waited_for(&self, stream: RawStream) -> usize {
        self.books.lock().waited_for.get(&stream.0).copied().unwrap_or_default()
    }

    fn enqueue(&self, stream: RawStream, asked: Asked) -> usize {
        self.enqueue_with(stream, |_| asked, |_, _| ())
    }

    /// Enqueues what `ask` says when it is this call's turn, and has `then` note its place.
    fn enqueue_with(
        &self,
        stream: RawStream,
        ask: impl FnOnce(&Books) -> Asked,
        then: impl FnOnce(&mut Books, Place),
    ) -> usize {
        let _order = self.order.lock();
        let mut books = self.books.lock();
        let asked = ask(&books);
        let queue = books.streams.entry(stream.0).or_default();
        queue.push(asked);
        let length = queue.len();
        then(&mut books, (stream.0, length));
        length
    }

    fn number(&self) -> u64 {
        let mut books = self.books.lock();
        books.last += 1;
        books.last
    }

    /// Enqueues work, and answers its place.
    pub(crate) fn work(&self, stream: RawStream) -> Place {
        (stream.0, self.enqueue(stream, Asked::Work))
    }

    /// Everything a stream was asked for.
    pub(crate) fn queue(&self, stream: RawStream) -> Vec<Asked> {
        self.books.lock().streams.get(&stream.0).cloned().unwrap_or_default()
    }

    /// What an event stands for.
    pub(crate) fn stands_for(&self, event: RawEvent) -> Option<Place> {
        self.books.lock().events.get(&event.0).copied()
    }

    /// Whether what is at `later` runs only after what is at `earlier`.
    pub(crate) fn follows(&self, later: Place, earlier: Place) -> bool {
        if later.0 == earlier.0 {
            return earlier.1 <= later.1;
        }
        let before = self.queue(RawStream(later.0));
        before[..later.1].iter().any(|asked| match asked {
            Asked::Wait(Some(place)) => self.follows(*place, earlier),
            _ => false,
        })
    }
}

/// What no model asks for.
fn not_modelled<T>() -> DriverResult<T> {
    Err(DriverError::new("model", DriverError::NO_CODE, "a call that no model makes"))
}

impl Driver for ModelDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn memory(&self) -> DriverResult<MemoryInfo> {
        not_modelled()
    }
    fn synchronize_device(&self) -> DriverResult<()> {
        Ok(())
    }
    fn create_stream(&self) -> DriverResult<RawStream> {
        // Past CUDA's own handles, and apart from addresses and events.
        Ok(RawStream(0x1000 + self.number()))
    }
    unsafe fn destroy_stream(&self, _: RawStream) -> DriverResult<()> {
        Ok(())
    }
    unsafe fn synchronize_stream(&self, stream: RawStream) -> DriverResult<()> {
        let _order = self.order.lock();
        let books = &mut *self.books.lock();
        let length = books.streams.get(&stream.0).map_or(0, Vec::len);
        books.waited_for.insert(stream.0, length);
        Ok(())
    }
    unsafe fn stream_progress(&self, _: RawStream) -> DriverResult<StreamProgress> {
        Ok(if self.is_done() { StreamProgress::Idle } else { StreamProgress::Busy })
    }
    unsafe fn is_capturing(&self, _: RawStream) -> DriverResult<bool> {
        Ok(false)
    }
    fn create_event(&self) -> DriverResult<RawEvent> {
        Ok(RawEvent(self.number()))
    }
    unsafe fn destroy_event(&self, _: RawEvent) -> DriverResult<()> {
        Ok(())
    }
    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        let note = |books: &mut Books, place| {
            books.events.insert(event.0, place);
        };
        self.enqueue_with(stream, |_| Asked::Record, note);
        Ok(())
    }
    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        let now = |books: &Books| Asked::Wait(books.events.get(&event.0).copied());
        self.enqueue_with(stream, now, |_, _| ());
        Ok(())
    }
    unsafe fn event_done(&self, _: RawEvent) -> DriverResult<bool> {
        Ok(self.is_done())
    }
    unsafe fn synchronize_event(&self, _: RawEvent) -> DriverResult<()> {
        Ok(())
    }
    fn allocate(&self, _: usize) -> DriverResult<u64> {
        not_modelled()
    }
    unsafe fn free(&self, _: u64) -> DriverResult<()> {
        not_modelled()
    }
    unsafe fn allocate_on(&self, _: usize, stream: RawStream) -> DriverResult<u64> {
        // Far enough apart for any slab.
        let pointer = self.number() << 32;
        self.enqueue(stream, Asked::Allocate(pointer));
        Ok(pointer)
    }
    unsafe fn free_on(&self, pointer: u64, stream: RawStream) -> DriverResult<()> {
        self.enqueue(stream, Asked::Free(pointer));
        Ok(())
    }
    fn allocate_pinned(&self, _: usize) -> DriverResult<*mut u8> {
        not_modelled()
    }
    unsafe fn free_pinned(&self, _: *mut u8) -> DriverResult<()> {
        not_modelled()
    }
    unsafe fn copy_to_device(
        &self,
        _: u64,
        _: *const u8,
        _: usize,
        _: RawStream,
    ) -> DriverResult<()> {
        not_modelled()
    }
    unsafe fn copy_to_host(&self, _: *mut u8, _: u64, _: usize, _: RawStream) -> DriverResult<()> {
        not_modelled()
    }
    unsafe fn copy_on_device(&self, _: u64, _: u64, _: usize, _: RawStream) -> DriverResult<()> {
        not_modelled()
    }
    unsafe fn fill_bytes(&self, _: u64, _: u8, _: usize, _: RawStream) -> DriverResult<()> {
        not_modelled()
    }
    fn load_kernel(&self, _: &'static KernelDefinition) -> DriverResult<RawFunction> {
        not_modelled()
    }
    unsafe fn launch(
        &self,
        _: RawFunction,
        _: LaunchDims,
        _: &Arguments,
        stream: RawStream,
    ) -> DriverResult<()> {
        self.enqueue(stream, Asked::Work);
        Ok(())
    }
}
