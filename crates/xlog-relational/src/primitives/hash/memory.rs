//! Memory that a step reads: somebody's column, or something it made itself.

use std::{ops::Range, sync::Arc};

use bytemuck::Pod;
use xlog_cuda::{
    device_runtime::{ResourceResult, StreamId},
    memory::{SliceView, TrackedCudaSlice},
};

use crate::Engine;

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

/// What stands in for an argument that a launch does not have.
pub(in crate::primitives) struct Absent {
    pub(in crate::primitives) words: TrackedCudaSlice<u32>,
}

impl Absent {
    pub(in crate::primitives) fn new(engine: &Engine, stream: StreamId) -> ResourceResult<Self> {
        Ok(Self { words: engine.alloc(1, stream, "no column")? })
    }

    /// The memory and 1, or a stand-in and 0.
    pub(in crate::primitives) fn or<'s>(
        &'s self,
        memory: Option<&'s Memory<'_, u32>>,
    ) -> (SliceView<'s, u32>, u32) {
        match memory {
            Some(memory) => (memory.view(), 1),
            None => (self.words.as_view(), 0),
        }
    }
}
