//! Every suite, on the host device.

use std::sync::Arc;

use xlog_cuda::CudaDevice;
use xlog_relational::Engine;

#[allow(unreachable_pub)] // a suite is a module of two test programs, not of a library
mod suites;

fn main() {
    suites::run(&Engine::new(Arc::new(CudaDevice::host())).expect("an engine"))
}
