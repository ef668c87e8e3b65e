//! Free memory of one arena: ranges, best fit, joined with their neighbours.
//!
//! A range that came together from several frees still knows which part of it follows which uses.
//! Joining and splitting lose none of them, and a block cut from a range follows the uses of its
//! own bytes and no others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    device_runtime::{backing::Uses, tracker::Point},
    mutant::{self, Mutant},
};

/// Adds points to uses, keeping the latest of each lane.
pub(super) fn add_uses(uses: &mut Uses, points: &[Point]) {
    for point in points {
        match uses.iter_mut().find(|other| other.lane() == point.lane()) {
            Some(other) => *other = other.later(*point),
            None => uses.push(*point),
        }
    }
}

/// Some bytes that follow the same uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) bytes: usize,
    pub(super) uses: Uses,
}

/// In the order of their addresses; cut and joined at both ends.
type Pieces = VecDeque<Piece>;

/// Free bytes in a row, all of one slab.
#[derive(Clone, Debug)]
struct Range {
    bytes: usize,
    slab: u64,
    pieces: Pieces,
}

/// Where in a range a block is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// Memory cut from a range.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) ptr: u64,
    pub(super) slab: u64,
    pieces: Pieces,
}

impl Cut {
    /// No memory at all.
    pub(super) fn empty() -> Self {
        Self { ptr: 0, slab: 0, pieces: Pieces::new() }
    }

    /// The uses all of it follows.
    pub(super) fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        self.pieces.iter().for_each(|piece| add_uses(&mut uses, &piece.uses));
        uses
    }

    /// Splits the first `bytes` bytes off.
    pub(super) fn split_off_front(&mut self, bytes: usize) -> Self {
        let front = take_front(&mut self.pieces, bytes);
        let ptr = self.ptr;
        self.ptr += bytes as u64;
        Self { ptr, slab: self.slab, pieces: front }
    }
}

/// The free ranges of an arena.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    by_address: BTreeMap<u64, Range>,
    by_size: BTreeSet<(usize, u64)>,
}

/// Ranges looked at for one that needs no wait, from the best fit on.
const LOOKS: usize = 16;

impl Ranges {
    /// Bytes of the largest range.
    pub(super) fn largest(&self) -> usize {
        self.by_size.last().map_or(0, |(bytes, _)| *bytes)
    }

    /// How many ranges there are.
    pub(super) fn count(&self) -> usize {
        self.by_address.len()
    }

    /// Adds free bytes of `slab` that follow `uses`, and joins them with their neighbours.
    pub(super) fn add(&mut self, ptr: u64, bytes: usize, slab: u64, uses: Uses) {
        self.add_pieces(ptr, slab, Pieces::from([Piece { bytes, uses }]));
    }

    fn add_pieces(&mut self, mut ptr: u64, slab: u64, mut pieces: Pieces) {
        let mut bytes: usize = pieces.iter().map(|piece| piece.bytes).sum();
        let before = self.by_address.range(..ptr).next_back();
        if let Some((&start, range)) = before
            && range.slab == slab
            && start + range.bytes as u64 == ptr
            && let Some(range) = self.detach(start)
        {
            (ptr, bytes) = (start, bytes + range.bytes);
            pieces = join(range.pieces, pieces);
        }
        let end = ptr + bytes as u64;
        if self.by_address.get(&end).is_some_and(|after| after.slab == slab)
            && let Some(range) = self.detach(end)
        {
            bytes += range.bytes;
            pieces = join(pieces, range.pieces);
        }
        self.by_size.insert((bytes, ptr));
        self.by_address.insert(ptr, Range { bytes, slab, pieces });
    }

    fn detach(&mut self, ptr: u64) -> Option<Range> {
        let range = self.by_address.remove(&ptr)?;
        self.by_size.remove(&(range.bytes, ptr));
        Some(range)
    }

    /// Cuts a block from the best range whose bytes at one end are `ready`; with `any`, from the
    /// best range if none is.
    pub(super) fn cut(
        &mut self,
        bytes: usize,
        any: bool,
        ready: impl Fn(&[Point]) -> bool,
    ) -> Option<Cut> {
        let fitting = || self.by_size.range((bytes, 0)..).map(|(_, ptr)| *ptr);
        let is_ready = |ptr: &u64, end| {
            let range = self.by_address.get(ptr)?;
            pieces_at(&range.pieces, bytes, end).all(|piece| ready(&piece.uses)).then_some(end)
        };
        let found = fitting().take(LOOKS).find_map(|ptr| {
            let end = is_ready(&ptr, End::Front).or_else(|| is_ready(&ptr, End::Back))?;
            Some((ptr, end))
        });
        let (ptr, end) = match found {
            Some(found) => found,
            None if any => (fitting().next()?, End::Front),
            None => return None,
        };
        self.cut_from(ptr, bytes, end)
    }

    fn cut_from(&mut self, ptr: u64, bytes: usize, end: End) -> Option<Cut> {
        let mut range = self.detach(ptr)?;
        let left = range.bytes - bytes;
        let (block, rest) = match end {
            End::Front => (ptr, ptr + bytes as u64),
            End::Back => (ptr + left as u64, ptr),
        };
        let pieces = match end {
            End::Front => take_front(&mut range.pieces, bytes),
            End::Back => take_back(&mut range.pieces, bytes),
        };
        if mutant::is(Mutant::RemainderForgotten) {
            range.pieces.iter_mut().for_each(|piece| piece.uses.clear());
        }
        if left > 0 {
            // It has no neighbours: they would have been joined.
            self.by_size.insert((left, rest));
            self.by_address.insert(rest, Range { bytes: left, ..range });
        }
        Some(Cut { ptr: block, slab: range.slab, pieces })
    }

    /// Puts back what was cut.
    pub(super) fn put_back(&mut self, cut: Cut) {
        if cut.pieces.is_empty() {
            return;
        }
        self.add_pieces(cut.ptr, cut.slab, cut.pieces);
    }

    /// Forgets uses that are over, so that memory nobody uses any more can be told from memory that
    /// has to wait.
    pub(super) fn forget(&mut self, over: impl Fn(Point) -> bool) {
        for range in self.by_address.values_mut() {
            for piece in &mut range.pieces {
                piece.uses.retain(|point| !over(*point));
            }
            join_alike(&mut range.pieces);
        }
    }

    /// Takes the range that starts at `ptr` out if it has exactly `bytes`: a whole slab. Answers
    /// the uses it follows.
    pub(super) fn take_whole(&mut self, ptr: u64, bytes: usize) -> Option<Uses> {
        if self.by_address.get(&ptr)?.bytes != bytes {
            return None;
        }
        Some(self.cut_from(ptr, bytes, End::Front)?.uses())
    }
}

/// Joins pieces side by side that follow the same uses.
fn join_alike(pieces: &mut Pieces) {
    let mut joined = Pieces::with_capacity(pieces.len());
    pieces.drain(..).for_each(|piece| push_back(&mut joined, piece));
    *pieces = joined;
}

fn push_back(pieces: &mut Pieces, piece: Piece) {
    match pieces.back_mut() {
        Some(last) if last.uses == piece.uses => last.bytes += piece.bytes,
        _ => pieces.push_back(piece),
    }
}

fn push_front(pieces: &mut Pieces, piece: Piece) {
    match pieces.front_mut() {
        Some(first) if first.uses == piece.uses => first.bytes += piece.bytes,
        _ => pieces.push_front(piece),
    }
}

/// Joins the pieces of two neighbours; the fewer of them move.
fn join(mut front: Pieces, mut back: Pieces) -> Pieces {
    if mutant::is(Mutant::NeighbourForgotten) {
        back.iter_mut().for_each(|piece| piece.uses.clear());
    }
    if front.len() >= back.len() {
        back.into_iter().for_each(|piece| push_back(&mut front, piece));
        front
    } else {
        front.into_iter().rev().for_each(|piece| push_front(&mut back, piece));
        back
    }
}

/// The pieces that `bytes` bytes at one end of a range lie in.
fn pieces_at(pieces: &Pieces, bytes: usize, end: End) -> impl Iterator<Item = &Piece> {
    let count = pieces.len();
    let nth = move |index: usize| match end {
        End::Front => &pieces[index],
        End::Back => &pieces[count - 1 - index],
    };
    let mut before = 0;
    (0..count).map(nth).take_while(move |piece| {
        let needed = before < bytes;
        before += piece.bytes;
        needed
    })
}

/// Takes the pieces of the first `bytes` bytes out.
fn take_front(pieces: &mut Pieces, bytes: usize) -> Pieces {
    let (mut taken, mut left) = (Pieces::new(), bytes);
    while left > 0
        && let Some(mut piece) = pieces.pop_front()
    {
        if piece.bytes > left {
            pieces.push_front(Piece { bytes: piece.bytes - left, uses: piece.uses.clone() });
            piece.bytes = left;
        }
        left -= piece.bytes;
        taken.push_back(piece);
    }
    taken
}

/// Takes the pieces of the last `bytes` bytes out.
fn take_back(pieces: &mut Pieces, bytes: usize) -> Pieces {
    let (mut taken, mut left) = (Pieces::new(), bytes);
    while left > 0
        && let Some(mut piece) = pieces.pop_back()
    {
        if piece.bytes > left {
            pieces.push_back(Piece { bytes: piece.bytes - left, uses: piece.uses.clone() });
            piece.bytes = left;
        }
        left -= piece.bytes;
        taken.push_front(piece);
    }
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smallvec::smallvec;

    use super::*;

    fn point(lane: usize, tick: u64) -> Point {
        Point::new(lane, tick)
    }

    #[test]
    fn a_stolen_remainder_keeps_what_its_own_bytes_follow() {
        // A freed [0, 100) at its tick 5; B takes the first 40; C gets the remainder.
        let mut ranges = Ranges::default();
        ranges.add(0, 100, 0, smallvec![point(0, 5)]);
        let b = ranges.cut(40, true, |_| false).expect("40 bytes");
        let c = ranges.cut(60, true, |_| false).expect("the rest");
        assert_eq!((b.ptr, b.uses(), c.ptr, c.uses()), (0, smallvec![point(0, 5)], 40, b.uses()));
        assert_eq!(ranges.count(), 0);
    }

    #[test]
    fn neighbours_that_join_keep_their_uses_apart() {
        let mut ranges = Ranges::default();
        ranges.add(100, 100, 0, smallvec![point(1, 7)]);
        ranges.add(0, 100, 0, smallvec![point(0, 5)]);
        ranges.add(200, 50, 200, smallvec![]);
        assert_eq!((ranges.count(), ranges.largest()), (2, 200), "another slab stays apart");
        let front = ranges.cut(100, true, |_| false).expect("the front");
        assert_eq!((front.ptr, front.uses()), (0, smallvec![point(0, 5)]), "and nothing of 1");
        ranges.put_back(front);
        let across = ranges.cut(150, true, |_| false).expect("both");
        assert_eq!(across.uses().as_slice(), [point(0, 5), point(1, 7)]);
        let rest = ranges.cut(50, true, |uses| uses == [point(1, 7)]).expect("the rest");
        assert_eq!((rest.ptr, rest.uses()), (150, smallvec![point(1, 7)]));
    }

    #[test]
    fn memory_that_needs_no_wait_comes_first() {
        let mut ranges = Ranges::default();
        ranges.add(0, 64, 0, smallvec![point(1, 1)]);
        ranges.add(1_000, 128, 1_000, smallvec![point(0, 1)]);
        let ready = |uses: &[Point]| uses.iter().all(|point| point.lane() == 0);
        assert_eq!(
            ranges.cut(64, false, ready).map(|cut| cut.ptr),
            Some(1_000),
            "not the best fit"
        );
        // One end of a range is ready, the other is not.
        ranges.add(2_000, 64, 2_000, smallvec![point(1, 1)]);
        ranges.add(2_064, 64, 2_000, smallvec![]);
        ranges.add(1_000, 64, 1_000, smallvec![point(2, 9)]);
        assert_eq!(ranges.cut(64, false, |uses| uses.is_empty()).map(|cut| cut.ptr), Some(2_064));
        assert_eq!(ranges.cut(64, false, |uses| uses.is_empty()), None);
        assert_eq!(ranges.cut(64, true, |uses| uses.is_empty()).map(|cut| cut.ptr), Some(0));
    }

    #[test]
    fn uses_that_are_over_are_forgotten() {
        let mut ranges = Ranges::default();
        ranges.add(0, 64, 0, smallvec![point(1, 1), point(2, 8)]);
        ranges.add(64, 64, 0, smallvec![point(2, 8)]);
        ranges.forget(|point| point.lane() == 1);
        assert_eq!(ranges.take_whole(0, 64), None, "it is larger than that");
        assert_eq!(ranges.take_whole(0, 128), Some(smallvec![point(2, 8)]));
    }

    /// What a byte of memory is: free and behind these uses, or in use.
    type Model = Vec<Option<Vec<Point>>>;

    fn sorted(mut uses: Vec<Point>) -> Vec<Point> {
        uses.sort_by_key(|point| point.lane());
        uses
    }

    fn union(bytes: &[Option<Vec<Point>>]) -> Vec<Point> {
        let mut uses = Uses::new();
        bytes.iter().flatten().for_each(|points| add_uses(&mut uses, points));
        sorted(uses.to_vec())
    }

    proptest! {
        /// Byte by byte: a cut was free before, and follows the uses of its own bytes and no
        /// others, whatever was joined and split on the way.
        #[test]
        fn every_byte_keeps_its_uses(
            steps in prop::collection::vec((any::<bool>(), 1usize..40, 0usize..4, 1u64..9), 1..120)
        ) {
            const BYTES: usize = 256;
            let mut ranges = Ranges::default();
            ranges.add(0, BYTES, 0, Uses::new());
            let mut model: Model = vec![Some(Vec::new()); BYTES];
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (cut, bytes, lane, tick) in steps {
                if cut {
                    let ready = |uses: &[Point]| uses.iter().all(|point| point.lane() != lane);
                    let fits = model
                        .split(Option::is_none)
                        .map(<[_]>::len)
                        .max()
                        .is_some_and(|largest| largest >= bytes);
                    let cut = ranges.cut(bytes, true, ready);
                    prop_assert_eq!(cut.is_some(), fits);
                    let Some(cut) = cut else { continue };
                    let at = cut.ptr as usize;
                    prop_assert!(model[at..at + bytes].iter().all(Option::is_some));
                    prop_assert_eq!(
                        sorted(cut.uses().to_vec()), union(&model[at..at + bytes])
                    );
                    model[at..at + bytes].fill(None);
                    held.push((at, bytes));
                } else if !held.is_empty() {
                    let (at, bytes) = held.swap_remove(tick as usize % held.len());
                    ranges.add(at as u64, bytes, 0, smallvec![point(lane, tick)]);
                    model[at..at + bytes].fill(Some(vec![point(lane, tick)]));
                }
                let runs = model.split(Option::is_none).filter(|run| !run.is_empty());
                prop_assert_eq!(ranges.count(), runs.count(), "neighbours are joined");
            }
        }
    }
}
