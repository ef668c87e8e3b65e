//! Joins and group-bys on the first GPU. Fails without one; not part of a plain `cargo test`.

mod hash_suites;

use std::sync::Arc;

use xlog_cuda::CudaDevice;

fn main() {
    hash_suites::run(|| Arc::new(CudaDevice::new(0).expect("a GPU")), &[])
}
