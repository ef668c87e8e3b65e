//! Suites that are one source for both devices.

mod memory;
mod outputs;
mod support;
mod times;
mod waits;

use libtest_mimic::{Arguments, Trial};
use xlog_testkit::{TestCase, TestDevice};

/// The `main` of a test program: every suite, on `device`, with the usual test arguments.
pub(crate) fn run(device: TestDevice) -> ! {
    let suites: [(&str, &[TestCase]); 4] = [
        ("memory", memory::CASES),
        ("outputs", outputs::CASES),
        ("times", times::CASES),
        ("waits", waits::CASES),
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
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit()
}
