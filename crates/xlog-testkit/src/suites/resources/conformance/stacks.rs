//! Every resource and adaptor, and the stacks that programs get: what the contract is held against.

use std::sync::Arc;

use xlog_cuda::device_runtime::{
    Access, AlignedResource, AsyncCudaResource, BlockId, DebugGuardResource, DeviceBlock,
    DeviceMemoryResource, DirectCudaResource, FailureCallbackResource, FaultInjectionResource,
    FaultPlan, FindingKind, GlobalDeviceBudget, GuardOptions, LoggingResource, MemorySink,
    PoolOptions, PoolResource, StatisticsResource, StreamId, TrackingResource,
};

use super::super::super::support::{assert_says, misuse};
use crate::{Rig, TestDevice, fail};

type Boxed = Box<dyn DeviceMemoryResource + Send + Sync>;
type Driver = Arc<AsyncCudaResource>;

/// A stack, and how its answers differ where the contract lets them.
#[derive(Clone, Copy)]
pub(in super::super) struct Stack {
    pub(in super::super) name: &'static str,
    make: fn(Driver) -> Made,
    /// Whether it tracks uses; if not, it refuses them, and its frees wait for the device.
    pub(in super::super) tracks: bool,
    /// Whether a free waits for the work on its block.
    pub(in super::super) frees_wait: bool,
    /// What the addresses of blocks of [`ALIGNED_FROM`] bytes and more are multiples of.
    pub(in super::super) align: usize,
    /// The bytes that are outstanding for a block in use, from those asked for and the block
    /// itself; `None` if only a resource below could tell.
    pub(in super::super) taken: Option<fn(usize, &DeviceBlock) -> usize>,
}

/// What was made: the resource on top, and the guard, which has to be asked for what it keeps.
struct Made {
    top: Boxed,
    guard: Option<Arc<DebugGuardResource>>,
}

/// A rig over a stack.
pub(in super::super) struct Stage {
    pub(in super::super) stack: Stack,
    pub(in super::super) rig: Rig,
    guard: Option<Arc<DebugGuardResource>>,
}

const LIMIT: usize = 1 << 40;
const ALIGNMENT: usize = 4096;
pub(in super::super) const ALIGNED_FROM: usize = 1000;

const fn stack(name: &'static str, make: fn(Driver) -> Made) -> Stack {
    let taken: fn(usize, &DeviceBlock) -> usize = |_, block| block.bytes;
    Stack { name, make, tracks: true, frees_wait: false, align: 256, taken: Some(taken) }
}

/// A guard in it: 256 bytes on each side.
const fn guarded(name: &'static str, make: fn(Driver) -> Made) -> Stack {
    let taken: fn(usize, &DeviceBlock) -> usize = |_, block| block.bytes + 512;
    Stack { frees_wait: true, taken: Some(taken), ..stack(name, make) }
}

/// Aligned, with what that takes.
const fn aligned(name: &'static str, make: fn(Driver) -> Made) -> Stack {
    let taken: fn(usize, &DeviceBlock) -> usize = |asked, block| block.bytes + padding(asked);
    Stack { align: ALIGNMENT, taken: Some(taken), ..stack(name, make) }
}

const fn padding(asked: usize) -> usize {
    if asked >= ALIGNED_FROM { ALIGNMENT - 256 } else { 0 }
}

fn pool(driver: &Driver, inner: Boxed) -> Boxed {
    let options = PoolOptions::default().with_first_slab(2 << 20);
    Box::new(PoolResource::new(inner, Arc::clone(driver.stream_pool()), options))
}

fn direct(driver: &Driver) -> Boxed {
    Box::new(DirectCudaResource::new(Arc::clone(driver.device()), 0))
}

fn align(driver: &Driver, inner: Boxed) -> Boxed {
    let streams = Arc::clone(driver.stream_pool());
    Box::new(AlignedResource::new(inner, streams, ALIGNMENT, ALIGNED_FROM).unwrap_or_else(fail))
}

fn guard(driver: &Driver, inner: Boxed, margin: usize) -> Arc<DebugGuardResource> {
    let options = GuardOptions::default().with_margin(margin).with_quarantine(1 << 20, 16);
    Arc::new(DebugGuardResource::new(inner, Arc::clone(driver.stream_pool()), options))
}

fn logging(inner: Boxed) -> Boxed {
    Box::new(LoggingResource::new(inner, MemorySink::new(1_000)))
}

fn plain(top: impl DeviceMemoryResource + 'static) -> Made {
    Made { top: Box::new(top), guard: None }
}

fn boxed(top: Boxed) -> Made {
    Made { top, guard: None }
}

fn with_guard(guard: Arc<DebugGuardResource>, over: impl FnOnce(Boxed) -> Boxed) -> Made {
    Made { top: over(Box::new(Arc::clone(&guard))), guard: Some(guard) }
}

/// Every resource, each adaptor over one, and the stacks that programs get.
pub(in super::super) const STACKS: &[Stack] = &[
    stack("async", plain),
    Stack { tracks: false, frees_wait: true, ..stack("direct", |driver| boxed(direct(&driver))) },
    stack("budget", |driver| plain(GlobalDeviceBudget::new(Box::new(driver), LIMIT))),
    stack("pool", |driver| boxed(pool(&driver, Box::new(Arc::clone(&driver))))),
    stack("statistics", |driver| plain(StatisticsResource::new(Box::new(driver)))),
    stack("tracking", |driver| plain(TrackingResource::new(Box::new(driver)))),
    stack("logging", |driver| boxed(logging(Box::new(driver)))),
    stack("logging without uses", |driver| {
        plain(LoggingResource::without_uses(Box::new(driver), MemorySink::new(1_000)))
    }),
    stack("failure callback", |driver| {
        plain(FailureCallbackResource::new(Box::new(driver), Box::new(|_| false)))
    }),
    stack("fault injection", |driver| {
        plain(FaultInjectionResource::new(Box::new(driver), FaultPlan::default()))
    }),
    guarded("guard", |driver| {
        with_guard(guard(&driver, Box::new(Arc::clone(&driver)), 256), |guard| guard)
    }),
    guarded("guard over direct", |driver| {
        with_guard(guard(&driver, direct(&driver), 256), |guard| guard)
    }),
    Stack {
        // The pool rounds a block and its margins up.
        taken: None,
        ..guarded("guard over a pool", |driver| {
            let below = pool(&driver, Box::new(Arc::clone(&driver)));
            with_guard(guard(&driver, below, 256), |guard| guard)
        })
    },
    aligned("aligned", |driver| boxed(align(&driver, Box::new(Arc::clone(&driver))))),
    Stack {
        frees_wait: true,
        ..aligned("aligned over direct", |driver| boxed(align(&driver, direct(&driver))))
    },
    aligned("aligned over a logged pool", |driver| {
        boxed(align(&driver, logging(pool(&driver, Box::new(Arc::clone(&driver))))))
    }),
    Stack {
        frees_wait: true,
        taken: Some(|asked, block| block.bytes + padding(asked) + 512),
        ..aligned("aligned over a guard", |driver| {
            let below = guard(&driver, Box::new(Arc::clone(&driver)), 256);
            with_guard(below, |guard| align(&driver, guard))
        })
    },
    Stack {
        frees_wait: true,
        // With its margins every block is large enough to be aligned.
        taken: Some(|_, block| block.bytes + 2 * ALIGNMENT + padding(usize::MAX)),
        ..aligned("guard over aligned", |driver| {
            let below = align(&driver, Box::new(Arc::clone(&driver)));
            with_guard(guard(&driver, below, ALIGNMENT), |guard| guard)
        })
    },
    stack("pool over aligned", |driver| {
        boxed(pool(&driver, align(&driver, Box::new(Arc::clone(&driver)))))
    }),
    stack("production", |driver| {
        let budget = GlobalDeviceBudget::new(Box::new(Arc::clone(&driver)), LIMIT);
        plain(StatisticsResource::new(pool(&driver, Box::new(budget))))
    }),
    aligned("production, aligned", |driver| {
        let budget = GlobalDeviceBudget::new(Box::new(Arc::clone(&driver)), LIMIT);
        plain(StatisticsResource::new(align(&driver, pool(&driver, Box::new(budget)))))
    }),
    guarded("debugging", |driver| {
        with_guard(guard(&driver, Box::new(Arc::clone(&driver)), 256), |guard| {
            let counted = StatisticsResource::new(guard);
            Box::new(TrackingResource::new(Box::new(counted)))
        })
    }),
    stack("logged pool, tracked and counted", |driver| {
        let logged = logging(pool(&driver, Box::new(Arc::clone(&driver))));
        let counted = StatisticsResource::new(logged);
        plain(TrackingResource::new(Box::new(counted)))
    }),
];

impl Stack {
    /// A rig on `device` over this stack.
    pub(in super::super) fn stage(self, device: TestDevice) -> Stage {
        let mut guard = None;
        let rig = Rig::decorated(device, |driver| {
            let made = (self.make)(driver);
            guard = made.guard;
            made.top
        });
        Stage { stack: self, rig, guard }
    }
}

impl Stage {
    /// Everything that was handed back is back: the guard keeps nothing, and nothing is pending.
    #[track_caller]
    pub(in super::super) fn settle(&self) {
        self.rig.runtime.reap_pending().unwrap_or_else(fail);
        if let Some(guard) = &self.guard {
            guard.empty_quarantine().unwrap_or_else(fail);
            // What a test may do on purpose is a second free; its writes are all in place.
            let mut findings = guard.findings();
            findings.retain(|finding| finding.kind != FindingKind::DoubleFree);
            assert_eq!(findings.len(), 0, "{}: {findings:?}", self.stack.name);
            self.rig.runtime.reap_pending().unwrap_or_else(fail);
        }
    }

    /// A use of `block`: recorded, or refused if the stack tracks none.
    #[track_caller]
    pub(in super::super) fn touch(&self, block: &DeviceBlock, stream: StreamId, access: Access) {
        if self.stack.tracks {
            return self.rig.touch(block, stream, access);
        }
        let (id, runtime) = (BlockId::from_block(block), &self.rig.runtime);
        for refused in [
            runtime.prepare_block_use(id, stream, access),
            runtime.finish_block_use(id, stream, access),
            runtime.record_block_use(block, stream),
        ] {
            assert_says(&misuse(refused), &["does not support cross-stream use tracking"]);
        }
    }
}
