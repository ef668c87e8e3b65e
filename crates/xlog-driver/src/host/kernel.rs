//! Kernels on the host device: Rust functions that reach memory only through accessors.
//!
//! A kernel is a type with one generic function, [`KernelBody::run`]. Generic, because it is
//! compiled twice: over [`Direct`], where an accessor is a pointer and costs what a pointer costs,
//! and over [`Observed`], where every access is first shown to a
//! [`DeviceWatcher`](crate::DeviceWatcher). A kernel cannot tell which of the two it runs under.

use std::{fmt, marker::PhantomData};

use bytemuck::Pod;

use super::{operation::Watched, parts::Running};
use crate::{Arguments, KernelDefinition, LaunchDims, ParameterKind};

/// Why a kernel could not run to its end. The device is lost then, as a GPU would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFault(pub String);

impl fmt::Display for KernelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KernelFault {}

/// The Rust twin of a CUDA kernel. One call does the work of the whole grid.
pub trait KernelBody {
    /// Runs the kernel over `call`'s arguments.
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault>;
}

/// A kernel body, compiled for both ways of reaching memory.
#[derive(Clone, Copy)]
pub struct HostKernel {
    direct: fn(&KernelCall<'_, Direct>) -> Result<(), KernelFault>,
    observed: fn(&KernelCall<'_, Observed<'_>>) -> Result<(), KernelFault>,
}

impl HostKernel {
    /// The host kernel whose body is `B`.
    #[must_use]
    pub const fn of<B: KernelBody>() -> Self {
        fn direct<B: KernelBody>(call: &KernelCall<'_, Direct>) -> Result<(), KernelFault> {
            B::run(call)
        }
        fn observed<B: KernelBody>(call: &KernelCall<'_, Observed<'_>>) -> Result<(), KernelFault> {
            B::run(call)
        }
        Self { direct: direct::<B>, observed: observed::<B> }
    }

    /// Runs the kernel; if it is watched, every access is shown to the watcher first.
    ///
    /// # Safety
    /// The arguments match the parameters, and the memory they point to is there and ordered
    /// against other work by the streams.
    pub(super) unsafe fn run(
        &self,
        definition: &'static KernelDefinition,
        arguments: &Arguments,
        dims: LaunchDims,
        watched: Option<Watched<'_>>,
    ) -> Result<(), KernelFault> {
        match watched {
            None => {
                let _running = Running::begin();
                (self.direct)(&KernelCall { definition, arguments, dims, policy: Direct(()) })
            }
            Some(watched) => (self.observed)(&KernelCall {
                definition,
                arguments,
                dims,
                policy: Observed(watched),
            }),
        }
    }
}

impl fmt::Debug for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKernel").finish_non_exhaustive()
    }
}

/// How a kernel reaches memory: [`Direct`] or [`Observed`].
pub trait MemoryPolicy: sealed::Sealed + Sync {
    /// Whether somebody watches: then a kernel runs on one thread.
    const WATCHED: bool;
    /// Whether `bytes` bytes at `address` may be read.
    fn may_read(&self, address: u64, bytes: usize) -> bool;
    /// Whether `bytes` bytes at `address` may be written.
    fn may_write(&self, address: u64, bytes: usize) -> bool;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Direct {}
    impl Sealed for super::Observed<'_> {}
}

/// Memory reached as it is.
#[derive(Debug)]
pub struct Direct(());

/// Memory reached past a watcher.
pub struct Observed<'o>(Watched<'o>);

impl fmt::Debug for Observed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").finish_non_exhaustive()
    }
}

impl MemoryPolicy for Direct {
    const WATCHED: bool = false;

    #[inline(always)]
    fn may_read(&self, _: u64, _: usize) -> bool {
        true
    }
    #[inline(always)]
    fn may_write(&self, _: u64, _: usize) -> bool {
        true
    }
}

impl MemoryPolicy for Observed<'_> {
    const WATCHED: bool = true;

    fn may_read(&self, address: u64, bytes: usize) -> bool {
        self.0.may_read(address, bytes)
    }
    fn may_write(&self, address: u64, bytes: usize) -> bool {
        self.0.may_write(address, bytes)
    }
}

/// One launch, as its kernel sees it.
#[derive(Debug)]
pub struct KernelCall<'c, M> {
    definition: &'static KernelDefinition,
    arguments: &'c Arguments,
    dims: LaunchDims,
    policy: M,
}

impl<M: MemoryPolicy> KernelCall<'_, M> {
    /// The launch's dimensions.
    #[must_use]
    pub fn dims(&self) -> LaunchDims {
        self.dims
    }

    /// The plain value of parameter `index`.
    pub fn value<T: Pod>(&self, index: usize) -> Result<T, KernelFault> {
        self.check::<T>(index, &[ParameterKind::Scalar])?;
        self.arguments.value(index).ok_or_else(|| self.fault(index, "has no argument"))
    }

    /// `len` values of parameter `index`, to read.
    pub fn input<T: Pod>(&self, index: usize, len: usize) -> Result<Input<'_, T, M>, KernelFault> {
        self.check::<T>(index, &[ParameterKind::In, ParameterKind::InOut])?;
        Ok(Input(self.cells(index, len)?))
    }

    /// `len` values of parameter `index`, to write.
    pub fn output<T: Pod>(
        &self,
        index: usize,
        len: usize,
    ) -> Result<Output<'_, T, M>, KernelFault> {
        self.check::<T>(index, &[ParameterKind::Out, ParameterKind::InOut])?;
        Ok(Output(self.cells(index, len)?))
    }

    /// `len` values of any type in memory that parameter `index` lends the kernel for what it keeps
    /// between its steps, from value `first` of that memory on.
    pub fn room<T: Pod>(
        &self,
        index: usize,
        first: usize,
        len: usize,
    ) -> Result<ReadWrite<'_, T, M>, KernelFault> {
        let Some(parameter) = self.definition.parameters.get(index) else {
            return Err(self.fault(index, "is not declared"));
        };
        if parameter.kind != ParameterKind::InOut {
            return Err(self.fault(index, "is used in a way its declaration does not name"));
        }
        let skipped = (first * parameter.scalar.size()) as u64;
        let cells = || self.cells_behind(index, skipped, len);
        Ok((Input(cells()?), Output(cells()?)))
    }

    fn check<T>(&self, index: usize, kinds: &[ParameterKind]) -> Result<(), KernelFault> {
        let Some(parameter) = self.definition.parameters.get(index) else {
            return Err(self.fault(index, "is not declared"));
        };
        if !kinds.contains(&parameter.kind) {
            return Err(self.fault(index, "is used in a way its declaration does not name"));
        }
        if parameter.scalar.size() != size_of::<T>() {
            return Err(self.fault(index, "is used as a type of another size"));
        }
        Ok(())
    }

    fn cells<T: Pod>(&self, index: usize, len: usize) -> Result<Cells<'_, T, M>, KernelFault> {
        self.cells_behind(index, 0, len)
    }

    fn cells_behind<T: Pod>(
        &self,
        index: usize,
        skipped: u64,
        len: usize,
    ) -> Result<Cells<'_, T, M>, KernelFault> {
        let address: u64 =
            self.arguments.value(index).ok_or_else(|| self.fault(index, "has no argument"))?;
        if len > 0 && address == 0 {
            return Err(self.fault(index, "is a null pointer"));
        }
        let address = address + skipped;
        if !address.is_multiple_of(align_of::<T>() as u64) {
            return Err(self.fault(index, "is misaligned"));
        }
        Ok(Cells { base: address, len, policy: &self.policy, values: PhantomData })
    }

    fn fault(&self, index: usize, what: &str) -> KernelFault {
        KernelFault(format!("kernel {}: parameter {index} {what}", self.definition.name))
    }
}

/// A range of device memory behind a parameter. Out-of-range indexes stop the kernel.
#[derive(Debug)]
struct Cells<'c, T, M> {
    base: u64,
    len: usize,
    policy: &'c M,
    values: PhantomData<*mut T>,
}

// SAFETY: an accessor is an address and a length. It forms no reference to what it reaches, so
// that several threads of one kernel may use it as several streams may use the memory: two that
// write one place can spoil its value, but not the type (see `get`).
unsafe impl<T: Pod + Send, M: MemoryPolicy> Send for Cells<'_, T, M> {}
// SAFETY: as above; every method takes `&self` and keeps no state.
unsafe impl<T: Pod + Send, M: MemoryPolicy> Sync for Cells<'_, T, M> {}

impl<T: Pod, M: MemoryPolicy> Cells<'_, T, M> {
    #[inline(always)]
    fn address(&self, start: usize, count: usize) -> u64 {
        let end = start.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "out of bounds: {count} values from {start} of {}",
            self.len
        );
        self.base + (start * size_of::<T>()) as u64
    }

    #[inline(always)]
    fn get(&self, index: usize) -> T {
        let address = self.address(index, 1);
        if !self.policy.may_read(address, size_of::<T>()) {
            return T::zeroed();
        }
        // SAFETY: in bounds (checked above) and aligned (checked on creation); the launch's caller
        // answers for the memory being there. No reference is formed, so a racing stream can
        // spoil the value but not the type: every bit pattern of a `Pod` is one.
        unsafe { std::ptr::read_volatile(address as *const T) }
    }

    #[inline(always)]
    fn prefetch(&self, index: usize) {
        #[cfg(target_arch = "x86_64")]
        if !M::WATCHED {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = self.base.wrapping_add((index * size_of::<T>()) as u64);
            // SAFETY: a hint; the processor leaves addresses that are nobody's alone.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address as *const i8) }
        }
    }

    #[inline(always)]
    fn set(&self, index: usize, value: T) {
        let address = self.address(index, 1);
        if self.policy.may_write(address, size_of::<T>()) {
            // SAFETY: as in `get`.
            unsafe { std::ptr::write_volatile(address as *mut T, value) }
        }
    }

    #[inline]
    fn read_into(&self, start: usize, values: &mut [T]) {
        let address = self.address(start, values.len());
        if self.policy.may_read(address, size_of_val(values)) {
            // SAFETY: in bounds and aligned as in `get`; `values` is host memory of the caller,
            // which no device range overlaps.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    address as *const T,
                    values.as_mut_ptr(),
                    values.len(),
                );
            }
        } else {
            values.fill(T::zeroed());
        }
    }

    #[inline]
    fn write_from(&self, start: usize, values: &[T]) {
        let address = self.address(start, values.len());
        if self.policy.may_write(address, size_of_val(values)) {
            // SAFETY: as in `read_into`, the other way.
            unsafe {
                std::ptr::copy_nonoverlapping(values.as_ptr(), address as *mut T, values.len());
            }
        }
    }
}

/// Memory a kernel reads.
#[derive(Debug)]
pub struct Input<'c, T, M>(Cells<'c, T, M>);

impl<T: Pod, M: MemoryPolicy> Input<'_, T, M> {
    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The value at `index`.
    #[must_use]
    #[inline(always)]
    pub fn get(&self, index: usize) -> T {
        self.0.get(index)
    }

    /// Asks the processor for the value at `index` ahead of its use: of many values all over the
    /// memory, later ones come while earlier ones are worked on. Reads nothing.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        self.0.prefetch(index);
    }

    /// Copies the values from `start` on into `values`, in one go.
    #[inline]
    pub fn read_into(&self, start: usize, values: &mut [T]) {
        self.0.read_into(start, values);
    }

    /// Calls `f` with the index and the values of one piece after the other.
    pub fn for_each_piece(&self, mut f: impl FnMut(usize, &[T])) {
        let mut piece = vec![T::zeroed(); self.0.len.min(PIECE)];
        let mut start = 0;
        while start < self.0.len {
            let count = (self.0.len - start).min(PIECE);
            self.0.read_into(start, &mut piece[..count]);
            f(start, &piece[..count]);
            start += count;
        }
    }
}

/// Memory a kernel reads and writes.
pub type ReadWrite<'c, T, M> = (Input<'c, T, M>, Output<'c, T, M>);

/// Values moved at a time by the bulk forms: small enough to stay in the cache.
const PIECE: usize = 2048;

/// Memory a kernel writes.
#[derive(Debug)]
pub struct Output<'c, T, M>(Cells<'c, T, M>);

impl<T: Pod, M: MemoryPolicy> Output<'_, T, M> {
    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Writes `value` at `index`.
    #[inline(always)]
    pub fn set(&self, index: usize, value: T) {
        self.0.set(index, value);
    }

    /// Copies `values` to `start` and what follows, in one go.
    #[inline]
    pub fn write_from(&self, start: usize, values: &[T]) {
        self.0.write_from(start, values);
    }

    /// Writes `value` everywhere.
    pub fn fill(&self, value: T) {
        let piece = vec![value; self.0.len.min(PIECE)];
        let mut start = 0;
        while start < self.0.len {
            let count = (self.0.len - start).min(PIECE);
            self.0.write_from(start, &piece[..count]);
            start += count;
        }
    }
}
