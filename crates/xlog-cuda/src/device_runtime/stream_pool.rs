//! The streams of one device, and the tracker that belongs to them.

use std::{fmt, sync::Arc};

use xlog_driver::RawStream;

use super::{
    ResourceError, ResourceResult, StreamId, TrackerStats, UseTracker,
    tracker::{Lane, MAX_LANES, unknown_stream},
};
use crate::{
    CudaDevice,
    sync::{
        Mutex, Step,
        atomic::{Ordering, fence},
        leaves_out,
    },
};

/// Streams a default pool has room for, the default stream not counted.
const DEFAULT_CAPACITY: usize = 32;

/// Handles CUDA reserves for its default streams: none, legacy, per-thread.
const DEFAULT_STREAM_HANDLES: std::ops::RangeInclusive<u64> = 0..=2;

/// The streams of one device.
///
/// [`StreamId::DEFAULT`] is always there. With no other stream in the pool, launches record no
/// events at all; from the first [`acquire`](Self::acquire) on, each records one.
pub struct StreamPool {
    tracker: Arc<UseTracker>,
    /// The last id handed out. Held while streams come and go, by nobody else.
    membership: Mutex<Membership>,
}

struct Membership {
    last_id: u32,
    acquired: usize,
}

impl StreamPool {
    /// A pool with room for 32 streams beside the default one.
    #[must_use]
    pub fn with_defaults(device: Arc<CudaDevice>) -> Self {
        Self::with_room_for(device, DEFAULT_CAPACITY)
    }

    /// A pool with room for `capacity` streams beside the default one. Each costs eight bytes a
    /// recorded wait, so the default serves most programs.
    pub fn with_capacity(device: Arc<CudaDevice>, capacity: usize) -> ResourceResult<Self> {
        if capacity >= MAX_LANES {
            return Err(ResourceError::StreamMisuse(format!(
                "a pool of {capacity} streams was asked for; the most is {}",
                MAX_LANES - 1
            )));
        }
        Ok(Self::with_room_for(device, capacity))
    }

    fn with_room_for(device: Arc<CudaDevice>, capacity: usize) -> Self {
        let tracker = UseTracker::new(device, capacity + 1);
        tracker.lanes()[0].occupy(StreamId::DEFAULT, None);
        Self { tracker, membership: Mutex::new(Membership { last_id: 0, acquired: 0 }) }
    }

    /// A stream of its own for the caller. A full pool is an error, never a silent share.
    pub fn acquire(&self) -> ResourceResult<StreamId> {
        self.add(None)
    }

    /// Lets a stream that another library owns take part. The pool never destroys it.
    ///
    /// # Safety
    /// `raw` is a stream of this pool's device, and stays one until it is
    /// [released](Self::release) or the pool is gone.
    pub unsafe fn adopt(&self, raw: RawStream) -> ResourceResult<StreamId> {
        if DEFAULT_STREAM_HANDLES.contains(&raw.0) {
            return Err(ResourceError::StreamMisuse(
                "CUDA's default streams order themselves against others behind the runtime's \
                 back; adopt a stream created as non-blocking"
                    .into(),
            ));
        }
        let device = self.tracker.device();
        device.check_alive()?;
        // SAFETY: the caller promised a stream of this device.
        if device.note(unsafe { device.driver().is_capturing(raw) })? {
            return Err(ResourceError::StreamMisuse(
                "the stream is being captured into a graph; end the capture, then adopt it".into(),
            ));
        }
        self.add(Some(raw))
    }

    fn add(&self, foreign: Option<RawStream>) -> ResourceResult<StreamId> {
        let device = self.tracker.device();
        device.check_alive()?;
        let mut membership = self.membership.lock();
        let lanes = self.tracker.lanes();
        // An id's low bits are its lane, so ids skip the lanes that are taken.
        let vacant = (1..=2 * lanes.len() as u32)
            .filter_map(|step| membership.last_id.checked_add(step).filter(|id| *id != u32::MAX))
            .filter_map(|id| Some((id, lanes.get(self.tracker.lane_index(StreamId(id)))?)))
            .find(|(_, lane)| lane.stream().is_none());
        let Some((id, lane)) = vacant else {
            return Err(ResourceError::StreamMisuse(format!(
                "the pool has no room for another stream: {} of {} are taken; release one, or \
                 make the pool larger with StreamPool::with_capacity",
                membership.acquired,
                lanes.len() - 1
            )));
        };
        if foreign.is_none() {
            lane.raw(device)?;
        }
        self.tracker.begin_several()?;
        lane.occupy(StreamId(id), foreign);
        membership.last_id = id;
        membership.acquired += 1;
        Ok(StreamId(id))
    }

    /// Gives a stream back. Waits for its work; refused while live blocks, pending frees or
    /// launches between preflight and commit name it. Its id is never used again.
    pub fn release(&self, stream: StreamId) -> ResourceResult<()> {
        if stream == StreamId::DEFAULT {
            return Err(ResourceError::StreamMisuse(
                "the default stream belongs to the pool and cannot be released".into(),
            ));
        }
        self.tracker.device().check_alive()?;
        let lane = self.tracker.lane(stream).ok_or_else(|| unknown_stream(stream))?;
        self.tracker.make_way(lane);
        self.check_unused(lane, stream)?;
        // Most of the waiting is done here, before anybody who acquires has to wait for it.
        self.tracker.synchronize(lane)?;
        let mut membership = self.membership.lock();
        if lane.stream() != Some(stream) {
            return Err(unknown_stream(stream));
        }
        // Closed, then looked at again: whoever comes in from here on is refused.
        lane.close();
        if !leaves_out(Step::ReleasersFence) {
            // Between closing the lane and reading the tickets, as in `Slot::lock`.
            fence(Ordering::SeqCst);
        }
        let released =
            self.check_unused(lane, stream).and_then(|()| self.tracker.synchronize(lane));
        if let Err(error) = released {
            lane.reopen(stream);
            return Err(error);
        }
        lane.let_go();
        membership.acquired -= 1;
        if membership.acquired == 0 {
            self.tracker.end_several();
        }
        Ok(())
    }

    /// Refuses while something still names the stream.
    fn check_unused(&self, lane: &Lane, stream: StreamId) -> ResourceResult<()> {
        let blocks = self.tracker.blocks_on(lane);
        if blocks > 0 {
            return Err(ResourceError::StreamMisuse(format!(
                "stream {} still has {blocks} live blocks or pending frees; free them and call \
                 reap_pending first",
                stream.0
            )));
        }
        if self.tracker.is_claimed_on(stream) {
            return Err(ResourceError::StreamMisuse(format!(
                "a launch on stream {} is between its preflight and its commit; commit it first",
                stream.0
            )));
        }
        Ok(())
    }

    /// The raw handle of a stream, if the pool has it. Work enqueued on it past the recorder is
    /// outside every guarantee.
    #[must_use]
    pub fn resolve(&self, stream: StreamId) -> Option<RawStream> {
        let lane = self.tracker.lane(stream)?;
        lane.expose();
        lane.raw(self.tracker.device()).ok()
    }

    /// Whether the pool has `stream`.
    #[must_use]
    pub fn contains(&self, stream: StreamId) -> bool {
        self.tracker.lane(stream).is_some()
    }

    /// Waits for everything enqueued on `stream`.
    pub fn synchronize(&self, stream: StreamId) -> ResourceResult<()> {
        let lane = self.tracker.enter(stream)?;
        self.tracker.synchronize(lane)
    }

    /// Lets `stream` go on only after everything that was recorded on every stream of the pool:
    /// one stream to synchronise instead of all.
    pub fn join(&self, stream: StreamId) -> ResourceResult<()> {
        let lane = self.tracker.enter(stream)?;
        self.tracker.join_all(lane)
    }

    /// Waits for everything that was recorded on every stream, by way of the default stream.
    pub fn fence(&self) -> ResourceResult<()> {
        let lane = self.tracker.enter(StreamId::DEFAULT)?;
        let tails: Vec<_> = self.tracker.lanes().iter().map(Lane::tick).collect();
        self.tracker.join_all(lane)?;
        self.tracker.synchronize(lane)?;
        // What the default stream followed is over too: nobody has to wait for it any more.
        for (lane, tick) in self.tracker.lanes().iter().zip(tails) {
            if tick > 0 {
                lane.learn(tick);
            }
        }
        Ok(())
    }

    /// Destroys the events that are kept for the next launches.
    pub fn trim(&self) -> ResourceResult<()> {
        self.tracker.device().check_alive()?;
        self.tracker.trim()
    }

    /// What the pool's tracker holds and has done.
    #[must_use]
    pub fn stats(&self) -> TrackerStats {
        self.tracker.stats()
    }

    /// The device the streams belong to.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        self.tracker.shared_device()
    }

    pub(crate) fn tracker(&self) -> &Arc<UseTracker> {
        &self.tracker
    }
}

impl fmt::Debug for StreamPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams: Vec<_> = self.tracker.lanes().iter().filter_map(|l| l.stream()).collect();
        f.debug_struct("StreamPool").field("streams", &streams).finish_non_exhaustive()
    }
}
