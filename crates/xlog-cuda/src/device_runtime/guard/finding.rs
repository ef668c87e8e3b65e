//! What a guard finds, for a person to read.

use std::{backtrace::Backtrace, fmt, sync::Arc};

use crate::device_runtime::{AllocTag, Generation, StreamId};

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// Something wrote in front of the block.
    OutOfBoundsBefore,
    /// Something wrote behind the end of the block.
    OutOfBoundsAfter,
    /// Something wrote to the block after it was freed.
    WriteAfterFree,
    /// The block was freed a second time.
    DoubleFree,
}

/// Who freed a block.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FreedBy {
    /// The thread, by name if it has one.
    pub thread: String,
    /// Where it was, if the guard captures that. Printing it looks the names up.
    pub backtrace: Option<Arc<Backtrace>>,
}

impl FreedBy {
    /// The calling thread.
    pub(super) fn here(captures: bool) -> Self {
        let thread = std::thread::current();
        let name = thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned);
        let backtrace = captures.then(|| Arc::new(Backtrace::force_capture()));
        Self { thread: name, backtrace }
    }
}

/// One mistake that a guard found: of which kind, and whose block it was.
///
/// It is one sentence as text; `{:#}` adds the backtrace of the free, if there is one.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::*};
///
/// let stack = ResourceStack::debugging(Arc::new(CudaDevice::host())).build()?;
/// let block = stack.runtime.allocate(1024, StreamId::DEFAULT, AllocTag("keys"))?;
/// let second = DeviceBlock { ..block }; // the mistake: two handles of one block
/// stack.runtime.deallocate(block)?;
/// assert!(stack.runtime.deallocate(second).is_err());
/// let findings = stack.guard.map(|guard| guard.findings()).unwrap_or_default();
/// assert_eq!(findings[0].kind, FindingKind::DoubleFree);
/// assert!(findings[0].to_string().contains("\"keys\""));
/// # Ok::<(), ResourceError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// What went wrong.
    pub kind: FindingKind,
    /// The label the block was allocated under.
    pub tag: AllocTag,
    /// Which allocation at its address.
    pub generation: Generation,
    /// Its address.
    pub ptr: u64,
    /// Its bytes.
    pub bytes: usize,
    /// Where the first wrong byte is, counted from the block's own first byte: negative before it,
    /// at least [`bytes`](Self::bytes) behind its end. 0 for a double free.
    pub offset: i64,
    /// How many bytes were wrong where the guard looked. 0 for a double free.
    pub wrong: usize,
    /// The stream the block was allocated on.
    pub stream: StreamId,
    /// Which allocation of the guard it was, counted from 1.
    pub sequence: u64,
    /// Who freed the block, if it was freed.
    pub freed: Option<FreedBy>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, wrong, .. } = self;
        match self.kind {
            FindingKind::OutOfBoundsBefore => write!(
                f,
                "out of bounds: {wrong} bytes in front of a block were overwritten, the first {} \
                 bytes before its start",
                self.offset.unsigned_abs()
            )?,
            FindingKind::OutOfBoundsAfter => write!(
                f,
                "out of bounds: {wrong} bytes behind a block were overwritten, the first {} bytes \
                 past its last byte",
                (self.offset.unsigned_abs() + 1).saturating_sub(*bytes as u64)
            )?,
            FindingKind::WriteAfterFree => write!(
                f,
                "write after free: {wrong} bytes of a block were written after it was freed, the \
                 first at its byte {}",
                self.offset
            )?,
            FindingKind::DoubleFree => f.write_str("double free: a block was freed twice")?,
        }
        write!(
            f,
            "; the block is {:?}, generation {}: {bytes} bytes at {:#x}, allocation number {} of \
             the guard, allocated on stream {}",
            self.tag.0, self.generation.0, self.ptr, self.sequence, self.stream.0
        )?;
        let Some(freed) = &self.freed else { return Ok(()) };
        let first = if self.kind == FindingKind::DoubleFree { "first " } else { "" };
        write!(f, ", {first}freed by thread {:?}", freed.thread)?;
        match &freed.backtrace {
            Some(backtrace) if f.alternate() => write!(f, " at\n{backtrace}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: FindingKind, offset: i64, wrong: usize) -> String {
        let finding = Finding {
            kind,
            tag: AllocTag("keys"),
            generation: Generation(7),
            ptr: 0x1000,
            bytes: 64,
            offset,
            wrong,
            stream: StreamId(3),
            sequence: 5,
            freed: Some(FreedBy { thread: "loader".into(), backtrace: None }),
        };
        finding.to_string()
    }

    #[test]
    fn a_finding_says_which_block_and_how_far_outside() {
        let after = text(FindingKind::OutOfBoundsAfter, 64, 4);
        let whose = "; the block is \"keys\", generation 7: 64 bytes at 0x1000, allocation number \
                     5 of the guard, allocated on stream 3";
        assert_eq!(
            after,
            format!(
                "out of bounds: 4 bytes behind a block were overwritten, the first 1 bytes past \
                 its last byte{whose}, freed by thread \"loader\""
            )
        );
        let before = text(FindingKind::OutOfBoundsBefore, -8, 4);
        assert!(before.contains("in front of a block") && before.contains("8 bytes before"));
        assert!(text(FindingKind::WriteAfterFree, 12, 4).contains("the first at its byte 12"));
        let twice = text(FindingKind::DoubleFree, 0, 0);
        assert!(twice.ends_with("first freed by thread \"loader\""), "{twice}");
    }
}
