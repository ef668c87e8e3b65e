//! Rules 1 to 5 and 8: what waits for what, with the producer held back where it matters.
//!
//! Counts are exact: the runtime learns that work is done only by waiting for it, so whether the
//! device has run ahead does not change them.

use std::time::Duration;

use xlog_cuda::{
    LaunchDims,
    device_runtime::{Access, AllocTag, BlockId, DeviceBlock, StreamId},
    kernels,
    launch::LaunchRecorder,
    memory::TrackedCudaSlice,
};
use xlog_driver::Arguments;

use super::super::support::warm_up;
use crate::{Gate, Rig, TestCase, TestDevice, cases, eventually, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    rule_1_a_read_waits_for_the_last_write_and_not_for_other_reads,
    rule_1_a_write_waits_for_the_last_write_and_every_read_since,
    rule_1_a_held_reader_on_any_stream_holds_the_writer,
    rule_1_a_held_writer_holds_readers_on_every_stream,
    rule_1_a_launch_waits_for_the_latest_write_of_its_blocks,
    rule_2_work_on_the_stream_that_made_the_dependency_needs_no_wait,
    rule_3_the_first_use_on_another_stream_waits_for_the_allocation,
    rule_3_the_allocation_holds_a_first_use_back_until_its_stream_is_there,
    rule_4_a_write_replaces_the_write_and_the_reads_it_followed,
    rule_4_a_write_without_preparation_keeps_the_reads,
    rule_4_a_write_without_preparation_keeps_the_write_before_it,
    rule_4_a_held_read_is_not_forgotten_by_an_unprepared_write,
    rule_5_a_free_waits_for_the_last_write_and_all_reads,
    rule_5_a_free_on_a_stream_that_follows_every_use_needs_no_wait,
    rule_5_memory_is_not_reused_while_any_reader_is_held,
    rule_5_an_unprepared_writes_predecessor_holds_the_free_too,
    rule_8_a_wait_does_not_cover_work_enqueued_after_the_use,
    rule_8_a_wait_is_for_its_own_event_behind_hundreds_of_later_ones,
    rule_8_an_event_is_recorded_again_only_when_no_block_names_its_launch,
    rule_8_a_wait_for_an_allocation_does_not_cover_later_work,
    rule_8_a_kernel_that_ends_after_the_reader_does_not_hang,
];

const LEN: usize = 512;
/// Long enough for any device to get done what it can.
const PLENTY: Duration = Duration::from_secs(10);
/// Long enough for a missing wait to show, nearly always; a correct program uses all of it.
const MOMENT: Duration = Duration::from_millis(10);

fn give_back(rig: &Rig, block: DeviceBlock) {
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn rule_1_a_read_waits_for_the_last_write_and_not_for_other_reads(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c, d] = rig.streams();
    let block = rig.block(64, a);
    assert_eq!(rig.waits(|| rig.touch(&block, b, Access::Write)), 1, "the allocation");
    assert_eq!(rig.waits(|| rig.touch(&block, c, Access::Read)), 1, "the write on b");
    assert_eq!(rig.waits(|| rig.touch(&block, d, Access::Read)), 1, "the write, not c's read");
    assert_eq!(rig.waits(|| rig.touch(&block, a, Access::Read)), 1, "the write, no reads");
    give_back(&rig, block);
}

fn rule_1_a_write_waits_for_the_last_write_and_every_read_since(device: TestDevice) {
    for access in [Access::Write, Access::ReadWrite] {
        let rig = Rig::new(device);
        let [a, b, c, d, e] = rig.streams();
        let block = rig.block(64, a);
        rig.touch(&block, b, Access::Write);
        // No reads: the write alone.
        assert_eq!(rig.waits(|| rig.touch(&block, c, access)), 1);
        rig.touch(&block, d, Access::Read);
        rig.touch(&block, e, Access::Read);
        // Two reads, which both follow the write: waiting for them is waiting for it.
        assert_eq!(rig.waits(|| rig.touch(&block, a, access)), 2, "{access:?}");
        give_back(&rig, block);
    }
}

/// Readers on two streams are let go one after the other; the writer goes after both.
fn rule_1_a_held_reader_on_any_stream_holds_the_writer(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    warm_up(&rig, LEN, &[a, b, c]);
    for first in [0, 1] {
        let data = rig.filled(LEN, 7, a);
        let seen = [rig.filled(LEN, 0, a), rig.filled(LEN, 0, a)];
        let gates = [Gate::new(&rig), Gate::new(&rig)];
        for (index, stream) in [a, b].into_iter().enumerate() {
            gates[index].hold(&rig, stream);
            rig.copy(&data, &seen[index], stream).unwrap_or_else(fail);
        }
        rig.fill(&data, 9, c).unwrap_or_else(fail);
        gates[first].open();
        let early = eventually(MOMENT, || rig.is_idle(c));
        gates[1 - first].open();
        assert!(!early, "the writer did not wait for reader {}", 1 - first);
        for seen in &seen {
            assert_eq!(seen.download().unwrap_or_else(fail), [7; LEN]);
        }
        assert_eq!(data.download().unwrap_or_else(fail), [9; LEN]);
    }
}

fn rule_1_a_held_writer_holds_readers_on_every_stream(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    warm_up(&rig, LEN, &[a, b, c]);
    let data = rig.filled(LEN, 0, a);
    let seen = [rig.filled(LEN, 0, b), rig.filled(LEN, 0, c)];
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    rig.copy(&data, &seen[0], b).unwrap_or_else(fail);
    rig.copy(&data, &seen[1], c).unwrap_or_else(fail);
    let early = eventually(MOMENT, || rig.is_idle(b) || rig.is_idle(c));
    gate.open();
    assert!(!early, "a reader ran before the writer");
    for seen in &seen {
        assert_eq!(seen.download().unwrap_or_else(fail), [7; LEN]);
    }
}

/// Two blocks written on one stream, the second behind a gate: whichever of the two a launch names
/// first, it waits for that one.
fn rule_1_a_launch_waits_for_the_latest_write_of_its_blocks(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    for late in [0, 1] {
        let blocks = [rig.zeros(LEN, a), rig.zeros(LEN, a)];
        let gate = Gate::new(&rig);
        rig.fill(&blocks[1 - late], 7, a).unwrap_or_else(fail);
        gate.hold(&rig, a);
        rig.fill(&blocks[late], 9, a).unwrap_or_else(fail);
        let [from, to] = &blocks;
        assert_eq!(rig.waits(|| rig.copy(from, to, b).unwrap_or_else(fail)), 1);
        let early = eventually(MOMENT, || rig.is_idle(b));
        gate.open();
        assert!(!early, "the launch did not wait for the write of argument {late}");
        let copied = if late == 0 { 9 } else { 7 };
        assert_eq!(to.download().unwrap_or_else(fail), [copied; LEN]);
        assert_eq!(rig.waits(|| rig.copy(from, to, b).unwrap_or_else(fail)), 0, "not again");
    }
}

fn rule_2_work_on_the_stream_that_made_the_dependency_needs_no_wait(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, _other] = rig.streams();
    let all = [Access::Read, Access::Write, Access::ReadWrite];
    for home in [a, StreamId::DEFAULT] {
        let block = rig.block(64, home);
        let queued = rig.waits(|| {
            for first in all {
                for second in all {
                    rig.touch(&block, home, first);
                    rig.touch(&block, home, second);
                }
            }
        });
        assert_eq!(queued, 0, "on {home:?}");
        assert_eq!(rig.waits(|| give_back(&rig, block)), 0, "nor does the free");
    }
}

fn rule_3_the_first_use_on_another_stream_waits_for_the_allocation(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c, d] = rig.streams();
    let block = rig.block(64, a);
    for (stream, access) in [(b, Access::Read), (c, Access::Read)] {
        assert_eq!(rig.waits(|| rig.touch(&block, stream, access)), 1, "{stream:?}");
        assert_eq!(rig.waits(|| rig.touch(&block, stream, access)), 0, "followed by now");
    }
    give_back(&rig, block);
    let block = rig.block(64, a);
    assert_eq!(rig.waits(|| rig.touch(&block, d, Access::Write)), 1);
    give_back(&rig, block);
}

fn rule_3_the_allocation_holds_a_first_use_back_until_its_stream_is_there(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    let data = rig.manager.alloc_on::<u32>(LEN, a, AllocTag("late")).unwrap_or_else(fail);
    rig.fill(&data, 7, b).unwrap_or_else(fail);
    let early = eventually(MOMENT, || rig.is_idle(b));
    gate.open();
    assert!(!early, "the memory was used before the stream it was allocated on got there");
    assert_eq!(data.download().unwrap_or_else(fail), [7; LEN]);
}

fn rule_4_a_write_replaces_the_write_and_the_reads_it_followed(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c, d, e] = rig.streams();
    let block = rig.block(64, a);
    rig.touch(&block, b, Access::Read);
    rig.touch(&block, c, Access::Read);
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(3));
    assert_eq!(rig.waits(|| rig.touch(&block, d, Access::Write)), 2);
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(1));
    assert_eq!(rig.waits(|| rig.touch(&block, e, Access::Write)), 1, "d's write and no more");
    give_back(&rig, block);
}

fn rule_4_a_write_without_preparation_keeps_the_reads(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c, d] = rig.streams();
    let block = rig.block(64, a);
    let id = BlockId::from_block(&block);
    rig.touch(&block, b, Access::Read);
    let queued = rig.waits(|| {
        rig.runtime.finish_block_use(id, c, Access::Write).unwrap_or_else(fail);
    });
    assert_eq!(queued, 0, "finishing never waits");
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(2), "the read is kept");
    // c's write and b's read, which follows the allocation.
    assert_eq!(rig.waits(|| rig.touch(&block, d, Access::Write)), 2);
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(1), "covered at last");
    assert_eq!(rig.waits(|| rig.touch(&block, a, Access::Write)), 1);
    give_back(&rig, block);
}

fn rule_4_a_write_without_preparation_keeps_the_write_before_it(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c, d] = rig.streams();
    let block = rig.block(64, a);
    let id = BlockId::from_block(&block);
    rig.touch(&block, b, Access::Write);
    rig.runtime.finish_block_use(id, c, Access::Write).unwrap_or_else(fail);
    // Nothing orders c's write behind b's: whoever comes next follows both.
    assert_eq!(rig.waits(|| rig.touch(&block, d, Access::Read)), 2);
    give_back(&rig, block);
}

fn rule_4_a_held_read_is_not_forgotten_by_an_unprepared_write(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c, d] = rig.streams();
    warm_up(&rig, LEN, &[a, b, c, d]);
    let (data, seen) = (rig.filled(LEN, 7, a), rig.filled(LEN, 0, b));
    let id = BlockId::from_block(data.runtime_block().expect("a block"));
    let gate = Gate::new(&rig);
    gate.hold(&rig, b);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    rig.runtime.finish_block_use(id, c, Access::Write).unwrap_or_else(fail);
    rig.fill(&data, 9, d).unwrap_or_else(fail);
    let early = eventually(MOMENT, || rig.is_idle(d));
    gate.open();
    assert!(!early, "the held read was forgotten");
    assert_eq!(seen.download().unwrap_or_else(fail), [7; LEN]);
}

fn rule_5_a_free_waits_for_the_last_write_and_all_reads(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c, d] = rig.streams();
    let block = rig.block(64, a);
    rig.touch(&block, b, Access::Write);
    rig.touch(&block, c, Access::Read);
    rig.touch(&block, d, Access::Read);
    // Both reads follow the write; no stream follows both reads.
    let queued = rig.waits(|| rig.runtime.deallocate(block).unwrap_or_else(fail));
    assert_eq!(queued, 2);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    // One stream wrote, and the block's own follows nothing: one wait, or a free over there.
    let block = rig.block(64, a);
    rig.runtime
        .finish_block_use(BlockId::from_block(&block), b, Access::Write)
        .unwrap_or_else(fail);
    assert_eq!(rig.waits(|| rig.runtime.deallocate(block).unwrap_or_else(fail)), 1);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn rule_5_a_free_on_a_stream_that_follows_every_use_needs_no_wait(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let block = rig.block(64, a);
    rig.touch(&block, b, Access::Read);
    rig.touch(&block, c, Access::Write);
    let queued = rig.waits(|| rig.runtime.deallocate(block).unwrap_or_else(fail));
    assert_eq!(queued, 0, "c follows the allocation and the read");
    assert_eq!(rig.resource.pending_free_bytes(), rig.resource.pending_per_stream_total());
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

/// Two held readers; the block is freed and memory of its size asked for on every stream. Whoever
/// gets the address writes it, and must not be seen by a reader.
fn rule_5_memory_is_not_reused_while_any_reader_is_held(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    warm_up(&rig, LEN, &[a, b, c]);
    for first in [0, 1] {
        let data = rig.filled(LEN, 7, a);
        let seen = [rig.filled(LEN, 0, b), rig.filled(LEN, 0, c)];
        let gates = [Gate::new(&rig), Gate::new(&rig)];
        for (index, stream) in [b, c].into_iter().enumerate() {
            gates[index].hold(&rig, stream);
            rig.copy(&data, &seen[index], stream).unwrap_or_else(fail);
        }
        let bytes = data.runtime_block().expect("a block").bytes;
        let pending = rig.resource.pending_free_bytes();
        drop(data);
        assert_eq!(rig.resource.pending_free_bytes() - pending, bytes);
        gates[first].open();
        let next = [a, b, c].map(|stream| {
            let next = rig.manager.alloc_on::<u32>(LEN, stream, AllocTag("next"));
            let next = next.unwrap_or_else(fail);
            rig.fill(&next, 9, stream).unwrap_or_else(fail);
            next
        });
        let _ = eventually(MOMENT, || [a, b, c].into_iter().all(|stream| rig.is_idle(stream)));
        rig.runtime.try_reap().unwrap_or_else(fail);
        assert!(rig.resource.pending_free_bytes() >= bytes, "a reader is still held");
        gates[1 - first].open();
        for seen in &seen {
            assert_eq!(seen.download().unwrap_or_else(fail), [7; LEN]);
        }
        drop(next);
    }
}

fn rule_5_an_unprepared_writes_predecessor_holds_the_free_too(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let block = rig.block(64, a);
    rig.touch(&block, b, Access::Write);
    let id = BlockId::from_block(&block);
    rig.runtime.finish_block_use(id, c, Access::Write).unwrap_or_else(fail);
    let queued = rig.waits(|| rig.runtime.deallocate(block).unwrap_or_else(fail));
    assert_eq!(queued, 2, "b's write and c's, neither of which follows the other");
    rig.runtime.reap_pending().unwrap_or_else(fail);
}

fn rule_8_a_wait_does_not_cover_work_enqueued_after_the_use(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let (data, seen) = (rig.filled(LEN, 0, a), rig.filled(LEN, 0, b));
    let gate = Gate::new(&rig);
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    gate.hold(&rig, a);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    let done = eventually(PLENTY, || rig.is_idle(b));
    let held = !rig.is_idle(a);
    gate.open();
    assert!(done && held, "the reader waited for work behind the write");
    assert_eq!(seen.download().unwrap_or_else(fail), [7; LEN]);
}

/// More than a lane keeps at rest, and more than it takes until it asks how far the device is: an
/// event that may still be waited for is recorded again by none of them.
fn rule_8_a_wait_is_for_its_own_event_behind_hundreds_of_later_ones(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let (data, seen) = (rig.filled(LEN, 0, a), rig.filled(LEN, 0, b));
    let other = rig.filled(LEN, 0, a);
    let gate = Gate::new(&rig);
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    gate.hold(&rig, a);
    (0..300).for_each(|round| rig.fill(&other, round, a).unwrap_or_else(fail));
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    let done = eventually(PLENTY, || rig.is_idle(b));
    let held = !rig.is_idle(a);
    gate.open();
    assert!(done && held, "the reader waited for work behind the write");
    assert_eq!(seen.download().unwrap_or_else(fail), [7; LEN]);
    assert_eq!(other.download().unwrap_or_else(fail), [299; LEN]);
}

/// A launch over x and y, and behind it, on a stream that stands still, others that replace all of
/// it but x, or nothing: whoever uses x elsewhere waits for that launch, for none of the others.
fn rule_8_an_event_is_recorded_again_only_when_no_block_names_its_launch(device: TestDevice) {
    use Access::{Read, ReadWrite};
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let [x, y, z] = [(); 3].map(|()| rig.filled(LEN, 0, a));
    // What the kernels themselves touch, each stream its own.
    let touched = [rig.filled(LEN, 0, a), rig.filled(LEN, 0, b)];
    let kernel = rig.kernel(&kernels::TOUCH_1);
    let launch = |stream, blocks: &[&TrackedCudaSlice<u32>], access| {
        let mut recorder = LaunchRecorder::new_strict(stream);
        for block in blocks {
            match access {
                Read => recorder.read(block),
                _ => recorder.read_write(block),
            };
        }
        recorder.preflight(&rig.runtime).unwrap_or_else(fail);
        let mut arguments = Arguments::new();
        arguments.push_pointer(touched[usize::from(stream == b)].ptr());
        arguments.push_value(1u32);
        let dims = LaunchDims::linear(1, 1);
        // SAFETY: the kernel's own arguments, over memory that no other stream touches.
        let enqueued = unsafe { rig.runtime.enqueue(&kernel, dims, &arguments, stream) };
        enqueued.unwrap_or_else(fail);
        recorder.commit(&rig.runtime).unwrap_or_else(fail);
    };
    launch(a, &[&x, &y], ReadWrite);
    for (first, others, access, elsewhere, what) in [
        (ReadWrite, vec![&y], ReadWrite, Read, "fewer blocks"),
        (ReadWrite, vec![&y, &z], ReadWrite, Read, "as many blocks, one of them another"),
        (ReadWrite, vec![&y, &z, &x], Read, Read, "reads, which replace no write"),
        (Read, vec![&y], Read, ReadWrite, "fewer blocks that are read"),
        (Read, vec![&y, &z], Read, ReadWrite, "as many that are read, one of them another"),
    ] {
        rig.runtime.synchronize(a).unwrap_or_else(fail);
        launch(a, &[&x, &y], first);
        launch(a, &[&x, &y], first);
        let gate = Gate::new(&rig);
        gate.hold(&rig, a);
        (0..20).for_each(|_| launch(a, &others, access));
        launch(b, &[&x], elsewhere);
        let done = eventually(PLENTY, || rig.is_idle(b));
        let held = !rig.is_idle(a);
        gate.open();
        assert!(done && held, "{what}: waited for more than the launch that used x");
    }
}

fn rule_8_a_wait_for_an_allocation_does_not_cover_later_work(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let gate = Gate::new(&rig);
    let data = rig.manager.alloc_on::<u32>(LEN, a, AllocTag("early")).unwrap_or_else(fail);
    gate.hold(&rig, a);
    rig.fill(&data, 7, b).unwrap_or_else(fail);
    let done = eventually(PLENTY, || rig.is_idle(b));
    let held = !rig.is_idle(a);
    gate.open();
    assert!(done && held, "the first use waited for work behind the allocation");
    assert_eq!(data.download().unwrap_or_else(fail), [7; LEN]);
}

/// The program of the rule, all of it recorded: `a` writes x and then runs a kernel that ends only
/// when `b`, having read x, says so.
fn rule_8_a_kernel_that_ends_after_the_reader_does_not_hang(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    warm_up(&rig, LEN, &[a, b]);
    let (x, seen, flag) = (rig.filled(LEN, 0, a), rig.filled(LEN, 0, b), rig.filled(LEN, 0, a));
    let gate = Gate::new(&rig);
    rig.fill(&x, 7, a).unwrap_or_else(fail);
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.write(&flag);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    gate.hold(&rig, a);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);

    rig.copy(&x, &seen, b).unwrap_or_else(fail);
    let mut recorder = LaunchRecorder::new_strict(b);
    recorder.read(&seen);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    let mut arguments = Arguments::new();
    arguments.push_pointer(gate.address());
    arguments.push_value(1u32);
    rig.launch_raw(&kernels::SIGNAL, &arguments, LaunchDims::linear(1, 1), b);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);

    let ended = eventually(PLENTY, || rig.is_idle(a) && rig.is_idle(b));
    gate.open();
    assert!(ended, "the program hangs: a wait covers work enqueued after the use it stands for");
    assert_eq!(seen.download().unwrap_or_else(fail), [7; LEN]);
}
