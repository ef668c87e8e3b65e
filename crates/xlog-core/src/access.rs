//! How one use of device memory touches it.

/// How one use touches a block: the three answers a hazard check needs.
///
/// ```
/// use xlog_core::Access;
///
/// assert!(Access::ReadWrite.reads() && Access::ReadWrite.writes());
/// assert_eq!(Access::Read.and(Access::Write), Access::ReadWrite);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The work reads the block and leaves it as it was.
    Read,
    /// The work writes the block and does not look at what was there.
    Write,
    /// The work reads the block and writes it.
    ReadWrite,
}

impl Access {
    /// Whether the use looks at the block's bytes.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Whether the use changes the block's bytes.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }

    /// The one use that stands for both: read and write become read-write.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self.reads() || other.reads(), self.writes() || other.writes()) {
            (true, true) => Self::ReadWrite,
            (false, true) => Self::Write,
            _ => Self::Read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Access::{Read, ReadWrite, Write};

    #[test]
    fn the_strongest_access_stands_for_several() {
        for (a, b, both) in [
            (Read, Read, Read),
            (Write, Write, Write),
            (Read, Write, ReadWrite),
            (Write, Read, ReadWrite),
            (ReadWrite, Read, ReadWrite),
            (Write, ReadWrite, ReadWrite),
        ] {
            assert_eq!(a.and(b), both, "{a:?} and {b:?}");
        }
    }
}
