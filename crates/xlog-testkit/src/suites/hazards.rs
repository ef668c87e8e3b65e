//! The five hazards between two streams, each with its producer held back.
//!
//! A scenario runs once with waits and must see the right bytes; and with the driver deaf to event
//! waits, where it must see the wrong ones, every time: that is what shows that the test could
//! fail, and that the device is not polite.

use xlog_cuda::{LaunchDims, device_runtime::StreamId, kernels, memory::TrackedCudaSlice};
use xlog_driver::Arguments;

use super::support::recycled;
use crate::{Gate, Rig, TestCase, TestDevice, cases, fail};

pub(super) const CASES: &[TestCase] = cases![
    read_after_write_waits_for_the_write,
    write_after_read_waits_for_the_read,
    a_writer_waits_for_who_read_its_last_write,
    write_after_write_keeps_the_later_write,
    free_while_in_use_waits_for_the_use,
    first_use_after_allocation_waits_for_the_allocation,
    deaf_read_after_write_is_wrong_every_time,
    deaf_write_after_read_is_wrong_every_time,
    a_deaf_writer_is_wrong_every_time,
    deaf_write_after_write_is_wrong_every_time,
    deaf_free_while_in_use_is_wrong_every_time,
    deaf_first_use_after_allocation_is_wrong_every_time,
];

/// Values in each buffer: enough that the wrong bytes are not an accident.
const LEN: usize = 1024;

/// How often a deaf scenario must go wrong: every time, out of this many.
const DEAF_RUNS: usize = 100;

const OLD: u32 = 0x0011_d000;
const NEW: u32 = 0x00fe_ed00;

/// A hazard: sets the scene with a held producer, opens the gate, and gives the values that must
/// all be `NEW`.
type Scenario = fn(&Rig, [StreamId; 2]) -> Vec<u32>;

/// Whether every value is the one a correct order leaves.
fn is_right(values: &[u32]) -> bool {
    values.len() == LEN && values.iter().all(|value| *value == NEW)
}

fn assert_right(device: TestDevice, scenario: Scenario) {
    let rig = Rig::new(device);
    let streams = rig.streams();
    for round in 0..5 {
        let values = scenario(&rig, streams);
        assert!(is_right(&values), "round {round}: {:x?}…", &values[..8]);
    }
}

fn assert_deaf_is_wrong(device: TestDevice, scenario: Scenario) {
    let rig = Rig::new(device);
    let streams = rig.streams();
    // The kernels are loaded before any stream is held.
    let _ = scenario(&rig, streams);
    rig.driver.set_deaf(true);
    let wrong = (0..DEAF_RUNS).filter(|_| !is_right(&scenario(&rig, streams))).count();
    rig.driver.set_deaf(false);
    assert_eq!(wrong, DEAF_RUNS, "without waits the scenario must go wrong every time");
}

/// Opens the gate once the consumer had every chance to go first.
///
/// With waits the consumer is behind the gate, so waiting for it here would never end: it gets a
/// bounded time. Deaf, it is done within microseconds, and the time is not used up.
fn open_after(rig: &Rig, gate: &Gate, consumer: StreamId) {
    use xlog_driver::{Driver, StreamProgress};
    let raw = rig.pool.resolve(consumer).expect("a stream of the pool");
    for _ in 0..200 {
        // SAFETY: the stream is the pool's, and the pool is alive.
        let progress = unsafe { rig.driver.stream_progress(raw) }.unwrap_or_else(fail);
        if progress == StreamProgress::Idle {
            break;
        }
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
    gate.open();
}

/// What `slice` holds once both streams are idle.
fn settle(rig: &Rig, streams: [StreamId; 2], slice: &TrackedCudaSlice<u32>) -> Vec<u32> {
    for stream in streams {
        rig.runtime.synchronize(stream).unwrap_or_else(fail);
    }
    slice.download().unwrap_or_else(fail)
}

fn read_after_write(rig: &Rig, [a, b]: [StreamId; 2]) -> Vec<u32> {
    let (data, seen) = (rig.filled(LEN, OLD, a), rig.filled(LEN, OLD, b));
    let gate = Gate::new(rig);
    gate.hold(rig, a);
    rig.fill(&data, NEW, a).unwrap_or_else(fail);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    open_after(rig, &gate, b);
    settle(rig, [a, b], &seen)
}

fn write_after_read(rig: &Rig, [a, b]: [StreamId; 2]) -> Vec<u32> {
    let (data, seen) = (rig.filled(LEN, NEW, a), rig.filled(LEN, OLD, a));
    let gate = Gate::new(rig);
    gate.hold(rig, a);
    rig.copy(&data, &seen, a).unwrap_or_else(fail);
    rig.fill(&data, OLD, b).unwrap_or_else(fail);
    open_after(rig, &gate, b);
    settle(rig, [a, b], &seen)
}

/// The same where the writer wrote the block last itself: all it has to follow is the read.
fn write_after_read_of_an_own_write(rig: &Rig, [a, b]: [StreamId; 2]) -> Vec<u32> {
    let (data, seen) = (rig.filled(LEN, NEW, b), rig.filled(LEN, OLD, a));
    let gate = Gate::new(rig);
    gate.hold(rig, a);
    rig.copy(&data, &seen, a).unwrap_or_else(fail);
    rig.fill(&data, OLD, b).unwrap_or_else(fail);
    open_after(rig, &gate, b);
    settle(rig, [a, b], &seen)
}

fn a_writer_waits_for_who_read_its_last_write(device: TestDevice) {
    assert_right(device, write_after_read_of_an_own_write);
}

fn a_deaf_writer_is_wrong_every_time(device: TestDevice) {
    assert_deaf_is_wrong(device, write_after_read_of_an_own_write);
}

fn write_after_write(rig: &Rig, [a, b]: [StreamId; 2]) -> Vec<u32> {
    let data = rig.filled(LEN, OLD, a);
    let gate = Gate::new(rig);
    gate.hold(rig, a);
    rig.fill(&data, OLD, a).unwrap_or_else(fail);
    rig.fill(&data, NEW, b).unwrap_or_else(fail);
    open_after(rig, &gate, b);
    settle(rig, [a, b], &data)
}

/// The block is freed while a held launch on `b` still reads it; the next allocation on `a` gets
/// its address and is overwritten at once. Both streams read it, so that neither follows the other
/// and the free needs a wait wherever it goes.
fn free_while_in_use(rig: &Rig, [a, b]: [StreamId; 2]) -> Vec<u32> {
    let (data, seen) = (rig.filled(LEN, NEW, a), rig.filled(LEN, OLD, b));
    let elsewhere = rig.filled(LEN, OLD, a);
    let address = data.ptr();
    let gate = Gate::new(rig);
    gate.hold(rig, b);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    rig.copy(&data, &elsewhere, a).unwrap_or_else(fail);
    drop(data);
    if let Some(next) = recycled(rig, LEN, a, address) {
        rig.fill(&next, OLD, a).unwrap_or_else(fail);
        open_after(rig, &gate, a);
    } else {
        // Not handed out again while in use: as safe as waiting, and never so on a deaf device.
        gate.open();
    }
    settle(rig, [a, b], &seen)
}

/// The allocation on `a` recycles an address that a held launch on `a` still writes; `b` writes
/// the new block first, unless it waits for the allocation.
fn first_use_after_allocation(rig: &Rig, [a, b]: [StreamId; 2]) -> Vec<u32> {
    let old = rig.filled(LEN, OLD, a);
    let address = old.ptr();
    let gate = Gate::new(rig);
    gate.hold(rig, a);
    rig.fill(&old, OLD, a).unwrap_or_else(fail);
    drop(old);
    let new = recycled(rig, LEN, a, address).expect("reused at once on its own stream");
    let mut arguments = Arguments::new();
    arguments.push_pointer(new.ptr());
    arguments.push_value(NEW);
    arguments.push_value(LEN as u64);
    // The use itself is prepared like any other.
    let block = new.runtime_block().expect("a runtime's slice has a block");
    let id = xlog_cuda::device_runtime::BlockId::from_block(block);
    let access = xlog_core::Access::Write;
    rig.runtime.prepare_block_use(id, b, access).unwrap_or_else(fail);
    rig.launch_raw(&kernels::FILL_U32, &arguments, LaunchDims::for_elements(LEN), b);
    rig.runtime.finish_block_use(id, b, access).unwrap_or_else(fail);
    open_after(rig, &gate, b);
    settle(rig, [a, b], &new)
}

fn read_after_write_waits_for_the_write(device: TestDevice) {
    assert_right(device, read_after_write);
}

fn write_after_read_waits_for_the_read(device: TestDevice) {
    assert_right(device, write_after_read);
}

fn write_after_write_keeps_the_later_write(device: TestDevice) {
    assert_right(device, write_after_write);
}

fn free_while_in_use_waits_for_the_use(device: TestDevice) {
    assert_right(device, free_while_in_use);
}

fn first_use_after_allocation_waits_for_the_allocation(device: TestDevice) {
    assert_right(device, first_use_after_allocation);
}

fn deaf_read_after_write_is_wrong_every_time(device: TestDevice) {
    assert_deaf_is_wrong(device, read_after_write);
}

fn deaf_write_after_read_is_wrong_every_time(device: TestDevice) {
    assert_deaf_is_wrong(device, write_after_read);
}

fn deaf_write_after_write_is_wrong_every_time(device: TestDevice) {
    assert_deaf_is_wrong(device, write_after_write);
}

fn deaf_free_while_in_use_is_wrong_every_time(device: TestDevice) {
    assert_deaf_is_wrong(device, free_while_in_use);
}

fn deaf_first_use_after_allocation_is_wrong_every_time(device: TestDevice) {
    assert_deaf_is_wrong(device, first_use_after_allocation);
}
