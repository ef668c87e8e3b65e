//! How a pool grows.

/// The least a pool takes from the resource below it at once, and what it rounds to.
pub(super) const SLAB_GRAIN: usize = 2 << 20;

/// How a [`PoolResource`](super::PoolResource) grows, and how far.
///
/// ```
/// use xlog_cuda::device_runtime::PoolOptions;
///
/// let options = PoolOptions::default().with_first_slab(64 << 20).with_maximum(8 << 30);
/// assert_eq!(options.maximum, Some(8 << 30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolOptions {
    /// Bytes of a stream's first slab; later ones are as large as all it has by then.
    pub first_slab: usize,
    /// No slab is larger than this unless a single block has to be.
    pub largest_slab: usize,
    /// The most bytes the pool takes from the resource below it; `None` leaves that to the
    /// resource.
    pub maximum: Option<usize>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { first_slab: 8 << 20, largest_slab: 1 << 30, maximum: None }
    }
}

impl PoolOptions {
    /// The same with another first slab.
    #[must_use]
    pub const fn with_first_slab(mut self, bytes: usize) -> Self {
        self.first_slab = bytes;
        self
    }

    /// The same with another limit for slabs.
    #[must_use]
    pub const fn with_largest_slab(mut self, bytes: usize) -> Self {
        self.largest_slab = bytes;
        self
    }

    /// The same with a maximum.
    #[must_use]
    pub const fn with_maximum(mut self, bytes: usize) -> Self {
        self.maximum = Some(bytes);
        self
    }

    /// Bytes of the next slab of a stream that has `slabs` bytes of them, and needs `needed` in one
    /// piece.
    pub(super) fn next_slab(&self, slabs: usize, needed: usize) -> usize {
        let wished = slabs.max(self.first_slab).min(self.largest_slab);
        round(wished.max(needed))
    }
}

/// Rounds up to what slabs are counted in.
pub(super) fn round(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(SLAB_GRAIN).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_grow_with_the_pool_up_to_a_limit() {
        let options = PoolOptions::default().with_largest_slab(256 << 20);
        assert_eq!(options.next_slab(0, 1), 8 << 20);
        assert_eq!(options.next_slab(100 << 20, 1), 100 << 20);
        assert_eq!(options.next_slab(2 << 30, 1), 256 << 20);
        assert_eq!(options.next_slab(0, (300 << 20) + 1), 302 << 20, "one block may be larger");
        assert_eq!(PoolOptions::default().with_first_slab(0).next_slab(0, 1), SLAB_GRAIN);
    }
}
