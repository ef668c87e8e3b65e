//! Work of a host device, and how it is done: the same in every mode.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fault::FaultCell;
use crate::{
    Arguments, CopyKind, DeviceCall, DeviceWatcher, DriverError, DriverResult, KernelDefinition,
    LaunchDims, OperationId, RawFunction, RawStream,
};

/// One enqueued kernel, copy or fill.
#[allow(clippy::large_enum_variant)] // most are kernels: boxing would allocate for each
pub(super) enum Operation {
    /// Runs a kernel.
    Kernel { kernel: &'static KernelDefinition, dims: LaunchDims, arguments: Arguments },
    /// Copies bytes; host and device memory are the same here.
    Copy { kind: CopyKind, destination: u64, source: u64, bytes: usize },
    /// Sets bytes.
    Fill { destination: u64, value: u8, bytes: usize },
}

/// An operation that is being watched: by whom, and under which number.
#[derive(Clone, Copy)]
pub(super) struct Watched<'w> {
    pub(super) watcher: &'w dyn DeviceWatcher,
    pub(super) operation: OperationId,
}

impl Operation {
    /// The launch of a kernel that `load_kernel` gave.
    ///
    /// # Safety
    /// `function` came from `load_kernel` of a host device.
    pub(super) unsafe fn launch(
        function: RawFunction,
        dims: LaunchDims,
        arguments: &Arguments,
    ) -> DriverResult<Self> {
        // SAFETY: `load_kernel` gave the address of a `'static`, as the caller promises.
        let kernel = unsafe { &*(function.0 as *const KernelDefinition) };
        if arguments.given() == kernel.parameters.len() {
            return Ok(Self::Kernel { kernel, dims, arguments: arguments.clone() });
        }
        let (name, takes) = (kernel.name, kernel.parameters.len());
        let given = arguments.given();
        let message = format!("kernel {name} takes {takes} arguments, {given} were given");
        Err(DriverError::new("launch", 1, message))
    }

    /// The handle of a kernel.
    pub(super) fn function(kernel: &'static KernelDefinition) -> RawFunction {
        RawFunction(std::ptr::from_ref(kernel) as u64)
    }

    /// What a watcher is told when this is enqueued.
    pub(super) fn call(&self, operation: OperationId, stream: RawStream) -> DeviceCall<'_> {
        match self {
            Self::Kernel { kernel, dims, arguments } => {
                DeviceCall::Launched { operation, stream, kernel, dims: *dims, arguments }
            }
            &Self::Copy { kind, destination, source, bytes } => {
                DeviceCall::Copied { operation, stream, kind, destination, source, bytes }
            }
            &Self::Fill { destination, bytes, .. } => {
                DeviceCall::Filled { operation, stream, destination, bytes }
            }
        }
    }

    /// Runs the operation; on a lost device it is passed over, so that nobody waits forever.
    ///
    /// # Safety
    /// Arguments match, and every range is there until this point of the stream, as whoever
    /// enqueued it promised.
    pub(super) unsafe fn execute(&self, fault: &FaultCell, watched: Option<Watched<'_>>) {
        if fault.is_lost() {
            return;
        }
        if let Some(Watched { watcher, operation }) = watched {
            watcher.started(operation);
        }
        match self {
            Self::Kernel { kernel, dims, arguments } => {
                // SAFETY: the caller's promise.
                let run = || unsafe { kernel.host.run(kernel, arguments, *dims, watched) };
                match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => fault.lose(error.0),
                    Err(panic) => fault.lose(format!(
                        "kernel {} panicked: {}",
                        kernel.name,
                        panic_text(panic.as_ref())
                    )),
                }
            }
            &Self::Copy { destination, source, bytes, .. } => {
                let (may_read, may_write) = watched.map_or((true, true), |watched| {
                    (watched.may_read(source, bytes), watched.may_write(destination, bytes))
                });
                match (may_read, may_write) {
                    // SAFETY: the caller promised both ranges. `copy`, not `copy_nonoverlapping`:
                    // an overlap gives some bytes, not undefined behaviour.
                    (true, true) => unsafe {
                        std::ptr::copy(source as *const u8, destination as *mut u8, bytes);
                    },
                    // SAFETY: the caller promised the destination; the source reads as zeros.
                    (false, true) => unsafe {
                        std::ptr::write_bytes(destination as *mut u8, 0, bytes);
                    },
                    (_, false) => {}
                }
            }
            &Self::Fill { destination, value, bytes } => {
                if watched.is_none_or(|watched| watched.may_write(destination, bytes)) {
                    // SAFETY: the caller promised the range.
                    unsafe { std::ptr::write_bytes(destination as *mut u8, value, bytes) }
                }
            }
        }
        if let Some(Watched { watcher, operation }) = watched {
            watcher.finished(operation);
        }
    }
}

impl Watched<'_> {
    pub(super) fn may_read(&self, address: u64, bytes: usize) -> bool {
        self.watcher.may_read(self.operation, address, bytes)
    }

    pub(super) fn may_write(&self, address: u64, bytes: usize) -> bool {
        self.watcher.may_write(self.operation, address, bytes)
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
