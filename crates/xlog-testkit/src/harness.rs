//! Runs every suite on one device, as an ordinary test program.

use libtest_mimic::{Arguments, Failed, Trial};
use xlog_driver::cuda::CudaDriver;

use crate::{TestDevice, suites};

/// One test of a suite.
#[derive(Clone, Copy, Debug)]
pub struct TestCase {
    /// What it shows.
    pub name: &'static str,
    /// Shows it, or panics.
    pub run: fn(TestDevice),
}

/// Lists the functions of a suite as its tests. One that is not listed is dead code, which the
/// build refuses.
#[macro_export]
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$($crate::TestCase { name: stringify!($name), run: $name }),*]
    };
}

/// The `main` of a test program: every suite, on `device`, with the usual test arguments.
pub fn run(device: TestDevice) -> ! {
    let trials = suites::all()
        .flat_map(|(suite, cases)| {
            cases.iter().map(move |case| {
                let run = case.run;
                Trial::test(format!("{suite}::{}", case.name), move || run_one(run, device))
            })
        })
        .collect();
    let arguments = Arguments::from_args();
    // A context takes most of a second to make, and goes with its last user: this one stays from
    // test to test. Without a GPU there is none, as every test then says.
    let held = (device == TestDevice::Cuda && !arguments.list).then(|| CudaDriver::open(0));
    let answer = libtest_mimic::run(&arguments, trials);
    drop(held);
    answer.exit()
}

fn run_one(run: fn(TestDevice), device: TestDevice) -> Result<(), Failed> {
    run(device);
    Ok(())
}
