//! One line of a log.

use std::{
    fmt,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use xlog_core::Access;

use crate::device_runtime::{AllocTag, BlockId, DeviceBlock, Generation, ResourceResult, StreamId};

/// What was asked of a resource.
///
/// ```
/// use xlog_cuda::device_runtime::LogAction;
///
/// assert_eq!(LogAction::TryReap.to_string(), "try_reap");
/// assert_eq!(LogAction::from_name("try_reap"), Some(LogAction::TryReap));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogAction {
    /// Memory was asked for.
    Allocate,
    /// Memory was handed back.
    Free,
    /// Pending frees were waited for.
    Reap,
    /// Pending frees were accounted for as far as they were done.
    TryReap,
    /// A use was prepared: the work comes next.
    Prepare,
    /// A use was recorded: the work is enqueued.
    Finish,
}

impl LogAction {
    /// Every action.
    pub const ALL: [Self; 6] =
        [Self::Allocate, Self::Free, Self::Reap, Self::TryReap, Self::Prepare, Self::Finish];

    /// The action as logs name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Free => "free",
            Self::Reap => "reap",
            Self::TryReap => "try_reap",
            Self::Prepare => "prepare",
            Self::Finish => "finish",
        }
    }

    /// The action that logs name so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

impl fmt::Display for LogAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One call, as it was made and as it ended. What a call does not have is `None`.
///
/// ```
/// # use std::sync::Arc;
/// # use xlog_cuda::{CudaDevice, device_runtime::*};
/// let device = Arc::new(CudaDevice::host());
/// let sink = Arc::new(MemorySink::new(100));
/// let plain = Box::new(DirectCudaResource::new(device, 0));
/// let memory = LoggingResource::new(plain, Arc::clone(&sink));
/// memory.allocate(0, StreamId::DEFAULT, AllocTag("empty")).expect_err("zero bytes");
///
/// let record = &sink.records()[0];
/// assert_eq!(record.action, LogAction::Allocate);
/// assert_eq!((record.tag, record.asked), (Some(AllocTag("empty")), Some(0)));
/// assert!(record.result.is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogRecord {
    /// Its place in the log, from 0. The order is one in which the calls can have happened:
    /// memory that was freed and handed out again was freed first.
    pub sequence: u64,
    /// Nanoseconds since the first logging resource of the process was made.
    pub time_ns: u64,
    /// A small number for the calling thread.
    pub thread: u32,
    /// What was asked.
    pub action: LogAction,
    /// The stream of the allocation, or the one that uses the block.
    pub stream: Option<StreamId>,
    /// The block's label.
    pub tag: Option<AllocTag>,
    /// The block's size; for an allocation that failed, what was asked for.
    pub bytes: Option<usize>,
    /// What an allocation asked for.
    pub asked: Option<usize>,
    /// The block's address.
    pub address: Option<u64>,
    /// Which allocation at that address.
    pub generation: Option<Generation>,
    /// How a use touches the block.
    pub access: Option<Access>,
    /// The answer.
    pub result: ResourceResult<()>,
}

impl LogRecord {
    /// A record by this thread that knows nothing else yet.
    pub(super) fn of(action: LogAction, result: ResourceResult<()>) -> Self {
        Self {
            sequence: 0,
            time_ns: 0,
            thread: thread_number(),
            action,
            stream: None,
            tag: None,
            bytes: None,
            asked: None,
            address: None,
            generation: None,
            access: None,
            result,
        }
    }

    /// The same with everything a block says about itself.
    pub(super) fn with_block(mut self, block: &DeviceBlock) -> Self {
        self.stream = Some(block.alloc_stream);
        self.tag = Some(block.tag);
        self.bytes = Some(block.bytes);
        self.address = Some(block.ptr);
        self.generation = Some(block.generation);
        self
    }

    /// The same with a use of a block.
    pub(super) fn with_use(mut self, block: BlockId, stream: StreamId, access: Access) -> Self {
        self.stream = Some(stream);
        self.address = Some(block.ptr);
        self.generation = Some(block.generation);
        self.access = Some(access);
        self
    }
}

/// How logs name an access.
pub(super) const fn access_name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::ReadWrite => "read_write",
    }
}

/// The access that logs name so.
pub(super) fn access_from_name(name: &str) -> Option<Access> {
    [Access::Read, Access::Write, Access::ReadWrite]
        .into_iter()
        .find(|access| access_name(*access) == name)
}

/// When the process began to log, by both clocks.
static START: LazyLock<(Instant, SystemTime)> =
    LazyLock::new(|| (Instant::now(), SystemTime::now()));

/// Nanoseconds since the process began to log.
pub(super) fn now_ns() -> u64 {
    u64::try_from(START.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// How far into the day, by UTC, the process began to log.
pub(super) fn start_of_log() -> Duration {
    let since_epoch = START.1.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Duration::new(since_epoch.as_secs() % 86_400, since_epoch.subsec_nanos())
}

/// A number for this thread: 0 for the first that asks.
fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static MINE: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|number| *number)
}
