//! A point in a stream's history.

use smallvec::SmallVec;

/// Everything a lane had enqueued up to a tick. One word: the lane above, the tick below.
///
/// Ticks start at 1: the default, tick 0, is no point at all, and everything follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Point(u64);

/// Ticks take the low 56 bits: a launch every nanosecond fills them in two years.
const TICK_BITS: u32 = 56;

/// The most lanes a tracker can have: a block's readers are bits of one word, and one is taken.
pub(crate) const MAX_LANES: usize = 63;

impl Point {
    pub(crate) fn new(lane: usize, tick: u64) -> Self {
        debug_assert!(lane < MAX_LANES && tick < 1 << TICK_BITS);
        Self((lane as u64) << TICK_BITS | tick)
    }

    #[inline]
    pub(crate) fn lane(self) -> usize {
        (self.0 >> TICK_BITS) as usize
    }

    #[inline]
    pub(crate) fn tick(self) -> u64 {
        self.0 & ((1 << TICK_BITS) - 1)
    }

    /// The later of two points of one lane.
    #[inline]
    pub(crate) fn later(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    #[inline]
    pub(crate) fn pack(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn unpack(word: u64) -> Self {
        Self(word)
    }
}

/// Whether some points are all of one lane, found out without a branch for each.
#[derive(Clone, Copy)]
pub(crate) struct PointSet {
    any: u64,
    all: u64,
    latest: u64,
}

impl Default for PointSet {
    fn default() -> Self {
        Self { any: 0, all: u64::MAX, latest: 0 }
    }
}

impl PointSet {
    #[inline(always)]
    pub(crate) fn add(&mut self, point: Point) {
        self.any |= point.0;
        self.all &= point.0;
        self.latest = self.latest.max(point.0);
    }

    /// The latest of them, if they are of one lane.
    #[inline(always)]
    pub(crate) fn latest(self) -> Point {
        Point(self.latest)
    }

    /// The one point they all are.
    #[inline(always)]
    pub(crate) fn the_same(self) -> Option<Point> {
        (self.any == self.all).then_some(Point(self.any))
    }

    /// Whether all are of one lane; not true of none.
    #[inline(always)]
    pub(crate) fn are_of_one_lane(self) -> bool {
        self.any >> TICK_BITS == self.all >> TICK_BITS
    }

    /// Whether every point is of `lane`; true of none.
    #[inline(always)]
    pub(crate) fn are_all_of(self, lane: usize) -> bool {
        let of_lane = |word: u64| (word >> TICK_BITS) as usize == lane;
        (of_lane(self.any) && of_lane(self.all)) || self.any == 0
    }
}

/// The latest point of each lane that something must follow: one entry a lane.
#[derive(Default, Debug)]
pub(crate) struct Frontier {
    points: SmallVec<[Point; 4]>,
    unreachable: bool,
}

impl Frontier {
    /// Adds a point; of two on one lane the later stays, since it follows the earlier.
    pub(crate) fn add(&mut self, point: Point) {
        match self.points.iter_mut().find(|other| other.lane() == point.lane()) {
            Some(other) => *other = other.later(point),
            None => self.points.push(point),
        }
    }

    /// Notes that there is also something to follow that has no point.
    pub(crate) fn make_unreachable(&mut self) {
        self.unreachable = true;
    }

    /// Whether nothing can follow all of it.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.unreachable
    }

    /// Whether `point` was the last to be added.
    #[inline]
    pub(crate) fn ends_with(&self, point: Point) -> bool {
        self.points.last() == Some(&point)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty() && !self.unreachable
    }

    pub(crate) fn points(&self) -> &[Point] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_whether_all_its_points_are_of_one_lane() {
        let of = |points: &[(usize, u64)], lane| {
            let mut set = PointSet::default();
            points.iter().for_each(|(lane, tick)| set.add(Point::new(*lane, *tick)));
            set.are_all_of(lane)
        };
        assert!(of(&[], 3) && of(&[(3, 1), (3, 900)], 3) && of(&[(0, 7)], 0));
        assert!(!of(&[(3, 1), (1, 900)], 3) && !of(&[(3, 1), (2, 1)], 2) && !of(&[(0, 7)], 1));
        assert!(!of(&[(1, 5), (2, 5)], 3), "1 and 2 together are not 3");
        let (mut set, one, other) = (PointSet::default(), Point::new(2, 9), Point::new(2, 8));
        assert_eq!(set.the_same(), None, "none is not one");
        assert!(!set.are_of_one_lane());
        set.add(one);
        set.add(one);
        assert_eq!(set.the_same(), Some(one));
        set.add(other);
        assert_eq!(set.the_same(), None);
        assert!(set.are_of_one_lane());
        set.add(Point::new(3, 9));
        assert!(!set.are_of_one_lane());
    }

    #[test]
    fn a_frontier_keeps_the_latest_point_of_each_lane() {
        let mut frontier = Frontier::default();
        assert!(frontier.is_empty());
        for (lane, tick) in [(2, 5), (0, 9), (2, 7), (2, 6), (62, 1)] {
            frontier.add(Point::new(lane, tick));
        }
        let points: Vec<_> = frontier.points().iter().map(|p| (p.lane(), p.tick())).collect();
        assert_eq!(points, [(2, 7), (0, 9), (62, 1)]);
    }
}
