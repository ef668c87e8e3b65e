//! The simulated device behind the driver contract.

use std::sync::Arc;

use super::{SimulatedDriver, memory::FRESH, schedule::Entry, touched::bit};
use crate::{
    Arguments, CopyKind, DeviceCall, DeviceInfo, DeviceWatcher, Driver, DriverResult,
    KernelDefinition, LaunchDims, MemoryInfo, OperationId, RawEvent, RawFunction, RawStream,
    StreamProgress, host::operation::Operation,
};

impl Driver for SimulatedDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn watcher(&self) -> Option<Arc<dyn DeviceWatcher>> {
        self.watcher.clone()
    }

    fn memory(&self) -> DriverResult<MemoryInfo> {
        self.fault.check()?;
        let mut schedule = self.schedule.lock();
        schedule.touched.memory = true;
        Ok(schedule.memory.info())
    }

    fn synchronize_device(&self) -> DriverResult<()> {
        let mut schedule = self.schedule.lock();
        self.run_until(&mut schedule, "synchronize_device", None, |schedule| schedule.is_idle())?;
        let before = OperationId(schedule.next_operation);
        self.tell(&DeviceCall::DeviceDone { before });
        Ok(())
    }

    fn create_stream(&self) -> DriverResult<RawStream> {
        self.fault.check()?;
        let mut schedule = self.schedule.lock();
        let stream = schedule.create_stream();
        self.tell(&DeviceCall::StreamCreated { stream });
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> DriverResult<()> {
        let schedule = self.schedule.lock();
        schedule.stream(stream, "destroy_stream")?;
        self.tell(&DeviceCall::StreamDestroyed { stream });
        Ok(())
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> DriverResult<()> {
        let mut schedule = self.schedule.lock();
        let index = schedule.stream(stream, "synchronize_stream")?;
        let tail = schedule.tail(index);
        let done = |now: &super::Schedule| now.is_reached(tail);
        self.run_until(&mut schedule, "synchronize_stream", Some(index), done)?;
        let before = OperationId(schedule.next_operation);
        self.tell(&DeviceCall::StreamDone { stream, before });
        Ok(())
    }

    unsafe fn stream_progress(&self, stream: RawStream) -> DriverResult<StreamProgress> {
        self.fault.check()?;
        let mut schedule = self.asked();
        let index = schedule.stream(stream, "stream_progress")?;
        schedule.touched.asked |= bit(index);
        if schedule.pending(index) > 0 {
            return Ok(StreamProgress::Busy);
        }
        let before = OperationId(schedule.next_operation);
        self.tell(&DeviceCall::StreamDone { stream, before });
        Ok(StreamProgress::Idle)
    }

    unsafe fn is_capturing(&self, _stream: RawStream) -> DriverResult<bool> {
        self.fault.check()?;
        Ok(false)
    }

    fn create_event(&self) -> DriverResult<RawEvent> {
        self.fault.check()?;
        let mut schedule = self.schedule.lock();
        let event = schedule.create_event();
        self.tell(&DeviceCall::EventCreated { event });
        Ok(event)
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> DriverResult<()> {
        let mut schedule = self.schedule.lock();
        schedule.destroy_event(event)?;
        self.tell(&DeviceCall::EventDestroyed { event });
        Ok(())
    }

    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        self.fault.check()?;
        let mut schedule = self.schedule.lock();
        let tail = schedule.tail(schedule.stream(stream, "record_event")?);
        schedule.touched.enqueued |= bit(tail.stream);
        *schedule.event(event, "record_event")? = Some(tail);
        self.tell(&DeviceCall::EventRecorded { event, stream });
        Ok(())
    }

    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        self.fault.check()?;
        let mut schedule = self.schedule.lock();
        let index = schedule.stream(stream, "wait_event")?;
        let place = *schedule.event(event, "wait_event")?;
        self.make_room(&mut schedule, index, "wait_event")?;
        self.tell(&DeviceCall::EventWaited { stream, event });
        schedule.touched.enqueued |= bit(index);
        let kept = |place: &_| schedule.keeps_causes || !schedule.is_reached(*place);
        if let Some(place) = place.filter(kept) {
            schedule.push(index, Entry::Wait(place));
        }
        Ok(())
    }

    unsafe fn event_done(&self, event: RawEvent) -> DriverResult<bool> {
        self.fault.check()?;
        let mut schedule = self.asked();
        let place = *schedule.event(event, "event_done")?;
        schedule.touched.asked |= place.map_or(0, |place| bit(place.stream));
        let done = place.is_none_or(|place| schedule.is_reached(place));
        if done {
            self.tell(&DeviceCall::EventDone { event });
        }
        Ok(done)
    }

    unsafe fn synchronize_event(&self, event: RawEvent) -> DriverResult<()> {
        let mut schedule = self.schedule.lock();
        let place = *schedule.event(event, "synchronize_event")?;
        let done = |now: &_| place.is_none_or(|place| super::Schedule::is_reached(now, place));
        let stream = place.map(|place| place.stream);
        if stream.is_some() {
            self.run_until(&mut schedule, "synchronize_event", stream, done)?;
        }
        self.fault.check()?;
        self.tell(&DeviceCall::EventDone { event });
        Ok(())
    }

    fn allocate(&self, bytes: usize) -> DriverResult<u64> {
        self.fault.check()?;
        let mut schedule = self.asked();
        schedule.asks_for_memory(bytes, None);
        let (address, size) = schedule.memory.allocate(bytes, None, "allocate")?;
        schedule.memory.poison(address, size, FRESH);
        self.tell(&DeviceCall::Allocated { address, bytes, stream: None });
        Ok(address)
    }

    unsafe fn free(&self, pointer: u64) -> DriverResult<()> {
        self.synchronize_device()?;
        // Locked until the watcher knows: the memory's next owner must not come first.
        let mut schedule = self.schedule.lock();
        schedule.touched.memory = true;
        schedule.memory.free(pointer)?;
        self.tell(&DeviceCall::Freed { address: pointer, stream: None });
        Ok(())
    }

    unsafe fn allocate_on(&self, bytes: usize, stream: RawStream) -> DriverResult<u64> {
        self.fault.check()?;
        let mut schedule = self.asked();
        let index = schedule.stream(stream, "allocate_on")?;
        self.make_room(&mut schedule, index, "allocate_on")?;
        schedule.asks_for_memory(bytes, Some(index));
        let (address, size) = schedule.memory.allocate(bytes, Some(index), "allocate_on")?;
        self.tell(&DeviceCall::Allocated { address, bytes, stream: Some(stream) });
        schedule.push(index, Entry::Fresh { address, size });
        Ok(address)
    }

    unsafe fn free_on(&self, pointer: u64, stream: RawStream) -> DriverResult<()> {
        self.fault.check()?;
        let mut schedule = self.schedule.lock();
        let index = schedule.stream(stream, "free_on")?;
        self.make_room(&mut schedule, index, "free_on")?;
        schedule.touched.memory = true;
        let free = schedule.memory.free_on(pointer, index)?;
        self.tell(&DeviceCall::Freed { address: pointer, stream: Some(stream) });
        schedule.push(index, Entry::Freed(free));
        Ok(())
    }

    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8> {
        self.fault.check()?;
        let mut schedule = self.schedule.lock();
        schedule.touched.memory = true;
        let address = schedule.memory.allocate_pinned(bytes)?;
        self.tell(&DeviceCall::PinnedAllocated { address, bytes });
        Ok(address as *mut u8)
    }

    unsafe fn free_pinned(&self, pointer: *mut u8) -> DriverResult<()> {
        let address = pointer as u64;
        let mut schedule = self.schedule.lock();
        schedule.touched.memory = true;
        schedule.memory.free_pinned(address)?;
        self.tell(&DeviceCall::PinnedFreed { address });
        Ok(())
    }

    unsafe fn copy_to_device(
        &self,
        destination: u64,
        source: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let (kind, source) = (CopyKind::ToDevice, source as u64);
        let operation = Operation::Copy { kind, destination, source, bytes };
        self.enqueue(stream, operation, "copy_to_device")
    }

    unsafe fn copy_to_host(
        &self,
        destination: *mut u8,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let (kind, destination) = (CopyKind::ToHost, destination as u64);
        let operation = Operation::Copy { kind, destination, source, bytes };
        self.enqueue(stream, operation, "copy_to_host")
    }

    unsafe fn copy_on_device(
        &self,
        destination: u64,
        source: u64,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        let operation = Operation::Copy { kind: CopyKind::OnDevice, destination, source, bytes };
        self.enqueue(stream, operation, "copy_on_device")
    }

    unsafe fn fill_bytes(
        &self,
        destination: u64,
        value: u8,
        bytes: usize,
        stream: RawStream,
    ) -> DriverResult<()> {
        self.enqueue(stream, Operation::Fill { destination, value, bytes }, "fill_bytes")
    }

    fn load_kernel(&self, kernel: &'static KernelDefinition) -> DriverResult<RawFunction> {
        self.fault.check()?;
        Ok(Operation::function(kernel))
    }

    unsafe fn launch(
        &self,
        function: RawFunction,
        dims: LaunchDims,
        arguments: &Arguments,
        stream: RawStream,
    ) -> DriverResult<()> {
        // SAFETY: the caller passes what `load_kernel` gave.
        let operation = unsafe { Operation::launch(function, dims, arguments) }?;
        self.enqueue(stream, operation, "launch")
    }
}
