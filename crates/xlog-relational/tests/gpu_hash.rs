//! Joins and group-bys on the first GPU. Fails without one; not part of a plain `cargo test`.

mod suites;

use std::sync::Arc;

use xlog_cuda::CudaDevice;

fn main() {
    suites::run(|| Arc::new(CudaDevice::new(0).expect("a GPU")), &[])
}
