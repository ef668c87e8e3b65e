//! Holding a stream back for as long as a test wants.

use std::{sync::Arc, time::Duration};

use xlog_cuda::{LaunchDims, device_runtime::StreamId, kernels};
use xlog_driver::{Arguments, Driver, KernelDefinition};

use crate::{LayeredDriver, Rig, rig::fail};

/// The longest a gate holds: a test that never opens one fails instead of hanging.
const LONGEST: Duration = Duration::from_secs(20);

/// What tests launch while a gate is held.
const USED_WHILE_HELD: [&KernelDefinition; 8] = [
    &kernels::GATE,
    &kernels::SIGNAL,
    &kernels::FILL_U32,
    &kernels::COPY_U32,
    &kernels::INCREMENT_U32,
    &kernels::EMPTY_1,
    &kernels::EMPTY_READ_1,
    &kernels::TOUCH_1,
];

/// A gate that streams can be held behind. It opens when told to, and when it is dropped.
///
/// The gate is a kernel that polls pinned memory, launched past the recorder: to the runtime the
/// stream is just slow.
#[derive(Debug)]
pub struct Gate {
    flag: *mut u32,
    driver: Arc<LayeredDriver>,
}

// SAFETY: the flag is only ever written whole, and read by the device.
unsafe impl Send for Gate {}
// SAFETY: as above; `open` stores one word.
unsafe impl Sync for Gate {}

impl Gate {
    /// A closed gate.
    ///
    /// # Panics
    /// If there is no pinned memory to be had.
    #[must_use]
    pub fn new(rig: &Rig) -> Self {
        let flag = rig.driver.allocate_pinned(4).unwrap_or_else(fail).cast::<u32>();
        let gate = Self { flag, driver: Arc::clone(&rig.driver) };
        gate.store(0);
        // Kernels are loaded now: loading may wait for the device, which a held stream never lets
        // finish.
        for definition in USED_WHILE_HELD {
            let _ = rig.kernel(definition);
        }
        gate
    }

    /// Holds everything that is enqueued on `stream` from here on until the gate opens.
    pub fn hold(&self, rig: &Rig, stream: StreamId) {
        let mut arguments = Arguments::new();
        arguments.push_pointer(self.flag as u64);
        arguments.push_value(LONGEST.as_nanos() as u64);
        rig.launch_raw(&kernels::GATE, &arguments, LaunchDims::linear(1, 1), stream);
    }

    /// The device address of the gate's flag: a kernel that writes anything but zero there opens
    /// the gate.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.flag as u64
    }

    /// Lets every held stream go on.
    pub fn open(&self) {
        self.store(1);
    }

    fn store(&self, value: u32) {
        // SAFETY: the flag is four pinned bytes that live until the gate is dropped.
        unsafe { self.flag.write_volatile(value) }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
        // The kernel may be polling still: the memory goes back once the device is idle, and stays
        // behind if it never is.
        if self.driver.synchronize_device().is_ok() {
            // SAFETY: allocated in `new`, and nothing on the device runs any more.
            let _ = unsafe { self.driver.free_pinned(self.flag.cast()) };
        }
    }
}
