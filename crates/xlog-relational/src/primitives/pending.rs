//! Results whose length only the device knows yet.

use xlog_cuda::{
    device_runtime::{ResourceResult, StreamId},
    memory::TrackedCudaSlice,
};

/// Values that were selected, or will be: memory for all that could have been, and a count on the
/// device. Kernels that take the count from there can use it at once; [`wait`](Self::wait) is for
/// whoever must know it.
#[derive(Debug)]
pub struct Pending<T> {
    values: TrackedCudaSlice<T>,
    count: TrackedCudaSlice<u64>,
    stream: StreamId,
}

impl<T> Pending<T> {
    pub(crate) fn new(
        values: TrackedCudaSlice<T>,
        count: TrackedCudaSlice<u64>,
        stream: StreamId,
    ) -> Self {
        Self { values, count, stream }
    }

    /// The values: as many as the count says, and unspecified ones behind them.
    #[must_use]
    pub fn values(&self) -> &TrackedCudaSlice<T> {
        &self.values
    }

    /// Where the count is: one number.
    #[must_use]
    pub fn count(&self) -> &TrackedCudaSlice<u64> {
        &self.count
    }

    /// Waits until the count is known: the one synchronisation of a selection. The memory is as
    /// large as before.
    #[track_caller]
    pub fn wait(self) -> ResourceResult<(TrackedCudaSlice<T>, u64)> {
        let count = self.count.start_download(self.stream)?.wait()?;
        Ok((self.values, count.first().copied().unwrap_or(0)))
    }

    /// The values and the count, on the device both.
    #[must_use]
    pub fn into_parts(self) -> (TrackedCudaSlice<T>, TrackedCudaSlice<u64>) {
        (self.values, self.count)
    }
}
