//! A driver whose launches, records and waits cost nothing: what is left of a recorded launch is
//! the runtime's own bookkeeping.

use xlog_driver::{
    Arguments, DeviceInfo, Driver, DriverResult, KernelDefinition, LaunchDims, MemoryInfo,
    RawEvent, RawFunction, RawStream, StreamProgress, host::HostDriver,
};

/// The host device's memory and copies; launches, events and waits do nothing at all.
#[derive(Debug)]
pub(super) struct IdleDriver(pub(super) HostDriver);

/// Passes a call on to the host device.
macro_rules! to_host {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        $(fn $name(&self $(, $argument: $type)*) -> $answer {
            self.0.$name($($argument),*)
        })*
    };
}

/// The same for the calls whose promises are the caller's.
macro_rules! to_host_promised {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        $(unsafe fn $name(&self $(, $argument: $type)*) -> $answer {
            // SAFETY: the caller's promises are the host device's, word for word.
            unsafe { self.0.$name($($argument),*) }
        })*
    };
}

impl Driver for IdleDriver {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    to_host! {
        fn memory(&self) -> DriverResult<MemoryInfo>;
        fn synchronize_device(&self) -> DriverResult<()>;
        fn create_stream(&self) -> DriverResult<RawStream>;
        fn allocate(&self, bytes: usize) -> DriverResult<u64>;
        fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8>;
        fn load_kernel(&self, kernel: &'static KernelDefinition) -> DriverResult<RawFunction>;
    }
    to_host_promised! {
        fn destroy_stream(&self, stream: RawStream) -> DriverResult<()>;
        fn synchronize_stream(&self, stream: RawStream) -> DriverResult<()>;
        fn stream_progress(&self, stream: RawStream) -> DriverResult<StreamProgress>;
        fn free(&self, pointer: u64) -> DriverResult<()>;
        fn allocate_on(&self, bytes: usize, stream: RawStream) -> DriverResult<u64>;
        fn free_on(&self, pointer: u64, stream: RawStream) -> DriverResult<()>;
        fn free_pinned(&self, pointer: *mut u8) -> DriverResult<()>;
        fn copy_to_device(
            &self, to: u64, from: *const u8, bytes: usize, stream: RawStream
        ) -> DriverResult<()>;
        fn copy_to_host(
            &self, to: *mut u8, from: u64, bytes: usize, stream: RawStream
        ) -> DriverResult<()>;
        fn copy_on_device(
            &self, to: u64, from: u64, bytes: usize, stream: RawStream
        ) -> DriverResult<()>;
        fn fill_bytes(
            &self, to: u64, value: u8, bytes: usize, stream: RawStream
        ) -> DriverResult<()>;
    }

    unsafe fn is_capturing(&self, _: RawStream) -> DriverResult<bool> {
        Ok(false)
    }
    fn create_event(&self) -> DriverResult<RawEvent> {
        Ok(RawEvent(1))
    }
    unsafe fn destroy_event(&self, _: RawEvent) -> DriverResult<()> {
        Ok(())
    }
    unsafe fn record_event(&self, _: RawEvent, _: RawStream) -> DriverResult<()> {
        Ok(())
    }
    unsafe fn wait_event(&self, _: RawStream, _: RawEvent) -> DriverResult<()> {
        Ok(())
    }
    unsafe fn event_done(&self, _: RawEvent) -> DriverResult<bool> {
        Ok(true)
    }
    unsafe fn synchronize_event(&self, _: RawEvent) -> DriverResult<()> {
        Ok(())
    }
    unsafe fn launch(
        &self,
        _: RawFunction,
        _: LaunchDims,
        _: &Arguments,
        _: RawStream,
    ) -> DriverResult<()> {
        Ok(())
    }
}
