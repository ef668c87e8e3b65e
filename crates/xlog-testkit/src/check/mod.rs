//! Programs that nobody wrote, run under simulation and judged from all sides.
//!
//! [`Program::generate`] makes a program from a seed: threads that allocate, launch, copy and free
//! on many streams, over one of several stacks. [`run`] executes it on a simulated device, one turn
//! after the other, and looks at all of it: every byte against a serial run, every access against
//! the independent [oracle](crate::oracle), every wait against the race it prevents, and every
//! counter at the end. The same seed gives the same run. [`shrink`] makes a program that goes
//! wrong as short as it can be, and [`sweep`] runs as many seeds as there is time for.
//!
//! ```
//! use xlog_testkit::check::{Plan, Scrutiny, Shape, sweep};
//!
//! let (shape, scrutiny) = (Shape { streams: 2, ..Shape::default() }, Scrutiny::default());
//! let plan = Plan { shape, first_seed: 1, seeds: 20, scrutiny, workers: 1 };
//! let report = sweep(&plan, &|_| true);
//! assert!(report.culprit.is_none() && report.programs == 20);
//! ```

mod bench;
mod explore;
mod failure;
mod footprint;
mod judge;
mod model;
mod order;
mod plant;
mod program;
mod random;
mod run;
mod shrink;
mod stack;
mod steps;
mod sweep;
mod torture;
mod world;

pub use explore::{Explored, Interleaving, Limits, explore, explore_with, follow};
pub use failure::Failure;
pub use plant::{Plant, plant};
pub use program::{Program, Shape, Step, Stream, Variable, Way, Work, Workload};
pub use random::Draw;
pub use run::{Counts, Outcome, Scrutiny, Turn, run};
pub use shrink::{Culprit, shrink};
pub use stack::Stack;
pub use sweep::{Plan, Report, check_seed, sweep, turns_of};
pub use torture::{Torture, TortureReport, torture};
