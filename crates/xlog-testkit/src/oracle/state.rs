//! What the oracle knows of a run so far, and what it learns from each call.

use std::panic::Location;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use xlog_core::Access;
use xlog_driver::{
    BlockChange, BlockNote, CopyKind, Declared, DeviceCall, OperationId, RawEvent, RawStream,
};

use super::{
    books::{Allocation, Block, Books, Death},
    clock::{Clocks, Point},
    finding::{Finding, FindingKind, StreamName},
    shadow::{NOBODY, Shadow},
    trace::{Step, Trace, TraceUse},
};

/// A range that an operation declared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) allocation: u32,
    pub(super) block: Option<u32>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) access: Access,
}

/// One kernel, copy or fill.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) point: Point,
    pub(super) name: &'static str,
    pub(super) is_kernel: bool,
    /// Whether it declared anything.
    pub(super) is_declared: bool,
    pub(super) place: Option<&'static Location<'static>>,
    /// The host side of a copy, which may be ordinary memory.
    pub(super) host_side: u64,
    /// Where its uses stand, from and to.
    uses: (u32, u32),
    finished: bool,
    step: usize,
}

/// Ranges of device memory that a copy or fill touches.
type Known = SmallVec<[TraceUse; 2]>;

/// What can be said of an operation's memory when it is enqueued.
#[derive(Clone, Copy)]
enum Touched<'t> {
    /// All of it: a copy's or a fill's.
    Ranges(&'t [TraceUse]),
    /// The pointers that a kernel was given.
    Unknown(&'t [u64]),
}

/// A declaration whose work is still to be enqueued.
#[derive(Debug)]
struct Open {
    number: u64,
    stream: u32,
    uses: SmallVec<[Use; 4]>,
    place: &'static Location<'static>,
    /// Its step.
    step: usize,
    /// The step of the last of its work that came.
    came: Option<usize>,
}

/// Everything the oracle knows.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) clocks: Clocks,
    pub(super) books: Books,
    pub(super) operations: Vec<Operation>,
    uses: Vec<Use>,
    streams: FxHashMap<RawStream, u32>,
    pub(super) names: Vec<StreamName>,
    /// What each event stands for, and the step that recorded it.
    events: FxHashMap<RawEvent, (Point, usize)>,
    open: Vec<Open>,
    declarations: u64,
    /// The stream and the last step of the declaration that was over last, until its event comes.
    just_over: Option<(u32, usize)>,
    /// Every operation before this one has run.
    unfinished: u32,
    /// For each stream: the last step on it, and the last one the host knew to be done.
    steps_of: Vec<(usize, usize)>,
    pub(super) trace: Trace,
    pub(super) findings: Vec<Finding>,
    pub(super) seen: FxHashSet<(FindingKind, u32, u32)>,
}

impl State {
    pub(super) fn called(&mut self, call: &DeviceCall<'_>) {
        match *call {
            DeviceCall::StreamCreated { stream } => {
                self.streams.remove(&stream);
                self.stream(stream);
            }
            DeviceCall::StreamDestroyed { .. } => {}
            DeviceCall::StreamDone { stream, before } => {
                let stream = self.stream(stream);
                self.host_learns(stream, before);
            }
            DeviceCall::DeviceDone { before } => {
                for stream in 0..self.clocks.streams() {
                    self.host_learns(stream, before);
                }
            }
            DeviceCall::EventCreated { event } | DeviceCall::EventDestroyed { event } => {
                self.events.remove(&event);
            }
            DeviceCall::EventRecorded { event, stream } => {
                let stream = self.stream(stream);
                let point = self.clocks.tail(stream);
                let stands_for = self.just_over.take_if(|(on, _)| *on == stream);
                let stands_for = stands_for.map(|(_, step)| step);
                let step = self.push_step(Step::Record { stream, stands_for });
                self.events.insert(event, (point, step));
            }
            DeviceCall::EventWaited { stream, event } => {
                let stream = self.stream(stream);
                let stands_for = self.events.get(&event).copied();
                let record = stands_for.map(|(_, step)| step);
                self.push_step(Step::Wait { stream, record });
                if let Some((point, _)) = stands_for {
                    self.clocks.join(stream, point);
                }
            }
            DeviceCall::EventDone { event } => {
                if let Some(&(point, step)) = self.events.get(&event) {
                    self.clocks.host_learns(point);
                    self.host_step(point.stream, step + 1);
                }
            }
            DeviceCall::Allocated { address, bytes, stream } => {
                let stream = stream.map(|stream| self.stream(stream));
                self.allocate(address, bytes, stream, false);
            }
            DeviceCall::PinnedAllocated { address, bytes } => {
                self.allocate(address, bytes, None, true);
            }
            DeviceCall::Freed { address, stream } => {
                let stream = stream.map(|stream| self.stream(stream));
                self.free(address, stream);
            }
            DeviceCall::PinnedFreed { address } => self.free(address, None),
            DeviceCall::Copied { operation, stream, kind, destination, source, bytes } => {
                let (name, host_side) = match kind {
                    CopyKind::ToDevice => ("copy to device", source),
                    CopyKind::ToHost => ("copy to host", destination),
                    CopyKind::OnDevice => ("copy on device", 0),
                };
                let read = self.books.range(source, bytes, Access::Read);
                let write = self.books.range(destination, bytes, Access::Write);
                let known: Known = read.into_iter().chain(write).collect();
                let stream = self.stream(stream);
                self.enqueue(operation, stream, name, host_side, Touched::Ranges(&known));
            }
            DeviceCall::Filled { operation, stream, destination, bytes } => {
                let stream = self.stream(stream);
                let known = self.books.range(destination, bytes, Access::Write);
                self.enqueue(operation, stream, "fill", 0, Touched::Ranges(known.as_slice()));
            }
            DeviceCall::Launched { operation, stream, kernel, arguments, .. } => {
                let stream = self.stream(stream);
                let slots = arguments.slots().iter().zip(kernel.parameters);
                let pointers = slots.filter(|(_, parameter)| parameter.kind.access().is_some());
                let pointers: SmallVec<[u64; 8]> = pointers.map(|(slot, _)| *slot).collect();
                self.enqueue(operation, stream, kernel.name, 0, Touched::Unknown(&pointers));
            }
        }
    }

    fn stream(&mut self, raw: RawStream) -> u32 {
        if let Some(&stream) = self.streams.get(&raw) {
            return stream;
        }
        let stream = self.clocks.add_stream();
        self.streams.insert(raw, stream);
        self.names.push(StreamName::Raw(stream));
        self.steps_of.push((0, 0));
        self.trace.streams += 1;
        stream
    }

    fn push_step(&mut self, step: Step) -> usize {
        self.trace.steps.push(step);
        let count = self.trace.steps.len();
        if let Some(stream) = self.trace.steps[count - 1].stream() {
            self.steps_of[stream as usize].0 = count;
        }
        count - 1
    }

    /// The host knows that everything on `stream` before operation `before` is done.
    fn host_learns(&mut self, stream: u32, before: OperationId) {
        let before = before.0 as usize;
        if before >= self.operations.len() {
            let point = self.clocks.tail(stream);
            self.clocks.host_learns(point);
            self.host_step(stream, self.trace.steps.len());
            return;
        }
        // Others have enqueued more while it waited.
        let earlier = self.operations[..before].iter().rev();
        if let Some(last) = earlier.map(|one| (one.point, one.step)).find(|o| o.0.stream == stream)
        {
            self.clocks.host_learns(last.0);
            self.host_step(stream, last.1 + 1);
        }
    }

    fn host_step(&mut self, stream: u32, until: usize) {
        let (last, known) = &mut self.steps_of[stream as usize];
        let until = until.min(*last);
        if until > *known {
            *known = until;
            self.trace.steps.push(Step::HostKnows { stream, until });
        }
    }

    fn allocate(&mut self, address: u64, bytes: usize, stream: Option<u32>, pinned: bool) {
        let born = match stream {
            Some(stream) => self.clocks.advance(stream),
            None => self.clocks.host_point(),
        };
        let (bytes, born_at) = (bytes as u64, self.operations.len() as u32);
        let shadow = Shadow::new(bytes, NOBODY);
        let allocation =
            Allocation { address, bytes, stream, born, born_at, died: None, pinned, shadow };
        let allocation = self.books.allocate(allocation, self.unfinished);
        self.trace.allocations += 1;
        self.push_step(Step::Allocate { allocation, stream, bytes });
    }

    fn free(&mut self, address: u64, stream: Option<u32>) {
        let Some(allocation) = self.books.live(address) else { return };
        let point = match stream {
            Some(stream) => self.clocks.advance(stream),
            None => self.clocks.host_point(),
        };
        self.push_step(Step::Free { allocation, stream });
        let at = self.operations.len() as u32;
        self.books.allocations[allocation as usize].died = Some(Death { point, at, stream });
        self.check_free(allocation);
    }

    fn enqueue(
        &mut self,
        operation: OperationId,
        stream: u32,
        name: &'static str,
        host_side: u64,
        touched: Touched<'_>,
    ) {
        debug_assert_eq!(operation.0 as usize, self.operations.len(), "numbers count up");
        let point = self.clocks.advance(stream);
        let from = self.uses.len();
        let (place, declared) = self.take_declarations(stream, touched).unzip();
        let uses = (from as u32, self.uses.len() as u32);
        let traced = match touched {
            Touched::Ranges(known) if place.is_none() => known.to_vec(),
            _ => self.uses[from..].iter().map(Use::traced).collect(),
        };
        let step = Step::Operation { stream, operation, name, place, uses: traced, declared };
        let step = self.push_step(step);
        self.operations.push(Operation {
            point,
            name,
            is_kernel: matches!(touched, Touched::Unknown(_)),
            is_declared: place.is_some(),
            place,
            host_side,
            uses,
            finished: false,
            step,
        });
    }

    /// Adds the uses of the declarations that an operation on `stream` belongs to. Mostly one is
    /// open there. Of several, those are meant that name memory the operation was given; and a copy
    /// or fill that none of them covers is somebody else's: a guard's, say, which declares nothing.
    fn take_declarations(
        &mut self,
        stream: u32,
        touched: Touched<'_>,
    ) -> Option<(&'static Location<'static>, usize)> {
        let open = || self.open.iter().filter(|open| open.stream == stream);
        let several = open().nth(1).is_some();
        let names = |open: &&Open| match touched {
            Touched::Ranges(known) => known.iter().any(|range| open.covers(range)),
            Touched::Unknown(pointers) => pointers.iter().any(|at| open.holds(&self.books, *at)),
        };
        // Which of several it is, its arguments tell best: all that they name, and no more.
        let exactly = |open: &&Open| match touched {
            Touched::Ranges(known) => open.is_made_of(known),
            Touched::Unknown(pointers) => open.is_named_by(&self.books, pointers),
        };
        if several && let Some(open) = open().rev().find(exactly) {
            self.uses.extend_from_slice(&open.uses);
            let (number, place, step) = (open.number, open.place, self.trace.steps.len());
            let declared = open.step;
            if let Some(open) = self.open.iter_mut().find(|open| open.number == number) {
                open.came = Some(step);
            }
            return Some((place, declared));
        }
        let only_those = match touched {
            Touched::Ranges(_) => true,
            Touched::Unknown(_) => several && open().any(|open| names(&open)),
        };
        let mut place = None;
        let mut came: SmallVec<[u64; 2]> = SmallVec::new();
        for open in open().filter(|open| !only_those || names(open)) {
            self.uses.extend_from_slice(&open.uses);
            place = Some((open.place, open.step));
            came.push(open.number);
        }
        // The step that is pushed next.
        let step = Some(self.trace.steps.len());
        for open in self.open.iter_mut().filter(|open| came.contains(&open.number)) {
            open.came = step;
        }
        place
    }

    pub(super) fn uses_of(&self, operation: u32) -> &[Use] {
        let (from, to) = self.operations[operation as usize].uses;
        &self.uses[from as usize..to as usize]
    }

    pub(super) fn finished(&mut self, operation: OperationId) {
        if let Some(operation) = self.operations.get_mut(operation.0 as usize) {
            operation.finished = true;
        }
        let rest = self.operations[self.unfinished as usize..].iter();
        self.unfinished += rest.take_while(|one| one.finished).count() as u32;
    }

    pub(super) fn declared(&mut self, declared: &Declared<'_>) -> u64 {
        let stream = self.stream(declared.stream);
        self.names[stream as usize] = StreamName::Pool(declared.stream_name);
        self.declarations += 1;
        let uses = declared.uses.iter().filter_map(|one| {
            let block = self.books.block(one.generation);
            let (allocation, start, end) = match block {
                Some(block) => {
                    let block = &self.books.blocks[block as usize];
                    (block.allocation, block.start, block.end)
                }
                None => {
                    let allocation = self.books.live(one.address)?;
                    let whole = &self.books.allocations[allocation as usize];
                    (allocation, one.address - whole.address, whole.bytes)
                }
            };
            Some(Use { allocation, block, start, end, access: one.access })
        });
        let (number, place, uses) = (self.declarations, declared.place, uses.collect());
        let step = self.push_step(Step::Declare { stream });
        self.open.push(Open { number, stream, uses, place, step, came: None });
        number
    }

    /// A declaration whose work never came counts all the same: a recorder that was dropped is
    /// taken for one that launched.
    pub(super) fn declaration_over(&mut self, number: u64) {
        let Some(index) = self.open.iter().position(|open| open.number == number) else { return };
        let Open { stream, uses, place, step: declared, came, .. } = self.open.swap_remove(index);
        let step = came.unwrap_or_else(|| {
            let uses = uses.iter().map(Use::traced).collect();
            let (name, operation) = ("a launch that never came", OperationId(u64::MAX));
            let (place, declared) = (Some(place), Some(declared));
            self.push_step(Step::Operation { stream, operation, name, place, uses, declared })
        });
        self.just_over = Some((stream, step));
    }

    pub(super) fn block(&mut self, note: &BlockNote) {
        let now = self.operations.len() as u32;
        let BlockNote { address, bytes, tag, generation, place, .. } = *note;
        if note.change == BlockChange::TakenBack {
            if let Some(block) = self.books.take_back(generation, now) {
                let (allocation, start, end) = (block.allocation, block.start, block.end);
                self.push_step(Step::TakeBack { allocation, start, end, tag });
            }
            return;
        }
        let stream = note.stream.map(|raw| self.stream(raw));
        if let Some(stream) = stream {
            self.names[stream as usize] = StreamName::Pool(note.stream_name);
        }
        let block = Block {
            allocation: 0,
            start: 0,
            end: 0,
            tag,
            generation,
            place,
            from: now,
            until: None,
        };
        let Some(block) = self.books.hand_out(address, bytes as u64, block) else { return };
        let Block { allocation, start, end, .. } = self.books.blocks[block as usize];
        self.push_step(Step::HandOut { allocation, stream, start, end, tag });
    }
}

impl Use {
    fn traced(&self) -> TraceUse {
        let &Self { allocation, start, end, access, .. } = self;
        TraceUse { allocation, start, end, access }
    }
}

impl Open {
    fn covers(&self, range: &TraceUse) -> bool {
        self.uses.iter().any(|one| {
            one.allocation == range.allocation && (one.start..one.end).contains(&range.start)
        })
    }

    /// Whether these arguments point to all of its blocks, and to nothing else.
    fn is_named_by(&self, books: &Books, pointers: &[u64]) -> bool {
        let base = |one: &Use| books.allocations[one.allocation as usize].address;
        let named = |one: &Use| {
            let range = base(one) + one.start..base(one) + one.end;
            pointers.iter().any(|pointer| range.contains(pointer))
        };
        let live = pointers.iter().filter(|pointer| books.live(**pointer).is_some());
        self.uses.iter().all(named) && live.into_iter().all(|at| self.holds(books, *at))
    }

    /// Whether these ranges lie in all of its blocks, and in nothing else.
    fn is_made_of(&self, ranges: &[TraceUse]) -> bool {
        let touched = |one: &Use| {
            let inside = |range: &TraceUse| (one.start..one.end).contains(&range.start);
            ranges.iter().any(|range| range.allocation == one.allocation && inside(range))
        };
        ranges.iter().all(|range| self.covers(range)) && self.uses.iter().all(touched)
    }

    fn holds(&self, books: &Books, address: u64) -> bool {
        self.uses.iter().any(|one| {
            let base = books.allocations[one.allocation as usize].address;
            (base + one.start..base + one.end).contains(&address)
        })
    }
}
