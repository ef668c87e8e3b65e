//! No more events and no more waits than the rules need: ticks, clocks, and one event a launch.

use std::time::Duration;

use xlog_cuda::{
    LaunchDims,
    device_runtime::{Access, BlockId, BlockUse, DeviceBlock, StreamId},
    kernels,
    launch::{LaunchBuilder, LaunchRecorder},
};

use xlog_driver::Driver;

use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, eventually, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    a_single_stream_records_no_event_at_all,
    a_second_stream_still_waits_for_what_the_first_did_alone,
    a_second_stream_waits_for_older_blocks_that_the_first_used_alone,
    an_acquire_that_fails_leaves_a_single_stream_single,
    back_to_one_stream_events_stop_and_nothing_is_forgotten,
    a_launch_over_eight_blocks_records_exactly_one_event,
    a_batch_records_one_event_and_queues_one_wait_for_each_source,
    eight_readers_and_a_writer_need_one_wait_for_each_foreign_stream,
    several_dependencies_on_one_stream_need_one_wait,
    what_was_waited_for_is_not_waited_for_again,
    a_wait_brings_along_what_its_source_had_followed,
    a_wait_that_another_implies_is_not_queued,
    a_wait_does_not_bring_along_what_its_source_followed_later,
    what_was_synchronised_needs_no_wait,
    a_failed_wait_is_not_taken_for_a_wait,
    hundreds_of_blocks_and_dozens_in_a_launch_are_no_different,
    a_device_that_keeps_up_needs_few_events,
    a_device_that_is_behind_is_asked_ever_less,
    a_loop_over_the_same_blocks_needs_no_more_events_and_asks_nothing,
    a_loop_that_is_left_now_and_then_keeps_its_events,
];

fn free_all(rig: &Rig, blocks: impl IntoIterator<Item = DeviceBlock>) {
    blocks.into_iter().for_each(|block| rig.runtime.deallocate(block).unwrap_or_else(fail));
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn a_single_stream_records_no_event_at_all(device: TestDevice) {
    let rig = Rig::new(device);
    let only = StreamId::DEFAULT;
    let slices = [rig.zeros(64, only), rig.zeros(64, only)];
    for round in 0..20 {
        rig.fill(&slices[0], round, only).unwrap_or_else(fail);
        rig.copy(&slices[0], &slices[1], only).unwrap_or_else(fail);
        rig.increment(&slices[1], 1, only).unwrap_or_else(fail);
        let block = rig.block(4096, only);
        rig.touch(&block, only, Access::ReadWrite);
        rig.runtime.deallocate(block).unwrap_or_else(fail);
    }
    rig.runtime.reap_pending().unwrap_or_else(fail);
    let events = [DriverCall::CreateEvent, DriverCall::RecordEvent, DriverCall::WaitEvent];
    assert_eq!(events.map(|call| rig.driver.count(call)), [0, 0, 0]);
    assert_eq!(slices[1].download().unwrap_or_else(fail), [20; 64]);
}

/// What the first stream did while it was alone has no event of its own; the second stream waits
/// for it all the same.
fn a_second_stream_still_waits_for_what_the_first_did_alone(device: TestDevice) {
    let rig = Rig::new(device);
    let only = StreamId::DEFAULT;
    let (data, seen) = (rig.zeros(512, only), rig.zeros(512, only));
    rig.copy(&data, &seen, only).unwrap_or_else(fail);
    rig.runtime.synchronize(only).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, only);
    rig.fill(&data, 7, only).unwrap_or_else(fail);
    let second = rig.pool.acquire().unwrap_or_else(fail);
    assert_eq!(rig.waits(|| rig.copy(&data, &seen, second).unwrap_or_else(fail)), 1);
    let early = eventually(Duration::from_millis(10), || rig.is_idle(second));
    gate.open();
    assert!(!early, "the second stream did not wait");
    assert_eq!(seen.download().unwrap_or_else(fail), [7; 512]);
}

/// The same for blocks that are older than the time alone: their last write has an event of its
/// own, which says nothing of what the first stream did since.
fn a_second_stream_waits_for_older_blocks_that_the_first_used_alone(device: TestDevice) {
    for reads in [false, true] {
        let rig = Rig::new(device);
        let only = StreamId::DEFAULT;
        let [other] = rig.streams();
        let (data, seen) = (rig.filled(512, 3, only), rig.filled(512, 5, only));
        rig.pool.release(other).unwrap_or_else(fail);
        let gate = Gate::new(&rig);
        gate.hold(&rig, only);
        let alone = if reads { rig.copy(&data, &seen, only) } else { rig.fill(&data, 7, only) };
        alone.unwrap_or_else(fail);
        let second = rig.pool.acquire().unwrap_or_else(fail);
        // A write after what the first stream reads, or a read after what it writes.
        let late = if reads { rig.fill(&data, 9, second) } else { rig.copy(&data, &seen, second) };
        late.unwrap_or_else(fail);
        let early = eventually(Duration::from_millis(10), || rig.is_idle(second));
        gate.open();
        assert!(!early, "the second stream did not wait (reads: {reads})");
        let expected = if reads { 3 } else { 7 };
        assert_eq!(seen.download().unwrap_or_else(fail), [expected; 512], "reads: {reads}");
    }
}

fn an_acquire_that_fails_leaves_a_single_stream_single(device: TestDevice) {
    let rig = Rig::new(device);
    let only = StreamId::DEFAULT;
    let block = rig.block(64, only);
    rig.touch(&block, only, Access::Write);
    rig.driver.fail_after(DriverCall::RecordEvent, 0, 1);
    rig.pool.acquire().expect_err("the first stream's work could not be recorded");
    rig.driver.heal();
    let recorded = rig.driver.count_during(DriverCall::RecordEvent, || {
        rig.touch(&block, only, Access::Write);
    });
    assert_eq!(recorded, 0, "there is still one stream");
    // What the first stream did alone gets its event when the second stream does come.
    let [second] = rig.streams();
    let blocked = rig.driver.count_during(DriverCall::SynchronizeStream, || {
        assert_eq!(rig.waits(|| rig.touch(&block, second, Access::Read)), 1);
    });
    assert_eq!(blocked, 0, "by a wait on the device, not on this thread");
    free_all(&rig, [block]);
}

fn back_to_one_stream_events_stop_and_nothing_is_forgotten(device: TestDevice) {
    let rig = Rig::new(device);
    let only = StreamId::DEFAULT;
    let [second] = rig.streams();
    let block = rig.block(64, only);
    rig.touch(&block, second, Access::Write);
    rig.pool.release(second).unwrap_or_else(fail);
    let recorded = rig.driver.count_during(DriverCall::RecordEvent, || {
        (0..10).for_each(|_| rig.touch(&block, only, Access::Write));
    });
    assert_eq!(recorded, 0, "one stream is left");
    let [third] = rig.streams();
    assert_eq!(rig.waits(|| rig.touch(&block, third, Access::Read)), 1);
    free_all(&rig, [block]);
}

fn a_launch_over_eight_blocks_records_exactly_one_event(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let slices: [_; 8] = std::array::from_fn(|_| rig.zeros(16, a));
    let kernel = rig.kernel(&kernels::TOUCH_8);
    let launch = |stream| {
        let mut launch = LaunchBuilder::new(&rig.runtime, &kernel, stream);
        for slice in &slices {
            launch.in_out(slice);
        }
        launch.value(1u32).launch(LaunchDims::linear(1, 1)).unwrap_or_else(fail);
    };
    for stream in [a, b, a] {
        let recorded = rig.driver.count_during(DriverCall::RecordEvent, || launch(stream));
        assert_eq!(recorded, 1, "on {stream:?}");
    }
    for slice in &slices {
        assert_eq!(slice.download().unwrap_or_else(fail)[0], 3);
    }
}

fn a_batch_records_one_event_and_queues_one_wait_for_each_source(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let blocks: [_; 8] = std::array::from_fn(|index| rig.block(64, [a, b][index % 2]));
    let uses: [_; 8] = std::array::from_fn(|index| {
        let access = [Access::Read, Access::Write, Access::ReadWrite][index % 3];
        BlockUse::new(BlockId::from_block(&blocks[index]), access)
    });
    let queued = rig.waits(|| rig.runtime.prepare_uses(&uses, c).unwrap_or_else(fail));
    assert_eq!(queued, 2, "eight blocks of two streams");
    let recorded = rig.driver.count_during(DriverCall::RecordEvent, || {
        rig.runtime.finish_uses(&uses, c).unwrap_or_else(fail);
    });
    assert_eq!(recorded, 1);
    for (block, one) in blocks.iter().zip(&uses) {
        let expected = if one.access().writes() { 1 } else { 2 };
        assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(expected));
    }
    free_all(&rig, blocks);
}

fn eight_readers_and_a_writer_need_one_wait_for_each_foreign_stream(device: TestDevice) {
    let rig = Rig::new(device);
    let [home, writer] = rig.streams();
    let readers: [StreamId; 8] = rig.streams();
    let block = rig.block(64, home);
    for round in 0..3 {
        for _ in 0..5 {
            readers.iter().for_each(|reader| rig.touch(&block, *reader, Access::Read));
        }
        assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(9));
        let queued = rig.waits(|| rig.touch(&block, writer, Access::Write));
        assert_eq!(queued, 8, "round {round}: one for each reader, the write is implied");
        // And each reader waits for the writer alone, once.
        let queued = rig.waits(|| {
            readers.iter().for_each(|reader| rig.touch(&block, *reader, Access::Read));
        });
        assert_eq!(queued, 8, "round {round}");
    }
    free_all(&rig, [block]);
}

fn several_dependencies_on_one_stream_need_one_wait(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let blocks = [(); 5].map(|()| rig.block(64, a));
    blocks.iter().for_each(|block| rig.touch(block, a, Access::Write));
    let uses =
        blocks.each_ref().map(|block| BlockUse::new(BlockId::from_block(block), Access::Read));
    let queued = rig.waits(|| rig.runtime.prepare_uses(&uses, b).unwrap_or_else(fail));
    assert_eq!(queued, 1, "the latest of them covers the others");
    for block in &blocks {
        assert_eq!(rig.waits(|| rig.touch(block, b, Access::Read)), 0, "all are followed");
    }
    free_all(&rig, blocks);
}

fn what_was_waited_for_is_not_waited_for_again(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (x, y) = (rig.block(64, a), rig.block(64, a));
    rig.touch(&x, a, Access::Write);
    rig.touch(&y, a, Access::Write);
    assert_eq!(rig.waits(|| rig.touch(&y, b, Access::Read)), 1);
    assert_eq!(rig.waits(|| rig.touch(&x, b, Access::Read)), 0, "an earlier point of a");
    assert_eq!(rig.waits(|| rig.touch(&y, b, Access::Write)), 0);
    rig.touch(&x, a, Access::Read);
    assert_eq!(rig.waits(|| rig.touch(&x, b, Access::Write)), 1, "a later point of a");
    free_all(&rig, [x, y]);
}

fn a_wait_brings_along_what_its_source_had_followed(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let (x, y) = (rig.block(64, a), rig.block(64, b));
    rig.touch(&x, a, Access::Write);
    rig.touch(&x, b, Access::Read);
    rig.touch(&y, b, Access::Write);
    assert_eq!(rig.waits(|| rig.touch(&y, c, Access::Read)), 1, "b's write");
    assert_eq!(rig.waits(|| rig.touch(&x, c, Access::Read)), 0, "b followed a's write");
    assert_eq!(rig.waits(|| rig.touch(&x, c, Access::Write)), 0, "and was itself followed");
    free_all(&rig, [x, y]);
}

fn a_wait_that_another_implies_is_not_queued(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let (x, y) = (rig.block(64, a), rig.block(64, b));
    rig.touch(&x, a, Access::Write);
    rig.touch(&x, b, Access::Read);
    rig.touch(&y, b, Access::Write);
    let uses = [&x, &y].map(|block| BlockUse::new(BlockId::from_block(block), Access::Read));
    let queued = rig.waits(|| rig.runtime.prepare_uses(&uses, c).unwrap_or_else(fail));
    assert_eq!(queued, 1, "b's event follows a's write");
    free_all(&rig, [x, y]);
}

/// An event keeps the clock of its record: `b` wrote y before it followed `a`, so waiting for that
/// write says nothing of `a`.
fn a_wait_does_not_bring_along_what_its_source_followed_later(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let (x, y) = (rig.block(64, a), rig.block(64, b));
    rig.touch(&y, b, Access::Write);
    rig.touch(&x, a, Access::Write);
    rig.touch(&x, b, Access::Read);
    assert_eq!(rig.waits(|| rig.touch(&y, c, Access::Read)), 1);
    assert_eq!(rig.waits(|| rig.touch(&x, c, Access::Read)), 1, "a's write is still ahead");
    free_all(&rig, [x, y]);
}

fn what_was_synchronised_needs_no_wait(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let block = rig.block(64, a);
    rig.touch(&block, a, Access::Write);
    rig.runtime.synchronize(a).unwrap_or_else(fail);
    assert_eq!(rig.waits(|| rig.touch(&block, b, Access::Write)), 0);
    rig.touch(&block, a, Access::Read);
    assert_eq!(rig.waits(|| rig.touch(&block, b, Access::Write)), 1, "not known to be done");
    free_all(&rig, [block]);
}

fn a_failed_wait_is_not_taken_for_a_wait(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let block = rig.block(64, a);
    rig.touch(&block, c, Access::Read);
    let id = BlockId::from_block(&block);
    for failing in [0, 1] {
        rig.driver.fail_after(DriverCall::WaitEvent, failing, 1);
        let queued = rig.waits(|| {
            rig.runtime.finish_block_use(id, a, Access::Read).unwrap_or_else(fail);
            rig.runtime
                .prepare_block_use(id, b, Access::Write)
                .expect_err("a wait could not be queued");
        });
        assert_eq!(queued, failing + 1);
        let queued = rig.waits(|| {
            rig.runtime.prepare_block_use(id, b, Access::Write).unwrap_or_else(fail);
        });
        assert_eq!(queued, 2 - failing, "only what was queued is followed");
        rig.touch(&block, c, Access::Read);
        rig.touch(&block, a, Access::Read);
    }
    free_all(&rig, [block]);
}

fn hundreds_of_blocks_and_dozens_in_a_launch_are_no_different(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let blocks: Vec<_> = (0..700).map(|_| rig.zeros(16, a)).collect();
    let touch = rig.kernel(&kernels::TOUCH_8);
    let launch = |stream| {
        let mut builder = LaunchBuilder::new(&rig.runtime, &touch, stream);
        blocks[600..608].iter().for_each(|block| {
            builder.in_out(block);
        });
        // More than a ticket has room for without growing, from all over the table.
        blocks.iter().step_by(20).for_each(|block| {
            builder.also(Access::ReadWrite, block);
        });
        builder.value(1u32).launch(LaunchDims::linear(1, 1)).unwrap_or_else(fail);
    };
    launch(a);
    for stream in [b, a, b] {
        let records = rig.driver.count(DriverCall::RecordEvent);
        assert_eq!(rig.waits(|| launch(stream)), 1, "one source, one wait");
        assert_eq!(rig.driver.count(DriverCall::RecordEvent) - records, 1);
    }
    let mut all = LaunchRecorder::new_strict(a);
    blocks.iter().for_each(|block| {
        all.read(block);
    });
    all.preflight(&rig.runtime).unwrap_or_else(fail);
    let mut one = LaunchRecorder::new_strict(b);
    one.write(&blocks[699]).preflight(&rig.runtime).expect_err("claimed with all the others");
    all.commit(&rig.runtime).unwrap_or_else(fail);
    one.preflight(&rig.runtime).unwrap_or_else(fail);
    one.commit(&rig.runtime).unwrap_or_else(fail);
    assert!(blocks[600..608].iter().all(|block| block.download().unwrap_or_else(fail)[0] == 4));
}

/// Launches on one of two streams, over three blocks in turn, so that none replaces the one before
/// it; in fours that the device is done with, unknown to the tracker.
fn a_device_that_keeps_up_needs_few_events(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let blocks = [(); 3].map(|()| rig.zeros(64, stream));
    let launches = 4_000;
    let asked = rig.driver.count_during(DriverCall::EventDone, || {
        for launch in 0..launches {
            rig.increment(&blocks[launch % 3], 1, stream).unwrap_or_else(fail);
            if launch % 4 == 3 {
                assert!(eventually(Duration::from_secs(10), || rig.is_idle(stream)));
            }
        }
    });
    let events = rig.driver.count(DriverCall::CreateEvent);
    assert!(events <= 300, "{events} events go round");
    assert!((1..=launches as u64 / 150).contains(&asked), "asked {asked} times");
    let sums = blocks.map(|block| block.download().unwrap_or_else(fail)[63]);
    assert_eq!(sums.iter().sum::<u32>(), launches as u32);
}

/// Launches `launches` times, with `launch`, behind a gate; answers how often the device was asked,
/// and how many events were made.
fn behind_a_gate(
    rig: &Rig,
    stream: StreamId,
    launches: usize,
    launch: impl Fn(usize),
) -> (u64, u64) {
    // What there is to load is loaded before the device stands still.
    launch(0);
    rig.runtime.synchronize(stream).unwrap_or_else(fail);
    let gate = Gate::new(rig);
    gate.hold(rig, stream);
    let made = rig.driver.count(DriverCall::CreateEvent);
    let asked = rig.driver.count_during(DriverCall::EventDone, || (1..launches).for_each(&launch));
    let made = rig.driver.count(DriverCall::CreateEvent) - made;
    gate.open();
    (asked, made)
}

fn a_device_that_is_behind_is_asked_ever_less(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let blocks = [(); 3].map(|()| rig.zeros(64, stream));
    // No more than a stream takes without waiting for room.
    let launch = |i: usize| rig.increment(&blocks[i % 3], 1, stream).unwrap_or_else(fail);
    let (asked, made) = behind_a_gate(&rig, stream, 800, launch);
    assert!((1..=9).contains(&asked), "asked {asked} times, for nothing");
    assert!(made >= 600, "{made} more events for 800 launches that may be waited for");
    let sums = blocks.map(|block| block.download().unwrap_or_else(fail)[63]);
    assert_eq!(sums.iter().sum::<u32>(), 800);
}

/// Each launch replaces the one before it: nobody can wait for that one any more, so that its event
/// goes round though the device has not passed it.
fn a_loop_over_the_same_blocks_needs_no_more_events_and_asks_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream, other] = rig.streams();
    let (data, copy) = (rig.zeros(64, stream), rig.zeros(64, stream));
    for write in [true, false] {
        let launch = |_| match write {
            true => rig.increment(&data, 1, stream).unwrap_or_else(fail),
            false => rig.copy(&data, &copy, stream).unwrap_or_else(fail),
        };
        let (asked, made) = behind_a_gate(&rig, stream, 600, launch);
        assert_eq!((asked, made), (0, 0), "writing: {write}");
        // And the last one is waited for, and all before it by that.
        assert_eq!(rig.waits(|| rig.increment(&data, 1, other).unwrap_or_else(fail)), 1);
        assert_eq!(rig.waits(|| rig.increment(&data, 1, stream).unwrap_or_else(fail)), 1);
    }
    assert_eq!(data.download().unwrap_or_else(fail), [604; 64]);
    assert_eq!(copy.download().unwrap_or_else(fail), [602; 64]);
}

/// Most launches replace the one before them, and leave the tracker in the dark about how far the
/// device is; some do not, and their events stand until it is asked. The device stays some hundred
/// launches behind, so that whatever is recent is not done, and whatever is old is.
fn a_loop_that_is_left_now_and_then_keeps_its_events(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let (data, other) = (rig.zeros(64, stream), rig.zeros(64, stream));
    rig.increment(&data, 1, stream).unwrap_or_else(fail);
    rig.runtime.synchronize(stream).unwrap_or_else(fail);
    let raw = rig.pool.resolve(stream).expect("a stream of the pool");
    let event = rig.driver.create_event().unwrap_or_else(fail);
    // All of them beforehand: memory that both sides see is not made while the device stands still.
    let gates: Vec<Gate> = (0..60).map(|_| Gate::new(&rig)).collect();
    for (round, gate) in gates.iter().enumerate() {
        // SAFETY: both are this driver's and alive.
        unsafe { rig.driver.record_event(event, raw) }.unwrap_or_else(fail);
        gate.hold(&rig, stream);
        if round > 0 {
            gates[round - 1].open();
        }
        // SAFETY: as above.
        let passed = || unsafe { rig.driver.event_done(event) }.unwrap_or_else(fail);
        assert!(eventually(Duration::from_secs(10), passed), "the device is not behind for good");
        for launch in 0..100 {
            let block = if (100 * round + launch) % 250 == 0 { &other } else { &data };
            rig.increment(block, 1, stream).unwrap_or_else(fail);
        }
    }
    gates.iter().for_each(Gate::open);
    let events = rig.driver.count(DriverCall::CreateEvent);
    assert!(events <= 300, "{events} events go round");
    assert_eq!(data.download().unwrap_or_else(fail), [6_000 - 24 + 1; 64]);
    // SAFETY: nobody uses it any more.
    unsafe { rig.driver.destroy_event(event) }.unwrap_or_else(fail);
}
