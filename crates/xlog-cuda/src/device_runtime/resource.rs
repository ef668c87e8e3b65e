//! The contract of everything that hands out device memory.

use super::{
    AllocTag, BlockId, BlockUse, DeviceBlock, ResourceError, ResourceResult, StreamId, UseTracker,
    forward::forward,
};
use xlog_core::Access;

/// Hands out device memory, and keeps the order of its uses where it can.
///
/// Memory is ordered by streams. A block is valid on the stream it was allocated on from that
/// point on, and on any other stream behind a wait. Around every launch, each block it touches is
/// *prepared* (waits are queued on the launch's stream) and *finished* (the use is recorded, so
/// that later work and the free can wait for it).
///
/// A decorator wraps a `Box<dyn DeviceMemoryResource + Send + Sync>` and forwards what it does not
/// change. One that knows only the per-block forms still sees every use: the batch forms loop over
/// them.
pub trait DeviceMemoryResource: Send + Sync {
    /// At least `bytes` bytes, valid on `stream` from here on.
    ///
    /// Zero bytes is [`ResourceError::Driver`]; an unknown stream [`ResourceError::StreamMisuse`].
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock>;

    /// Takes a block back. Its memory is reused only after every recorded use, on whatever stream.
    ///
    /// A block of another device is [`ResourceError::Driver`], a stale or unknown one
    /// [`ResourceError::UseAfterFree`]; both change nothing. If the driver fails, the block stays
    /// counted as live and the next reap tries again.
    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()>;

    /// Like [`deallocate`](Self::deallocate), but gives the block back with the error.
    fn try_deallocate(&self, block: DeviceBlock) -> Result<(), (DeviceBlock, ResourceError)> {
        let returned = copy_of(&block);
        self.deallocate(block).map_err(|error| (returned, error))
    }

    /// The device this resource serves.
    fn device_ordinal(&self) -> u32;

    /// Bytes live, plus bytes freed but not yet reaped.
    fn bytes_outstanding(&self) -> usize;

    /// Waits for every stream with pending frees, and accounts for them.
    fn reap_pending(&self) -> ResourceResult<()> {
        Ok(())
    }

    /// Accounts for the pending frees that are already done, without waiting.
    fn try_reap(&self) -> ResourceResult<()> {
        Ok(())
    }

    /// Whether uses of this resource's blocks are tracked.
    fn supports_block_use_tracking(&self) -> bool {
        false
    }

    /// Queues, on `stream`, every wait that touching `block` needs. Comes before the work.
    fn prepare_block_use(
        &self,
        block: BlockId,
        stream: StreamId,
        access: Access,
    ) -> ResourceResult<()> {
        let _ = (block, stream, access);
        Err(no_tracking("prepare_block_use"))
    }

    /// Records that work enqueued on `stream` touches `block`. Comes after the work.
    fn finish_block_use(
        &self,
        block: BlockId,
        stream: StreamId,
        access: Access,
    ) -> ResourceResult<()> {
        let _ = (block, stream, access);
        Err(no_tracking("finish_block_use"))
    }

    /// Records a read of `block` on `stream`: an older, weaker form of finishing a read, without
    /// the wait that preparing it would have queued.
    fn record_block_use(&self, block: &DeviceBlock, stream: StreamId) -> ResourceResult<()> {
        let _ = (block, stream);
        Err(no_tracking("record_block_use"))
    }

    /// Prepares every use of one launch.
    fn prepare_uses(&self, uses: &[BlockUse], stream: StreamId) -> ResourceResult<()> {
        uses.iter().try_for_each(|one| self.prepare_block_use(one.block(), stream, one.access()))
    }

    /// Records every use of one launch. Work is in flight by now, so an error at one block does
    /// not keep the others from being recorded; the first error is the answer.
    fn finish_uses(&self, uses: &[BlockUse], stream: StreamId) -> ResourceResult<()> {
        let mut answer = Ok(());
        for one in uses {
            answer = answer.and(self.finish_block_use(one.block(), stream, one.access()));
        }
        answer
    }

    /// The tracker behind this resource, if nothing from here down wants to see single uses.
    ///
    /// The recorder then talks to the tracker itself, in one pass over the blocks of a launch
    /// instead of two. An adaptor that does not look at uses forwards its inner resource's answer;
    /// one that does keeps the default. A runtime asks once, when it is made.
    fn direct_tracker(&self) -> Option<&UseTracker> {
        None
    }
}

/// A shared resource is a resource: whoever keeps the other handle can ask it about itself.
impl<R: DeviceMemoryResource + ?Sized> DeviceMemoryResource for std::sync::Arc<R> {
    forward! {
        this => (**this);
        allocate, deallocate, try_deallocate, device_ordinal, bytes_outstanding, reap_pending,
        try_reap, uses,
    }
}

fn no_tracking(call: &str) -> ResourceError {
    ResourceError::StreamMisuse(format!(
        "{call}: this resource does not support cross-stream use tracking; allocate from \
         AsyncCudaResource, or a resource over it, and have every adaptor forward the call"
    ))
}

/// A second handle of the same block, for the one case where ownership goes back to the caller.
fn copy_of(block: &DeviceBlock) -> DeviceBlock {
    DeviceBlock {
        ptr: block.ptr,
        device_ordinal: block.device_ordinal,
        alloc_stream: block.alloc_stream,
        bytes: block.bytes,
        align: block.align,
        tag: block.tag,
        generation: block.generation,
        state: block.state,
    }
}
