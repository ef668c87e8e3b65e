//! A launch in steps: record, preflight, enqueue, commit.

use std::{
    fmt,
    mem::ManuallyDrop,
    panic::Location,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Enqueue, Uses, declaration::OpenDeclaration, enqueue::Prepared};
use crate::{
    device_runtime::{
        Access, BlockUse, ResourceError, ResourceResult, RuntimeCore, StreamId, UseTracker,
        XlogDeviceRuntime,
        tracker::{Launch, OnConflict, TicketId},
    },
    memory::{CudaColumn, SliceView, TrackedCudaSlice},
};

/// What a recorder does with a buffer it cannot track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecorderMode {
    /// Refuses it.
    Strict,
    /// Skips it, and counts it: skipped buffers are outside every guarantee.
    Permissive,
}

/// Recorders dropped without a commit, in this process.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many recorders with something recorded were dropped without a commit, in this process.
#[must_use]
pub fn dropped_recorders() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Records what one launch touches.
///
/// ```
/// # use std::sync::Arc;
/// # use xlog_core::MemoryBudget;
/// # use xlog_cuda::{CudaDevice, GpuMemoryManager, LaunchDims, device_runtime::*, kernels};
/// # use xlog_driver::Arguments;
/// use xlog_cuda::launch::LaunchRecorder;
/// # let device = Arc::new(CudaDevice::host());
/// # let pool = Arc::new(StreamPool::with_defaults(Arc::clone(&device)));
/// # let resource = AsyncCudaResource::new(Arc::clone(&device), 0, Arc::clone(&pool));
/// # let runtime = Arc::new(XlogDeviceRuntime::with_resource(
/// #     Arc::clone(&device), 0, Arc::clone(&pool), Box::new(resource)));
/// # let manager = GpuMemoryManager::with_runtime(
/// #     device, MemoryBudget::unlimited(), Arc::clone(&runtime));
///
/// let stream = pool.acquire()?;
/// let out = manager.alloc::<u32>(16)?;
/// let kernel = runtime.load_kernel(&kernels::FILL_U32)?;
///
/// let mut recorder = LaunchRecorder::new_strict(stream);
/// recorder.write(&out); // 1. what the launch touches
/// recorder.preflight(&runtime)?; // 2. its waits are queued on the stream
/// let mut arguments = Arguments::new(); // 3. the work itself
/// arguments.push_pointer(out.ptr());
/// arguments.push_value(7u32);
/// arguments.push_value(16u64);
/// // SAFETY: the arguments are the kernel's, and `out` is recorded.
/// unsafe { runtime.enqueue(&kernel, LaunchDims::linear(1, 16), &arguments, stream)? };
/// recorder.commit(&runtime)?; // 4. later work waits for it
/// assert_eq!(out.download()?, [7; 16]);
/// # Ok::<(), ResourceError>(())
/// ```
pub struct LaunchRecorder {
    stream: StreamId,
    mode: RecorderMode,
    /// Not in the recorder itself, which is moved into its commit; `None` before the first.
    uses: Option<Box<Uses>>,
    /// Uses recorded after preflight; a mistake, so seldom there.
    late: Option<Box<Uses>>,
    recorded: usize,
    skipped: usize,
    rejected: Option<String>,
    phase: Phase,
    recorded_late: bool,
    place: &'static Location<'static>,
    /// From preflight until the recorder is gone, if the device is watched.
    declared: Option<Box<OpenDeclaration>>,
}

enum Phase {
    Recording,
    /// Preflighted with nothing to claim.
    Empty {
        runtime: Arc<RuntimeCore>,
    },
    /// Claims are held on the blocks of `uses`, and the tracker is told about them itself. The
    /// runtime is known by its number: holding on to it would cost every launch two exchanges.
    Claimed {
        runtime: u64,
        tracker: u64,
        lane: u32,
        ticket: TicketId,
    },
    /// Claims are held, and the uses go through the runtime's stack.
    InStack {
        runtime: Arc<RuntimeCore>,
        lane: u32,
        ticket: TicketId,
    },
    Over,
}

impl LaunchRecorder {
    /// A recorder that refuses any buffer it cannot track.
    #[must_use]
    #[track_caller]
    pub fn new_strict(stream: StreamId) -> Self {
        Self::new(stream, RecorderMode::Strict)
    }

    /// A recorder that skips buffers it cannot track, and says how many.
    #[must_use]
    #[track_caller]
    pub fn new_permissive(stream: StreamId) -> Self {
        Self::new(stream, RecorderMode::Permissive)
    }

    #[track_caller]
    fn new(stream: StreamId, mode: RecorderMode) -> Self {
        Self {
            stream,
            mode,
            uses: None,
            late: None,
            recorded: 0,
            skipped: 0,
            rejected: None,
            phase: Phase::Recording,
            recorded_late: false,
            place: Location::caller(),
            declared: None,
        }
    }

    /// The stream of the launch.
    #[must_use]
    pub const fn launch_stream(&self) -> StreamId {
        self.stream
    }

    /// What happens to untracked buffers.
    #[must_use]
    pub const fn mode(&self) -> RecorderMode {
        self.mode
    }

    /// How many buffers were recorded: several of one block count each, skipped ones do not.
    #[must_use]
    pub const fn recorded_count(&self) -> usize {
        self.recorded
    }

    /// How many untracked buffers were skipped.
    #[must_use]
    pub const fn skipped_count(&self) -> usize {
        self.skipped
    }

    /// The launch reads `slice`.
    #[inline]
    pub fn read<T>(&mut self, slice: &TrackedCudaSlice<T>) -> &mut Self {
        self.record(slice.declaration(), Access::Read, no_runtime)
    }

    /// The launch writes `slice`.
    #[inline]
    pub fn write<T>(&mut self, slice: &TrackedCudaSlice<T>) -> &mut Self {
        self.record(slice.declaration(), Access::Write, no_runtime)
    }

    /// The launch reads and writes `slice`.
    #[inline]
    pub fn read_write<T>(&mut self, slice: &TrackedCudaSlice<T>) -> &mut Self {
        self.record(slice.declaration(), Access::ReadWrite, no_runtime)
    }

    /// The launch reads part of a slice.
    pub fn read_view<T>(&mut self, view: &SliceView<'_, T>) -> &mut Self {
        self.record(view.declaration(), Access::Read, no_runtime)
    }

    /// The launch writes part of a slice.
    pub fn write_view<T>(&mut self, view: &SliceView<'_, T>) -> &mut Self {
        self.record(view.declaration(), Access::Write, no_runtime)
    }

    /// The launch reads and writes part of a slice.
    pub fn read_write_view<T>(&mut self, view: &SliceView<'_, T>) -> &mut Self {
        self.record(view.declaration(), Access::ReadWrite, no_runtime)
    }

    /// The launch reads `column`.
    pub fn read_column(&mut self, column: &CudaColumn) -> &mut Self {
        self.record(column.declaration(), Access::Read, || column_refusal(column))
    }

    /// The launch writes `column`.
    pub fn write_column(&mut self, column: &CudaColumn) -> &mut Self {
        self.record(column.declaration(), Access::Write, || column_refusal(column))
    }

    #[inline(always)]
    fn record(
        &mut self,
        one: Option<&BlockUse>,
        access: Access,
        refusal: impl FnOnce() -> String,
    ) -> &mut Self {
        let late = !matches!(self.phase, Phase::Recording);
        self.recorded_late |= late;
        match (one, self.mode) {
            (Some(one), _) => {
                self.recorded += 1;
                let uses = if late { &mut self.late } else { &mut self.uses };
                uses.get_or_insert_with(Uses::spare).add(one, access);
            }
            (None, RecorderMode::Permissive) => self.skipped += 1,
            (None, RecorderMode::Strict) => {
                self.rejected.get_or_insert_with(refusal);
            }
        }
        self
    }

    /// Whether it was used as it should be, and owns nothing but its uses.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        let mistaken = self.recorded_late || self.rejected.is_some() || self.late.is_some();
        !mistaken && self.declared.is_none()
    }

    /// What was recorded in time.
    #[inline(always)]
    fn uses(&self) -> &[BlockUse] {
        self.uses.as_ref().map_or(&[], |uses| uses)
    }

    fn is_empty(&self) -> bool {
        self.uses.is_none() && self.late.is_none() && self.rejected.is_none()
    }

    /// Claims every block and queues every wait on the stream. On failure no work may be enqueued,
    /// and no use is published.
    pub fn preflight(&mut self, runtime: &XlogDeviceRuntime) -> ResourceResult<()> {
        let core = runtime.core();
        let usual = matches!(self.phase, Phase::Recording)
            && self.uses.is_some()
            && !self.recorded_late
            && self.rejected.is_none();
        match core.plain_tracker() {
            Some(tracker) if usual => self.claim(core, tracker),
            _ => self.preflight_otherwise(runtime),
        }
    }

    /// Claims the blocks and queues the waits with the tracker itself.
    #[inline(always)]
    fn claim(&mut self, core: &RuntimeCore, tracker: &UseTracker) -> ResourceResult<()> {
        let (lane, ticket) = match self.as_enqueue(core).claim(tracker, OnConflict::Refuse) {
            Ok(claimed) => claimed,
            Err(error) => return Err(as_preflight_refusal(error)),
        };
        let lane = lane.index() as u32;
        let (runtime, tracker) = (core.number, tracker.number());
        let claimed = Phase::Claimed { runtime, tracker, lane, ticket };
        // It was recording, which is nothing to be dropped: that is not asked once more.
        std::mem::forget(std::mem::replace(&mut self.phase, claimed));
        Ok(())
    }

    /// Every preflight but that of a recorder used as it should be, on a plain runtime.
    #[cold]
    #[inline(never)]
    fn preflight_otherwise(&mut self, runtime: &XlogDeviceRuntime) -> ResourceResult<()> {
        if self.recorded_late {
            return Err(self.late_refusal());
        }
        if let Some(refusal) = &self.rejected {
            return Err(ResourceError::StreamMisuse(refusal.clone()));
        }
        match &self.phase {
            Phase::Recording => {}
            Phase::Claimed { runtime: mine, .. } if *mine != runtime.core().number => {
                return Err(preflighted_elsewhere("commit it there"));
            }
            Phase::InStack { runtime: mine, .. } if !Arc::ptr_eq(mine, runtime.core()) => {
                return Err(preflighted_elsewhere("commit it there"));
            }
            _ => return Ok(()),
        }
        if self.uses.is_none() {
            self.phase = Phase::Empty { runtime: Arc::clone(runtime.core()) };
            return Ok(());
        }
        let core = runtime.core();
        core.check().map_err(as_preflight_refusal)?;
        let enqueue = self.as_enqueue(core);
        let Some(tracker) = core.direct_tracker() else {
            let prepared = enqueue.prepare_in_stack(OnConflict::Refuse);
            let Prepared { lane, ticket, .. } = prepared.map_err(as_preflight_refusal)?;
            let declared = enqueue.declare_on(lane);
            let (runtime, lane) = (Arc::clone(core), lane.index() as u32);
            self.declared = declared;
            self.phase = Phase::InStack { runtime, lane, ticket };
            return Ok(());
        };
        self.claim(core, tracker)?;
        if let Phase::Claimed { lane, .. } = self.phase {
            let declared = self.as_enqueue(core).declare_on(&tracker.lanes()[lane as usize]);
            self.declared = declared;
        }
        Ok(())
    }

    /// Publishes the uses of work that was enqueued since the preflight. A refusal here comes too
    /// late to stop that work, so every tracked use is published all the same, by waiting for the
    /// stream if there is no other way.
    #[inline(never)]
    pub fn commit(mut self, runtime: &XlogDeviceRuntime) -> ResourceResult<()> {
        // Whoever watches is told before the use is recorded: what did not come by now never will.
        if self.declared.is_some() {
            self.declared = None;
        }
        match self.phase {
            Phase::Claimed { runtime: mine, lane, ticket, .. }
                if mine == runtime.core().number && self.is_plain() =>
            {
                let tracker = runtime.core().tracker();
                let lane = &tracker.lanes()[lane as usize];
                // Nothing else of a plain recorder is left to be dropped.
                let uses = ManuallyDrop::new(self).uses.take().unwrap_or_default();
                let answer = tracker.finish_claimed(&Launch { uses: &uses, lane, ticket });
                uses.give_back();
                answer
            }
            _ => self.commit_otherwise(runtime.core()),
        }
    }

    /// Every commit but that of a recorder used as it should be, on a plain stack.
    #[inline(never)]
    fn commit_otherwise(&mut self, runtime: &Arc<RuntimeCore>) -> ResourceResult<()> {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let answer = match &phase {
            Phase::Claimed { runtime: mine, .. } => {
                let elsewhere = *mine != runtime.number;
                self.commit_claimed(&phase).and_then(|()| known_here(elsewhere))
            }
            Phase::InStack { runtime: mine, .. } => {
                let elsewhere = !Arc::ptr_eq(mine, runtime);
                self.commit_claimed(&phase).and_then(|()| known_here(elsewhere))
            }
            Phase::Empty { .. } => Ok(()),
            Phase::Recording if self.is_empty() => return Ok(()),
            Phase::Recording | Phase::Over => {
                self.publish_unprepared(self.uses(), in_stack(runtime));
                match &self.rejected {
                    Some(_) => Ok(()),
                    None => Err(ResourceError::StreamMisuse(format!(
                        "the recorder of {} is committed without a successful preflight; call \
                         preflight before the work is enqueued",
                        self.place
                    ))),
                }
            }
        };
        if self.recorded_late {
            self.publish_late(in_stack(runtime));
            return Err(self.late_refusal());
        }
        match &self.rejected {
            Some(refusal) => Err(ResourceError::StreamMisuse(refusal.clone())),
            None => answer,
        }
    }

    fn as_enqueue<'e>(&'e self, runtime: &'e RuntimeCore) -> Enqueue<'e> {
        Enqueue { runtime, stream: self.stream, uses: self.uses(), place: self.place }
    }

    /// Publishes the uses this recorder holds claims for.
    fn commit_claimed(&self, phase: &Phase) -> ResourceResult<()> {
        match phase {
            Phase::Claimed { tracker, lane, ticket, .. } => match UseTracker::find(*tracker) {
                Some(tracker) => {
                    let lane = &tracker.lanes()[*lane as usize];
                    tracker.finish_claimed(&Launch { uses: self.uses(), lane, ticket: *ticket })
                }
                // Gone with its streams and its blocks: nothing is left to be ordered.
                None => Ok(()),
            },
            Phase::InStack { runtime, lane, ticket } => {
                let lane = &runtime.tracker().lanes()[*lane as usize];
                let prepared = Prepared { lane, ticket: *ticket, direct: false };
                self.as_enqueue(runtime).commit(prepared)
            }
            Phase::Recording | Phase::Empty { .. } | Phase::Over => Ok(()),
        }
    }

    fn publish_late(&self, finish: impl Fn(&[BlockUse], StreamId) -> ResourceResult<()>) {
        if let Some(late) = &self.late {
            self.publish_unprepared(late, finish);
        }
    }

    /// Records uses that nothing was queued for, so that at least later work waits for them. Each
    /// by itself: a block that is gone by now must not keep the others from being recorded.
    #[cold]
    fn publish_unprepared(
        &self,
        uses: &[BlockUse],
        finish: impl Fn(&[BlockUse], StreamId) -> ResourceResult<()>,
    ) {
        for one in uses.chunks(1) {
            if let Err(error) = finish(one, self.stream) {
                log::warn!("publishing a use of a refused commit at {}: {error}", self.place);
            }
        }
    }

    fn late_refusal(&self) -> ResourceError {
        ResourceError::StreamMisuse(format!(
            "the recorder of {} has a use that was recorded after preflight, so no wait was \
             queued for it; record every buffer first",
            self.place
        ))
    }
}

impl Drop for LaunchRecorder {
    fn drop(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        if matches!(phase, Phase::Over) || self.is_empty() {
            return;
        }
        self.declared = None;
        DROPPED.fetch_add(1, Ordering::Relaxed);
        log::warn!("the recorder of {} was dropped without commit", self.place);
        // The work may have been enqueued: the runtime behaves as if it was.
        if let Err(error) = self.commit_claimed(&phase) {
            log::error!("protecting the uses of a dropped recorder: {error}");
        }
        match phase {
            Phase::Claimed { tracker, .. } => {
                if let Some(tracker) = UseTracker::find(tracker) {
                    tracker.count_dropped_recorder();
                    let ordinal = tracker.device().info().ordinal;
                    self.publish_late(|uses, stream| tracker.finish(uses, stream, ordinal));
                }
            }
            Phase::InStack { runtime, .. } | Phase::Empty { runtime } => {
                runtime.tracker().count_dropped_recorder();
                self.publish_late(in_stack(&runtime));
            }
            Phase::Recording | Phase::Over => {}
        }
    }
}

/// How uses without a claim are recorded through a runtime's stack, where it can do that.
fn in_stack(runtime: &RuntimeCore) -> impl Fn(&[BlockUse], StreamId) -> ResourceResult<()> {
    |uses, stream| match runtime.resource() {
        resource if resource.supports_block_use_tracking() => resource.finish_uses(uses, stream),
        _ => Ok(()),
    }
}

fn preflighted_elsewhere(what: &str) -> ResourceError {
    ResourceError::StreamMisuse(format!("the recorder was preflighted on another runtime; {what}"))
}

/// Refuses, after the fact, a commit on another runtime than the preflight.
fn known_here(elsewhere: bool) -> ResourceResult<()> {
    if elsewhere { Err(preflighted_elsewhere("its uses were published there")) } else { Ok(()) }
}

/// A preflight refuses with one kind of error; what the driver itself failed at passes through.
fn as_preflight_refusal(error: ResourceError) -> ResourceError {
    match error {
        ResourceError::UseAfterFree { .. } | ResourceError::OutOfBounds { .. } => {
            ResourceError::StreamMisuse(format!("preflight refused: {error}"))
        }
        ResourceError::Driver(cause) if cause.call().is_empty() => {
            ResourceError::StreamMisuse(format!("preflight refused: {cause}"))
        }
        other => other,
    }
}

fn no_runtime() -> String {
    "untracked buffer rejected: the slice has no block, because its GpuMemoryManager was made \
     without a runtime; allocate it from GpuMemoryManager::with_runtime, or use a permissive \
     recorder and order its uses yourself"
        .into()
}

fn column_refusal(column: &CudaColumn) -> String {
    if !column.is_external() {
        return no_runtime();
    }
    format!(
        "untracked buffer rejected: the column is {}, which another library owns; import it with \
         the producer's stream or event, copy it into memory of this runtime, or use a permissive \
         recorder and order its uses yourself",
        column.origin()
    )
}

impl fmt::Debug for LaunchRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchRecorder")
            .field("stream", &self.stream)
            .field("mode", &self.mode)
            .field("recorded", &self.recorded)
            .field("skipped", &self.skipped)
            .field("place", &format_args!("{}", self.place))
            .finish_non_exhaustive()
    }
}
