//! A limit on bytes, for one stack or for everything on a device.
//!
//! Before a request is refused, memory that is free in truth is made to count as free: what the
//! device has passed is reaped, then streams are waited for, then pools are trimmed, then the
//! program is asked. Only the thread that wants the memory waits, and it holds no lock meanwhile.

mod account;

use std::{
    fmt,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use self::account::{Account, Short, Stack};
use super::{
    AllocTag, DeviceBlock, DeviceMemoryResource, ResourceError, ResourceResult, StreamId,
    forward::forward,
};
use crate::mutant::{self, Mutant};

type Trim = Arc<dyn Fn() -> ResourceResult<()> + Send + Sync>;
type Callback = Arc<dyn Fn(&Shortage) -> bool + Send + Sync>;

/// A request that does not fit what is left of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// Bytes asked for.
    pub requested: usize,
    /// Bytes left.
    pub remaining: usize,
}

/// Keeps what a stack holds, pending frees included, below a limit.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let device = Arc::new(CudaDevice::host());
/// let streams = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// let driver = AsyncCudaResource::new(device, 0, streams);
/// let budget = GlobalDeviceBudget::new(Box::new(driver), 1 << 20);
///
/// let half = budget.allocate(512 << 10, StreamId::DEFAULT, AllocTag("half"))?;
/// let refused = budget.allocate(600 << 10, StreamId::DEFAULT, AllocTag("too much"));
/// let numbers = ResourceError::OutOfBudget { requested: 600 << 10, remaining: 512 << 10 };
/// assert_eq!(refused.err(), Some(numbers));
/// budget.deallocate(half)?;
/// // Freed, but not reaped: that is no reason to refuse.
/// let block = budget.allocate(600 << 10, StreamId::DEFAULT, AllocTag("fits now"))?;
/// # budget.deallocate(block)?;
/// # Ok::<(), ResourceError>(())
/// ```
pub struct GlobalDeviceBudget {
    core: Arc<Core>,
}

struct Core {
    account: Arc<Account>,
    inner: Box<dyn DeviceMemoryResource + Send + Sync>,
    trims: Mutex<Vec<Trim>>,
    callbacks: Mutex<Vec<Callback>>,
}

impl Stack for Core {
    fn resource(&self) -> &dyn DeviceMemoryResource {
        &*self.inner
    }

    fn trim(&self) -> ResourceResult<()> {
        let trims = self.trims.lock().clone();
        trims.iter().try_for_each(|trim| trim())
    }

    fn call_back(&self, requested: usize, remaining: usize) -> bool {
        let callbacks = self.callbacks.lock().clone();
        callbacks.iter().any(|callback| callback(&Shortage { requested, remaining }))
    }
}

/// What is tried before a request is refused, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    ReapWhatIsDone,
    WaitAndReap,
    Trim,
    AskTheProgram,
}

/// Looks at the books while somebody else is allocating, before that counts as an answer.
const LOOKS: u32 = 10_000;

impl GlobalDeviceBudget {
    /// A limit for `inner` alone.
    #[must_use]
    pub fn new(inner: Box<dyn DeviceMemoryResource + Send + Sync>, limit: usize) -> Self {
        Self::with_account(inner, Account::new(limit))
    }

    /// A limit that every stack made this way for the same device shares, in the whole process. It
    /// is the one given last.
    #[must_use]
    pub fn for_device(inner: Box<dyn DeviceMemoryResource + Send + Sync>, limit: usize) -> Self {
        let kind = inner.direct_tracker().map_or(u8::MAX, |tracker| tracker.device_kind() as u8);
        let account = Account::of_device((kind, inner.device_ordinal()), limit);
        Self::with_account(inner, account)
    }

    fn with_account(
        inner: Box<dyn DeviceMemoryResource + Send + Sync>,
        account: Arc<Account>,
    ) -> Self {
        let core =
            Arc::new(Core { account, inner, trims: Mutex::default(), callbacks: Mutex::default() });
        let stack: Weak<dyn Stack> = Arc::downgrade(&core) as Weak<dyn Stack>;
        core.account.add_stack(stack);
        Self { core }
    }

    /// Has `trim` called before a request is refused: how a pool above gives back what it keeps.
    pub fn trim_with(&self, trim: impl Fn() -> ResourceResult<()> + Send + Sync + 'static) {
        self.core.trims.lock().push(Arc::new(trim));
    }

    /// Has `callback` called before a request is refused, when nothing else helped: true if it
    /// freed something, and the request is worth another try. It may free and allocate.
    pub fn on_shortage(&self, callback: impl Fn(&Shortage) -> bool + Send + Sync + 'static) {
        self.core.callbacks.lock().push(Arc::new(callback));
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.core.account.limit()
    }

    /// Sets another limit. One below what is in use refuses everything until enough was freed.
    pub fn set_limit(&self, limit: usize) {
        self.core.account.set_limit(limit);
    }

    /// Bytes that count against the limit: in use, pending, being asked for, and reserved.
    #[must_use]
    pub fn used(&self) -> usize {
        self.core.account.used()
    }

    /// Bytes reserved and not yet allocated.
    #[must_use]
    pub fn reserved(&self) -> usize {
        self.core.account.reserved()
    }

    /// Sets bytes aside for work that must have all its memory or none.
    pub fn reserve(&self, bytes: usize) -> ResourceResult<Reservation> {
        self.core.with_effort(bytes, || self.core.account.reserve(bytes))?;
        Ok(Reservation { core: Arc::clone(&self.core), left: Mutex::new(bytes) })
    }
}

impl Core {
    /// Tries `attempt` until it succeeds, with more effort each time it does not.
    fn with_effort(
        &self,
        requested: usize,
        mut attempt: impl FnMut() -> Result<(), Short>,
    ) -> ResourceResult<()> {
        let mut effort = Effort::ReapWhatIsDone;
        let mut looks = 0;
        loop {
            let Err(short) = attempt() else { return Ok(()) };
            if short.moving && looks < LOOKS {
                looks += 1;
                std::thread::yield_now();
                continue;
            }
            looks = 0;
            match self.make(effort, requested, short)? {
                Some(next) => effort = next,
                None => {
                    let remaining = short.remaining;
                    return Err(ResourceError::OutOfBudget { requested, remaining });
                }
            }
        }
    }

    /// Makes an effort on every stack of the account. Answers what is to be tried after it, if
    /// there is anything.
    fn make(
        &self,
        effort: Effort,
        requested: usize,
        short: Short,
    ) -> ResourceResult<Option<Effort>> {
        let stacks = self.account.stacks();
        if mutant::is(Mutant::RefusedWithoutReap) {
            return Ok(None);
        }
        let reap = || stacks.iter().try_for_each(|stack| stack.resource().reap_pending());
        match effort {
            Effort::ReapWhatIsDone => {
                stacks.iter().try_for_each(|stack| stack.resource().try_reap())?;
                Ok(Some(Effort::WaitAndReap))
            }
            Effort::WaitAndReap => {
                reap()?;
                Ok(Some(Effort::Trim))
            }
            Effort::Trim => {
                stacks.iter().try_for_each(|stack| stack.trim())?;
                reap()?;
                Ok(Some(Effort::AskTheProgram))
            }
            Effort::AskTheProgram => {
                let freed = stacks.iter().any(|s| s.call_back(requested, short.remaining));
                if freed {
                    reap()?;
                }
                Ok(freed.then_some(Effort::AskTheProgram))
            }
        }
    }

    /// Asks the resource below for bytes that are counted already. If the device itself has too
    /// little, the same efforts are made as for the limit.
    fn allocate_counted(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        let mut effort = Some(Effort::ReapWhatIsDone);
        loop {
            let error = match self.inner.allocate(bytes, stream, tag) {
                Ok(block) => return Ok(block),
                Err(error) => error,
            };
            let no_memory =
                matches!(&error, ResourceError::Driver(cause) if cause.is_out_of_memory());
            let Some(next) = effort.filter(|_| no_memory) else { return Err(error) };
            let short = Short { remaining: 0, moving: false };
            let Ok(after) = self.make(next, bytes, short) else { return Err(error) };
            effort = after;
        }
    }
}

impl DeviceMemoryResource for GlobalDeviceBudget {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        let core = &self.core;
        core.with_effort(bytes, || core.account.begin(bytes))?;
        let answer = core.allocate_counted(bytes, stream, tag);
        core.account.end(bytes);
        let block = answer?;
        // A resource that rounds up grants more than was counted.
        if block.bytes > bytes && core.account.used() > core.account.limit() {
            let requested = block.bytes;
            core.inner.deallocate(block)?;
            let remaining = core.account.limit().saturating_sub(core.account.used());
            return Err(ResourceError::OutOfBudget { requested, remaining });
        }
        Ok(block)
    }

    forward! {
        this => this.core.inner;
        deallocate, try_deallocate, device_ordinal, bytes_outstanding, reap_pending, try_reap, uses,
    }
}

/// Bytes set aside under a limit. What was not allocated from it when it is dropped is given back;
/// what was is freed like any other block.
///
/// Also stands for memory that others take from the device, another library in the process for
/// example: as long as it is held, the bytes count.
pub struct Reservation {
    core: Arc<Core>,
    left: Mutex<usize>,
}

impl Reservation {
    /// Bytes left of it.
    #[must_use]
    pub fn left(&self) -> usize {
        *self.left.lock()
    }

    /// A block out of the reservation: never refused for the limit's sake. More than is left of it
    /// is refused, with nothing changed.
    pub fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        {
            let mut left = self.left.lock();
            if bytes > *left {
                return Err(ResourceError::OutOfBudget { requested: bytes, remaining: *left });
            }
            *left -= bytes;
        }
        let account = &self.core.account;
        account.begin_reserved(bytes);
        match self.core.allocate_counted(bytes, stream, tag) {
            Ok(block) => {
                account.end(bytes);
                Ok(block)
            }
            Err(error) => {
                account.end_unreserved(bytes);
                *self.left.lock() += bytes;
                Err(error)
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.core.account.unreserve(*self.left.get_mut());
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("left", &self.left()).finish_non_exhaustive()
    }
}

impl fmt::Debug for GlobalDeviceBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalDeviceBudget")
            .field("account", &self.core.account)
            .finish_non_exhaustive()
    }
}
