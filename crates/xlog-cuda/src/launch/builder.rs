//! A kernel launch whose arguments are its declared uses.

use std::panic::Location;

use smallvec::SmallVec;
use xlog_core::{Access, ScalarType};
use xlog_driver::{Arguments, Extent, LaunchDims, MAX_ARGUMENTS, Parameter, ParameterKind};

use super::{DeviceElement, Enqueue, LaunchBatch, Uses};
use crate::{
    LoadedKernel,
    device_runtime::{BlockUse, ResourceError, ResourceResult, StreamId, XlogDeviceRuntime},
    memory::{ByteView, Download, SliceView, TrackedCudaSlice},
};

/// Device memory that can be an argument: a slice, a view of part of one, or the bytes of a view;
/// or a view that is there or not, for a parameter that is
/// [optional](xlog_driver::Parameter::optional).
pub trait Region<T>: sealed::Sealed {
    #[doc(hidden)]
    fn address(&self) -> u64;
    #[doc(hidden)]
    fn values(&self) -> usize;
    #[doc(hidden)]
    fn declared(&self) -> Option<&BlockUse>;
    #[doc(hidden)]
    fn is_absent(&self) -> bool {
        false
    }
}

mod sealed {
    pub trait Sealed {}
    impl<T> Sealed for super::TrackedCudaSlice<T> {}
    impl<T> Sealed for super::SliceView<'_, T> {}
    impl<T> Sealed for Option<super::SliceView<'_, T>> {}
    impl Sealed for super::ByteView<'_> {}
}

impl<T> Region<T> for TrackedCudaSlice<T> {
    #[inline(always)]
    fn address(&self) -> u64 {
        self.ptr()
    }
    #[inline(always)]
    fn values(&self) -> usize {
        self.len()
    }
    #[inline(always)]
    fn declared(&self) -> Option<&BlockUse> {
        self.declaration()
    }
}

impl<T> Region<T> for SliceView<'_, T> {
    #[inline(always)]
    fn address(&self) -> u64 {
        self.ptr()
    }
    #[inline(always)]
    fn values(&self) -> usize {
        self.len()
    }
    #[inline(always)]
    fn declared(&self) -> Option<&BlockUse> {
        self.declaration()
    }
}

impl<T> Region<T> for Option<SliceView<'_, T>> {
    #[inline(always)]
    fn address(&self) -> u64 {
        self.as_ref().map_or(0, SliceView::ptr)
    }
    #[inline(always)]
    fn values(&self) -> usize {
        self.as_ref().map_or(0, SliceView::len)
    }
    #[inline(always)]
    fn declared(&self) -> Option<&BlockUse> {
        self.as_ref().and_then(SliceView::declaration)
    }
    #[inline(always)]
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl Region<u8> for ByteView<'_> {
    fn address(&self) -> u64 {
        self.ptr()
    }
    fn values(&self) -> usize {
        self.len()
    }
    fn declared(&self) -> Option<&BlockUse> {
        self.declaration()
    }
}

/// What an argument leaves to the launch.
#[derive(Clone, Copy, Debug)]
enum Open {
    /// Memory of that many values, to be held against a count that another argument gives.
    Length { position: u8, values: usize },
    /// Host memory that the kernel reports to.
    Report { position: u8, values: usize, bytes: usize },
}

/// Builds one launch. Arguments come in the order of the kernel's parameters, each by the method
/// that names what the kernel does with it; a mistake is an error that names the parameter, from
/// [`launch`](Self::launch), with nothing enqueued.
///
/// If another launch holds a claim on one of the blocks, this one waits for it to commit.
#[must_use = "nothing happens until launch() is called"]
#[derive(Debug)]
pub struct LaunchBuilder<'r> {
    runtime: &'r XlogDeviceRuntime,
    kernel: LoadedKernel,
    stream: StreamId,
    uses: Uses,
    arguments: Arguments,
    /// What is settled when everything was given.
    open: SmallVec<[Open; 4]>,
    mistake: Option<Box<ResourceError>>,
    place: &'static Location<'static>,
}

impl<'r> LaunchBuilder<'r> {
    /// A launch of `kernel` on `stream`.
    #[track_caller]
    pub fn new(runtime: &'r XlogDeviceRuntime, kernel: &LoadedKernel, stream: StreamId) -> Self {
        Self {
            runtime,
            kernel: *kernel,
            stream,
            uses: Uses::default(),
            arguments: Arguments::new(),
            open: SmallVec::new(),
            mistake: None,
            place: Location::caller(),
        }
    }

    /// The next argument: memory the kernel reads.
    #[inline]
    pub fn input<T: DeviceElement>(&mut self, memory: &impl Region<T>) -> &mut Self {
        self.memory(memory, ParameterKind::In)
    }

    /// The next argument: memory the kernel writes.
    #[inline]
    pub fn output<T: DeviceElement>(&mut self, memory: &impl Region<T>) -> &mut Self {
        self.memory(memory, ParameterKind::Out)
    }

    /// The next argument: memory the kernel reads and writes.
    #[inline]
    pub fn in_out<T: DeviceElement>(&mut self, memory: &impl Region<T>) -> &mut Self {
        self.memory(memory, ParameterKind::InOut)
    }

    /// The next argument: a plain value.
    #[inline]
    pub fn value<T: DeviceElement>(&mut self, value: T) -> &mut Self {
        self.expect::<T>(ParameterKind::Scalar);
        self.arguments.push_value(value);
        self
    }

    /// The next argument: `values` values that the kernel writes for the host to read, a count or
    /// an error flag, straight into host memory: no copy follows the kernel. They come back from
    /// [`launch_reporting`](Self::launch_reporting). One argument of a launch can be this.
    pub fn report<T: DeviceElement>(&mut self, values: usize) -> &mut Self {
        self.expect::<T>(ParameterKind::Out);
        self.expect_length(values);
        if self.reported().is_some() {
            self.mistake_is(|this| {
                let name = this.kernel.definition.name;
                ResourceError::StreamMisuse(format!(
                    "kernel {name}: {} is a second report; a launch has one",
                    this.next_parameter()
                ))
            });
        }
        let position = self.arguments.given() as u8;
        self.open.push(Open::Report { position, values, bytes: values * size_of::<T>() });
        self.arguments.push_pointer(0);
        self
    }

    /// Memory the kernel reaches through a pointer table or another argument, declared beside
    /// them.
    pub fn also<T>(&mut self, access: Access, memory: &impl Region<T>) -> &mut Self {
        match memory.declared() {
            Some(one) => self.uses.add(one, access),
            None if memory.is_absent() => {}
            None => self.mistake_is(|_| untracked_argument("memory declared beside the arguments")),
        }
        self
    }

    #[inline(always)]
    fn memory<T: DeviceElement>(
        &mut self,
        memory: &impl Region<T>,
        kind: ParameterKind,
    ) -> &mut Self {
        let access = kind.access().unwrap_or(Access::ReadWrite);
        let (values, position) = (memory.values(), self.arguments.given());
        let fits = |parameter: &Parameter| {
            parameter.kind == kind
                && parameter.scalar == T::SCALAR
                && matches!(parameter.extent, Extent::Elements(n) if n as usize <= values)
        };
        // One look at the parameter; whatever is out of the ordinary is found out about below.
        match (self.kernel.definition.parameters.get(position), memory.declared()) {
            (Some(parameter), Some(one)) if fits(parameter) => self.uses.add(one, access),
            (Some(parameter), None) if memory.is_absent() && parameter.optional => {
                self.expect::<T>(kind);
            }
            (Some(_), None) if memory.is_absent() => self.left_out(),
            (_, one) => self.unusual_memory::<T>(kind, one, values),
        }
        self.arguments.push_pointer(memory.address());
        self
    }

    /// An argument whose length is counted by another, or that is a mistake.
    #[inline(never)]
    fn unusual_memory<T: DeviceElement>(
        &mut self,
        kind: ParameterKind,
        one: Option<&BlockUse>,
        values: usize,
    ) {
        let access = kind.access().unwrap_or(Access::ReadWrite);
        self.expect::<T>(kind);
        self.expect_length(values);
        match one {
            Some(one) => self.uses.add(one, access),
            None => self.mistake_is(|this| untracked_argument(this.next_parameter())),
        }
    }

    /// A parameter that is not optional has no argument.
    #[cold]
    #[inline(never)]
    fn left_out(&mut self) {
        self.mistake_is(|this| {
            ResourceError::StreamMisuse(format!(
                "kernel {}: parameter {} ({}) cannot be left out; hand in its memory, or declare \
                 it optional() if the kernel does not always touch it",
                this.kernel.definition.name,
                this.arguments.given(),
                this.next_parameter()
            ))
        });
    }

    /// Checks the next argument against the kernel's signature.
    #[inline]
    fn expect<T: DeviceElement>(&mut self, kind: ParameterKind) {
        let parameters = self.kernel.definition.parameters;
        match parameters.get(self.arguments.given()) {
            Some(parameter) if parameter.kind == kind && parameter.scalar == T::SCALAR => {}
            parameter => {
                let parameter = parameter.copied();
                self.mistake_is(|this| {
                    let given = format!("{kind:?} {}", T::SCALAR);
                    let position = this.arguments.given();
                    let name = this.kernel.definition.name;
                    ResourceError::StreamMisuse(match parameter {
                        Some(p) => format!(
                            "kernel {name}: parameter {position} ({}) is {:?} {}, the argument \
                             is {given}",
                            p.name, p.kind, p.scalar
                        ),
                        None => format!(
                            "kernel {name} takes {position} arguments; one more was given ({given})"
                        ),
                    })
                });
            }
        }
    }

    /// Holds the next argument's length against what the kernel touches, now or at launch.
    fn expect_length(&mut self, values: usize) {
        let position = self.arguments.given();
        match self.kernel.definition.parameters.get(position).map(|parameter| parameter.extent) {
            Some(Extent::Elements(count)) if values < count as usize => {
                self.mistake_is(|this| this.too_short(position, u64::from(count), values));
            }
            Some(Extent::CountedBy(_)) => {
                self.open.push(Open::Length { position: position as u8, values });
            }
            _ => {}
        }
    }

    /// The first argument that is shorter than the count another one gives for it.
    fn short_argument(&self) -> Option<(usize, u64, usize)> {
        self.open.iter().find_map(|open| {
            let Open::Length { position, values } = *open else { return None };
            let position = usize::from(position);
            let Extent::CountedBy(index) = self.kernel.definition.parameters[position].extent
            else {
                return None;
            };
            let count = self.arguments.value::<u64>(usize::from(index))?;
            (count > values as u64).then_some((position, count, values))
        })
    }

    fn too_short(&self, position: usize, needed: u64, values: usize) -> ResourceError {
        let definition = self.kernel.definition;
        ResourceError::StreamMisuse(format!(
            "kernel {}: parameter {position} ({}) is touched at {needed} values, the argument has \
             {values}",
            definition.name, definition.parameters[position].name
        ))
    }

    /// Keeps the first mistake.
    #[cold]
    #[inline(never)]
    fn mistake_is(&mut self, what: impl FnOnce(&Self) -> ResourceError) {
        if self.mistake.is_none() {
            self.mistake = Some(Box::new(what(self)));
        }
    }

    fn next_parameter(&self) -> &'static str {
        let parameters = self.kernel.definition.parameters;
        parameters.get(self.arguments.given()).map_or("an argument", |p| p.name)
    }

    /// Waits, enqueues and records in one step. The builder can launch again with the same
    /// arguments.
    pub fn launch(&mut self, dims: LaunchDims) -> ResourceResult<()> {
        if !self.can_launch(dims) {
            return Err(self.refusal(dims));
        }
        let core = self.runtime.core();
        let (stream, uses, place) = (self.stream, &*self.uses, self.place);
        let enqueue = Enqueue { runtime: core, stream, uses, place };
        let driver = core.device.driver();
        // SAFETY: the arguments match the signature (checked one by one), every block behind them
        // is claimed, and its memory is freed only behind this launch.
        enqueue
            .run(|raw| unsafe { driver.launch(self.kernel.function, dims, &self.arguments, raw) })
    }

    /// Makes the launch a step of a batch, which enqueues it. The builder can launch again with the
    /// same arguments.
    pub fn launch_in(
        &mut self,
        batch: &mut LaunchBatch<'_>,
        dims: LaunchDims,
    ) -> ResourceResult<()> {
        if !self.can_launch(dims) {
            return Err(self.refusal(dims));
        }
        batch.add(self, &self.uses, (self.kernel.function, dims, &self.arguments))
    }

    pub(super) fn runtime(&self) -> &XlogDeviceRuntime {
        self.runtime
    }

    pub(super) fn stream(&self) -> StreamId {
        self.stream
    }

    /// The same for a kernel that [reports](Self::report): what it wrote arrives when it is done.
    ///
    /// ```
    /// use xlog_cuda::{CudaDevice, LaunchDims, device_runtime::*, kernels, launch::LaunchBuilder};
    ///
    /// let stack = CudaDevice::host().into_stack()?;
    /// let fill = stack.runtime.load_kernel(&kernels::FILL_U32)?;
    /// let report = LaunchBuilder::new(&stack.runtime, &fill, StreamId::DEFAULT)
    ///     .report::<u32>(2)
    ///     .value(7u32)
    ///     .value(2u64)
    ///     .launch_reporting::<u32>(LaunchDims::linear(1, 2))?;
    /// assert_eq!(report.wait()?, [7, 7]);
    /// # Ok::<(), ResourceError>(())
    /// ```
    pub fn launch_reporting<T: DeviceElement>(
        &mut self,
        dims: LaunchDims,
    ) -> ResourceResult<Download<T>> {
        let reported = self.reported().filter(|_| self.fits(dims));
        let Some((position, values, bytes)) = reported else { return Err(self.refusal(dims)) };
        if self.kernel.definition.parameters[position].scalar != T::SCALAR {
            return Err(self.other_report(T::SCALAR, position));
        }
        let buffer = self.runtime.staging().allocate(bytes.max(1))?;
        self.arguments.set_pointer(position, buffer.pointer() as u64);
        let core = self.runtime.core();
        let (stream, uses, place) = (self.stream, &*self.uses, self.place);
        let mut started = Enqueue { runtime: core, stream, uses, place }.start()?;
        let driver = core.device.driver();
        // SAFETY: as in `launch`; the buffer is as long as the kernel was told, host and device
        // share its address, and it is kept until the event behind the launch is done.
        started.enqueue(|raw| unsafe {
            driver.launch(self.kernel.function, dims, &self.arguments, raw)
        })?;
        Download::behind(started.finish_with_event(), buffer, (self.runtime, stream), values)
    }

    /// Whether everything fits, and nothing is left that the launch would have to settle.
    #[inline(always)]
    fn can_launch(&self, dims: LaunchDims) -> bool {
        let open_fits = || self.short_argument().is_none() && self.reported().is_none();
        self.is_complete(dims) && (self.open.is_empty() || open_fits())
    }

    /// Whether every argument is there and fits.
    fn fits(&self, dims: LaunchDims) -> bool {
        self.is_complete(dims) && self.short_argument().is_none()
    }

    /// The same, but for what is settled when everything was given.
    #[inline(always)]
    fn is_complete(&self, dims: LaunchDims) -> bool {
        let given = self.arguments.given();
        self.mistake.is_none()
            && given == self.kernel.definition.parameters.len()
            && given <= MAX_ARGUMENTS
            && !dims.grid.contains(&0)
            && !dims.block.contains(&0)
            && self.kernel.device == self.runtime.core().device.identity()
    }

    /// The argument that is a report: its position, its values, its bytes.
    fn reported(&self) -> Option<(usize, usize, usize)> {
        self.open.iter().find_map(|open| match *open {
            Open::Report { position, values, bytes } => Some((position.into(), values, bytes)),
            Open::Length { .. } => None,
        })
    }

    #[cold]
    fn other_report(&self, asked: ScalarType, position: usize) -> ResourceError {
        let definition = self.kernel.definition;
        let Parameter { name, scalar, .. } = definition.parameters[position];
        ResourceError::StreamMisuse(format!(
            "kernel {} reports {scalar} ({name}), and {asked} was asked for",
            definition.name
        ))
    }

    /// Why a launch does not fit its kernel.
    #[cold]
    #[inline(never)]
    fn refusal(&self, dims: LaunchDims) -> ResourceError {
        if let Some(mistake) = &self.mistake {
            return ResourceError::clone(mistake);
        }
        if let Some((position, needed, values)) = self.short_argument() {
            return self.too_short(position, needed, values);
        }
        let (name, given) = (self.kernel.definition.name, self.arguments.given());
        let takes = self.kernel.definition.parameters.len();
        if self.fits(dims) {
            let (is, by) = match self.reported() {
                Some(_) => ("reports to the host", "launch_reporting"),
                None => ("has no report", "launch"),
            };
            return ResourceError::StreamMisuse(format!("kernel {name} {is}: start it by {by}"));
        }
        ResourceError::StreamMisuse(if given != takes || given > MAX_ARGUMENTS {
            format!("kernel {name} takes {takes} arguments, {given} were given")
        } else if dims.grid.contains(&0) || dims.block.contains(&0) {
            format!(
                "kernel {name}: a launch of {:?} blocks of {:?} threads runs nothing; every \
                 dimension is at least 1",
                dims.grid, dims.block
            )
        } else {
            format!("kernel {name} was loaded on another device; load it on this runtime")
        })
    }
}

pub(super) fn untracked_argument(which: &str) -> ResourceError {
    ResourceError::StreamMisuse(format!(
        "untracked buffer rejected: {which} has no block, because its GpuMemoryManager was made \
         without a runtime; allocate it from GpuMemoryManager::with_runtime"
    ))
}
