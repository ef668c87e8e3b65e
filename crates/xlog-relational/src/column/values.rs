//! The memory behind a column's values, typed by width.

use std::sync::Arc;

use bytemuck::Pod;
use xlog_cuda::{device_runtime::StreamId, memory::TrackedCudaSlice};

use crate::{Engine, error::RelationalResult, types::Physical};

/// Shared device memory of values of one width. Never empty: a column without rows holds memory
/// for one, so that every launch has something to point to.
#[derive(Clone, Debug)]
pub enum Values {
    /// Of one byte: truth values, 0 or 1.
    Bytes(Arc<TrackedCudaSlice<u8>>),
    /// Of four bytes.
    Words(Arc<TrackedCudaSlice<u32>>),
    /// Of eight bytes.
    Longs(Arc<TrackedCudaSlice<u64>>),
}

impl Values {
    /// Copies `values` to the device, straight from where they are.
    pub(crate) fn upload<T: Pod>(
        engine: &Engine,
        values: &[T],
        stream: StreamId,
    ) -> RelationalResult<Self> {
        Ok(match size_of::<T>() {
            1 => Self::Bytes(upload(engine, bytemuck::cast_slice(values), stream)?),
            4 => Self::Words(upload(engine, bytemuck::cast_slice(values), stream)?),
            _ => Self::Longs(upload(engine, bytemuck::cast_slice(values), stream)?),
        })
    }

    /// Memory for `len` values of a width, their contents whatever was there before.
    pub(crate) fn alloc(
        engine: &Engine,
        physical: Physical,
        len: usize,
        stream: StreamId,
    ) -> RelationalResult<Self> {
        const TAG: &str = "column values";
        let len = len.max(1);
        Ok(match physical {
            Physical::Byte => Self::Bytes(Arc::new(engine.alloc(len, stream, TAG)?)),
            Physical::Word => Self::Words(Arc::new(engine.alloc(len, stream, TAG)?)),
            Physical::Long => Self::Longs(Arc::new(engine.alloc(len, stream, TAG)?)),
        })
    }

    /// How wide a value is.
    #[must_use]
    pub fn physical(&self) -> Physical {
        match self {
            Self::Bytes(_) => Physical::Byte,
            Self::Words(_) => Physical::Word,
            Self::Longs(_) => Physical::Long,
        }
    }

    /// For how many values there is memory.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(slice) => slice.len(),
            Self::Words(slice) => slice.len(),
            Self::Longs(slice) => slice.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<TrackedCudaSlice<u8>> for Values {
    fn from(slice: TrackedCudaSlice<u8>) -> Self {
        Self::Bytes(Arc::new(slice))
    }
}

impl From<TrackedCudaSlice<u32>> for Values {
    fn from(slice: TrackedCudaSlice<u32>) -> Self {
        Self::Words(Arc::new(slice))
    }
}

impl From<TrackedCudaSlice<u64>> for Values {
    fn from(slice: TrackedCudaSlice<u64>) -> Self {
        Self::Longs(Arc::new(slice))
    }
}

fn upload<T: Pod>(
    engine: &Engine,
    values: &[T],
    stream: StreamId,
) -> RelationalResult<Arc<TrackedCudaSlice<T>>> {
    let slice = engine.alloc::<T>(values.len().max(1), stream, "column values")?;
    if !values.is_empty() {
        slice.as_view().upload_on(values, stream)?;
    }
    Ok(Arc::new(slice))
}
