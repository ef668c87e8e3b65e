//! Who used which memory last, as the declared uses tell it.
//!
//! What a block remembers is what the runtime's tracker does: its last write, and the last read of
//! each stream since. A block that is handed out inherits the uses of those that had its memory
//! before, and follows the allocation it was cut from.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use xlog_core::Access;
use xlog_driver::BlockNote;

/// A use that others may have to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prior {
    pub(crate) stream: u32,
    /// Its place in the log.
    pub(crate) index: usize,
    /// How it touched the memory; `None` for its allocation by the driver.
    pub(crate) access: Option<Access>,
    /// The work that did; `None` for an allocation.
    pub(crate) operation: Option<u32>,
    /// The block it was a use of.
    pub(crate) block: Option<u32>,
}

/// A range of memory and its uses.
#[derive(Clone, Debug)]
struct Range {
    end: u64,
    priors: Vec<Prior>,
}

#[derive(Debug)]
struct Live {
    block: u32,
    start: u64,
    range: Range,
}

/// All memory that is known, and its uses.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Blocks in use, by address and generation.
    live: FxHashMap<(u64, u64), Live>,
    /// Their generations, by address alone.
    live_at: BTreeMap<u64, u64>,
    /// Memory that no block is in any more, by address.
    retired: BTreeMap<u64, Range>,
    /// The driver's allocations, by address: their ends, and where they are valid from.
    allocations: BTreeMap<u64, (u64, Option<Prior>)>,
}

impl History {
    /// The driver gave memory.
    pub(crate) fn allocated(&mut self, address: u64, bytes: u64, birth: Option<Prior>) {
        self.take_retired(address, address + bytes);
        self.allocations.insert(address, (address + bytes, birth));
    }

    /// The driver got memory back: what must be over by then.
    pub(crate) fn freed(&mut self, address: u64) -> Vec<Prior> {
        let Some((end, birth)) = self.allocations.remove(&address) else { return Vec::new() };
        let mut priors: Vec<_> = birth.into_iter().collect();
        priors.extend(self.take_retired(address, end));
        let inside = |live: &&Live| address <= live.start && live.start < end;
        for live in self.live.values().filter(inside) {
            priors.extend(&live.range.priors);
        }
        priors
    }

    /// Blocks, by address and generation, whose memory is being handed out again: they have been
    /// taken back by another thread, which has not come to say so yet.
    pub(crate) fn overtaken(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let before = self.live_at.range(..start).next_back();
        let overlapping = before.into_iter().chain(self.live_at.range(start..end));
        let keys = overlapping.map(|(address, generation)| (*address, *generation));
        keys.filter(|key| self.live.get(key).is_some_and(|live| live.range.end > start)).collect()
    }

    /// A block was handed out: what had its memory before.
    pub(crate) fn handed_out(&mut self, block: u32, note: &BlockNote) -> Vec<Prior> {
        let (start, end) = (note.address, note.address + note.bytes as u64);
        let mut priors = self.take_retired(start, end);
        let allocation = self.allocations.range(..=start).next_back();
        let birth = allocation.filter(|(_, (limit, _))| start < *limit).and_then(|(_, (_, b))| *b);
        if let Some(prior) = birth {
            add(&mut priors, prior);
        }
        let range = Range { end, priors: priors.clone() };
        self.live.insert((start, note.generation), Live { block, start, range });
        self.live_at.insert(start, note.generation);
        priors
    }

    /// A block was taken back: which one, if it was known.
    pub(crate) fn taken_back(&mut self, address: u64, generation: u64) -> Option<u32> {
        let live = self.live.remove(&(address, generation))?;
        if self.live_at.get(&address) == Some(&generation) {
            self.live_at.remove(&address);
        }
        self.retired.insert(live.start, live.range);
        Some(live.block)
    }

    /// The block at an address, if it is known.
    pub(crate) fn block(&self, address: u64, generation: u64) -> Option<u32> {
        self.live.get(&(address, generation)).map(|live| live.block)
    }

    /// The uses of a block that one more may have to follow.
    pub(crate) fn priors(&self, address: u64, generation: u64) -> &[Prior] {
        self.live.get(&(address, generation)).map_or(&[], |live| &live.range.priors)
    }

    /// Adds a use: a write stands for all before it, a read for those of its stream.
    pub(crate) fn used(&mut self, address: u64, generation: u64, mut prior: Prior) {
        let Some(live) = self.live.get_mut(&(address, generation)) else { return };
        prior.block = Some(live.block);
        let priors = &mut live.range.priors;
        match prior.access {
            Some(access) if access.writes() => priors.clear(),
            _ => priors
                .retain(|other| other.stream != prior.stream || other.access != Some(Access::Read)),
        }
        priors.push(prior);
    }

    /// Takes what is between two addresses out of the retired memory.
    fn take_retired(&mut self, start: u64, end: u64) -> Vec<Prior> {
        let mut priors = Vec::new();
        // The one that begins before, and all that begin inside.
        let first = self.retired.range(..start).next_back().map(|(at, _)| *at);
        let inside: Vec<u64> = self.retired.range(start..end).map(|(at, _)| *at).collect();
        for at in first.into_iter().chain(inside) {
            let overlaps = self.retired.get(&at).is_some_and(|range| range.end > start);
            let Some(range) = overlaps.then(|| self.retired.remove(&at)).flatten() else {
                continue;
            };
            for prior in &range.priors {
                add(&mut priors, *prior);
            }
            if range.end > end {
                let priors = range.priors.clone();
                self.retired.insert(end, Range { end: range.end, priors });
            }
            if at < start {
                self.retired.insert(at, Range { end: start, priors: range.priors });
            }
        }
        priors
    }
}

/// Adds a use unless it is there: memory that was one block, then two, then one again has every use
/// of it from both.
fn add(priors: &mut Vec<Prior>, prior: Prior) {
    if !priors.contains(&prior) {
        priors.push(prior);
    }
}

#[cfg(test)]
mod tests {
    use xlog_driver::BlockChange;

    use super::*;

    fn note(address: u64, bytes: usize, generation: u64) -> BlockNote {
        BlockNote {
            change: BlockChange::HandedOut,
            address,
            bytes,
            tag: "block",
            generation,
            stream: None,
            stream_name: 0,
            place: None,
        }
    }

    fn used(stream: u32, index: usize, access: Access) -> Prior {
        Prior { stream, index, access: Some(access), operation: None, block: None }
    }

    #[test]
    fn a_block_inherits_the_uses_of_what_had_its_bytes_and_of_nothing_else() {
        let mut history = History::default();
        history.allocated(1000, 1000, None);
        history.handed_out(0, &note(1000, 100, 1));
        history.handed_out(1, &note(1100, 100, 2));
        history.used(1000, 1, used(7, 1, Access::Write));
        history.used(1100, 2, used(8, 2, Access::Write));
        assert_eq!(history.taken_back(1000, 1), Some(0));
        assert_eq!(history.taken_back(1100, 2), Some(1));
        let streams = |priors: Vec<Prior>| priors.iter().map(|one| one.stream).collect::<Vec<_>>();
        assert_eq!(streams(history.handed_out(2, &note(1050, 100, 3))), [7, 8]);
        assert_eq!(streams(history.handed_out(3, &note(1000, 50, 4))), [7]);
        assert_eq!(streams(history.handed_out(4, &note(1150, 50, 5))), [8]);
        assert!(history.handed_out(5, &note(1200, 50, 6)).is_empty());
    }

    #[test]
    fn uses_do_not_multiply_when_memory_is_split_and_put_together() {
        let birth = Prior { access: None, ..used(1, 0, Access::Read) };
        let mut history = History::default();
        history.allocated(0, 100, Some(birth));
        let mut generation = 0;
        for _ in 0..40 {
            for (address, bytes) in [(0, 100), (0, 50), (50, 50)] {
                generation += 1;
                assert_eq!(history.handed_out(0, &note(address, bytes, generation)), [birth]);
                history.taken_back(address, generation);
            }
        }
    }

    #[test]
    fn a_write_stands_for_all_before_it_and_a_read_for_its_streams_own() {
        let mut history = History::default();
        history.handed_out(0, &note(0, 10, 1));
        for (stream, index) in [(1, 1), (2, 2), (1, 3)] {
            history.used(0, 1, used(stream, index, Access::Read));
        }
        let indices = |history: &History| {
            history.priors(0, 1).iter().map(|prior| prior.index).collect::<Vec<_>>()
        };
        assert_eq!(indices(&history), [2, 3]);
        history.used(0, 1, used(3, 4, Access::ReadWrite));
        assert_eq!(indices(&history), [4]);
    }

    #[test]
    fn memory_that_is_handed_out_before_its_return_is_noted_is_found() {
        let mut history = History::default();
        history.handed_out(0, &note(100, 100, 1));
        history.handed_out(1, &note(200, 100, 2));
        assert_eq!(history.overtaken(150, 200), [(100, 1)]);
        assert_eq!(history.overtaken(100, 250), [(100, 1), (200, 2)]);
        assert!(history.overtaken(300, 400).is_empty());
    }
}
