//! Every suite, on the host device.

fn main() {
    xlog_testkit::run(xlog_testkit::TestDevice::Host)
}
