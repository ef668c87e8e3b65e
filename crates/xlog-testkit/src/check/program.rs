//! A program that nobody wrote: what its threads do, in what order each.

use std::fmt;

use xlog_cuda::device_runtime::Access;

use super::{Stack, random::Draw};

/// What generated programs do most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Workload {
    /// A bit of everything.
    #[default]
    Random,
    /// Blocks are handed from stream to stream: each launch reads one and changes another.
    HandOver,
    /// Many streams read a block, and one writes it.
    Fan,
    /// Blocks come and go.
    Churn,
    /// Recorders of several threads, half-way between preflight and commit.
    Recorders,
}

impl Workload {
    /// Every workload.
    pub const ALL: [Self; 5] =
        [Self::Random, Self::HandOver, Self::Fan, Self::Churn, Self::Recorders];

    /// What it is called on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::HandOver => "hand-over",
            Self::Fan => "fan",
            Self::Churn => "churn",
            Self::Recorders => "recorders",
        }
    }
}

impl std::str::FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|workload| workload.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no workload called {name}; there are {names}")
        })
    }
}

/// What generated programs look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What they do most.
    pub workload: Workload,
    /// Streams besides the default one.
    pub streams: usize,
    /// Threads that take turns.
    pub threads: usize,
    /// Variables that hold a block, shared by all threads.
    pub blocks: usize,
    /// Steps of all threads together.
    pub steps: usize,
    /// Whether driver calls fail now and then.
    pub faults: bool,
    /// The stack under the programs; each program draws one where there is none.
    pub stack: Option<Stack>,
}

impl Default for Shape {
    fn default() -> Self {
        let workload = Workload::Random;
        Self { workload, streams: 3, threads: 3, blocks: 6, steps: 40, faults: false, stack: None }
    }
}

/// A variable that holds a block, or none at the moment.
pub type Variable = usize;

/// A stream of the program: 0 is the default one.
pub type Stream = usize;

/// What a launch does with which variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the parameters of the kernel each is named for
pub enum Work {
    Fill { out: Variable },
    Copy { from: Variable, to: Variable },
    Increment { data: Variable },
    Mix { input: Variable, data: Variable },
    Blend { a: Variable, b: Variable, data: Variable, out: Variable },
    Read { input: Variable },
}

impl Work {
    /// The variables it touches, and how.
    #[must_use]
    pub fn uses(self) -> Vec<(Variable, Access)> {
        use Access::{Read, ReadWrite, Write};
        match self {
            Self::Fill { out } => vec![(out, Write)],
            Self::Copy { from, to } => vec![(from, Read), (to, Write)],
            Self::Increment { data } => vec![(data, ReadWrite)],
            Self::Mix { input, data } => vec![(input, Read), (data, ReadWrite)],
            Self::Blend { a, b, data, out } => {
                vec![(a, Read), (b, Read), (data, ReadWrite), (out, Write)]
            }
            Self::Read { input } => vec![(input, Read)],
        }
    }

    /// The same work over what `f` makes of each variable.
    #[must_use]
    pub fn map(self, f: impl Fn(Variable) -> usize) -> Self {
        match self {
            Self::Fill { out } => Self::Fill { out: f(out) },
            Self::Copy { from, to } => Self::Copy { from: f(from), to: f(to) },
            Self::Increment { data } => Self::Increment { data: f(data) },
            Self::Mix { input, data } => Self::Mix { input: f(input), data: f(data) },
            Self::Blend { a, b, data, out } => {
                Self::Blend { a: f(a), b: f(b), data: f(data), out: f(out) }
            }
            Self::Read { input } => Self::Read { input: f(input) },
        }
    }
}

/// By which way a launch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The launch builder.
    Builder,
    /// A strict recorder.
    Strict,
    /// A permissive recorder.
    Permissive,
    /// A recorder that is dropped after its preflight, its work enqueued or not.
    Abandoned {
        /// Whether the work was enqueued before.
        enqueued: bool,
    },
}

/// One thing a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields say what they are
pub enum Step {
    /// Allocates on one stream and writes it for the first time on another.
    Allocate {
        block: Variable,
        words: usize,
        stream: Stream,
        first_use: Stream,
    },
    /// Drops the block.
    Free {
        block: Variable,
    },
    Launch {
        way: Way,
        work: Work,
        stream: Stream,
        salt: u32,
    },
    Upload {
        block: Variable,
        stream: Stream,
        salt: u32,
    },
    /// Downloads the block, and asks for the result some steps later.
    Download {
        block: Variable,
        stream: Stream,
    },
    CopyBlock {
        from: Variable,
        to: Variable,
        stream: Stream,
    },
    Memset {
        block: Variable,
        stream: Stream,
        value: u8,
    },
    Synchronize {
        stream: Stream,
    },
    Reap,
    TryReap,
    Trim,
    /// Frees a block again, by a handle from before it was freed: must be refused.
    FreeAgain {
        block: Variable,
    },
    /// Prepares a use by such a handle: must be refused.
    UseAgain {
        block: Variable,
        stream: Stream,
    },
    /// Finishes a write that was never prepared, and enqueues nothing.
    BareWrite {
        block: Variable,
        stream: Stream,
    },
}

impl Step {
    /// The variables it touches on the device, and how.
    #[must_use]
    pub fn uses(self) -> Vec<(Variable, Access)> {
        match self {
            Self::Launch { work, .. } => work.uses(),
            Self::Upload { block, .. } | Self::Memset { block, .. } => vec![(block, Access::Write)],
            Self::Download { block, .. } => vec![(block, Access::Read)],
            Self::CopyBlock { from, to, .. } => vec![(from, Access::Read), (to, Access::Write)],
            Self::BareWrite { block, .. } => vec![(block, Access::Write)],
            Self::Allocate { .. }
            | Self::FreeAgain { .. }
            | Self::UseAgain { .. }
            | Self::Free { .. }
            | Self::Synchronize { .. }
            | Self::Reap
            | Self::TryReap
            | Self::Trim => Vec::new(),
        }
    }
}

/// A program: its stack, and the steps of each thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The resources under it.
    pub stack: Stack,
    /// Streams besides the default one.
    pub streams: usize,
    /// Variables.
    pub blocks: usize,
    /// Parts in 256 of the turns that are the device's, while it has something to do.
    pub device_turns: u8,
    /// Whether driver calls fail now and then.
    pub faults: bool,
    /// What each thread does.
    pub threads: Vec<Vec<Step>>,
}

/// Sizes a block may have: within one class, at its edges, and over several pieces of a kernel.
const WORDS: [usize; 8] = [1, 3, 16, 64, 65, 100, 250, 1000];

impl Program {
    /// The program of a seed.
    #[must_use]
    pub fn generate(shape: &Shape, seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let stack = shape.stack.unwrap_or_else(|| draw.one_of(&Stack::DRAWN));
        let blocks = shape.blocks.max(4);
        let device_turns = draw.one_of(&[8, 64, 128, 220]);
        // Some programs keep to few streams and few blocks: there they meet more often.
        let used_streams = 1 + draw.below(shape.streams + 1);
        let used_blocks = draw.one_of(&[4, blocks]);
        let mut threads = vec![Vec::new(); shape.threads.max(1)];
        let (scale, bare) = (stack.scale(), draw.chance(32));
        let workload = shape.workload;
        let make = Make { workload, streams: used_streams, blocks: used_blocks, scale, bare };
        for block in 0..used_blocks {
            threads[block % shape.threads.max(1)].push(make.allocation(block, &mut draw));
        }
        for _ in used_blocks..shape.steps {
            let thread = draw.below(threads.len());
            threads[thread].push(make.step(&mut draw));
        }
        let (streams, faults) = (shape.streams, shape.faults);
        Self { stack, streams, blocks, device_turns, faults, threads }
    }

    /// Whether a use goes past the recorder. Nothing orders it behind the uses before it, so waits
    /// cannot be judged by what is declared.
    #[must_use]
    pub fn has_bare_uses(&self) -> bool {
        self.threads.iter().flatten().any(|step| matches!(step, Step::BareWrite { .. }))
    }

    /// How many steps it has.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }
}

/// What steps are made from.
pub(super) struct Make {
    pub(super) workload: Workload,
    pub(super) streams: usize,
    pub(super) blocks: usize,
    /// How many times larger blocks are.
    pub(super) scale: usize,
    /// Whether there are uses past the recorder.
    pub(super) bare: bool,
}

impl Make {
    fn allocation(&self, block: Variable, draw: &mut Draw) -> Step {
        let (stream, first_use) = (draw.below(self.streams), draw.below(self.streams));
        let words = draw.one_of(&WORDS) * self.scale;
        Step::Allocate { block, words, stream, first_use }
    }

    pub(super) fn step(&self, draw: &mut Draw) -> Step {
        let stream = draw.below(self.streams);
        let [block, other] = self.different(draw);
        if self.bare && draw.chance(24) {
            return Step::BareWrite { block, stream };
        }
        // Below 64 it is a launch, from there to 82 a free or an allocation.
        let what = match self.workload {
            Workload::Random => draw.below(100),
            Workload::HandOver | Workload::Fan | Workload::Recorders => draw.below(84),
            Workload::Churn => 40 + draw.below(60),
        };
        match what {
            0..64 => Step::Launch {
                way: self.way(draw),
                work: self.work(draw),
                stream,
                salt: draw.number() as u32,
            },
            64..72 => Step::Free { block },
            72..82 => self.allocation(block, draw),
            82..85 => Step::Upload { block, stream, salt: draw.number() as u32 },
            85..89 => Step::Download { block, stream },
            89..92 => Step::CopyBlock { from: block, to: other, stream },
            92..94 => Step::Memset { block, stream, value: draw.number() as u8 },
            94 => Step::Synchronize { stream },
            95 => Step::Reap,
            96 => Step::TryReap,
            97 => Step::Trim,
            98 => Step::FreeAgain { block },
            _ => Step::UseAgain { block, stream },
        }
    }

    fn way(&self, draw: &mut Draw) -> Way {
        let what = match self.workload {
            Workload::Recorders => 8 + draw.below(8),
            _ => draw.below(16),
        };
        match what {
            0..8 => Way::Builder,
            8..12 => Way::Strict,
            12..14 => Way::Permissive,
            _ => Way::Abandoned { enqueued: draw.chance(128) },
        }
    }

    fn work(&self, draw: &mut Draw) -> Work {
        let [a, b, data, out] = self.different(draw);
        match self.workload {
            Workload::HandOver => return Work::Mix { input: a, data },
            Workload::Fan if draw.chance(32) => return Work::Increment { data: 0 },
            Workload::Fan => return Work::Read { input: 0 },
            _ => {}
        }
        match draw.below(10) {
            0 => Work::Fill { out },
            1 => Work::Copy { from: a, to: out },
            2 => Work::Increment { data },
            3..6 => Work::Mix { input: a, data },
            6..8 => Work::Blend { a, b, data, out },
            _ => Work::Read { input: a },
        }
    }

    /// Variables, each another one.
    fn different<const N: usize>(&self, draw: &mut Draw) -> [Variable; N] {
        let mut all: Vec<Variable> = (0..self.blocks).collect();
        std::array::from_fn(|_| all.swap_remove(draw.below(all.len())))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "stack {}, {} streams besides the default one", self.stack, self.streams)?;
        for (number, steps) in self.threads.iter().enumerate() {
            writeln!(f, "thread {number}:")?;
            steps.iter().try_for_each(|step| writeln!(f, "    {step}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fill { out } => write!(f, "fill b{out}"),
            Self::Copy { from, to } => write!(f, "copy b{from} to b{to}"),
            Self::Increment { data } => write!(f, "increment b{data}"),
            Self::Mix { input, data } => write!(f, "mix b{input} into b{data}"),
            Self::Blend { a, b, data, out } => {
                write!(f, "blend b{a} and b{b} into b{data} and b{out}")
            }
            Self::Read { input } => write!(f, "read b{input}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Allocate { block, words, stream, first_use } => write!(
                f,
                "allocate b{block} ({words} words) on stream {stream}, write it on {first_use}"
            ),
            Self::Free { block } => write!(f, "free b{block}"),
            Self::Launch { way, work, stream, .. } => {
                let way = match way {
                    Way::Builder => "with the builder",
                    Way::Strict => "with a strict recorder",
                    Way::Permissive => "with a permissive recorder",
                    Way::Abandoned { enqueued: true } => "with a recorder dropped before commit",
                    Way::Abandoned { enqueued: false } => "with a recorder dropped before the work",
                };
                write!(f, "{work} on stream {stream}, {way}")
            }
            Self::Upload { block, stream, .. } => write!(f, "upload b{block} on stream {stream}"),
            Self::Download { block, stream } => write!(f, "download b{block} on stream {stream}"),
            Self::CopyBlock { from, to, stream } => {
                write!(f, "copy b{from} to b{to} without a kernel, on stream {stream}")
            }
            Self::Memset { block, stream, value } => {
                write!(f, "set b{block} to {value:#04x} on stream {stream}")
            }
            Self::Synchronize { stream } => write!(f, "synchronise stream {stream}"),
            Self::Reap => f.write_str("reap"),
            Self::TryReap => f.write_str("reap what is done"),
            Self::Trim => f.write_str("trim"),
            Self::FreeAgain { block } => write!(f, "free b{block} again, by a stale handle"),
            Self::UseAgain { block, stream } => {
                write!(f, "prepare a use of b{block} on stream {stream}, by a stale handle")
            }
            Self::BareWrite { block, stream } => {
                write!(f, "finish a write of b{block} on stream {stream} without preparing it")
            }
        }
    }
}
