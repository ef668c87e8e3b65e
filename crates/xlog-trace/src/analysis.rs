//! From a log to a recording: which work declared what, and what each wait was for.
//!
//! A wait belongs to what its thread does next on the same stream: the runtime queues the waits of
//! a launch before it says what the launch declares, those of a block that is handed out again
//! before it hands it out, and those of a free before it frees. Its reasons are the uses by which
//! that conflicts with work of the other stream: those that the event stands for, and that no
//! earlier wait had made the stream follow.

use rustc_hash::FxHashMap;
use xlog_core::Access;
use xlog_driver::{BlockChange, BlockNote, CopyKind, DeclaredUse, DeviceInfo};

use crate::{
    Block, CallKind, Dependency, HostCall, Operation, OperationKind, Reason, Recording, Stream,
    Use, Wait, WaitCause,
    history::{History, Prior},
    log::{Call, Entry, Log, Span, WorkKind},
    memory::MemoryBooks,
};

/// For each stream, up to which place of the log another follows it; none is 0.
#[derive(Clone, Default)]
struct Clock(Vec<usize>);

impl Clock {
    fn get(&self, stream: u32) -> usize {
        self.0.get(stream as usize).copied().unwrap_or(0)
    }

    fn raise(&mut self, stream: u32, to: usize) {
        let stream = stream as usize;
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] = self.0[stream].max(to);
    }

    fn join(&mut self, other: &Self) {
        for (stream, to) in other.0.iter().enumerate().filter(|(_, to)| **to > 0) {
            self.raise(stream as u32, *to);
        }
    }
}

/// What an event stands for.
struct Recorded {
    stream: u32,
    index: usize,
    clock: Clock,
    last_work: Option<u32>,
}

/// A wait whose cause is not known yet.
struct Unexplained {
    wait: usize,
    source: u32,
    /// What the stream followed of the source before, and does now.
    after: usize,
    before: usize,
}

/// A declaration whose work is still coming.
struct OpenDeclaration {
    number: u32,
    stream: u32,
    thread: u32,
}

struct Analysis<'l> {
    log: &'l Log,
    recording: Recording,
    history: History,
    books: MemoryBooks,
    events: FxHashMap<u64, Recorded>,
    clocks: Vec<Clock>,
    /// The last work of each stream, and waits that no work has come behind yet.
    last_work: Vec<Option<u32>>,
    targetless: Vec<Vec<usize>>,
    /// By thread and stream.
    unexplained: FxHashMap<(u32, u32), Vec<Unexplained>>,
    open: Vec<OpenDeclaration>,
    /// Addresses that the driver gave again before the free of what was there is noted: how often.
    frees_to_come: FxHashMap<u64, u32>,
}

/// What came of a log.
pub(crate) fn analyse(log: &Log, info: &DeviceInfo) -> Recording {
    let streams = log.stream_names.len();
    let mut analysis = Analysis {
        log,
        recording: Recording {
            device: info.name.clone(),
            streams: log.stream_names.iter().map(|name| Stream { id: *name }).collect(),
            threads: log.threads.clone(),
            left_out: log.left_out,
            ..Recording::default()
        },
        history: History::default(),
        books: MemoryBooks::default(),
        events: FxHashMap::default(),
        clocks: vec![Clock::default(); streams],
        last_work: vec![None; streams],
        targetless: (0..streams).map(|_| Vec::new()).collect(),
        unexplained: FxHashMap::default(),
        open: Vec::new(),
        frees_to_come: FxHashMap::default(),
    };
    for (index, entry) in log.entries.iter().enumerate() {
        // From 1: a clock of 0 follows nothing.
        analysis.see(index + 1, entry);
    }
    let Analysis { mut recording, books, .. } = analysis;
    recording.tags = books.tags;
    recording.memory = books.samples;
    recording
}

impl Analysis<'_> {
    fn see(&mut self, index: usize, entry: &Entry) {
        let Entry { span, thread, ref call } = *entry;
        self.recording.end = self.recording.end.max(span.end);
        match *call {
            Call::Work { stream, work } => self.see_work(index, (span, thread), stream, work),
            Call::Recorded { stream, event } => {
                self.recording.records += 1;
                let clock = self.clocks[stream as usize].clone();
                let last_work = self.last_work[stream as usize];
                self.events.insert(event, Recorded { stream, index, clock, last_work });
            }
            Call::Waited { stream, event } => self.see_wait((span, thread), stream, event),
            Call::Allocated { address, bytes, stream } => {
                let birth = stream.map(|stream| Prior {
                    stream,
                    index,
                    access: None,
                    operation: None,
                    block: None,
                });
                if self.books.has(address) {
                    self.history.freed(address);
                    self.books.freed(span.end, address);
                    *self.frees_to_come.entry(address).or_default() += 1;
                }
                self.history.allocated(address, bytes, birth);
                self.books.allocated(span.end, address, bytes);
                self.call(CallKind::Allocate, span, thread);
            }
            Call::Freed { address, stream } => {
                self.call(CallKind::Free, span, thread);
                if let Some(count) = self.frees_to_come.get_mut(&address).filter(|n| **n > 0) {
                    *count -= 1;
                    return;
                }
                let priors = self.history.freed(address);
                if let Some(stream) = stream {
                    self.explain(
                        (thread, stream),
                        |prior| {
                            let dependency = Dependency::FreeAfterUse;
                            Some(Reason { block: prior.block, ..reason(dependency, prior) })
                        },
                        &priors,
                    );
                }
                self.books.freed(span.end, address);
            }
            Call::PinnedAllocated => self.call(CallKind::AllocatePinned, span, thread),
            Call::PinnedFreed => self.call(CallKind::FreePinned, span, thread),
            Call::StreamAwaited { stream } => {
                for one in self.unexplained.remove(&(thread, stream)).unwrap_or_default() {
                    self.recording.waits[one.wait].cause = WaitCause::Fence;
                }
                self.call(CallKind::AwaitStream, span, thread);
            }
            Call::EventAwaited => self.call(CallKind::AwaitEvent, span, thread),
            Call::DeviceAwaited => self.call(CallKind::AwaitDevice, span, thread),
            Call::Declared { declaration } => self.see_declaration(thread, declaration),
            Call::DeclarationOver { declaration } => {
                self.open.retain(|open| open.number != declaration);
            }
            Call::Block { block, stream } => {
                let log = self.log;
                self.see_block((span, thread), &log.blocks[block as usize], stream);
            }
        }
    }

    fn call(&mut self, kind: CallKind, span: Span, thread: u32) {
        self.recording.calls.push(HostCall { kind, thread, begin: span.begin, end: span.end });
    }

    fn see_work(&mut self, index: usize, (span, thread): (Span, u32), stream: u32, work: u32) {
        let noted = &self.log.work[work as usize];
        let (name, kind) = match noted.kind {
            WorkKind::Kernel { kernel, dims } => {
                (kernel.map_or("kernel", |kernel| kernel.name), OperationKind::Kernel(dims))
            }
            WorkKind::Copy { kind, bytes } => (copy_name(kind), OperationKind::Copy(kind, bytes)),
            WorkKind::Fill { bytes } => ("fill", OperationKind::Fill(bytes)),
        };
        // Its thread's own declaration on the stream, or that of a recorder which was handed on.
        let on_stream = || self.open.iter().rev().filter(|open| open.stream == stream);
        let open = on_stream().find(|open| open.thread == thread).or_else(|| on_stream().next());
        let declaration = open.map(|open| &self.log.declarations[open.number as usize]);
        let operation = self.recording.operations.len() as u32;
        let mut uses = Vec::new();
        for one in declaration.into_iter().flat_map(|declaration| &declaration.uses) {
            let &DeclaredUse { address, generation, access } = one;
            if let Some(block) = self.history.block(address, generation) {
                uses.push(Use { block, access });
            }
            let (access, operation) = (Some(access), Some(operation));
            let prior = Prior { stream, index, access, operation, block: None };
            self.history.used(address, generation, prior);
        }
        self.recording.end = self.recording.end.max(noted.device.map_or(0, |span| span.end));
        self.recording.operations.push(Operation {
            name,
            kind,
            stream,
            thread,
            call: (span.begin, span.end),
            // A GPU's first stamp may be passed while the work is still being enqueued.
            device: noted
                .device
                .map(|device| (device.begin.max(span.begin).min(device.end), device.end)),
            uses,
            place: declaration.map(|declaration| declaration.place),
        });
        self.last_work[stream as usize] = Some(operation);
        for wait in self.targetless[stream as usize].drain(..) {
            self.recording.waits[wait].to = Some(operation);
        }
        if declaration.is_none() {
            // What it waited for, its program did not say.
            self.unexplained.remove(&(thread, stream));
        }
    }

    fn see_wait(&mut self, (span, thread): (Span, u32), stream: u32, event: u64) {
        let wait = self.recording.waits.len();
        let recorded = self.events.get(&event);
        self.recording.waits.push(Wait {
            stream,
            source: recorded.map(|recorded| recorded.stream),
            from: recorded.and_then(|recorded| recorded.last_work),
            to: None,
            at: span.end,
            thread,
            cause: WaitCause::Undeclared,
        });
        self.targetless[stream as usize].push(wait);
        let Some(recorded) = recorded else { return };
        let (source, clock) = (recorded.stream, &mut self.clocks[stream as usize]);
        let one = Unexplained { wait, source, after: clock.get(source), before: recorded.index };
        self.unexplained.entry((thread, stream)).or_default().push(one);
        clock.join(&recorded.clock);
        clock.raise(source, recorded.index);
    }

    fn see_declaration(&mut self, thread: u32, number: u32) {
        let declaration = &self.log.declarations[number as usize];
        let stream = declaration.stream;
        self.open.push(OpenDeclaration { number, stream, thread });
        if !self.unexplained.contains_key(&(thread, stream)) {
            return;
        }
        // Every use beside what is to follow it; several blocks may share one wait.
        let mut pairs: Vec<(Prior, Option<u32>, Access)> = Vec::new();
        for one in &declaration.uses {
            let block = self.history.block(one.address, one.generation);
            let priors = self.history.priors(one.address, one.generation);
            pairs.extend(priors.iter().map(|prior| (*prior, block, one.access)));
        }
        for one in self.unexplained.remove(&(thread, stream)).unwrap_or_default() {
            let reasons = pairs.iter().filter(|(prior, ..)| one.covers(prior));
            let reasons = reasons.filter_map(|(prior, block, access)| {
                let dependency = match prior.access {
                    Some(before) => Dependency::between(before, *access)?,
                    None => Dependency::UseAfterAllocation,
                };
                Some(Reason {
                    block: *block,
                    earlier_block: prior.block.filter(|earlier| Some(*earlier) != *block),
                    ..reason(dependency, prior)
                })
            });
            self.set_cause(&one, reasons.collect());
        }
    }

    fn see_block(&mut self, (span, thread): (Span, u32), note: &BlockNote, stream: Option<u32>) {
        let key = (note.address, note.generation);
        let (bytes, tag) = (note.bytes as u64, note.tag);
        match note.change {
            BlockChange::HandedOut => {
                let block = self.recording.blocks.len() as u32;
                let (generation, born) = (note.generation, span.end);
                let born = Block { tag, generation, bytes, stream, born, gone: None };
                self.recording.blocks.push(born);
                for (address, generation) in
                    self.history.overtaken(note.address, note.address + bytes)
                {
                    self.take_back(span.end, address, generation);
                }
                let priors = self.history.handed_out(block, note);
                if let Some(stream) = stream {
                    self.explain(
                        (thread, stream),
                        |prior| {
                            let dependency = match prior.access {
                                Some(_) => Dependency::ReuseAfterUse,
                                None => Dependency::UseAfterAllocation,
                            };
                            let earlier_block = prior.block;
                            Some(Reason {
                                block: Some(block),
                                earlier_block,
                                ..reason(dependency, prior)
                            })
                        },
                        &priors,
                    );
                }
                self.books.handed_out(span.end, key, bytes, tag);
            }
            BlockChange::TakenBack => self.take_back(span.end, note.address, note.generation),
        }
    }

    fn take_back(&mut self, at: u64, address: u64, generation: u64) {
        let Some(block) = self.history.taken_back(address, generation) else { return };
        let block = &mut self.recording.blocks[block as usize];
        block.gone = Some(at);
        self.books.taken_back(at, (address, generation), block.tag);
    }

    /// Gives the waits that a thread has queued on a stream their reasons among `priors`.
    fn explain(
        &mut self,
        key: (u32, u32),
        reason: impl Fn(&Prior) -> Option<Reason>,
        priors: &[Prior],
    ) {
        for one in self.unexplained.remove(&key).unwrap_or_default() {
            let covered = priors.iter().filter(|prior| one.covers(prior));
            self.set_cause(&one, covered.filter_map(&reason).collect());
        }
    }

    fn set_cause(&mut self, one: &Unexplained, mut reasons: Vec<Reason>) {
        // That memory was allocated elsewhere matters where nothing has happened to it since.
        let used = |reason: &Reason| reason.dependency != Dependency::UseAfterAllocation;
        if reasons.iter().any(used) {
            reasons.retain(used);
        }
        let mut kept: Vec<Reason> = Vec::with_capacity(reasons.len());
        for reason in reasons {
            if !kept.contains(&reason) {
                kept.push(reason);
            }
        }
        if !kept.is_empty() {
            self.recording.waits[one.wait].cause = WaitCause::Blocks(kept);
        }
    }
}

impl Unexplained {
    /// Whether the wait is what made its stream follow a use.
    fn covers(&self, prior: &Prior) -> bool {
        prior.stream == self.source && self.after < prior.index && prior.index < self.before
    }
}

fn reason(dependency: Dependency, prior: &Prior) -> Reason {
    Reason { dependency, block: None, earlier_block: None, earlier: prior.operation }
}

fn copy_name(kind: CopyKind) -> &'static str {
    match kind {
        CopyKind::ToDevice => "copy to device",
        CopyKind::ToHost => "copy to host",
        CopyKind::OnDevice => "copy on device",
    }
}
