//! Several operations on one stream that are one use of their memory.

use std::{fmt, panic::Location};

use bytemuck::Pod;
use xlog_core::Access;
use xlog_driver::{Arguments, LaunchDims, RawFunction, RawStream};

use super::{Enqueue, LaunchBuilder, Uses, builder::untracked_argument, enqueue::Started};
use crate::{
    device_runtime::{ResourceError, ResourceResult, StreamId, XlogDeviceRuntime},
    memory::{Download, SliceView, TrackedCudaSlice},
};

/// Launches, fills and copies that follow each other on one stream, under one set of waits and one
/// event: for an operator of several steps whose temporary memory nobody else sees in between.
///
/// Nothing is enqueued before [`submit`](Self::submit). The batch then waits for what any of its
/// steps would wait for, and whoever uses their memory next waits for all of it: steps whose
/// results others wait for separately belong in batches of their own. Memory that is freed before
/// the batch is submitted is refused then, as a use after the free; [`keep`](Self::keep) hands it
/// to the batch.
///
/// ```
/// use xlog_cuda::{CudaDevice, LaunchDims, device_runtime::*, kernels};
/// use xlog_cuda::launch::{LaunchBatch, LaunchBuilder};
///
/// let stack = CudaDevice::host().into_stack()?;
/// let (runtime, stream) = (&stack.runtime, StreamId::DEFAULT);
/// let [x, y] = [stack.manager().alloc::<u32>(8)?, stack.manager().alloc::<u32>(8)?];
/// let copy = runtime.load_kernel(&kernels::COPY_U32)?;
/// let mut batch = LaunchBatch::new(runtime, stream);
/// batch.fill_bytes(&x.as_view(), 1)?;
/// LaunchBuilder::new(runtime, &copy, stream)
///     .input(&x)
///     .output(&y)
///     .value(8u64)
///     .launch_in(&mut batch, LaunchDims::for_elements(8))?;
/// assert_eq!(batch.submit_and_download(&y.as_view())?.wait()?, [0x0101_0101; 8]);
/// # Ok::<(), ResourceError>(())
/// ```
#[must_use = "nothing happens until submit() is called"]
pub struct LaunchBatch<'r> {
    runtime: &'r XlogDeviceRuntime,
    stream: StreamId,
    uses: Uses,
    steps: Vec<Step>,
    /// The arguments of all launches, one after the other.
    arguments: Vec<u64>,
    /// Memory that nobody else needs once everything is enqueued.
    kept: Vec<Box<dyn Send>>,
    place: &'static Location<'static>,
}

impl fmt::Debug for LaunchBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, uses, steps, place, .. } = self;
        f.debug_struct("LaunchBatch")
            .field("stream", stream)
            .field("uses", uses)
            .field("steps", steps)
            .field("place", place)
            .finish_non_exhaustive()
    }
}

/// Steps there is room for from the first on: most operators have no more.
const STEPS: usize = 6;

#[derive(Debug)]
enum Step {
    /// With that many arguments: those after the ones of the launch before it.
    Launch {
        function: RawFunction,
        dims: LaunchDims,
        arguments: usize,
    },
    Fill {
        address: u64,
        value: u8,
        bytes: usize,
    },
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
}

impl<'r> LaunchBatch<'r> {
    /// A batch without steps.
    #[track_caller]
    pub fn new(runtime: &'r XlogDeviceRuntime, stream: StreamId) -> Self {
        let place = Location::caller();
        let (steps, arguments) = (Vec::with_capacity(STEPS), Vec::with_capacity(16 * STEPS));
        Self { runtime, stream, uses: Uses::default(), steps, arguments, kept: Vec::new(), place }
    }

    /// The stream it is for.
    #[must_use]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// Keeps memory of the steps until all of them are enqueued.
    pub fn keep<T: Pod>(&mut self, memory: TrackedCudaSlice<T>) {
        self.kept.push(Box::new(memory));
    }

    /// The next step: every byte of `memory` becomes `value`.
    pub fn fill_bytes<T: Pod>(
        &mut self,
        memory: &SliceView<'_, T>,
        value: u8,
    ) -> ResourceResult<()> {
        self.declare(memory, Access::Write)?;
        self.steps.push(Step::Fill { address: memory.ptr(), value, bytes: memory.bytes() });
        Ok(())
    }

    /// The next step: `to` becomes what `from` is then.
    pub fn copy<T: Pod>(
        &mut self,
        from: &SliceView<'_, T>,
        to: &SliceView<'_, T>,
    ) -> ResourceResult<()> {
        if from.len() != to.len() {
            return Err(ResourceError::StreamMisuse(format!(
                "a copy of {} values to memory of {}; both have to be as long",
                from.len(),
                to.len()
            )));
        }
        self.declare(from, Access::Read)?;
        self.declare(to, Access::Write)?;
        self.steps.push(Step::Copy { from: from.ptr(), to: to.ptr(), bytes: from.bytes() });
        Ok(())
    }

    fn declare<T: Pod>(&mut self, memory: &SliceView<'_, T>, access: Access) -> ResourceResult<()> {
        let declared = memory.declaration();
        let one = declared.ok_or_else(|| untracked_argument("the memory of a step"))?;
        self.uses.add(one, access);
        Ok(())
    }

    /// The next step: a launch, whose arguments fit.
    pub(super) fn add(
        &mut self,
        launch: &LaunchBuilder<'_>,
        uses: &Uses,
        step: (RawFunction, LaunchDims, &Arguments),
    ) -> ResourceResult<()> {
        let own = std::ptr::eq(launch.runtime().core(), self.runtime.core());
        if !own || launch.stream() != self.stream {
            return Err(ResourceError::StreamMisuse(format!(
                "a launch on {:?} was added to a batch on {:?}; a batch is work of one stream of \
                 one runtime",
                launch.stream(),
                self.stream
            )));
        }
        uses.iter().for_each(|one| self.uses.add(one, one.access()));
        let (function, dims, arguments) = step;
        let arguments = arguments.slots();
        self.arguments.extend_from_slice(arguments);
        self.steps.push(Step::Launch { function, dims, arguments: arguments.len() });
        Ok(())
    }

    /// Waits, enqueues every step and records once. A batch without steps does nothing.
    pub fn submit(self) -> ResourceResult<()> {
        if self.steps.is_empty() {
            return Ok(());
        }
        self.started()?.finish()
    }

    /// The same, and a download of what `memory` is then.
    pub fn submit_and_download<T: Pod>(
        mut self,
        memory: &SliceView<'_, T>,
    ) -> ResourceResult<Download<T>> {
        self.declare(memory, Access::Read)?;
        let (values, bytes) = (memory.len(), memory.bytes());
        let buffer = self.runtime.staging().allocate(bytes.max(1))?;
        let mut started = self.started()?;
        let (driver, host) = (self.runtime.device().driver(), buffer.pointer());
        // SAFETY: both ranges have that many bytes, the block is claimed, and the buffer is kept
        // until the event behind the copy is done.
        started.enqueue(|raw| unsafe { driver.copy_to_host(host, memory.ptr(), bytes, raw) })?;
        let event = started.finish_with_event();
        Download::behind(event, buffer, (self.runtime, self.stream), values)
    }

    /// Everything enqueued, and not yet recorded. What fails half-way is recorded as far as it
    /// came.
    fn started(&self) -> ResourceResult<Started<'_>> {
        let (stream, uses, place) = (self.stream, &*self.uses, self.place);
        let mut started = Enqueue { runtime: self.runtime.core(), stream, uses, place }.start()?;
        let driver = self.runtime.device().driver();
        let mut words = self.arguments.iter();
        for step in &self.steps {
            // SAFETY: arguments match their signature (checked when they were given), ranges are
            // as long as their views, and every block behind them is claimed.
            started.enqueue(|raw: RawStream| unsafe {
                match step {
                    Step::Launch { function, dims, arguments: count } => {
                        let mut arguments = Arguments::new();
                        words.by_ref().take(*count).for_each(|word| arguments.push_pointer(*word));
                        driver.launch(*function, *dims, &arguments, raw)
                    }
                    Step::Fill { address, value, bytes } => {
                        driver.fill_bytes(*address, *value, *bytes, raw)
                    }
                    Step::Copy { from, to, bytes } => {
                        driver.copy_on_device(*to, *from, *bytes, raw)
                    }
                }
            })?;
        }
        Ok(started)
    }
}
