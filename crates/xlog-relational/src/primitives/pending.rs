//! Results whose length only the device knows yet.

use xlog_cuda::{
    device_runtime::ResourceResult,
    memory::{Download, TrackedCudaSlice},
};

/// Values that were selected, or will be: memory for all that could have been, and their number,
/// which is on its way to the host.
#[derive(Debug)]
pub struct Pending<T> {
    values: TrackedCudaSlice<T>,
    count: PendingCount,
}

impl<T> Pending<T> {
    pub(crate) fn new(values: TrackedCudaSlice<T>, count: PendingCount) -> Self {
        Self { values, count }
    }

    /// The values: as many as the count says, and unspecified ones behind them.
    #[must_use]
    pub fn values(&self) -> &TrackedCudaSlice<T> {
        &self.values
    }

    /// Waits until the count is known: the one synchronisation of a selection. The memory is as
    /// large as before.
    pub fn wait(self) -> ResourceResult<(TrackedCudaSlice<T>, u64)> {
        Ok((self.values, self.count.wait()?))
    }

    /// The values, and their number, apart.
    pub fn into_parts(self) -> (TrackedCudaSlice<T>, PendingCount) {
        (self.values, self.count)
    }
}

/// A number that the device reports when it knows it.
#[derive(Debug)]
#[must_use = "nobody has waited for it"]
pub struct PendingCount(Option<Download<u64>>);

impl PendingCount {
    /// None at all: known without the device.
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn reported(count: Download<u64>) -> Self {
        Self(Some(count))
    }

    /// Waits for it.
    pub fn wait(self) -> ResourceResult<u64> {
        match self.0 {
            Some(count) => Ok(count.wait()?.first().copied().unwrap_or(0)),
            None => Ok(0),
        }
    }
}
