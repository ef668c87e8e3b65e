//! Why a stream had to wait for another.

use std::fmt;

use xlog_core::Access;

/// What makes one use of memory follow another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dependency {
    /// A read follows the write before it.
    ReadAfterWrite,
    /// A write follows a read before it.
    WriteAfterRead,
    /// A write follows the write before it.
    WriteAfterWrite,
    /// A use follows the allocation of what it uses, which was on another stream.
    UseAfterAllocation,
    /// Memory is given back behind the last use of it.
    FreeAfterUse,
    /// Memory is handed out again behind the last use of it.
    ReuseAfterUse,
}

impl Dependency {
    /// What a use is to one before it; `None` if they may come in any order.
    #[must_use]
    pub fn between(before: Access, after: Access) -> Option<Self> {
        match (before.writes(), after.reads(), after.writes()) {
            (true, true, _) => Some(Self::ReadAfterWrite),
            (true, false, _) => Some(Self::WriteAfterWrite),
            (false, _, true) => Some(Self::WriteAfterRead),
            (false, _, false) => None,
        }
    }

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadAfterWrite => "read after write",
            Self::WriteAfterRead => "write after read",
            Self::WriteAfterWrite => "write after write",
            Self::UseAfterAllocation => "use after allocation",
            Self::FreeAfterUse => "free after use",
            Self::ReuseAfterUse => "reuse after use",
        }
    }
}

/// One block for which a wait was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// What makes the second use follow the first.
    pub dependency: Dependency,
    /// The block the second use is of: an index into [`Recording::blocks`]. `None` for a free of
    /// memory that several blocks were cut from.
    ///
    /// [`Recording::blocks`]: crate::Recording::blocks
    pub block: Option<u32>,
    /// The block the first use was of, where that is another: one that had the same memory before.
    pub earlier_block: Option<u32>,
    /// The work of the first use: an index into [`Recording::operations`]. `None` for an
    /// allocation.
    ///
    /// [`Recording::operations`]: crate::Recording::operations
    pub earlier: Option<u32>,
}

/// What a wait was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// Blocks that work on the other stream uses, or used: at least one.
    Blocks(Vec<Reason>),
    /// The host was about to wait for all streams at once.
    Fence,
    /// Nobody said: the program asked the driver for it, and declared nothing.
    Undeclared,
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reads_may_come_in_any_order_and_nothing_else() {
        use Access::{Read, ReadWrite, Write};
        assert_eq!(Dependency::between(Read, Read), None);
        for (before, after, dependency) in [
            (Write, Read, Dependency::ReadAfterWrite),
            (ReadWrite, Read, Dependency::ReadAfterWrite),
            (Write, ReadWrite, Dependency::ReadAfterWrite),
            (Write, Write, Dependency::WriteAfterWrite),
            (Read, Write, Dependency::WriteAfterRead),
            (Read, ReadWrite, Dependency::WriteAfterRead),
        ] {
            assert_eq!(Dependency::between(before, after), Some(dependency));
        }
    }
}
