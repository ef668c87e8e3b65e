//! A column's memory: our own, or another library's.

use super::TrackedCudaSlice;
use crate::device_runtime::{BlockUse, DeviceBlock};

/// The memory of one column.
///
/// External memory has no identity in this runtime: strict recorders refuse it, permissive ones
/// skip it, and skipped memory is outside every guarantee.
#[derive(Debug)]
#[non_exhaustive]
pub enum CudaColumn {
    /// Memory of the runtime.
    Owned(TrackedCudaSlice<u8>),
    /// Memory that came through DLPack.
    Dlpack(DlpackColumn),
    /// Memory that came through the Arrow C device interface.
    ArrowDevice(ArrowDeviceColumn),
}

/// A range of memory that a DLPack producer owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlpackColumn {
    /// Its address on the device.
    pub ptr: u64,
    /// Its size.
    pub bytes: usize,
}

/// A range of memory that an Arrow producer owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrowDeviceColumn {
    /// Its address on the device.
    pub ptr: u64,
    /// Its size.
    pub bytes: usize,
}

impl CudaColumn {
    /// A column over memory of the runtime.
    #[must_use]
    pub const fn owned(slice: TrackedCudaSlice<u8>) -> Self {
        Self::Owned(slice)
    }

    /// Its address on the device.
    #[must_use]
    pub const fn ptr(&self) -> u64 {
        match self {
            Self::Owned(slice) => slice.ptr(),
            Self::Dlpack(column) => column.ptr,
            Self::ArrowDevice(column) => column.ptr,
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Owned(slice) => slice.len(),
            Self::Dlpack(column) => column.bytes,
            Self::ArrowDevice(column) => column.bytes,
        }
    }

    /// The block behind the column; `None` for memory without an identity.
    #[must_use]
    pub const fn runtime_block(&self) -> Option<&DeviceBlock> {
        match self {
            Self::Owned(slice) => slice.runtime_block(),
            Self::Dlpack(_) | Self::ArrowDevice(_) => None,
        }
    }

    /// Whether another library owns the memory.
    #[must_use]
    pub const fn is_external(&self) -> bool {
        !matches!(self, Self::Owned(_))
    }

    /// Where the memory came from, for messages.
    pub(crate) const fn origin(&self) -> &'static str {
        match self {
            Self::Owned(_) => "owned memory",
            Self::Dlpack(_) => "external memory (DLPack)",
            Self::ArrowDevice(_) => "external memory (Arrow device)",
        }
    }

    pub(crate) fn declaration(&self) -> Option<&BlockUse> {
        match self {
            Self::Owned(slice) => slice.declaration(),
            Self::Dlpack(_) | Self::ArrowDevice(_) => None,
        }
    }
}

impl From<TrackedCudaSlice<u8>> for CudaColumn {
    fn from(slice: TrackedCudaSlice<u8>) -> Self {
        Self::Owned(slice)
    }
}
