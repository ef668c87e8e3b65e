//! Every suite of the trace, on the first GPU. Fails without one; not part of a plain
//! `cargo test`.

mod suites;

fn main() {
    suites::run(xlog_testkit::TestDevice::Cuda)
}
