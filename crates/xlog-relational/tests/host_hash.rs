//! Joins and group-bys on the host device, and on the checked one.

mod suites;

use std::sync::Arc;

use xlog_cuda::CudaDevice;

fn main() {
    suites::run(|| Arc::new(CudaDevice::host()), suites::checked::CASES)
}
