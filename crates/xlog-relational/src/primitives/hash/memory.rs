//! Memory that a step reads: somebody's column, or something it made itself.

use std::{ops::Range, sync::Arc};

use bytemuck::Pod;
use xlog_cuda::memory::{SliceView, TrackedCudaSlice};

/// A column that was lent, or memory of our own.
pub(in crate::primitives) enum Memory<'a, T> {
    Lent(SliceView<'a, T>),
    Own(TrackedCudaSlice<T>),
    /// Part of memory that two sides share.
    Part(Arc<TrackedCudaSlice<T>>, Range<usize>),
}

impl<T: Pod> Memory<'_, T> {
    /// The same for as long as one likes, unless it was lent.
    pub(in crate::primitives) fn into_own(self) -> Option<Memory<'static, T>> {
        match self {
            Self::Lent(_) => None,
            Self::Own(slice) => Some(Memory::Own(slice)),
            Self::Part(slice, range) => Some(Memory::Part(slice, range)),
        }
    }

    pub(in crate::primitives) fn view(&self) -> SliceView<'_, T> {
        match self {
            Self::Lent(view) => *view,
            Self::Own(slice) => slice.as_view(),
            // A range that leaves its slice is never made; all of it would be too much, not wrong.
            Self::Part(slice, range) => {
                slice.view(range.clone()).unwrap_or_else(|_| slice.as_view())
            }
        }
    }
}

/// What a launch is told of memory that it may not have: the memory, and whether it is there.
pub(in crate::primitives) fn or_none<'s>(
    memory: Option<&'s Memory<'_, u32>>,
) -> (Option<SliceView<'s, u32>>, u32) {
    (memory.map(Memory::view), u32::from(memory.is_some()))
}
