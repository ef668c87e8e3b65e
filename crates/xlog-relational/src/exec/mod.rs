//! Plans of several operators, run across streams and threads.
//!
//! A [`Plan`] says which operator reads what; an [`Executor`] runs it. Operators that do not depend
//! on each other run at the same time, on streams of their own. Nothing here orders them on the
//! device: every launch declares the blocks it touches, and the runtime queues the waits. What is
//! ordered here is only which call is made when, since an operator can be called once the tables it
//! reads exist.

mod cancel;
mod executor;
mod plan;

pub use cancel::CancelToken;
pub use executor::{Executor, Progress, Step};
pub use plan::{NodeId, Plan};
