//! Kernels as both devices see them: a name, a signature, and packed arguments.
//!
//! A [`KernelDefinition`] is a constant of the crate that owns the kernel. It names the CUDA entry
//! point, the module it is compiled into, every parameter with its access kind, and the Rust
//! function that does the same on the host device. The access kinds are what the runtime declares
//! for a launch, so a kernel that lies about them lies to every check above it.

use std::{fmt, mem::MaybeUninit};

use bytemuck::Pod;
use xlog_core::{Access, ScalarType};

use crate::host::HostKernel;

/// The most arguments a kernel may take.
pub const MAX_ARGUMENTS: usize = 32;

/// One compiled source file: its name and its PTX.
#[derive(Debug)]
pub struct KernelModule {
    /// The source file's name without its ending.
    pub name: &'static str,
    /// The compiled text, understood by every supported GPU.
    pub ptx: &'static str,
}

/// What a kernel does with one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterKind {
    /// A pointer to memory the kernel reads.
    In,
    /// A pointer to memory the kernel writes without reading it.
    Out,
    /// A pointer to memory the kernel reads and writes.
    InOut,
    /// A plain value.
    Scalar,
}

impl ParameterKind {
    /// How the kernel touches the memory behind the parameter; `None` for a plain value.
    #[must_use]
    pub const fn access(self) -> Option<Access> {
        match self {
            Self::In => Some(Access::Read),
            Self::Out => Some(Access::Write),
            Self::InOut => Some(Access::ReadWrite),
            Self::Scalar => None,
        }
    }
}

/// How many values a kernel may touch behind a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// Nobody says: whoever launches the kernel answers for it.
    Unchecked,
    /// So many.
    Elements(u32),
    /// As many as the plain value of that parameter says, an unsigned 64-bit one.
    CountedBy(u8),
}

/// One parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the source.
    pub name: &'static str,
    /// What the kernel does with it.
    pub kind: ParameterKind,
    /// The type of the value, or of the values it points to.
    pub scalar: ScalarType,
    /// How many values the kernel may touch behind it.
    pub extent: Extent,
    /// Whether a launch may leave it out: the kernel is told so by another parameter, and gets a
    /// null pointer.
    pub optional: bool,
}

impl Parameter {
    const fn new(name: &'static str, kind: ParameterKind, scalar: ScalarType) -> Self {
        Self { name, kind, scalar, extent: Extent::Unchecked, optional: false }
    }

    /// Memory the kernel reads.
    #[must_use]
    pub const fn input(name: &'static str, scalar: ScalarType) -> Self {
        Self::new(name, ParameterKind::In, scalar)
    }

    /// Memory the kernel writes.
    #[must_use]
    pub const fn output(name: &'static str, scalar: ScalarType) -> Self {
        Self::new(name, ParameterKind::Out, scalar)
    }

    /// Memory the kernel reads and writes.
    #[must_use]
    pub const fn in_out(name: &'static str, scalar: ScalarType) -> Self {
        Self::new(name, ParameterKind::InOut, scalar)
    }

    /// A plain value.
    #[must_use]
    pub const fn value(name: &'static str, scalar: ScalarType) -> Self {
        Self::new(name, ParameterKind::Scalar, scalar)
    }
}

impl Parameter {
    /// The same parameter, of which the kernel touches `count` values.
    #[must_use]
    pub const fn elements(mut self, count: u32) -> Self {
        self.extent = Extent::Elements(count);
        self
    }

    /// The same parameter, of which the kernel touches as many values as parameter `index` says.
    #[must_use]
    pub const fn counted_by(mut self, index: u8) -> Self {
        self.extent = Extent::CountedBy(index);
        self
    }

    /// The same parameter, which a launch may leave out.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

/// A kernel: one name, one signature, two bodies.
#[derive(Debug)]
pub struct KernelDefinition {
    /// The entry point's name on the device.
    pub name: &'static str,
    /// The compiled file that holds it.
    pub module: &'static KernelModule,
    /// Its parameters, in order.
    pub parameters: &'static [Parameter],
    /// Its twin on the host device.
    pub host: HostKernel,
}

/// How many threads run a kernel: blocks of threads, and bytes of shared memory for each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchDims {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchDims {
    /// Blocks and threads in one dimension.
    #[must_use]
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }

    /// Enough blocks of 256 threads for `elements`, capped at 65,535 blocks: a kernel launched
    /// with it strides over what is left.
    ///
    /// ```
    /// use xlog_driver::LaunchDims;
    ///
    /// assert_eq!(LaunchDims::for_elements(1000).grid, [4, 1, 1]);
    /// assert_eq!(LaunchDims::for_elements(0).grid, [1, 1, 1]);
    /// ```
    #[must_use]
    pub const fn for_elements(elements: usize) -> Self {
        let blocks = elements.div_ceil(256);
        let blocks = if blocks == 0 {
            1
        } else if blocks > 65_535 {
            65_535
        } else {
            blocks
        };
        Self::linear(blocks as u32, 256)
    }
}

/// The arguments of one launch: eight bytes each, in the order of the parameters.
///
/// Values are stored in the low bytes of their slot, as every supported machine lays them out.
#[derive(Clone)]
pub struct Arguments {
    /// The first `given` are set; the others are not even zero, which every launch would pay for.
    slots: [MaybeUninit<u64>; MAX_ARGUMENTS],
    given: usize,
}

impl Default for Arguments {
    #[inline]
    fn default() -> Self {
        // Not `[MaybeUninit::uninit(); N]`: that is a constant, and constants are copied.
        // SAFETY: an array of places that may be uninitialised is what an uninitialised one is.
        Self { slots: unsafe { MaybeUninit::uninit().assume_init() }, given: 0 }
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots()).finish()
    }
}

impl Arguments {
    /// No arguments yet.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a device address.
    #[inline]
    pub fn push_pointer(&mut self, pointer: u64) {
        if let Some(slot) = self.slots.get_mut(self.given) {
            slot.write(pointer);
        }
        self.given += 1;
    }

    /// Appends a value of at most eight bytes; false, and nothing appended, if it is larger.
    #[inline]
    pub fn push_value<T: Pod>(&mut self, value: T) -> bool {
        let bytes = bytemuck::bytes_of(&value);
        if bytes.len() > 8 {
            return false;
        }
        let mut slot = [0u8; 8];
        slot[..bytes.len()].copy_from_slice(bytes);
        self.push_pointer(u64::from_ne_bytes(slot));
        true
    }

    /// Puts another device address into a slot that was given; false if it was not.
    pub fn set_pointer(&mut self, index: usize, pointer: u64) -> bool {
        let given = index < self.given;
        match self.slots.get_mut(index).filter(|_| given) {
            Some(slot) => {
                slot.write(pointer);
                true
            }
            None => false,
        }
    }

    /// How many were given. One that takes more than [`MAX_ARGUMENTS`] fits no kernel.
    #[must_use]
    #[inline]
    pub const fn given(&self) -> usize {
        self.given
    }

    /// The packed slots, [`MAX_ARGUMENTS`] at most.
    #[must_use]
    #[inline]
    pub fn slots(&self) -> &[u64] {
        let given = &self.slots[..self.given.min(MAX_ARGUMENTS)];
        // SAFETY: `given` counts up by one with each slot that is written, in order.
        unsafe { given.assume_init_ref() }
    }

    /// The value in slot `index`, if there is one and `T` fits.
    #[must_use]
    pub fn value<T: Pod>(&self, index: usize) -> Option<T> {
        let slot = self.slots().get(index)?.to_ne_bytes();
        slot.get(..size_of::<T>()).map(bytemuck::pod_read_unaligned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were_packed() {
        let mut arguments = Arguments::new();
        arguments.push_pointer(0xdead_beef_0000);
        assert!(arguments.push_value(7u32) && arguments.push_value(-2i64));
        assert!(arguments.push_value(1.5f32));
        assert!(!arguments.push_value([0u64; 2]), "sixteen bytes do not fit a slot");
        assert_eq!(arguments.value::<u64>(0), Some(0xdead_beef_0000));
        assert_eq!(arguments.value::<u32>(1), Some(7));
        assert_eq!(arguments.value::<i64>(2), Some(-2));
        assert_eq!(arguments.value::<f32>(3), Some(1.5));
        assert_eq!(arguments.value::<u32>(4), None);
        assert_eq!(arguments.value::<[u64; 2]>(0), None);
        assert!(arguments.set_pointer(0, 4096) && !arguments.set_pointer(4, 4096));
        assert_eq!((arguments.value::<u64>(0), arguments.given()), (Some(4096), 4));
        (4..50).for_each(|index| arguments.push_pointer(index));
        assert!(!arguments.set_pointer(MAX_ARGUMENTS, 4096));
        assert_eq!((arguments.given(), arguments.slots().len()), (50, MAX_ARGUMENTS));
    }
}
