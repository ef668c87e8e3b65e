//! What a trace came to, as data.

use std::panic::Location;

use xlog_core::Access;
use xlog_driver::{CopyKind, LaunchDims};

use crate::{Reason, WaitCause};

/// Everything that a trace saw. Times are nanoseconds since it began, on the host's clock.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recording {
    /// The device's name.
    pub device: String,
    /// Streams, in the order in which they were first seen.
    pub streams: Vec<Stream>,
    /// Host threads by name, in the order in which they were first seen.
    pub threads: Vec<String>,
    /// Kernels, copies and fills, in the order in which they were enqueued.
    pub operations: Vec<Operation>,
    /// Waits of streams for each other, in the order in which they were queued.
    pub waits: Vec<Wait>,
    /// Calls by which the host waited or had the driver's memory change.
    pub calls: Vec<HostCall>,
    /// Blocks that the runtime handed out.
    pub blocks: Vec<Block>,
    /// The bytes of blocks in use, by tag, whenever they changed.
    pub tags: Vec<TagChange>,
    /// The driver's memory, whenever it or the blocks cut from it changed.
    pub memory: Vec<MemorySample>,
    /// Events that were recorded.
    pub records: u64,
    /// Notes that came after the trace's limit, and are in nothing above.
    pub left_out: u64,
    /// When the last of it was over.
    pub end: u64,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// What the runtime calls it; `None` for one that only the driver knows.
    pub id: Option<u32>,
}

/// What was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// A kernel.
    Kernel(LaunchDims),
    /// A copy of so many bytes.
    Copy(CopyKind, u64),
    /// So many bytes set to a value.
    Fill(u64),
}

/// Enqueued work.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Operation {
    /// The kernel's name, or what else it is.
    pub name: &'static str,
    /// What it is, and how much of it.
    pub kind: OperationKind,
    /// Its stream: an index into [`Recording::streams`].
    pub stream: u32,
    /// The thread that enqueued it: an index into [`Recording::threads`].
    pub thread: u32,
    /// When the call that enqueued it began and ended.
    pub call: (u64, u64),
    /// When the device began and ended it; `None` from a device that keeps no time, or lost.
    pub device: Option<(u64, u64)>,
    /// What it declared; empty for work that declared nothing.
    pub uses: Vec<Use>,
    /// Where in the program, for work that declared something.
    pub place: Option<&'static Location<'static>>,
}

/// A block that work declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// An index into [`Recording::blocks`].
    pub block: u32,
    /// How the work touches it.
    pub access: Access,
}

/// A wait of one stream for another.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Wait {
    /// The stream that waits.
    pub stream: u32,
    /// The stream it waits for; `None` if the event had never been recorded.
    pub source: Option<u32>,
    /// The last work the event stands for: an index into [`Recording::operations`].
    pub from: Option<u32>,
    /// The first work behind the wait: an index into [`Recording::operations`].
    pub to: Option<u32>,
    /// When it was queued.
    pub at: u64,
    /// The thread that queued it.
    pub thread: u32,
    /// What it was for.
    pub cause: WaitCause,
}

/// What the host did beside enqueueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Waited for a stream.
    AwaitStream,
    /// Waited for an event.
    AwaitEvent,
    /// Waited for the device.
    AwaitDevice,
    /// Got device memory from the driver.
    Allocate,
    /// Gave device memory back to the driver.
    Free,
    /// Got pinned memory from the driver.
    AllocatePinned,
    /// Gave pinned memory back to the driver.
    FreePinned,
}

/// A call of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCall {
    /// What it did.
    pub kind: CallKind,
    /// The thread: an index into [`Recording::threads`].
    pub thread: u32,
    /// When it began.
    pub begin: u64,
    /// When it returned.
    pub end: u64,
}

/// A block that the runtime handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The user's label.
    pub tag: &'static str,
    /// Which block at its address.
    pub generation: u64,
    /// Its length.
    pub bytes: u64,
    /// The stream it was allocated on, if that was in use.
    pub stream: Option<u32>,
    /// When it was handed out; 0 for one that was before the trace began.
    pub born: u64,
    /// When it was taken back; `None` if it never was.
    pub gone: Option<u64>,
}

/// The bytes in use under one tag, from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagChange {
    /// When.
    pub at: u64,
    /// The tag.
    pub tag: &'static str,
    /// How many bytes more, or fewer.
    pub change: i64,
}

/// The driver's memory, from a time on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySample {
    /// When.
    pub at: u64,
    /// Bytes that the driver has given.
    pub reserved: u64,
    /// Bytes of it in blocks that the runtime has handed out.
    pub in_use: u64,
    /// The longest range of it that no block is in.
    pub largest_free: u64,
}

impl CallKind {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwaitStream => "wait for a stream",
            Self::AwaitEvent => "wait for an event",
            Self::AwaitDevice => "wait for the device",
            Self::Allocate => "driver: allocate",
            Self::Free => "driver: free",
            Self::AllocatePinned => "driver: allocate pinned",
            Self::FreePinned => "driver: free pinned",
        }
    }
}

impl Recording {
    /// How many kernels were launched.
    #[must_use]
    pub fn launches(&self) -> usize {
        let kernel = |operation: &&Operation| matches!(operation.kind, OperationKind::Kernel(_));
        self.operations.iter().filter(kernel).count()
    }

    /// The most bytes that blocks in use had at one time.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        let mut now = 0i64;
        let peak = self.tags.iter().map(|change| {
            now += change.change;
            now
        });
        u64::try_from(peak.max().unwrap_or(0)).unwrap_or(0)
    }

    /// What a stream is called.
    #[must_use]
    pub fn stream_name(&self, stream: u32) -> String {
        match self.streams.get(stream as usize).and_then(|stream| stream.id) {
            Some(0) => "stream 0 (default)".to_owned(),
            Some(id) => format!("stream {id}"),
            None => format!("driver stream {stream}"),
        }
    }

    /// One reason of a wait, in words.
    #[must_use]
    pub fn reason_text(&self, reason: &Reason) -> String {
        let block = |index: Option<u32>| {
            let block = index.and_then(|index| self.blocks.get(index as usize));
            block.map(|block| format!("block {} (generation {})", block.tag, block.generation))
        };
        let of = block(reason.block).unwrap_or_else(|| "a driver allocation".to_owned());
        let mut text = format!("{} of {of}", reason.dependency);
        if let Some(earlier) = block(reason.earlier_block) {
            text += &format!(", which has memory of {earlier}");
        }
        let operation = reason.earlier.and_then(|index| self.operations.get(index as usize));
        if let Some(operation) = operation {
            text +=
                &format!(": follows {} on {}", operation.name, self.stream_name(operation.stream));
        }
        text
    }
}
