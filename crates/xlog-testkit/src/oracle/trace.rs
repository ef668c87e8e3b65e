//! What happened in a run, as plain data.

use std::panic::Location;

use xlog_core::Access;
use xlog_driver::OperationId;

/// Everything that decides which work follows which, in the order in which it was enqueued.
///
/// Streams and allocations are numbered in the order in which they were made, so that two runs can
/// be compared: nothing in here is an address or a handle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// How many streams there were.
    pub streams: u32,
    /// How many allocations there were.
    pub allocations: u32,
    /// One thing after the other.
    pub steps: Vec<Step>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A kernel, copy or fill was enqueued.
    Operation {
        /// The stream it is on.
        stream: u32,
        /// Its number on the device.
        operation: OperationId,
        /// The kernel's name, or what a copy or fill does.
        name: &'static str,
        /// Where in the program, if it was declared.
        place: Option<&'static Location<'static>>,
        /// What it declared; what it touches, for a copy or fill that declared nothing.
        uses: Vec<TraceUse>,
        /// The step at which it declared that. By then every wait it needs is queued.
        declared: Option<usize>,
    },
    /// The uses of an operation that is to come were declared.
    Declare {
        /// The stream it goes to.
        stream: u32,
    },
    /// An event was recorded.
    Record {
        /// On this stream.
        stream: u32,
        /// The operation whose declaration was over right before this, if one was: what the event
        /// stands for. Others may have come in between, where a recorder left time for that.
        stands_for: Option<usize>,
    },
    /// A stream was made to wait for an event.
    Wait {
        /// The stream that waits.
        stream: u32,
        /// The step that recorded what the event stood for; `None` if it was never recorded.
        record: Option<usize>,
    },
    /// The host learnt that work is done; all that is enqueued later follows it.
    HostKnows {
        /// On this stream.
        stream: u32,
        /// Everything of it before this step.
        until: usize,
    },
    /// Memory was allocated.
    Allocate {
        /// Its number.
        allocation: u32,
        /// The stream it is valid on; `None` if it is valid everywhere.
        stream: Option<u32>,
        /// How long it is.
        bytes: u64,
    },
    /// Memory was given back.
    Free {
        /// Its number.
        allocation: u32,
        /// The stream whose place decides when; `None` if the host waited.
        stream: Option<u32>,
    },
    /// The runtime handed out a block, all of an allocation or a part of it.
    HandOut {
        /// The allocation.
        allocation: u32,
        /// The stream it was allocated on, if that was in use already.
        stream: Option<u32>,
        /// Where it begins in the allocation.
        start: u64,
        /// Where it ends.
        end: u64,
        /// The user's label.
        tag: &'static str,
    },
    /// The runtime took a block back.
    TakeBack {
        /// The allocation.
        allocation: u32,
        /// Where it begins in the allocation.
        start: u64,
        /// Where it ends.
        end: u64,
        /// The user's label.
        tag: &'static str,
    },
}

/// A range of an allocation that an operation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceUse {
    /// Which allocation.
    pub allocation: u32,
    /// Where the range begins in it.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// How it is used.
    pub access: Access,
}

/// A change to a trace: would it still be free of races?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Without the wait at this step.
    Remove(usize),
    /// With the wait at this step for one operation less: as if its event had been recorded right
    /// behind the operation before the last one it stands for.
    EndEarlier(usize),
}

impl Step {
    /// The stream the step takes its place on, if it takes one.
    #[must_use]
    pub fn stream(&self) -> Option<u32> {
        match self {
            Self::Operation { stream, .. }
            | Self::Declare { stream }
            | Self::Record { stream, .. }
            | Self::Wait { stream, .. } => Some(*stream),
            Self::Allocate { stream, .. }
            | Self::Free { stream, .. }
            | Self::HandOut { stream, .. } => *stream,
            Self::HostKnows { .. } | Self::TakeBack { .. } => None,
        }
    }
}

impl Trace {
    /// The steps that are waits for something.
    pub fn waits(&self) -> impl Iterator<Item = usize> {
        let is_wait = |step: &Step| matches!(step, Step::Wait { record: Some(_), .. });
        self.steps.iter().enumerate().filter(move |(_, step)| is_wait(step)).map(|(i, _)| i)
    }
}
