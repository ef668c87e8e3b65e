//! How much device memory a program may hold.

/// A byte limit on device memory, or none.
///
/// ```
/// use xlog_core::MemoryBudget;
///
/// assert!(MemoryBudget::with_limit(1024).allows(1000, 24));
/// assert!(!MemoryBudget::with_limit(1024).allows(1000, 25));
/// assert!(MemoryBudget::unlimited().allows(u64::MAX, u64::MAX));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryBudget {
    limit: Option<u64>,
}

impl MemoryBudget {
    /// At most `bytes` at any one time.
    #[must_use]
    pub const fn with_limit(bytes: u64) -> Self {
        Self { limit: Some(bytes) }
    }

    /// No limit but the device's own.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self { limit: None }
    }

    /// The limit in bytes; `None` when there is none.
    #[must_use]
    pub const fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// What is left with `held` bytes taken; `u64::MAX` without a limit.
    #[must_use]
    pub const fn remaining(&self, held: u64) -> u64 {
        match self.limit {
            Some(limit) => limit.saturating_sub(held),
            None => u64::MAX,
        }
    }

    /// Whether `requested` more bytes fit beside `held`.
    #[must_use]
    pub const fn allows(&self, held: u64, requested: u64) -> bool {
        self.limit.is_none() || requested <= self.remaining(held)
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::unlimited()
    }
}
