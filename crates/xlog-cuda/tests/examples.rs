//! Every example, on the host device: what the documentation shows is what runs.

// Each example is a program of its own: here its `main` is not called, and each brings the helper
// it would bring when it runs by itself.
#![allow(dead_code, clippy::duplicate_mod)]

use xlog_cuda::CudaDevice;

#[path = "../examples/01_allocate_and_copy.rs"]
mod allocate_and_copy;
#[path = "../examples/05_check_your_own.rs"]
mod check_your_own;
#[path = "../examples/03_eight_threads.rs"]
mod eight_threads;
#[path = "../examples/04_misuse.rs"]
mod misuse;
#[path = "../examples/02_two_streams.rs"]
mod two_streams;

#[test]
fn values_go_to_the_device_and_come_back() {
    allocate_and_copy::run(CudaDevice::host()).expect("01_allocate_and_copy");
}

#[test]
fn two_streams_hand_a_buffer_over() {
    two_streams::run(CudaDevice::host()).expect("02_two_streams");
}

#[test]
fn eight_threads_share_one_runtime() {
    eight_threads::run(CudaDevice::host()).expect("03_eight_threads");
}

#[test]
fn every_misuse_gets_its_error() {
    misuse::run(CudaDevice::host()).expect("04_misuse");
}

#[test]
fn code_of_ones_own_runs_under_simulation() {
    check_your_own::run(CudaDevice::host()).expect("05_check_your_own");
}
