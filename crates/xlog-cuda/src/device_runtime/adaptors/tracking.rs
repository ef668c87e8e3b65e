//! Knows who holds what.

use std::{backtrace::Backtrace, fmt, sync::Arc};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{Holding, Inner, failed_frees::FailedFrees, holding};
use crate::device_runtime::{
    AllocTag, BlockId, DeviceBlock, DeviceMemoryResource, Generation, ResourceError,
    ResourceResult, StreamId, forward::forward,
};

/// Knows every block that has not been handed back: its tag, and where it was allocated if asked.
///
/// A block whose free failed is still held, until a reap through this resource has freed it. A
/// resource that is dropped while blocks are held logs its [`leak_report`](Self::leak_report) as a
/// warning. The books are behind a lock, which is not held while the resource below works.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::host());
/// let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// let tracked = TrackingResource::new(Box::new(AsyncCudaResource::new(device, 0, pool)));
///
/// let keys = tracked.allocate(4096, StreamId::DEFAULT, AllocTag("keys"))?;
/// let rows = tracked.allocate(1024, StreamId::DEFAULT, AllocTag("rows"))?;
/// assert_eq!(tracked.by_tag(), [(AllocTag("keys"), 1, 4096), (AllocTag("rows"), 1, 1024)]);
/// tracked.deallocate(keys)?;
/// assert_eq!(tracked.holders()[0].tag, AllocTag("rows"));
/// tracked.deallocate(rows)?;
/// assert_eq!(tracked.leak_report(), "device 0: no block is held");
/// # Ok::<(), ResourceError>(())
/// ```
pub struct TrackingResource {
    inner: Inner,
    captures: bool,
    books: Mutex<Books>,
    failed: FailedFrees,
}

#[derive(Default)]
struct Books {
    held: FxHashMap<(u64, Generation), Holding>,
    allocations: u64,
}

impl TrackingResource {
    /// Keeps books of what passes through to `inner`, from now on.
    #[must_use]
    pub fn new(inner: Box<dyn DeviceMemoryResource + Send + Sync>) -> Self {
        Self::make(inner, false)
    }

    /// The same, with a backtrace of every allocation, whatever the environment says. Capturing
    /// costs microseconds an allocation; names are looked up only when a backtrace is printed.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xlog_cuda::{CudaDevice, device_runtime::*};
    ///
    /// let device = Arc::new(CudaDevice::host());
    /// let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
    /// let inner = AsyncCudaResource::new(device, 0, pool);
    /// let tracked = TrackingResource::with_backtraces(Box::new(inner));
    /// let block = tracked.allocate(4096, StreamId::DEFAULT, AllocTag("keys"))?;
    /// assert!(tracked.holders()[0].backtrace.is_some());
    /// # tracked.deallocate(block)?;
    /// # Ok::<(), ResourceError>(())
    /// ```
    #[must_use]
    pub fn with_backtraces(inner: Box<dyn DeviceMemoryResource + Send + Sync>) -> Self {
        Self::make(inner, true)
    }

    fn make(inner: Inner, captures: bool) -> Self {
        Self { inner, captures, books: Mutex::default(), failed: FailedFrees::default() }
    }

    /// Every block that is held, the oldest first.
    #[must_use]
    pub fn holders(&self) -> Vec<Holding> {
        let mut holders: Vec<_> = self.books.lock().held.values().cloned().collect();
        holders.sort_unstable_by_key(|holding| holding.sequence);
        holders
    }

    /// Blocks and bytes held under each tag, the most bytes first.
    #[must_use]
    pub fn by_tag(&self) -> Vec<(AllocTag, usize, usize)> {
        holding::by_tag(&self.holders())
    }

    /// What is held, for a person to read: the tags by bytes, and under each its oldest blocks.
    #[must_use]
    pub fn leak_report(&self) -> String {
        holding::report(self.inner.device_ordinal(), &self.holders())
    }

    fn freed(&self, block: BlockId) {
        self.failed.forget(block);
        self.forget(block);
    }

    fn forget(&self, block: BlockId) {
        self.books.lock().held.remove(&(block.ptr, block.generation));
    }

    fn settle(&self, all_freed: bool) {
        for (block, _) in self.failed.settled(&self.inner, all_freed) {
            self.forget(block);
        }
    }
}

impl DeviceMemoryResource for TrackingResource {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        let block = self.inner.allocate(bytes, stream, tag)?;
        let backtrace = self.captures.then(|| Arc::new(Backtrace::force_capture()));
        let mut books = self.books.lock();
        books.allocations += 1;
        let holding = Holding {
            ptr: block.ptr,
            bytes: block.bytes,
            stream,
            tag,
            generation: block.generation,
            sequence: books.allocations,
            backtrace,
        };
        books.held.insert((block.ptr, block.generation), holding);
        Ok(block)
    }

    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        let (id, bytes) = (BlockId::from_block(&block), block.bytes);
        let answer = self.inner.deallocate(block);
        match &answer {
            Ok(()) => self.freed(id),
            Err(error) => self.failed.note(&self.inner, (id, bytes), error),
        }
        answer
    }

    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        let id = BlockId::from_block(&block);
        self.inner.try_deallocate(block)?;
        self.freed(id);
        Ok(())
    }

    fn reap_pending(&self) -> ResourceResult<()> {
        let answer = self.inner.reap_pending();
        self.settle(answer.is_ok());
        answer
    }

    fn try_reap(&self) -> ResourceResult<()> {
        let answer = self.inner.try_reap();
        self.settle(false);
        answer
    }

    forward! { this => this.inner; device_ordinal, bytes_outstanding, uses }
}

impl Drop for TrackingResource {
    fn drop(&mut self) {
        if !self.books.lock().held.is_empty() {
            log::warn!("a resource is dropped while its blocks are held; {}", self.leak_report());
        }
    }
}

impl fmt::Debug for TrackingResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackingResource")
            .field("device_ordinal", &self.inner.device_ordinal())
            .field("captures_backtraces", &self.captures)
            .field("by_tag", &self.by_tag())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CudaDevice,
        device_runtime::{AsyncCudaResource, StreamPool},
    };

    /// What was logged in this process, tests beside this one included.
    static LOGGED: Mutex<Vec<(log::Level, String)>> = Mutex::new(Vec::new());

    struct Capture;

    impl log::Log for Capture {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            LOGGED.lock().push((record.level(), record.args().to_string()));
        }
        fn flush(&self) {}
    }

    #[test]
    fn a_resource_dropped_with_blocks_held_warns_and_one_without_does_not() {
        log::set_logger(&Capture).expect("no other test sets a logger");
        log::set_max_level(log::LevelFilter::Trace);
        let device = Arc::new(CudaDevice::host());
        let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
        let below = Arc::new(AsyncCudaResource::new(device, 0, pool));
        let warnings = |tag: &str| {
            let is_it = |(level, text): &&(log::Level, String)| {
                *level == log::Level::Warn && text.contains(tag)
            };
            LOGGED.lock().iter().filter(is_it).map(|(_, text)| text.clone()).collect::<Vec<_>>()
        };

        let tracked = TrackingResource::new(Box::new(Arc::clone(&below)));
        let tag = AllocTag("handed back in time");
        let block = tracked.allocate(512, StreamId::DEFAULT, tag).expect("memory");
        tracked.deallocate(block).expect("a free");
        drop(tracked);
        assert_eq!(warnings(tag.0), [""; 0]);

        let tracked = TrackingResource::new(Box::new(Arc::clone(&below)));
        let tag = AllocTag("left behind");
        let block = tracked.allocate(512, StreamId::DEFAULT, tag).expect("memory");
        let report = tracked.leak_report();
        drop(tracked);
        let warnings = warnings(tag.0);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].ends_with(&report), "{warnings:?}");
        below.deallocate(block).expect("the block outlived its adaptor");
    }

    #[test]
    fn a_backtrace_names_the_caller() {
        let device = Arc::new(CudaDevice::host());
        let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
        let below = AsyncCudaResource::new(device, 0, pool);
        let tracked = TrackingResource::with_backtraces(Box::new(below));
        let block = tracked.allocate(512, StreamId::DEFAULT, AllocTag::UNTAGGED).expect("memory");
        let report = tracked.leak_report();
        assert!(report.contains("a_backtrace_names_the_caller"), "{report}");
        tracked.deallocate(block).expect("a free");
    }
}
