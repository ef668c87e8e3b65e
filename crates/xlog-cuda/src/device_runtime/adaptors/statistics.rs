//! Counts what passes through.

use std::fmt;

use super::{Inner, Statistics, failed_frees::FailedFrees, ledger::Ledger};
use crate::device_runtime::{
    AllocTag, BlockId, DeviceBlock, DeviceMemoryResource, ResourceError, ResourceResult, StreamId,
    forward::forward,
};

/// Counts bytes and blocks: how many there are, were at most, and have come in all.
///
/// A block counts from its allocation until it is handed back. One whose free failed still counts,
/// until a reap through this resource has freed it; counted are the bytes its handle says. Made
/// for production: threads count in books of their own, and the peak is exact all the same.
///
/// Scopes are the whole resource's, as the counters are. A call counts at one moment between its
/// begin and its end, wholly on one side of a [`push`](Self::push) or a [`pop`](Self::pop).
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::host());
/// let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// let counted = StatisticsResource::new(Box::new(AsyncCudaResource::new(device, 0, pool)));
///
/// let table = counted.allocate(4096, StreamId::DEFAULT, AllocTag("table"))?;
/// counted.push();
/// let scratch = counted.allocate(1024, StreamId::DEFAULT, AllocTag("scratch"))?;
/// counted.deallocate(scratch)?;
/// let query = counted.pop().expect("a scope was begun");
/// assert_eq!(query.bytes, Counter { current: 0, peak: 1024, total: 1024 });
/// assert_eq!(counted.statistics().bytes, Counter { current: 4096, peak: 5120, total: 5120 });
/// # counted.deallocate(table)?;
/// # Ok::<(), ResourceError>(())
/// ```
pub struct StatisticsResource {
    ledger: Ledger,
    failed: FailedFrees,
    inner: Inner,
}

impl StatisticsResource {
    /// Counts what passes through to `inner`, from now on.
    #[must_use]
    pub fn new(inner: Box<dyn DeviceMemoryResource + Send + Sync>) -> Self {
        Self { ledger: Ledger::default(), failed: FailedFrees::default(), inner }
    }

    /// What happened since the innermost open scope began; since this resource was made, if none
    /// is open.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.ledger.statistics()
    }

    /// Begins a scope. Its counters start at zero; scopes nest.
    pub fn push(&self) {
        self.ledger.push();
    }

    /// Ends the innermost scope, and answers what happened in it; the enclosing scope has counted
    /// all of that too. `None` if no scope is open.
    pub fn pop(&self) -> Option<Statistics> {
        self.ledger.pop()
    }

    #[inline]
    fn freed(&self, block: BlockId, bytes: usize) {
        self.failed.forget(block);
        self.ledger.remove(bytes);
    }

    fn settle(&self, all_freed: bool) {
        for (_, bytes) in self.failed.settled(&self.inner, all_freed) {
            self.ledger.remove(bytes);
        }
    }
}

impl DeviceMemoryResource for StatisticsResource {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        // Passed on as it is: taken apart and put together again, a block is copied.
        let answer = self.inner.allocate(bytes, stream, tag);
        if let Ok(block) = &answer {
            self.ledger.add(block.bytes);
        }
        answer
    }

    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        let (id, bytes) = (BlockId::from_block(&block), block.bytes);
        let answer = self.inner.deallocate(block);
        match &answer {
            Ok(()) => self.freed(id, bytes),
            Err(error) => self.failed.note(&self.inner, (id, bytes), error),
        }
        answer
    }

    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        let (id, bytes) = (BlockId::from_block(&block), block.bytes);
        self.inner.try_deallocate(block)?;
        self.freed(id, bytes);
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

impl fmt::Debug for StatisticsResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatisticsResource")
            .field("device_ordinal", &self.inner.device_ordinal())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
