//! Columns on their way to the host.

use xlog_cuda::{
    device_runtime::{PinnedBuffer, StreamId},
    memory::{PinnedCopy, PinnedCopyError, SliceView},
};

use super::{Column, Values, validity_words};
use crate::{Engine, error::RelationalResult};

/// A column's memory on its way into pinned buffers. Nothing blocks until it is waited for; one
/// that is dropped keeps its buffers until the copies are done.
#[derive(Debug)]
pub(crate) struct ColumnDownload {
    values: Option<PinnedCopy>,
    validity: Option<PinnedCopy>,
}

/// What arrived. Empty if the column is.
pub(crate) struct HostBytes {
    /// The values, as many bytes as they took on the device.
    pub(crate) values: Option<PinnedBuffer>,
    /// Whole words of validity.
    pub(crate) validity: Option<PinnedBuffer>,
}

impl ColumnDownload {
    /// Starts copying a column on `stream`, behind everything that writes it.
    pub(crate) fn start(column: &Column, stream: StreamId) -> RelationalResult<Self> {
        let (engine, len) = (column.engine(), column.len());
        if len == 0 {
            return Ok(Self { values: None, validity: None });
        }
        let values = match column.values() {
            Values::Bytes(slice) => start(engine, &slice.view(..len)?, stream),
            Values::Words(slice) => start(engine, &slice.view(..len)?, stream),
            Values::Longs(slice) => start(engine, &slice.view(..len)?, stream),
        }?;
        let validity = match column.validity() {
            Some(words) => Some(start(engine, &words.view(..validity_words(len))?, stream)?),
            None => None,
        };
        Ok(Self { values: Some(values), validity })
    }

    /// Waits for both.
    pub(crate) fn wait(self) -> RelationalResult<HostBytes> {
        let arrived = |copy: Option<PinnedCopy>| copy.map(PinnedCopy::wait).transpose();
        Ok(HostBytes { values: arrived(self.values)?, validity: arrived(self.validity)? })
    }
}

fn start<T: bytemuck::Pod>(
    engine: &Engine,
    view: &SliceView<'_, T>,
    stream: StreamId,
) -> RelationalResult<PinnedCopy> {
    let buffer = engine.runtime().staging().allocate(view.len() * size_of::<T>())?;
    let copy = view.start_download_into(buffer, stream);
    Ok(copy.map_err(|PinnedCopyError { error, .. }| error)?)
}
