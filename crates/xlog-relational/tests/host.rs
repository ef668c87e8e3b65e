//! Every suite of the relational engine, on the host device.

mod suites;

fn main() {
    suites::run(xlog_testkit::TestDevice::Host)
}
