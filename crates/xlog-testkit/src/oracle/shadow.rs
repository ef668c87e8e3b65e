//! Who touched which bytes of an allocation last.

use smallvec::SmallVec;

/// Nobody.
pub(super) const NOBODY: u32 = u32::MAX;

/// Bytes with one history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Who wrote them last.
    pub(super) write: u32,
    /// Who has read them since.
    pub(super) reads: SmallVec<[u32; 4]>,
}

/// The bytes of one allocation, cut where their histories differ.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    segments: Vec<Segment>,
}

impl Shadow {
    /// `bytes` bytes that `write` wrote.
    pub(super) fn new(bytes: u64, write: u32) -> Self {
        Self { segments: vec![Segment { start: 0, end: bytes, write, reads: SmallVec::new() }] }
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Shows `change` every segment of a range, cut to it. Neighbours that come out the same are
    /// joined again, so that a range written in pieces is one.
    pub(super) fn touch(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut Segment)) {
        let first = self.cut(start);
        let mut index = first;
        while index < self.segments.len() && self.segments[index].start < end {
            if self.segments[index].end > end {
                self.split(index, end);
            }
            change(&mut self.segments[index]);
            index += 1;
        }
        self.join(first, index);
    }

    /// The first segment at or behind `at`, with a cut there.
    fn cut(&mut self, at: u64) -> usize {
        let index = self.segments.partition_point(|segment| segment.end <= at);
        if self.segments.get(index).is_some_and(|segment| segment.start < at) {
            self.split(index, at);
            return index + 1;
        }
        index
    }

    fn split(&mut self, index: usize, at: u64) {
        let mut rest = self.segments[index].clone();
        rest.start = at;
        self.segments[index].end = at;
        self.segments.insert(index + 1, rest);
    }

    /// Joins equal neighbours from the one before `first` to the one at `last`.
    fn join(&mut self, first: usize, last: usize) {
        let mut kept = first.saturating_sub(1);
        let end = (last + 1).min(self.segments.len());
        for index in kept + 1..end {
            let (left, right) = self.segments.split_at_mut(index);
            let (into, from) = (&mut left[kept], &mut right[0]);
            if into.write == from.write && into.reads == from.reads {
                into.end = from.end;
                continue;
            }
            kept += 1;
            if kept != index {
                self.segments.swap(kept, index);
            }
        }
        if kept + 1 < end {
            self.segments.drain(kept + 1..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(shadow: &Shadow) -> Vec<(u64, u64, u32)> {
        shadow.segments().iter().map(|one| (one.start, one.end, one.write)).collect()
    }

    #[test]
    fn ranges_are_cut_where_they_differ_and_joined_where_they_do_not() {
        let mut shadow = Shadow::new(100, NOBODY);
        shadow.touch(10, 30, |segment| segment.write = 1);
        assert_eq!(shape(&shadow), [(0, 10, NOBODY), (10, 30, 1), (30, 100, NOBODY)]);
        shadow.touch(20, 40, |segment| segment.write = 2);
        assert_eq!(shape(&shadow), [(0, 10, NOBODY), (10, 20, 1), (20, 40, 2), (40, 100, NOBODY)]);
        for start in (0..100).step_by(4) {
            shadow.touch(start, start + 4, |segment| segment.write = 3);
        }
        assert_eq!(shape(&shadow), [(0, 100, 3)]);
    }

    #[test]
    fn random_writes_match_a_plain_array() {
        let (mut shadow, mut plain) = (Shadow::new(64, 0), [0u32; 64]);
        let mut state = 1u64;
        for round in 1..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (a, b) = ((state >> 33) % 65, (state >> 48) % 65);
            let (start, end) = (a.min(b), a.max(b));
            if start == end {
                continue;
            }
            shadow.touch(start, end, |segment| segment.write = round % 3);
            plain[start as usize..end as usize].fill(round % 3);
            let mut at = 0;
            for one in shadow.segments() {
                assert_eq!(one.start, at);
                assert!(
                    plain[one.start as usize..one.end as usize].iter().all(|w| *w == one.write)
                );
                at = one.end;
            }
            assert_eq!(at, 64);
        }
    }
}
