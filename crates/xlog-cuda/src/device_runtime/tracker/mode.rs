//! One stream in the pool, or several: whether launches record events.

use super::{Lane, Point, UseTracker};
use crate::{
    device_runtime::ResourceResult,
    sync::{Step, atomic::Ordering, leaves_out},
};

impl UseTracker {
    /// From now on launches record events; work enqueued before, on streams that recorded none,
    /// gets one now, the earliest there can be.
    pub(crate) fn begin_several(&self) -> ResourceResult<()> {
        if self.several.load(Ordering::SeqCst) {
            return Ok(());
        }
        // Before the mode: whoever counts its blocks finds that others may not have.
        if !leaves_out(Step::OpenedTick) {
            self.lanes.iter().for_each(Lane::opened);
        }
        if self.several.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        for lane in self.lanes.iter().filter(|lane| lane.stream().is_some()) {
            if lane.created_raw().is_some()
                && let Err(error) =
                    self.check_capture(lane).and_then(|()| lane.record(&self.device, |_| ()))
            {
                self.end_several();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Only one stream is left.
    pub(crate) fn end_several(&self) {
        self.several.store(false, Ordering::SeqCst);
    }

    /// Has `publish` note a point that stands for everything enqueued on `lane` so far; it is told
    /// whether it may be one of several that do so on this lane at once.
    ///
    /// With one stream in the pool nothing is recorded: the point stays open, and closes with the
    /// event that `begin_several` records. The tick is read before the mode: if the mode still
    /// says "one stream", that event is yet to come, and covers what is enqueued by now.
    #[inline]
    pub(crate) fn mark(
        &self,
        lane: &Lane,
        publish: impl FnOnce(Point, bool),
    ) -> ResourceResult<()> {
        match self.open_point(lane) {
            Some(open) => {
                publish(open, true);
                Ok(())
            }
            None => lane.record(&self.device, |point| publish(point, false)),
        }
    }

    /// The point that stays open, with one stream in the pool.
    #[inline(always)]
    pub(super) fn open_point(&self, lane: &Lane) -> Option<Point> {
        let open = lane.open_point();
        if self.several.load(Ordering::SeqCst) {
            return None;
        }
        Some(if leaves_out(Step::TickBeforeMode) { lane.open_point() } else { open })
    }
}
