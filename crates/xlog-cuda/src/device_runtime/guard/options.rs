//! How much a guard keeps, and for how long.

/// The address of every block stays a multiple of this, so margins are too.
pub(super) const GRAIN: usize = 256;

/// How a [`DebugGuardResource`](super::DebugGuardResource) guards.
///
/// ```
/// use xlog_cuda::device_runtime::GuardOptions;
///
/// let options = GuardOptions::default().with_margin(1024).with_quarantine(16 << 20, 100);
/// assert_eq!((options.margin, options.quarantine_blocks), (1024, 100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardOptions {
    /// Bytes watched before and after each block, rounded up to a multiple of 256; at least 256.
    pub margin: usize,
    /// The most bytes that are kept in quarantine, margins included.
    pub quarantine_bytes: usize,
    /// The most blocks that are kept in quarantine.
    pub quarantine_blocks: usize,
    /// Whether each free remembers where it was called, for the report of a double free.
    pub backtraces: bool,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self {
            margin: GRAIN,
            quarantine_bytes: 64 << 20,
            quarantine_blocks: 1024,
            backtraces: true,
        }
    }
}

impl GuardOptions {
    /// The same with wider or narrower margins.
    #[must_use]
    pub const fn with_margin(mut self, bytes: usize) -> Self {
        self.margin = bytes;
        self
    }

    /// The same with another limit for the quarantine. With no blocks at all, memory goes back at
    /// once and no write after a free is found.
    #[must_use]
    pub const fn with_quarantine(mut self, bytes: usize, blocks: usize) -> Self {
        self.quarantine_bytes = bytes;
        self.quarantine_blocks = blocks;
        self
    }

    /// The same with or without backtraces of frees.
    #[must_use]
    pub const fn with_backtraces(mut self, backtraces: bool) -> Self {
        self.backtraces = backtraces;
        self
    }

    /// Bytes of one margin.
    pub(super) fn rounded_margin(&self) -> Option<usize> {
        self.margin.max(1).checked_next_multiple_of(GRAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_keep_the_alignment() {
        let margin = |bytes| GuardOptions::default().with_margin(bytes).rounded_margin();
        assert_eq!([0, 1, 256, 257].map(margin), [256, 256, 256, 512].map(Some));
        assert_eq!(margin(usize::MAX), None);
    }
}
