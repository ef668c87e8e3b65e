//! Models of the tracker: its own code, on a device that does nothing.

mod claims;
mod driver;
mod events;

use std::{panic::Location, sync::Arc};

use xlog_core::Access;

pub(in crate::device_runtime) use self::driver::{Asked, ModelDriver, Place};
use super::{Holder, Launch, OnConflict, Point, UseTracker};
use crate::{
    CudaDevice,
    device_runtime::{
        BlockId, BlockUse, DeviceBlock, ResourceResult, SlotHint, StreamId, StreamPool,
        VirtualThread,
    },
};

/// The owner of a model's blocks.
const OWNER: u64 = 7;

/// A tracker of a few streams.
#[derive(Clone)]
pub(in crate::device_runtime) struct Rig {
    pub(in crate::device_runtime) driver: Arc<ModelDriver>,
    pub(in crate::device_runtime) pool: Arc<StreamPool>,
}

impl Rig {
    /// Streams 0 to `streams`, on a device that has done everything at once, or never anything.
    pub(in crate::device_runtime) fn new(streams: usize, done_at_once: bool) -> Self {
        let driver = Arc::new(ModelDriver::new(done_at_once));
        let device = Arc::new(CudaDevice::with_driver(driver.clone()));
        let pool = StreamPool::with_capacity(device, streams - 1).expect("a pool");
        for _ in 1..streams {
            pool.acquire().expect("a stream");
        }
        Self { driver, pool: Arc::new(pool) }
    }

    /// Writes a block on a stream, as the builder does; answers where the work is.
    pub(in crate::device_runtime) fn write(&self, block: &DeviceBlock, stream: StreamId) -> Place {
        let slot = self.tracker().locate(block);
        let one = BlockUse { slot, ..BlockUse::new(BlockId::from_block(block), Access::Write) };
        self.work(one, stream)
    }

    fn tracker(&self) -> &UseTracker {
        self.pool.tracker()
    }

    /// A block born on stream 0, biased to the calling thread.
    fn block(&self, ptr: u64) -> BlockId {
        let lane = self.tracker().lane(StreamId::DEFAULT).expect("the default stream");
        let born = Point::new(0, 0);
        let generation = self.tracker().register(ptr, 256, OWNER, lane, born).expect("a slot");
        BlockId { ptr, generation, alloc_stream: StreamId::DEFAULT, device_ordinal: 0 }
    }

    fn one_use(&self, block: BlockId, access: Access) -> BlockUse {
        let slot = self.tracker().slots.at(block.ptr).map_or(SlotHint::NONE, SlotHint);
        BlockUse { slot, ..BlockUse::new(block, access) }
    }

    /// Claims, runs `inside` with the launch, and gives the claims up with what it publishes.
    #[track_caller]
    fn launch(
        &self,
        one: BlockUse,
        stream: StreamId,
        (plan, on_conflict): (bool, OnConflict),
        inside: impl FnOnce(&Launch<'_>),
    ) -> ResourceResult<()> {
        let holder = Holder::new(stream, Location::caller());
        let uses = [one];
        let (lane, ticket) = self.tracker().claim(&uses, holder, 0, plan, on_conflict)?;
        inside(&Launch { uses: &uses, lane, ticket });
        Ok(())
    }
}

/// Two threads of a model.
fn two_threads() -> (VirtualThread, VirtualThread) {
    (VirtualThread::new(), VirtualThread::new())
}
