//! What was noted, in the order in which it took effect.
//!
//! One list for all threads. Entries of one stream are in the order in which the stream has them:
//! whoever notes one holds that stream's lock. Nothing is worked out here; that is for
//! [`analysis`](crate::analysis), after the program.

use std::{
    panic::Location,
    thread::{self, ThreadId},
};

use rustc_hash::FxHashMap;
use xlog_driver::{BlockNote, CopyKind, DeclaredUse, KernelDefinition, LaunchDims};

/// When something was asked for and when the call was over: nanoseconds since the trace began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// One noted call.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) span: Span,
    pub(crate) thread: u32,
    pub(crate) call: Call,
}

/// What was called. Streams are numbers in the order in which they were first seen.
#[derive(Debug)]
pub(crate) enum Call {
    /// Work was enqueued: an index into [`Log::work`].
    Work { stream: u32, work: u32 },
    /// An event was recorded.
    Recorded { stream: u32, event: u64 },
    /// A stream was told to wait for an event.
    Waited { stream: u32, event: u64 },
    /// The driver gave memory.
    Allocated { address: u64, bytes: u64, stream: Option<u32> },
    /// The driver got memory back.
    Freed { address: u64, stream: Option<u32> },
    /// The driver gave pinned memory.
    PinnedAllocated,
    /// The driver got pinned memory back.
    PinnedFreed,
    /// The host waited for a stream.
    StreamAwaited { stream: u32 },
    /// The host waited for an event.
    EventAwaited,
    /// The host waited for the device.
    DeviceAwaited,
    /// A launch or copy said what it touches: an index into [`Log::declarations`].
    Declared { declaration: u32 },
    /// Its work is enqueued.
    DeclarationOver { declaration: u32 },
    /// The runtime handed a block out, or took it back: an index into [`Log::blocks`].
    Block { block: u32, stream: Option<u32> },
}

/// Enqueued work.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) kind: WorkKind,
    /// When the device began and ended it, once that is known.
    pub(crate) device: Option<Span>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WorkKind {
    Kernel { kernel: Option<&'static KernelDefinition>, dims: LaunchDims },
    Copy { kind: CopyKind, bytes: u64 },
    Fill { bytes: u64 },
}

/// What a launch or copy said it touches.
#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) stream: u32,
    pub(crate) uses: Vec<DeclaredUse>,
    pub(crate) place: &'static Location<'static>,
}

/// Everything that was noted.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) entries: Vec<Entry>,
    pub(crate) work: Vec<Work>,
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) blocks: Vec<BlockNote>,
    /// What the runtime calls each stream, where it has said so.
    pub(crate) stream_names: Vec<Option<u32>>,
    /// Threads by name, numbered in the order in which they were first seen.
    pub(crate) threads: Vec<String>,
    thread_numbers: FxHashMap<ThreadId, u32>,
    limit: usize,
    /// Entries that came after the limit.
    pub(crate) left_out: u64,
    pub(crate) closed: bool,
}

impl Log {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            entries: Vec::new(),
            work: Vec::new(),
            declarations: Vec::new(),
            blocks: Vec::new(),
            stream_names: Vec::new(),
            threads: Vec::new(),
            thread_numbers: FxHashMap::default(),
            limit,
            left_out: 0,
            closed: false,
        }
    }

    /// Whether another entry is wanted.
    pub(crate) fn has_room(&self) -> bool {
        !self.closed && self.entries.len() < self.limit
    }

    /// The same, counting an entry for which there is no room.
    fn takes_another(&mut self) -> bool {
        let room = self.has_room();
        self.left_out += u64::from(!room && !self.closed);
        room
    }

    /// Notes a call of this thread.
    pub(crate) fn push(&mut self, span: Span, call: Call) {
        if self.takes_another() {
            let thread = self.thread();
            self.entries.push(Entry { span, thread, call });
        }
    }

    /// Notes work of this thread; its number, if there was room.
    pub(crate) fn push_work(&mut self, span: Span, stream: u32, kind: WorkKind) -> Option<u32> {
        if !self.takes_another() {
            return None;
        }
        let thread = self.thread();
        let work = self.work.len() as u32;
        self.work.push(Work { kind, device: None });
        self.entries.push(Entry { span, thread, call: Call::Work { stream, work } });
        Some(work)
    }

    /// Notes what became of a block.
    pub(crate) fn push_block(&mut self, span: Span, note: &BlockNote, stream: Option<u32>) {
        if self.has_room() {
            if let Some(stream) = stream {
                self.name_stream(stream, note.stream_name);
            }
            self.blocks.push(*note);
        }
        let block = self.blocks.len().saturating_sub(1) as u32;
        self.push(span, Call::Block { block, stream });
    }

    /// A number for another stream.
    pub(crate) fn add_stream(&mut self) -> u32 {
        self.stream_names.push(None);
        self.stream_names.len() as u32 - 1
    }

    /// The runtime's name of a stream.
    pub(crate) fn name_stream(&mut self, stream: u32, name: u32) {
        self.stream_names[stream as usize] = Some(name);
    }

    fn thread(&mut self) -> u32 {
        let current = thread::current();
        let next = self.threads.len() as u32;
        *self.thread_numbers.entry(current.id()).or_insert_with(|| {
            let name = current.name().map_or_else(|| format!("thread {next}"), str::to_owned);
            self.threads.push(name);
            next
        })
    }
}
