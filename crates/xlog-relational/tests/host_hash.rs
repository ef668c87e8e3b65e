//! Joins and group-bys on the host device, and on the checked one.

mod hash_suites;

use std::sync::Arc;

use xlog_cuda::CudaDevice;

fn main() {
    hash_suites::run(|| Arc::new(CudaDevice::host()), hash_suites::checked::CASES)
}
