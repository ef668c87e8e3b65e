//! Holding accesses and frees against the clocks.

use smallvec::SmallVec;

use super::{
    books::Allocation,
    finding::{Action, BlockLabel, Finding, FindingKind, Place, StreamName},
    shadow::{NOBODY, Segment},
    state::{State, Use},
};
use xlog_driver::OperationId;

/// An operation and a range of an allocation that it touches.
#[derive(Clone, Copy)]
struct Touch {
    operation: u32,
    allocation: u32,
    start: u64,
    end: u64,
    writes: bool,
}

type Conflicts = SmallVec<[(FindingKind, u32, u64, u64); 4]>;

impl State {
    /// Checks one access that is about to be made; false if it must not be.
    pub(super) fn access(
        &mut self,
        id: OperationId,
        address: u64,
        bytes: usize,
        writes: bool,
    ) -> bool {
        let operation = id.0 as u32;
        if bytes == 0 || operation as usize >= self.operations.len() {
            return true;
        }
        let (declared, allocation) = match self.declared_use(operation, address) {
            Some(one) => (Some(one), one.allocation),
            None => match self.allocation_for(operation, address) {
                Some(allocation) => (None, allocation),
                // The host side of a copy may be any memory of the process.
                None if self.operations[operation as usize].host_side == address => return true,
                None => return self.nowhere(operation, address, bytes as u64, writes),
            },
        };
        let whole = &self.books.allocations[allocation as usize];
        let start = address - whole.address;
        let touch = Touch { operation, allocation, start, end: start + bytes as u64, writes };
        if touch.end > whole.bytes {
            self.about_allocation(FindingKind::OutOfBounds, touch, "it begins inside one");
            return false;
        }
        self.check_declaration(touch, declared) && self.check_life(touch) && {
            self.check_bytes(touch, declared);
            true
        }
    }

    fn declared_use(&self, operation: u32, address: u64) -> Option<Use> {
        let covers = |one: &&Use| {
            let base = self.books.allocations[one.allocation as usize].address;
            (base + one.start..base + one.end).contains(&address)
        };
        self.uses_of(operation).iter().find(covers).copied()
    }

    /// Which of the allocations at an address an operation means: the latest it follows, or the
    /// latest.
    fn allocation_for(&self, operation: u32, address: u64) -> Option<u32> {
        let versions = self.books.around(address);
        let follows = |one: &&u32| self.follows_birth(operation, **one);
        let meant = versions.iter().rev().find(follows).or(versions.last());
        meant.copied().filter(|one| {
            let whole = &self.books.allocations[*one as usize];
            address < whole.address + whole.bytes
        })
    }

    fn follows_birth(&self, operation: u32, allocation: u32) -> bool {
        let Allocation { stream, born, born_at, .. } = self.books.allocations[allocation as usize];
        match stream {
            Some(_) => self.clocks.follows(self.operations[operation as usize].point, born),
            None => operation >= born_at,
        }
    }

    fn nowhere(&mut self, operation: u32, address: u64, bytes: u64, writes: bool) -> bool {
        let nearest = self.books.nearest(address);
        if self.seen.insert((FindingKind::OutOfBounds, operation, nearest.unwrap_or(NOBODY))) {
            let (first, start) = match nearest {
                Some(allocation) => {
                    let start = address - self.books.allocations[allocation as usize].address;
                    (self.birth_place(allocation, 0), start)
                }
                None => (self.host_place(Action::Allocate, "nobody"), address),
            };
            let mut second = self.place(operation, None, start, start + bytes, writes);
            second.block = first.block;
            let detail = "the first is the nearest allocation below them";
            let kind = FindingKind::OutOfBounds;
            self.findings.push(Finding { kind, first, second, follows: 0, detail });
        }
        false
    }

    /// Whether the launch declared this. Memory that is not the runtime's (pinned) is not
    /// declared, and neither is work past the runtime, which is held against the blocks' lives.
    fn check_declaration(&mut self, touch: Touch, declared: Option<Use>) -> bool {
        let Touch { operation, allocation, start, end, writes } = touch;
        if self.books.allocations[allocation as usize].pinned {
            return true;
        }
        let one = &self.operations[operation as usize];
        if one.is_declared {
            let Some(declared) = declared else {
                self.about_allocation(FindingKind::Undeclared, touch, "");
                return true;
            };
            let enough = if writes { declared.access.writes() } else { declared.access.reads() };
            if end > declared.end {
                self.about_allocation(FindingKind::Undeclared, touch, "it leaves the block");
            } else if !enough {
                let detail = "the block is declared, but not for this kind of access";
                self.about_allocation(FindingKind::Undeclared, touch, detail);
            }
            return true;
        }
        if one.is_kernel
            && let Some(block) = self.books.block_around(allocation, start)
        {
            let block = self.books.blocks[block as usize];
            if block.until.is_some_and(|until| until <= operation) {
                self.about_allocation(FindingKind::UseAfterFree, touch, "");
            } else if end > block.end {
                self.about_allocation(FindingKind::OutOfBounds, touch, "it leaves the block");
            }
        }
        true
    }

    /// Whether the allocation is there for this operation. One that the host gave back may be gone
    /// from the process, so it is not to be touched.
    fn check_life(&mut self, touch: Touch) -> bool {
        let Touch { operation, allocation, start, end, writes } = touch;
        if !self.follows_birth(operation, allocation) {
            let kind = FindingKind::UseBeforeAllocation;
            if self.seen.insert((kind, operation, allocation)) {
                let first = self.birth_place(allocation, start);
                let second = self.place(operation, Some(allocation), start, end, writes);
                let born = self.books.allocations[allocation as usize].born;
                let point = self.operations[operation as usize].point;
                let follows = self.clocks.reached(point, born.stream);
                self.findings.push(Finding { kind, first, second, follows, detail: "" });
            }
        }
        let Some(death) = self.books.allocations[allocation as usize].died else { return true };
        let point = self.operations[operation as usize].point;
        if operation < death.at && self.clocks.follows(death.point, point) {
            return true;
        }
        self.used_after_free(touch);
        death.stream.is_some()
    }

    fn used_after_free(&mut self, touch: Touch) {
        let Touch { operation, allocation, start, end, writes } = touch;
        let kind = FindingKind::UseAfterFree;
        let Some(death) = self.books.allocations[allocation as usize].died else { return };
        if !self.seen.insert((kind, operation, allocation)) {
            return;
        }
        let used = self.place(operation, Some(allocation), start, end, writes);
        let freed = Place {
            action: Action::Free,
            name: "the free",
            number_on_stream: death.point.tick,
            stream: death.stream.map_or(StreamName::Host, |stream| self.names[stream as usize]),
            ..self.allocation_place(allocation, start)
        };
        let point = self.operations[operation as usize].point;
        let follows = self.clocks.reached(death.point, point.stream);
        // In the order in which they were enqueued.
        let (first, second) = if operation < death.at { (used, freed) } else { (freed, used) };
        self.findings.push(Finding { kind, first, second, follows, detail: "" });
    }

    /// Whether everybody who touched the bytes before is followed.
    fn check_bytes(&mut self, touch: Touch, declared: Option<Use>) {
        let Touch { operation, allocation, start, end, writes } = touch;
        let (clocks, operations) = (&self.clocks, &self.operations);
        let point = operations[operation as usize].point;
        let follows = |other: u32| {
            other == operation || clocks.follows(point, operations[other as usize].point)
        };
        let whole = &mut self.books.allocations[allocation as usize];
        // A block's bytes are fresh even where their former owner wrote them.
        let block = declared.and_then(|one| one.block);
        let fresh_since = block.map_or(0, |block| self.books.blocks[block as usize].from);
        let mut conflicts = Conflicts::new();
        let pinned = whole.pinned;
        whole.shadow.touch(start, end, |segment: &mut Segment| {
            let &mut Segment { start, end, write, .. } = segment;
            if write != NOBODY && !follows(write) {
                let kind =
                    if writes { FindingKind::WriteAfterWrite } else { FindingKind::ReadAfterWrite };
                conflicts.push((kind, write, start, end));
            }
            if writes {
                for &read in segment.reads.iter().filter(|read| !follows(**read)) {
                    conflicts.push((FindingKind::WriteAfterRead, read, start, end));
                }
                segment.write = operation;
                segment.reads.clear();
                return;
            }
            if !pinned && (write == NOBODY || write < fresh_since) {
                conflicts.push((FindingKind::UninitialisedRead, NOBODY, start, end));
            }
            if segment.reads.last() != Some(&operation) {
                // Whoever follows this read follows those that it follows.
                segment.reads.retain(|read| !follows(*read));
                segment.reads.push(operation);
            }
        });
        for (kind, other, start, end) in conflicts {
            let touch = Touch { start, end, ..touch };
            if kind == FindingKind::UninitialisedRead {
                self.about_allocation(kind, touch, "");
            } else {
                self.race(kind, other, touch);
            }
        }
    }

    fn race(&mut self, kind: FindingKind, other: u32, touch: Touch) {
        let Touch { operation, allocation, start, end, writes } = touch;
        if !self.seen.insert((kind, other, operation)) {
            return;
        }
        let other_writes = kind != FindingKind::WriteAfterRead;
        let first = self.place(other, Some(allocation), start, end, other_writes);
        let second = self.place(operation, Some(allocation), start, end, writes);
        let (one, two) = (&self.operations[other as usize], &self.operations[operation as usize]);
        let follows = self.clocks.reached(two.point, one.point.stream);
        self.findings.push(Finding { kind, first, second, follows, detail: "" });
    }

    /// Reports something about an operation and the memory it touches.
    fn about_allocation(&mut self, kind: FindingKind, touch: Touch, detail: &'static str) {
        let Touch { operation, allocation, start, end, writes } = touch;
        if self.seen.insert((kind, operation, allocation)) {
            let first = self.birth_place(allocation, start);
            let second = self.place(operation, Some(allocation), start, end, writes);
            self.findings.push(Finding { kind, first, second, follows: 0, detail });
        }
    }

    /// A free has come: everybody who has touched the memory by now must be before it.
    pub(super) fn check_free(&mut self, allocation: u32) {
        let whole = &self.books.allocations[allocation as usize];
        let Some(death) = whole.died else { return };
        let mut late: SmallVec<[Touch; 4]> = SmallVec::new();
        for segment in whole.shadow.segments() {
            let &Segment { start, end, write, .. } = segment;
            let touched = segment.reads.iter().map(|read| (*read, false)).chain([(write, true)]);
            for (operation, writes) in touched.filter(|(operation, _)| *operation != NOBODY) {
                let point = self.operations[operation as usize].point;
                if !self.clocks.follows(death.point, point) {
                    late.push(Touch { operation, allocation, start, end, writes });
                }
            }
        }
        for touch in late {
            self.used_after_free(touch);
        }
    }

    /// What an operation does with a range of an allocation.
    fn place(
        &self,
        operation: u32,
        allocation: Option<u32>,
        start: u64,
        end: u64,
        writes: bool,
    ) -> Place {
        let one = &self.operations[operation as usize];
        let declared = self.uses_of(operation).iter().find(|declared| {
            Some(declared.allocation) == allocation
                && (declared.start..declared.end).contains(&start)
        });
        let declared = declared.and_then(|declared| declared.block);
        let around = || self.books.block_around(allocation?, start);
        let block = declared.or_else(around).map(|block| &self.books.blocks[block as usize]);
        let base = block.map_or(0, |block| block.start);
        Place {
            action: if writes { Action::Write } else { Action::Read },
            name: one.name,
            operation: Some(OperationId(u64::from(operation))),
            number_on_stream: one.point.tick,
            stream: self.names[one.point.stream as usize],
            location: one.place,
            block: block.map(|one| BlockLabel { tag: one.tag, generation: one.generation }),
            range: start - base..end - base,
        }
    }

    /// Where the memory around a place of an allocation was allocated.
    fn birth_place(&self, allocation: u32, at: u64) -> Place {
        let Allocation { born, stream, .. } = self.books.allocations[allocation as usize];
        Place {
            number_on_stream: born.tick,
            stream: stream.map_or(StreamName::Host, |stream| self.names[stream as usize]),
            ..self.allocation_place(allocation, at)
        }
    }

    fn allocation_place(&self, allocation: u32, at: u64) -> Place {
        let block = self.books.block_around(allocation, at);
        let block = block.map(|block| &self.books.blocks[block as usize]);
        let whole = self.books.allocations[allocation as usize].bytes;
        Place {
            location: block.and_then(|block| block.place),
            block: block.map(|one| BlockLabel { tag: one.tag, generation: one.generation }),
            range: 0..block.map_or(whole, |block| block.bytes()),
            ..self.host_place(Action::Allocate, "the allocation")
        }
    }

    fn host_place(&self, action: Action, name: &'static str) -> Place {
        Place {
            action,
            name,
            operation: None,
            number_on_stream: 0,
            stream: StreamName::Host,
            location: None,
            block: None,
            range: 0..0,
        }
    }
}
