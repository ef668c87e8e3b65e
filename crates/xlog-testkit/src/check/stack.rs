//! The resources a program runs over.

use std::{fmt, str::FromStr, sync::Arc};

use xlog_cuda::device_runtime::{
    AlignedResource, AsyncCudaResource, DeviceMemoryResource, DirectCudaResource,
    GlobalDeviceBudget, LoggingResource, MemorySink, PoolOptions, PoolResource, ResourceResult,
    StatisticsResource, TrackingResource,
};

type Boxed = Box<dyn DeviceMemoryResource + Send + Sync>;

/// A stack of resources, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stack {
    /// The stream-ordered resource alone.
    Async,
    /// A pool over it.
    Pool,
    /// A pool over a budget, counted: what `CudaDevice::into_stack` makes, with small slabs.
    Production,
    /// The stream-ordered resource, counted and tracked.
    Tracked,
    /// A pool whose every use is logged.
    Logged,
    /// The stream-ordered resource under a budget that programs run into.
    Tight,
    /// A pool with too little memory for large blocks: it takes its own apart and joins it again.
    Cramped,
    /// Blocks that are each an allocation of the synchronous driver, tracked all the same: for
    /// memory checkers, from which a pool hides where blocks end.
    Plain,
}

/// A stack, and what can be asked of it besides.
pub(super) struct Built {
    pub(super) resource: Boxed,
    pub(super) pool: Option<Arc<PoolResource>>,
}

/// A slab of the pools here; the least there is.
const SLAB: usize = 2 << 20;

/// The budget that programs run into: a few blocks of the larger sizes.
const TIGHT: usize = 6 << 10;

/// All that a cramped pool may take.
const CRAMPED: usize = 4 << 20;

/// The budget under the production stack: more than any program takes.
const LIMIT: usize = 1 << 30;

impl Stack {
    /// Every stack.
    pub const ALL: [Self; 8] = [
        Self::Async,
        Self::Pool,
        Self::Production,
        Self::Tracked,
        Self::Logged,
        Self::Tight,
        Self::Cramped,
        Self::Plain,
    ];

    /// The stacks that programs draw from. Not the plain one: its memory is valid everywhere at
    /// once, which a layer over it cannot know, so it waits where it need not.
    pub const DRAWN: [Self; 7] = [
        Self::Async,
        Self::Pool,
        Self::Production,
        Self::Tracked,
        Self::Logged,
        Self::Tight,
        Self::Cramped,
    ];

    /// What it is called on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Async => "async",
            Self::Pool => "pool",
            Self::Production => "production",
            Self::Tracked => "tracked",
            Self::Logged => "logged",
            Self::Tight => "tight",
            Self::Cramped => "cramped",
            Self::Plain => "plain",
        }
    }

    /// Whether there is a pool in it.
    #[must_use]
    pub const fn is_pooled(self) -> bool {
        matches!(self, Self::Pool | Self::Production | Self::Logged | Self::Cramped)
    }

    /// The bytes a program may have at a time, if that is less than it can ask for.
    pub(super) const fn limit(self) -> Option<usize> {
        if matches!(self, Self::Tight) { Some(TIGHT) } else { None }
    }

    /// How many times larger than elsewhere blocks are.
    pub(super) const fn scale(self) -> usize {
        if matches!(self, Self::Cramped) { 400 } else { 1 }
    }

    pub(super) fn over(self, driver: &Arc<AsyncCudaResource>) -> ResourceResult<Built> {
        let plain = || -> Boxed { Box::new(Arc::clone(driver)) };
        let pool = |inner| {
            let options = PoolOptions::default().with_first_slab(SLAB);
            let options = match self {
                Self::Cramped => options.with_maximum(CRAMPED),
                _ => options,
            };
            Arc::new(PoolResource::new(inner, Arc::clone(driver.stream_pool()), options))
        };
        let alone = |resource| Built { resource, pool: None };
        let pooled = |pool: Arc<PoolResource>, over: &dyn Fn(Boxed) -> Boxed| Built {
            resource: over(Box::new(Arc::clone(&pool))),
            pool: Some(pool),
        };
        Ok(match self {
            Self::Async => alone(plain()),
            Self::Plain => {
                let ordinal = driver.device().driver().info().ordinal;
                let direct = DirectCudaResource::new(Arc::clone(driver.device()), ordinal);
                let streams = Arc::clone(driver.stream_pool());
                alone(Box::new(AlignedResource::new(Box::new(direct), streams, 256, 0)?))
            }
            Self::Tight => alone(Box::new(GlobalDeviceBudget::new(plain(), TIGHT))),
            Self::Tracked => {
                let counted = Box::new(StatisticsResource::new(plain()));
                alone(Box::new(TrackingResource::new(counted)))
            }
            Self::Pool | Self::Cramped => pooled(pool(plain()), &|pool| pool),
            Self::Production => {
                let limited = Box::new(GlobalDeviceBudget::new(plain(), LIMIT));
                pooled(pool(limited), &|pool| Box::new(StatisticsResource::new(pool)))
            }
            Self::Logged => pooled(pool(plain()), &|pool| {
                Box::new(LoggingResource::new(pool, MemorySink::new(1_000)))
            }),
        })
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Stack {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|stack| stack.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no stack called {name}; there are {names}")
        })
    }
}
