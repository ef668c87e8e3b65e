//! Suites that are one source for both devices.

mod expressions;
#[allow(unreachable_pub)] // a suite is a module of two test programs, not of a library
mod hash;
mod launches;
mod memory;
#[allow(unreachable_pub)]
mod one_table;
#[allow(unreachable_pub)]
mod operators;
#[allow(unreachable_pub)]
mod primitives;
mod tables;

use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestCaseError, TestRunner},
};
use xlog_cuda::CudaDevice;
use xlog_relational::Engine;
use xlog_testkit::{TestCase, TestDevice};

/// The `main` of a test program: every suite, on `device`, with the usual test arguments.
pub(crate) fn run(device: TestDevice) -> ! {
    let suites: [(&str, &[TestCase]); 4] = [
        ("expressions", expressions::CASES),
        ("launches", launches::CASES),
        ("memory", memory::CASES),
        ("tables", tables::CASES),
    ];
    let trials = suites.into_iter().flat_map(|(suite, cases)| {
        cases.iter().map(move |case| {
            let run = case.run;
            Trial::test(format!("{suite}::{}", case.name), move || {
                run(device);
                Ok(())
            })
        })
    });
    let mut trials: Vec<Trial> = trials.collect();
    let engine = engine(device);
    trials.extend(one_table::tests(&engine));
    trials.extend(operators::tests(&engine));
    trials.extend(primitives::tests(&engine));
    trials.extend(hash::tests(&engine, device == TestDevice::Host));
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}

/// An engine over the device's default stack.
fn engine(device: TestDevice) -> Engine {
    let device = CudaDevice::with_driver(device.driver());
    Engine::new(Arc::new(device)).expect("a stack over a working device")
}

/// Holds `property` against `cases` values of a strategy, the same ones in every run.
fn hold<S: Strategy>(
    cases: u32,
    strategy: S,
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let config = Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x5eed),
        ..Config::default()
    };
    #[allow(clippy::panic)] // a property that does not hold fails its test
    if let Err(failure) = TestRunner::new(config).run(&strategy, property) {
        panic!("{failure}");
    }
}
