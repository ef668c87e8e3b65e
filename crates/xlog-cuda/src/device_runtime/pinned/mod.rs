//! Page-locked host memory: what the device copies from and to without a detour.
//!
//! [`PinnedHostResource`] asks the driver for each buffer, and gives it back at once, which waits
//! for the device. [`PinnedPoolResource`] keeps buffers for the next one: every runtime has one,
//! which its uploads and downloads go through.
//!
//! Ordering: a buffer belongs to whoever has it, and while a copy uses it, to that copy. A buffer
//! that is handed back in the middle of a copy takes the event behind the copy along, and nobody
//! gets it before that event is done. The pool asks about events, and never waits for one.
//!
//! Validation: sizes are checked here; addresses are trusted, because nobody else makes buffers.

mod buffer;
mod last_copy;
mod options;
mod pool;
mod resource;
mod shelf;

pub(crate) use self::last_copy::LastCopy;
pub use self::{
    buffer::PinnedBuffer,
    options::{PinnedPoolOptions, PinnedReport},
    pool::PinnedPoolResource,
    resource::PinnedHostResource,
};
