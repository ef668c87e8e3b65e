//! What calls had to do with the device's progress: what an exploration of all turns asks.

/// Streams as bits, by the order in which they were created; the last bit stands for all from the
/// sixty-fourth on.
pub type Streams = u64;

/// What the calls since the last look had to do with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Streams something was enqueued on, recorded on or made to wait.
    pub enqueued: Streams,
    /// Streams whose progress decided an answer.
    pub asked: Streams,
    /// Streams that were run until a call need not wait any more.
    pub ran: Streams,
    /// Whether memory was taken, given back or asked about.
    pub memory: bool,
}

pub(super) fn bit(stream: usize) -> Streams {
    1 << stream.min(63)
}
