//! Every suite, on the first GPU. Fails without one; not part of a plain `cargo test`.

use std::sync::Arc;

use xlog_cuda::CudaDevice;
use xlog_relational::Engine;

#[allow(unreachable_pub)] // a suite is a module of two test programs, not of a library
mod suites;

fn main() {
    let device = CudaDevice::new(0).expect("a GPU");
    suites::run(&Engine::new(Arc::new(device)).expect("an engine"))
}
