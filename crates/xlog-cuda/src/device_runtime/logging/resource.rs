//! The adaptor that logs.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use xlog_core::Access;

use super::{LogAction, LogRecord, LogSink, order::Order};
use crate::device_runtime::{
    AllocTag, BlockId, BlockUse, DeviceBlock, DeviceMemoryResource, ResourceError, ResourceResult,
    StreamId, UseTracker, forward::forward,
};

/// Logs every call to the resource below it.
///
/// [`new`](Self::new) logs allocations, frees, reaps and uses. To see uses, it keeps the recorder
/// from talking to the tracker directly, which makes each launch slower;
/// [`without_uses`](Self::without_uses) leaves launches as fast as they were. Neither ever fails a
/// call: what a sink cannot take, it counts. `xlog bench alloc --only logging` says what a log
/// costs an allocation, on and off; a stack without one pays nothing.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::host());
/// let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// let memory = AsyncCudaResource::new(Arc::clone(&device), 0, Arc::clone(&pool));
/// let sink = Arc::new(MemorySink::new(10_000));
/// let logged = LoggingResource::without_uses(Box::new(memory), Arc::clone(&sink));
/// let runtime = XlogDeviceRuntime::with_resource(device, 0, pool, Box::new(logged));
///
/// let block = runtime.allocate(4096, StreamId::DEFAULT, AllocTag("example"))?;
/// runtime.deallocate(block)?;
/// let records = sink.records();
/// assert_eq!(records[0].action, LogAction::Allocate);
/// assert_eq!(records[1].action, LogAction::Free);
/// assert_eq!(records[0].generation, records[1].generation);
/// # Ok::<(), ResourceError>(())
/// ```
pub struct LoggingResource {
    enabled: AtomicBool,
    uses: bool,
    inner: Box<dyn DeviceMemoryResource + Send + Sync>,
    order: Order,
}

impl LoggingResource {
    /// Logs every call to `inner`, uses included.
    #[must_use]
    pub fn new(inner: Box<dyn DeviceMemoryResource + Send + Sync>, sink: impl LogSink) -> Self {
        Self::build(inner, sink, true)
    }

    /// Logs allocations, frees and reaps, and passes uses on untouched: what a program in
    /// production wants.
    #[must_use]
    pub fn without_uses(
        inner: Box<dyn DeviceMemoryResource + Send + Sync>,
        sink: impl LogSink,
    ) -> Self {
        Self::build(inner, sink, false)
    }

    fn build(
        inner: Box<dyn DeviceMemoryResource + Send + Sync>,
        sink: impl LogSink,
        uses: bool,
    ) -> Self {
        Self { enabled: AtomicBool::new(true), uses, inner, order: Order::new(Box::new(sink)) }
    }

    /// Starts or stops logging. While it is off, a call costs one relaxed load more than below.
    ///
    /// Whether launches pass by here was settled when the runtime was made: one over
    /// [`new`](Self::new) keeps asking, also while logging is off.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use xlog_cuda::{CudaDevice, device_runtime::*};
    /// let sink = Arc::new(MemorySink::new(100));
    /// let plain = Box::new(DirectCudaResource::new(Arc::new(CudaDevice::host()), 0));
    /// let memory = LoggingResource::new(plain, Arc::clone(&sink));
    /// memory.set_enabled(false);
    /// memory.reap_pending()?;
    /// assert!(sink.records().is_empty());
    /// # Ok::<(), ResourceError>(())
    /// ```
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether calls are logged.
    #[must_use]
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Hands everything logged so far to the sink, and flushes it. A free that has not returned
    /// yet is logged after this, however early it was called.
    pub fn flush(&self) {
        self.order.flush();
    }

    /// Whether the uses of a call are to be logged.
    fn logs_uses(&self) -> bool {
        self.uses && self.is_enabled()
    }

    fn log(&self, record: LogRecord) {
        self.order.append([record]);
    }

    fn log_uses(
        &self,
        action: LogAction,
        uses: &[BlockUse],
        stream: StreamId,
        result: &ResourceResult<()>,
    ) {
        self.order.append(uses.iter().map(|one| {
            LogRecord::of(action, result.clone()).with_use(one.block(), stream, one.access())
        }));
    }

    fn log_use(
        &self,
        action: LogAction,
        block: BlockId,
        stream: StreamId,
        access: Access,
        result: &ResourceResult<()>,
    ) {
        self.log_uses(action, &[BlockUse::new(block, access)], stream, result);
    }
}

impl DeviceMemoryResource for LoggingResource {
    forward! {
        this => this.inner;
        device_ordinal, bytes_outstanding, supports_block_use_tracking,
    }

    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        let answer = self.inner.allocate(bytes, stream, tag);
        if self.is_enabled() {
            let mut record = match &answer {
                Ok(block) => LogRecord::of(LogAction::Allocate, Ok(())).with_block(block),
                Err(error) => LogRecord {
                    tag: Some(tag),
                    bytes: Some(bytes),
                    ..LogRecord::of(LogAction::Allocate, Err(error.clone()))
                },
            };
            record.stream = Some(stream);
            record.asked = Some(bytes);
            self.log(record);
        }
        answer
    }

    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        if !self.is_enabled() {
            return self.inner.deallocate(block);
        }
        let mut record = LogRecord::of(LogAction::Free, Ok(())).with_block(&block);
        let place = self.order.reserve();
        let answer = self.inner.deallocate(block);
        record.result = answer.clone();
        self.order.settle(&place, record);
        answer
    }

    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        if !self.is_enabled() {
            return self.inner.try_deallocate(block);
        }
        let mut record = LogRecord::of(LogAction::Free, Ok(())).with_block(&block);
        let place = self.order.reserve();
        let answer = self.inner.try_deallocate(block);
        if let Err((_, error)) = &answer {
            record.result = Err(error.clone());
        }
        self.order.settle(&place, record);
        answer
    }

    fn reap_pending(&self) -> ResourceResult<()> {
        let answer = self.inner.reap_pending();
        if self.is_enabled() {
            self.log(LogRecord::of(LogAction::Reap, answer.clone()));
        }
        answer
    }

    fn try_reap(&self) -> ResourceResult<()> {
        let answer = self.inner.try_reap();
        if self.is_enabled() {
            self.log(LogRecord::of(LogAction::TryReap, answer.clone()));
        }
        answer
    }

    fn prepare_block_use(
        &self,
        block: BlockId,
        stream: StreamId,
        access: Access,
    ) -> ResourceResult<()> {
        let answer = self.inner.prepare_block_use(block, stream, access);
        if self.logs_uses() {
            self.log_use(LogAction::Prepare, block, stream, access, &answer);
        }
        answer
    }

    fn finish_block_use(
        &self,
        block: BlockId,
        stream: StreamId,
        access: Access,
    ) -> ResourceResult<()> {
        let answer = self.inner.finish_block_use(block, stream, access);
        if self.logs_uses() {
            self.log_use(LogAction::Finish, block, stream, access, &answer);
        }
        answer
    }

    fn record_block_use(&self, block: &DeviceBlock, stream: StreamId) -> ResourceResult<()> {
        let answer = self.inner.record_block_use(block, stream);
        if self.logs_uses() {
            let id = BlockId::from_block(block);
            self.log_use(LogAction::Finish, id, stream, Access::Read, &answer);
        }
        answer
    }

    fn prepare_uses(&self, uses: &[BlockUse], stream: StreamId) -> ResourceResult<()> {
        let answer = self.inner.prepare_uses(uses, stream);
        if self.logs_uses() {
            self.log_uses(LogAction::Prepare, uses, stream, &answer);
        }
        answer
    }

    fn finish_uses(&self, uses: &[BlockUse], stream: StreamId) -> ResourceResult<()> {
        let answer = self.inner.finish_uses(uses, stream);
        if self.logs_uses() {
            self.log_uses(LogAction::Finish, uses, stream, &answer);
        }
        answer
    }

    fn direct_tracker(&self) -> Option<&UseTracker> {
        if self.uses { None } else { self.inner.direct_tracker() }
    }
}

impl Drop for LoggingResource {
    fn drop(&mut self) {
        self.order.release();
    }
}

impl fmt::Debug for LoggingResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggingResource")
            .field("enabled", &self.is_enabled())
            .field("uses", &self.uses)
            .finish_non_exhaustive()
    }
}
