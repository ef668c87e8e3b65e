//! Every suite, on the first GPU. Fails without one; not part of a plain `cargo test`.

fn main() {
    xlog_testkit::run(xlog_testkit::TestDevice::Cuda)
}
