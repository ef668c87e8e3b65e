//! Fails on purpose.

use std::{
    fmt, mem,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::{FaultPlan, Inner, Operation};
use crate::device_runtime::{
    Access, AllocTag, BlockId, BlockUse, DeviceBlock, DeviceMemoryResource, DriverError,
    ResourceError, ResourceResult, StreamId, UseTracker, forward::forward,
};

/// Fails the calls that a [`FaultPlan`] names: for testing what a program does then.
///
/// An injected fault is a [`ResourceError::Driver`] that says so, and names the operation and its
/// count; the resource below never sees the call. Nothing is lost by it. A block whose
/// `deallocate` was failed is kept here, still counted as live, and no longer its caller's: handing
/// it back again is [`ResourceError::UseAfterFree`]. The next reap hands it on, and answers with
/// what is wrong with it, if anything is. `try_deallocate` gives the block back at once. A use that
/// was failed is one the resource below knows nothing of; a launch waits for its work then.
///
/// Single uses pass through here only if the plan can fail them.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::host());
/// let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// let inner = AsyncCudaResource::new(device, 0, pool);
/// let plan = FaultPlan::nth(Operation::Deallocate, 1);
/// let faulty = FaultInjectionResource::new(Box::new(inner), plan);
///
/// let block = faulty.allocate(4096, StreamId::DEFAULT, AllocTag("keys"))?;
/// let error = faulty.deallocate(block).expect_err("the first free fails");
/// assert!(error.to_string().contains("injected fault: deallocate number 1"));
/// assert_eq!((faulty.injected(), faulty.bytes_outstanding()), (1, 4096));
/// faulty.reap_pending()?;
/// assert_eq!(faulty.bytes_outstanding(), 0);
/// # Ok::<(), ResourceError>(())
/// ```
pub struct FaultInjectionResource {
    inner: Inner,
    plan: FaultPlan,
    sees_uses: bool,
    counts: [AtomicU64; Operation::COUNT],
    injected: AtomicU64,
    /// Blocks whose free was failed.
    unfreed: Mutex<Vec<DeviceBlock>>,
}

impl FaultInjectionResource {
    /// Fails calls on `inner` by `plan`.
    #[must_use]
    pub fn new(inner: Box<dyn DeviceMemoryResource + Send + Sync>, plan: FaultPlan) -> Self {
        let uses = [Operation::PrepareUse, Operation::FinishUse];
        Self {
            inner,
            sees_uses: uses.into_iter().any(|operation| plan.can_fail(operation)),
            plan,
            counts: [const { AtomicU64::new(0) }; Operation::COUNT],
            injected: AtomicU64::new(0),
            unfreed: Mutex::default(),
        }
    }

    /// How many calls were failed so far.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    /// How many calls of this kind came so far, failed ones included. Launches call for their uses
    /// only if the plan can fail uses.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.counts[operation as usize].load(Ordering::Relaxed)
    }

    /// Counts a call, and fails it if that is the plan.
    fn enter(&self, operation: Operation) -> ResourceResult<()> {
        let count = self.counts[operation as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if !self.plan.fails(operation, count) {
            return Ok(());
        }
        self.injected.fetch_add(1, Ordering::Relaxed);
        let message = format!("injected fault: {operation} number {count}");
        Err(DriverError::new(operation.to_string(), self.plan.code(), message).into())
    }

    /// A block that is kept here is nobody's to hand back.
    fn refuse_unfreed(&self, block: &DeviceBlock) -> ResourceResult<()> {
        let id = BlockId::from_block(block);
        if self.unfreed.lock().iter().any(|kept| BlockId::from_block(kept) == id) {
            return Err(ResourceError::UseAfterFree { generation: block.generation });
        }
        Ok(())
    }

    /// Counts a free, and fails it if that is the plan; one that is refused anyway does not count.
    fn enter_free(&self, block: &DeviceBlock) -> ResourceResult<()> {
        if block.device_ordinal == self.inner.device_ordinal() {
            self.enter(Operation::Deallocate)
        } else {
            Ok(())
        }
    }

    /// Hands on the blocks whose free was failed. What fails below is then kept below.
    fn hand_on(&self) -> ResourceResult<()> {
        // Taken out first: the lock is not held while the resource below works.
        let unfreed = mem::take(&mut *self.unfreed.lock());
        let mut answer = Ok(());
        for block in unfreed {
            answer = answer.and(self.inner.deallocate(block));
        }
        answer
    }
}

impl DeviceMemoryResource for FaultInjectionResource {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        self.enter(Operation::Allocate)?;
        self.inner.allocate(bytes, stream, tag)
    }

    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        self.refuse_unfreed(&block)?;
        match self.enter_free(&block) {
            Ok(()) => self.inner.deallocate(block),
            Err(error) => {
                self.unfreed.lock().push(block);
                Err(error)
            }
        }
    }

    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        match self.refuse_unfreed(&block).and_then(|()| self.enter_free(&block)) {
            Ok(()) => self.inner.try_deallocate(block),
            Err(error) => Err((block, error)),
        }
    }

    fn reap_pending(&self) -> ResourceResult<()> {
        self.enter(Operation::Reap)?;
        let handed_on = self.hand_on();
        self.inner.reap_pending().and(handed_on)
    }

    fn try_reap(&self) -> ResourceResult<()> {
        self.enter(Operation::Reap)?;
        let handed_on = self.hand_on();
        self.inner.try_reap().and(handed_on)
    }

    fn prepare_block_use(
        &self,
        block: BlockId,
        stream: StreamId,
        access: Access,
    ) -> ResourceResult<()> {
        self.enter(Operation::PrepareUse)?;
        self.inner.prepare_block_use(block, stream, access)
    }

    fn finish_block_use(
        &self,
        block: BlockId,
        stream: StreamId,
        access: Access,
    ) -> ResourceResult<()> {
        self.enter(Operation::FinishUse)?;
        self.inner.finish_block_use(block, stream, access)
    }

    fn record_block_use(&self, block: &DeviceBlock, stream: StreamId) -> ResourceResult<()> {
        self.enter(Operation::FinishUse)?;
        self.inner.record_block_use(block, stream)
    }

    fn prepare_uses(&self, uses: &[BlockUse], stream: StreamId) -> ResourceResult<()> {
        self.enter(Operation::PrepareUse)?;
        self.inner.prepare_uses(uses, stream)
    }

    fn finish_uses(&self, uses: &[BlockUse], stream: StreamId) -> ResourceResult<()> {
        self.enter(Operation::FinishUse)?;
        self.inner.finish_uses(uses, stream)
    }

    fn direct_tracker(&self) -> Option<&UseTracker> {
        if self.sees_uses { None } else { self.inner.direct_tracker() }
    }

    forward! { this => this.inner; device_ordinal, bytes_outstanding, supports_block_use_tracking }
}

impl Drop for FaultInjectionResource {
    fn drop(&mut self) {
        if let Err(error) = self.hand_on() {
            log::error!("a block whose free was failed on purpose could not be freed: {error}");
        }
    }
}

impl fmt::Debug for FaultInjectionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultInjectionResource")
            .field("plan", &self.plan)
            .field("injected", &self.injected())
            .field("unfreed", &self.unfreed.lock().len())
            .finish_non_exhaustive()
    }
}
