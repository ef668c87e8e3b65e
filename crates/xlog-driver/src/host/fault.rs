//! The first fault of a device, which every later call repeats.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use crate::{DriverError, DriverResult};

/// CUDA's code for a kernel that failed while it ran.
const LAUNCH_FAILED: i32 = 719;

/// Holds the fault that lost a device, once there is one.
#[derive(Debug, Default)]
pub(super) struct FaultCell {
    lost: AtomicBool,
    fault: OnceLock<DriverError>,
}

impl FaultCell {
    /// Loses the device to a kernel that said `message`; the first one stands.
    pub(super) fn lose(&self, message: String) {
        self.fault.get_or_init(|| DriverError::new("launch", LAUNCH_FAILED, message).sticky());
        self.lost.store(true, Ordering::Release);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The fault, if the device is lost.
    pub(super) fn check(&self) -> DriverResult<()> {
        if !self.is_lost() {
            return Ok(());
        }
        match self.fault.get() {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }
}
