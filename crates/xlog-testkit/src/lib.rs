//! Tests for XLOG's runtime, and the tools to write more of them.
//!
//! A [`Rig`] is a device with everything over it; a [`Gate`] holds a stream back so that a missing
//! wait is wrong every time and not by luck; a [`LayeredDriver`] counts driver calls, fails them by
//! plan, and can be made deaf to event waits. A [`CheckedDevice`] runs a program under a seeded
//! scheduler and an [`oracle`] that sees every missing wait. The [`suites`] use them, on either
//! device, from one source: a test program is one line,
//!
//! ```no_run
//! xlog_testkit::run(xlog_testkit::TestDevice::Host)
//! ```

pub mod check;
pub mod fuzz;
pub mod oracle;
#[cfg(feature = "suites")]
pub mod suites;

mod checked;
mod gate;
#[cfg(feature = "suites")]
mod harness;
mod layer;
mod rig;
mod stall;

pub use checked::CheckedDevice;
pub use gate::Gate;
#[cfg(feature = "suites")]
pub use harness::{TestCase, run};
pub use layer::{DriverCall, INJECTED, LayeredDriver};
pub use rig::{Books, Rig, TestDevice, eventually, fail};
pub use stall::Stall;
