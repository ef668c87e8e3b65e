//! How far a pool of pinned memory grows, and how full it is.

/// How far a [`PinnedPoolResource`](super::PinnedPoolResource) grows.
///
/// ```
/// use xlog_cuda::device_runtime::PinnedPoolOptions;
///
/// let options = PinnedPoolOptions::default().with_maximum(256 << 20);
/// assert_eq!(options.maximum, Some(256 << 20));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedPoolOptions {
    /// The most bytes the pool holds; `None` leaves that to the driver.
    pub maximum: Option<usize>,
}

impl PinnedPoolOptions {
    /// The same with a maximum.
    #[must_use]
    pub const fn with_maximum(mut self, bytes: usize) -> Self {
        self.maximum = Some(bytes);
        self
    }
}

/// How full a pool of pinned memory is. What is neither in use, nor copying, nor leaked is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedReport {
    /// Bytes that the pool has from the driver.
    pub held_bytes: usize,
    /// Buffers that it has from the driver.
    pub held_buffers: usize,
    /// Bytes that somebody has, or a copy whose handle somebody has.
    pub in_use_bytes: usize,
    /// How many buffers that is.
    pub in_use_buffers: usize,
    /// Bytes that were handed back in the middle of a copy, which was not over when the pool last
    /// looked.
    pub copying_bytes: usize,
    /// Bytes whose last copy nobody can tell the end of; never used again.
    pub leaked_bytes: usize,
    /// The most bytes that were held at once.
    pub peak_held_bytes: usize,
    /// The most bytes that were in use at once.
    pub peak_in_use_bytes: usize,
}
