//! Every suite of the trace, on the host device.

mod suites;

fn main() {
    suites::run(xlog_testkit::TestDevice::Host)
}
