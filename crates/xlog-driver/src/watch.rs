//! Watching a device: what checked mode is made of.
//!
//! A host device with a [`DeviceWatcher`] tells it every call that makes, orders or ends work and
//! memory, in the order in which they took effect, and every access that work makes when it runs.
//! The runtime above adds what only it knows: which blocks a launch declared, and which blocks it
//! handed out of a larger allocation. The watcher decides nothing for either of them, except that
//! it may forbid an access that would end the process. A device without one pays nothing.

use std::{fmt, panic::Location};

use xlog_core::Access;

use crate::{Arguments, KernelDefinition, LaunchDims, RawEvent, RawStream};

/// The number of one enqueued kernel, copy or fill: counted from 0 on each device, in the order
/// in which they were enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// Which memory a copy goes between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyKind {
    /// From host memory to device memory.
    ToDevice,
    /// From device memory to host memory.
    ToHost,
    /// Within device memory.
    OnDevice,
}

/// A driver call that took effect.
#[derive(Clone, Copy, Debug)]
pub enum DeviceCall<'c> {
    /// A stream was made.
    StreamCreated {
        /// The new stream.
        stream: RawStream,
    },
    /// A stream was destroyed; what it holds still runs.
    StreamDestroyed {
        /// The stream.
        stream: RawStream,
    },
    /// The host knows that what was enqueued on a stream is done: it waited for it, or asked.
    StreamDone {
        /// The stream.
        stream: RawStream,
        /// Everything with a smaller number; others may have enqueued more since.
        before: OperationId,
    },
    /// The host knows that what was enqueued on every stream is done.
    DeviceDone {
        /// Everything with a smaller number; others may have enqueued more since.
        before: OperationId,
    },
    /// An event was made.
    EventCreated {
        /// The new event.
        event: RawEvent,
    },
    /// An event was destroyed; waits for it that are queued stay.
    EventDestroyed {
        /// The event.
        event: RawEvent,
    },
    /// An event stands for everything on a stream so far, and no longer for what it stood for.
    EventRecorded {
        /// The event.
        event: RawEvent,
        /// The stream.
        stream: RawStream,
    },
    /// A stream waits for what an event stands for now, which may be nothing.
    EventWaited {
        /// The stream that waits.
        stream: RawStream,
        /// The event.
        event: RawEvent,
    },
    /// The host knows that what an event stands for is done: it waited for it, or asked.
    EventDone {
        /// The event.
        event: RawEvent,
    },
    /// Memory was allocated.
    Allocated {
        /// Its address.
        address: u64,
        /// How many bytes were asked for.
        bytes: usize,
        /// The stream it is valid on from here on; `None` if it is valid everywhere.
        stream: Option<RawStream>,
    },
    /// Memory was given back.
    Freed {
        /// Its address.
        address: u64,
        /// The stream whose place decides when; `None` if the device had been waited for.
        stream: Option<RawStream>,
    },
    /// Pinned host memory was allocated.
    PinnedAllocated {
        /// Its address.
        address: u64,
        /// How many bytes were asked for.
        bytes: usize,
    },
    /// Pinned host memory was given back, at once.
    PinnedFreed {
        /// Its address.
        address: u64,
    },
    /// A copy was enqueued.
    Copied {
        /// Its number.
        operation: OperationId,
        /// The stream it is on.
        stream: RawStream,
        /// Between which memory.
        kind: CopyKind,
        /// Where to.
        destination: u64,
        /// Where from.
        source: u64,
        /// How much.
        bytes: usize,
    },
    /// Setting the bytes of a range was enqueued.
    Filled {
        /// Its number.
        operation: OperationId,
        /// The stream it is on.
        stream: RawStream,
        /// Where to.
        destination: u64,
        /// How much.
        bytes: usize,
    },
    /// A kernel was enqueued.
    Launched {
        /// Its number.
        operation: OperationId,
        /// The stream it is on.
        stream: RawStream,
        /// The kernel.
        kernel: &'static KernelDefinition,
        /// Its launch dimensions.
        dims: LaunchDims,
        /// Its arguments.
        arguments: &'c Arguments,
    },
}

/// One block that a launch or copy declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredUse {
    /// The block's address.
    pub address: u64,
    /// Which block at that address; the [`BlockNote`] with this generation says how long it is.
    pub generation: u64,
    /// How the work touches it.
    pub access: Access,
}

/// What a launch or copy declared before it was enqueued.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'d> {
    /// The stream it goes to.
    pub stream: RawStream,
    /// What the runtime calls that stream.
    pub stream_name: u32,
    /// The blocks.
    pub uses: &'d [DeclaredUse],
    /// Where in the program.
    pub place: &'static Location<'static>,
}

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockChange {
    /// It was handed out.
    HandedOut,
    /// It was taken back.
    TakenBack,
}

/// A block that the runtime handed to its user, or took back: all of a driver's allocation, or a
/// part of one.
#[derive(Clone, Copy, Debug)]
pub struct BlockNote {
    /// What became of it.
    pub change: BlockChange,
    /// Its address.
    pub address: u64,
    /// Its length.
    pub bytes: usize,
    /// The user's label.
    pub tag: &'static str,
    /// Which block at that address.
    pub generation: u64,
    /// The stream it was allocated on, if that is in use already.
    pub stream: Option<RawStream>,
    /// What the runtime calls that stream.
    pub stream_name: u32,
    /// Where in the program, if that is known.
    pub place: Option<&'static Location<'static>>,
}

/// Sees what happens on a device.
///
/// Calls, declarations and blocks come in the order in which they took effect. Accesses come when
/// the work runs, from whichever thread runs it, between `started` and `finished` of its number.
/// A watcher is called with locks of the device held, so it must not call the device.
pub trait DeviceWatcher: Send + Sync + fmt::Debug {
    /// A driver call took effect. For enqueued work this comes before the work can run.
    fn called(&self, call: &DeviceCall<'_>);

    /// A kernel, copy or fill begins to run.
    fn started(&self, operation: OperationId) {
        let _ = operation;
    }

    /// It has run.
    fn finished(&self, operation: OperationId) {
        let _ = operation;
    }

    /// `bytes` bytes at `address` are about to be read; if false is the answer, they are not, and
    /// the work sees zeros.
    fn may_read(&self, operation: OperationId, address: u64, bytes: usize) -> bool;

    /// `bytes` bytes at `address` are about to be written; if false is the answer, they are not.
    fn may_write(&self, operation: OperationId, address: u64, bytes: usize) -> bool;

    /// What is enqueued on the stream from here on declares these uses, until
    /// [`declaration_over`](Self::declaration_over) is told the number this answers.
    fn declared(&self, declared: &Declared<'_>) -> u64 {
        let _ = declared;
        0
    }

    /// A declaration's work is enqueued, or will not be.
    fn declaration_over(&self, declaration: u64) {
        let _ = declaration;
    }

    /// A block was handed out or taken back.
    fn block(&self, note: &BlockNote) {
        let _ = note;
    }
}
