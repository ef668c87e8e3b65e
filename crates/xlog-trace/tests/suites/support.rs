//! A traced device, work for it, and a way to hold a stream back.

use std::{sync::Arc, time::Duration};

use xlog_cuda::{
    CudaDevice, LaunchDims,
    device_runtime::{AllocTag, DeviceStack, ResourceStack, StreamId, XlogDeviceRuntime},
    kernels,
    launch::LaunchBuilder,
    memory::TrackedCudaSlice,
};
use xlog_driver::Arguments;
use xlog_testkit::TestDevice;
use xlog_trace::Trace;

/// Values of a buffer.
pub(crate) const LENGTH: usize = 1000;

/// The longest a stream is held: a test that never lets go fails instead of hanging.
const LONGEST: Duration = Duration::from_secs(20);

/// A trace, and the default stack over it.
pub(crate) fn traced(device: TestDevice) -> (Trace, DeviceStack) {
    let trace = Trace::new(device.driver());
    let stack = CudaDevice::with_driver(trace.driver()).into_stack().expect("a stack");
    (trace, stack)
}

/// The same over the driver's allocator alone.
pub(crate) fn traced_without_pool(device: TestDevice) -> (Trace, DeviceStack) {
    let trace = Trace::new(device.driver());
    let device = Arc::new(CudaDevice::with_driver(trace.driver()));
    (trace, ResourceStack::over_driver(device).build().expect("a stack"))
}

/// Streams of the stack's pool.
pub(crate) fn streams<const N: usize>(stack: &DeviceStack) -> [StreamId; N] {
    std::array::from_fn(|_| stack.streams().acquire().expect("room for a stream"))
}

/// Memory for `LENGTH` values.
pub(crate) fn buffer(
    stack: &DeviceStack,
    stream: StreamId,
    tag: &'static str,
) -> TrackedCudaSlice<u32> {
    stack.manager().alloc_on(LENGTH, stream, AllocTag(tag)).expect("memory")
}

/// Launches a kernel that fills a buffer.
pub(crate) fn fill(
    runtime: &XlogDeviceRuntime,
    data: &TrackedCudaSlice<u32>,
    value: u32,
    stream: StreamId,
) {
    let kernel = runtime.load_kernel(&kernels::FILL_U32).expect("a kernel");
    LaunchBuilder::new(runtime, &kernel, stream)
        .output(data)
        .value(value)
        .value(data.len() as u64)
        .launch(LaunchDims::for_elements(data.len()))
        .expect("a launch");
}

/// Streams held back until this is dropped, each by a kernel that polls pinned memory and is
/// launched past the recorder: to the runtime the streams are just slow.
pub(crate) struct Held<'s> {
    runtime: &'s XlogDeviceRuntime,
    flag: *mut u32,
}

impl<'s> Held<'s> {
    pub(crate) fn new(runtime: &'s XlogDeviceRuntime, streams: &[StreamId]) -> Self {
        let flag = runtime.device().driver().allocate_pinned(4).expect("pinned memory");
        let flag = flag.cast::<u32>();
        // SAFETY: four pinned bytes that nobody uses yet.
        unsafe { flag.write_volatile(0) };
        // Loaded first: loading may wait for the device, which a held stream never lets finish.
        runtime.load_kernel(&kernels::FILL_U32).expect("a kernel");
        let gate = runtime.load_kernel(&kernels::GATE).expect("a kernel");
        let mut arguments = Arguments::new();
        arguments.push_pointer(flag as u64);
        arguments.push_value(LONGEST.as_nanos() as u64);
        let dims = LaunchDims::linear(1, 1);
        for stream in streams {
            // SAFETY: the arguments are the kernel's, and the flag outlives it: see `drop`.
            unsafe { runtime.enqueue(&gate, dims, &arguments, *stream) }.expect("a launch");
        }
        Self { runtime, flag }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: the flag lives until the end of this function.
        unsafe { self.flag.write_volatile(1) };
        let driver = self.runtime.device().driver();
        if driver.synchronize_device().is_ok() {
            // SAFETY: nothing on the device runs any more.
            let _ = unsafe { driver.free_pinned(self.flag.cast()) };
        }
    }
}
