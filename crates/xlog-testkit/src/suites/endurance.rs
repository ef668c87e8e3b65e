//! Long runs: nothing grows with the number of launches.

use std::process::Command;

use xlog_cuda::{
    LaunchDims,
    device_runtime::{AllocTag, StreamId},
    kernels,
    launch::LaunchBuilder,
    memory::TrackedCudaSlice,
};

use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, fail};

pub(super) const CASES: &[TestCase] = cases![
    a_million_launches_leave_everything_where_it_was,
    readers_are_counted_by_stream_and_not_by_launch,
];

/// Set in the process that measures: memory can be seen to be flat only where nothing else runs.
const CHILD: &str = "XLOG_TESTKIT_ENDURANCE_CHILD";

/// What that process says at its end, so that one in which nothing ran is not taken for success.
const FLAT: &str = "memory stayed flat";

/// Memory may differ by as much from one measurement to the next: allocator caches, thread stacks.
const SLACK: usize = 4 << 20;

const READERS: usize = 6;

fn a_million_launches_leave_everything_where_it_was(device: TestDevice) {
    if std::env::var_os(CHILD).is_some() {
        return endure(device);
    }
    let program = std::env::current_exe().expect("a test program has a path");
    let name = "endurance::a_million_launches_leave_everything_where_it_was";
    let child = Command::new(program).args(["--exact", name]).env(CHILD, "1").output();
    let child = child.unwrap_or_else(fail);
    let output = [child.stdout, child.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    assert!(child.status.success() && output.contains(FLAT), "{output}");
}

/// What is back where it was: events, streams and blocks, of the tracker and of the driver.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    blocks: usize,
    streams: usize,
    events_in_flight: usize,
    events_idle: usize,
    driver_events: u64,
    driver_streams: u64,
    driver_memory: u64,
    bytes: usize,
}

impl Held {
    fn of(rig: &Rig, streams: &[StreamId]) -> Self {
        for stream in streams.iter().chain(&[StreamId::DEFAULT]) {
            rig.runtime.synchronize(*stream).unwrap_or_else(fail);
        }
        rig.runtime.reap_pending().unwrap_or_else(fail);
        rig.pool.trim().unwrap_or_else(fail);
        let stats = rig.pool.stats();
        let left = |made, gone| rig.driver.count(made) - rig.driver.count(gone);
        Self {
            blocks: stats.blocks,
            streams: stats.streams,
            events_in_flight: stats.events_in_flight,
            events_idle: stats.events_idle,
            driver_events: left(DriverCall::CreateEvent, DriverCall::DestroyEvent),
            driver_streams: left(DriverCall::CreateStream, DriverCall::DestroyStream),
            driver_memory: left(DriverCall::AllocateOn, DriverCall::FreeOn),
            bytes: rig.runtime.bytes_outstanding(),
        }
    }
}

/// Resident memory of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_else(fail);
    let pages: usize = text.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
    pages * 4096
}

/// `launches` launches: mostly on one stream, with a hop to the next and a passing block every so
/// often, so that events, waits, claims and frees all take part.
fn run(rig: &Rig, streams: &[StreamId], blocks: &[TrackedCudaSlice<u32>], launches: usize) {
    let kernel = rig.kernel(&kernels::EMPTY_1);
    let dims = LaunchDims::linear(1, 1);
    for number in 0..launches {
        let stream = streams[number / 64 % streams.len()];
        let block = &blocks[number % blocks.len()];
        let mut builder = LaunchBuilder::new(&rig.runtime, &kernel, stream);
        builder.in_out(block);
        builder.launch(dims).unwrap_or_else(fail);
        if number % 512 == 0 {
            let passing = rig.manager.alloc_on::<u32>(64, stream, AllocTag("passing"));
            let passing = passing.unwrap_or_else(fail);
            let elsewhere = streams[(number / 64 + 1) % streams.len()];
            let mut builder = LaunchBuilder::new(&rig.runtime, &kernel, elsewhere);
            builder.in_out(&passing);
            builder.launch(dims).unwrap_or_else(fail);
        }
        if number % 65_536 == 0 {
            rig.runtime.try_reap().unwrap_or_else(fail);
        }
    }
}

fn endure(device: TestDevice) {
    let launches = match device {
        TestDevice::Host => 1_000_000,
        TestDevice::Cuda => 100_000,
    };
    let rig = Rig::new(device);
    let streams: [StreamId; 4] = rig.streams();
    let blocks: [_; 8] = std::array::from_fn(|i| rig.zeros(64, streams[i % 4]));
    run(&rig, &streams, &blocks, launches / 10);
    let (held, memory) = (Held::of(&rig, &streams), resident());
    assert_eq!((held.events_in_flight, held.events_idle, held.driver_events), (0, 0, 0));
    run(&rig, &streams, &blocks, launches);
    // Before anything is tidied up, too: nothing piles up that only a clean-up would remove.
    let busy = resident();
    assert_eq!(Held::of(&rig, &streams), held);
    let after = resident();
    assert!(busy < memory + SLACK, "{memory} bytes before, {busy} while running");
    assert!(after < memory + SLACK, "{memory} bytes before, {after} after");
    assert!(rig.driver.count(DriverCall::Launch) as usize > launches + launches / 10);
    println!("{FLAT}: {memory} bytes before, {busy} while running, {after} after");
}

fn readers_are_counted_by_stream_and_not_by_launch(device: TestDevice) {
    let rig = Rig::new(device);
    let readers: [StreamId; READERS] = rig.streams();
    let [writer] = rig.streams();
    let data = rig.zeros(64, writer);
    let read = rig.kernel(&kernels::EMPTY_READ_1);
    let write = rig.kernel(&kernels::EMPTY_1);
    let dims = LaunchDims::linear(1, 1);
    let read_on = |stream| {
        let mut builder = LaunchBuilder::new(&rig.runtime, &read, stream);
        builder.input(&data);
        builder.launch(dims).unwrap_or_else(fail);
    };
    let write_on = |stream| {
        let waits = rig.driver.count(DriverCall::WaitEvent);
        let mut builder = LaunchBuilder::new(&rig.runtime, &write, stream);
        builder.in_out(&data);
        builder.launch(dims).unwrap_or_else(fail);
        (rig.driver.count(DriverCall::WaitEvent) - waits) as usize
    };
    let count = || rig.resource.pending_use_event_count(data.ptr());
    for number in 0..100_000 {
        read_on(readers[number % READERS]);
        if number % 1000 == 999 {
            assert_eq!(count(), Some(1 + READERS), "after {number} reads");
        }
    }
    assert!(write_on(writer) <= READERS, "at most one wait for each foreign stream");
    assert_eq!(count(), Some(1));
    // With every reader held back none is known to be done: exactly one wait each.
    let gate = Gate::new(&rig);
    for stream in readers {
        gate.hold(&rig, stream);
        (0..100).for_each(|_| read_on(stream));
    }
    assert_eq!(count(), Some(1 + READERS));
    assert_eq!(write_on(writer), READERS);
    assert_eq!(write_on(writer), 0, "they are followed now");
    assert_eq!(count(), Some(1));
    gate.open();
    rig.runtime.fence().unwrap_or_else(fail);
    // A free of a block with that many readers is no more work than the write was.
    let waits = rig.driver.count(DriverCall::WaitEvent);
    (0..1000).for_each(|number| read_on(readers[number % READERS]));
    let before_free = rig.driver.count(DriverCall::WaitEvent);
    assert!(before_free - waits <= READERS as u64);
    drop(data);
    assert!(rig.driver.count(DriverCall::WaitEvent) - before_free <= READERS as u64);
}
