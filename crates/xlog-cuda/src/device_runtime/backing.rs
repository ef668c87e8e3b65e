//! Blocks of a resource below that another one hands out parts of.
//!
//! Only the resource that cuts the caller's range gives it an identity; the block it is cut from is
//! *set aside* in the tracker, where nobody can record a use of it. It goes back behind the uses of
//! all its parts, in stream order: the host does not wait for them.

use smallvec::SmallVec;

use super::{
    AllocTag, BlockId, DeviceBlock, DeviceMemoryResource, ResourceError, ResourceResult, StreamId,
    UseTracker,
    tracker::{Lane, Point, SetAside},
};

/// Uses that some memory has to follow: the latest point of each lane.
pub(super) type Uses = SmallVec<[Point; 2]>;

/// The resource that a block is taken from, and the books of who uses it.
#[derive(Clone, Copy)]
pub(super) struct Source<'s> {
    pub(super) inner: &'s (dyn DeviceMemoryResource + Send + Sync),
    pub(super) tracker: &'s UseTracker,
}

/// A block of the resource below, set aside.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) block: DeviceBlock,
    /// Its entry in the tracker's books, if that knows it.
    aside: Option<SetAside>,
}

impl Backing {
    /// Whether the resource below counts the block on the stream it was allocated on.
    pub(super) fn is_counted_below(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| !aside.rehomed)
    }
}

impl Source<'_> {
    /// Takes a block for `lane`, and answers the uses that its memory follows: none but its own
    /// allocation.
    pub(super) fn take(
        self,
        bytes: usize,
        lane: &Lane,
        tag: AllocTag,
    ) -> ResourceResult<(Backing, Uses)> {
        let stream = lane.stream().ok_or("the stream was released meanwhile")?;
        let mut block = self.inner.allocate(bytes, stream, tag)?;
        let aside = self.tracker.set_aside(BlockId::from_block(&block));
        let uses = match &aside {
            Some(aside) => {
                if aside.rehomed {
                    block.alloc_stream = StreamId::DEFAULT;
                }
                Uses::from_slice(aside.birth.points())
            }
            // Nobody says when the memory is valid but that it is so behind this point.
            None => {
                let mut birth = Uses::new();
                if let Err(error) = self.tracker.mark(lane, |point, _| birth.push(point)) {
                    // Nobody owns it: what cannot be freed now, the resource frees at a reap.
                    if let Err(later) = self.inner.deallocate(block) {
                        log::warn!("{bytes} bytes wait for the next reap: {later}");
                    }
                    return Err(error);
                }
                birth
            }
        };
        Ok((Backing { block, aside }, uses))
    }

    /// Hands a block to the resource below, behind `uses`; gives it back if that fails.
    pub(super) fn give_back(
        self,
        backing: Backing,
        uses: &[Point],
    ) -> Result<(), Box<(Backing, ResourceError)>> {
        let tracker = self.tracker;
        let Backing { block, aside } = backing;
        match &aside {
            Some(aside) => tracker.bring_back(aside, uses),
            None => {
                let followed = match tracker.lane(block.alloc_stream) {
                    Some(lane) => tracker.follow_points(uses, lane),
                    None => tracker.device().synchronize(),
                };
                if let Err(error) = followed {
                    return Err(Box::new((Backing { block, aside }, error)));
                }
            }
        }
        self.inner.try_deallocate(block).map_err(|(block, error)| {
            let aside = aside.and_then(|_| tracker.set_aside(BlockId::from_block(&block)));
            Box::new((Backing { block, aside }, error))
        })
    }
}
