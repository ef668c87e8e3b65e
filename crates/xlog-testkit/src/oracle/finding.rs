//! What the oracle found, in words.

use std::{fmt, ops::Range, panic::Location};

use xlog_driver::OperationId;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// A read does not follow the write before it.
    ReadAfterWrite,
    /// A write does not follow a read before it.
    WriteAfterRead,
    /// A write does not follow the write before it.
    WriteAfterWrite,
    /// A use does not follow the allocation of what it uses.
    UseBeforeAllocation,
    /// A use is not before the free of what it uses.
    UseAfterFree,
    /// A read of bytes that nobody wrote since they were allocated.
    UninitialisedRead,
    /// An access outside of every allocation, or past the end of one.
    OutOfBounds,
    /// An access to memory that the launch did not declare, or not in this way.
    Undeclared,
}

/// What somebody did at one of the two places of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read the range.
    Read,
    /// Wrote the range.
    Write,
    /// Allocated the block.
    Allocate,
    /// Freed the block.
    Free,
}

/// A stream, as its user knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamName {
    /// A stream of the runtime's pool, by its id.
    Pool(u32),
    /// A stream that only the driver knows, by its number in the order of creation.
    Raw(u32),
    /// None: the host did it.
    Host,
}

/// The block that one side of a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockLabel {
    /// The user's label.
    pub tag: &'static str,
    /// Which block.
    pub generation: u64,
}

/// One side of a finding: who did what, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What was done.
    pub action: Action,
    /// By which kernel, copy or fill; what the host did otherwise.
    pub name: &'static str,
    /// The operation's number on the device.
    pub operation: Option<OperationId>,
    /// Its number on its stream, from 1.
    pub number_on_stream: u32,
    /// The stream it is on.
    pub stream: StreamName,
    /// Where in the program, if that is known.
    pub location: Option<&'static Location<'static>>,
    /// The block, if the runtime handed one out there.
    pub block: Option<BlockLabel>,
    /// The bytes, counted from the start of the block, or of the allocation if there is no block.
    pub range: Range<u64>,
}

/// Something wrong with a program, whether or not the timing happened to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// What came first, or should have.
    pub first: Place,
    /// What should have followed it, or should not have happened.
    pub second: Place,
    /// How much of the first's stream the second follows.
    pub follows: u32,
    /// What there is beside that, for kinds that have more to say.
    pub detail: &'static str,
}

impl FindingKind {
    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadAfterWrite => "read-after-write race",
            Self::WriteAfterRead => "write-after-read race",
            Self::WriteAfterWrite => "write-after-write race",
            Self::UseBeforeAllocation => "use before allocation",
            Self::UseAfterFree => "use after free",
            Self::UninitialisedRead => "uninitialised read",
            Self::OutOfBounds => "out-of-bounds access",
            Self::Undeclared => "undeclared access",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::ReadAfterWrite | Self::WriteAfterRead | Self::WriteAfterWrite => {
                "declare both uses with LaunchBuilder or LaunchRecorder, or record an event \
                 behind the first and have the second's stream wait for it"
            }
            Self::UseBeforeAllocation => {
                "memory is valid on the stream it was allocated on; elsewhere, wait for an event \
                 recorded behind the allocation, or declare the use"
            }
            Self::UseAfterFree => {
                "free behind the last use: have the freeing stream wait for it, or declare the \
                 use, so that the runtime does"
            }
            Self::UninitialisedRead => "write the bytes first, or declare the parameter as output",
            Self::OutOfBounds => "check the length that the launch passes against the memory's",
            Self::Undeclared => {
                "declare the block for this launch as it is used: input, output, in_out, or also() \
                 for memory behind a pointer table"
            }
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(id) => write!(f, "stream {id}"),
            Self::Raw(number) => write!(f, "raw stream {number}"),
            Self::Host => f.write_str("the host"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.action {
            Action::Read => "reads",
            Action::Write => "writes",
            Action::Allocate => "allocates",
            Action::Free => "frees",
        };
        let Range { start, end } = self.range;
        write!(f, "{} on {} {verb} bytes {start}..{end} of ", self.name, self.stream)?;
        match self.block {
            Some(BlockLabel { tag, generation }) => {
                write!(f, "block \"{tag}\" (generation {generation})")?;
            }
            None => f.write_str("memory that no block names")?,
        }
        match self.location {
            Some(place) => write!(f, ", at {place}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, first, second, follows, detail } = self;
        writeln!(f, "{kind}:")?;
        writeln!(f, "  first:  {first}")?;
        writeln!(f, "  second: {second}")?;
        f.write_str("  why: ")?;
        let (one, other) = (first.stream, second.stream);
        match kind {
            FindingKind::UninitialisedRead => {
                f.write_str("nobody wrote these bytes since they were allocated")?;
            }
            FindingKind::OutOfBounds => f.write_str("no allocation holds all of these bytes")?,
            FindingKind::Undeclared => {
                f.write_str("the launch declared other memory, or another access")?;
            }
            FindingKind::UseAfterFree
                if first.action != Action::Read && first.action != Action::Write =>
            {
                f.write_str("the memory was given back before the use was enqueued")?;
            }
            _ if other == StreamName::Host => {
                write!(f, "the host did not know that {one} was done")?;
            }
            _ if one == StreamName::Host => write!(f, "it was enqueued after the host did that")?,
            _ => {
                write!(f, "nothing orders the two: {other} follows {one} ")?;
                match follows {
                    0 => f.write_str("not at all")?,
                    n => write!(f, "only up to number {n} of what was enqueued there")?,
                }
                write!(f, ", and the first is number {}", first.number_on_stream)?;
            }
        }
        if !detail.is_empty() {
            write!(f, "; {detail}")?;
        }
        write!(f, "\n  what to do: {}", kind.advice())
    }
}
