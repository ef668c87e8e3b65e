//! The resources a program runs over.

use std::{fmt, str::FromStr, sync::Arc};

use xlog_cuda::device_runtime::{
    AsyncCudaResource, DeviceMemoryResource, GlobalDeviceBudget, LoggingResource, MemorySink,
    PoolOptions, PoolResource, StatisticsResource, TrackingResource,
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
}

/// A slab of the pools here; the least there is.
const SLAB: usize = 2 << 20;

/// The budget under the production stack: more than any program takes.
const LIMIT: usize = 1 << 30;

impl Stack {
    /// Every stack.
    pub const ALL: [Self; 5] =
        [Self::Async, Self::Pool, Self::Production, Self::Tracked, Self::Logged];

    /// What it is called on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Async => "async",
            Self::Pool => "pool",
            Self::Production => "production",
            Self::Tracked => "tracked",
            Self::Logged => "logged",
        }
    }

    /// Whether there is a pool in it.
    #[must_use]
    pub const fn is_pooled(self) -> bool {
        matches!(self, Self::Pool | Self::Production | Self::Logged)
    }

    pub(super) fn over(self, driver: &Arc<AsyncCudaResource>) -> Boxed {
        let plain = || -> Boxed { Box::new(Arc::clone(driver)) };
        let pool = |inner| -> Boxed {
            let options = PoolOptions::default().with_first_slab(SLAB);
            Box::new(PoolResource::new(inner, Arc::clone(driver.stream_pool()), options))
        };
        match self {
            Self::Async => plain(),
            Self::Pool => pool(plain()),
            Self::Production => {
                let limited = Box::new(GlobalDeviceBudget::new(plain(), LIMIT));
                Box::new(StatisticsResource::new(pool(limited)))
            }
            Self::Tracked => {
                let counted = Box::new(StatisticsResource::new(plain()));
                Box::new(TrackingResource::new(counted))
            }
            Self::Logged => Box::new(LoggingResource::new(pool(plain()), MemorySink::new(1_000))),
        }
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
