//! Between preflight and commit: who may come in, who waits, who is refused.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use xlog_core::Access;
use xlog_cuda::{
    LaunchDims,
    device_runtime::{AllocTag, BlockId, BlockUse, StreamId},
    kernels,
    launch::{LaunchBuilder, LaunchRecorder},
    memory::TrackedCudaSlice,
};

use super::super::support::{
    assert_says, assert_unclaimed, assert_works, block_of, comes_true, eventually, fill_raw,
    misuse, within,
};
use super::failures::watched;
use crate::{DriverCall, Gate, Rig, TestDevice, fail};

/// A strict recorder that writes `slice`, preflighted.
#[track_caller]
fn claimed(rig: &Rig, slice: &TrackedCudaSlice<u32>, stream: StreamId) -> LaunchRecorder {
    let mut recorder = LaunchRecorder::new_strict(stream);
    recorder.write(slice).preflight(&rig.runtime).unwrap_or_else(fail);
    recorder
}

/// `file:line` of a place `lines` below the caller's caller.
#[track_caller]
fn place(lines: u32) -> String {
    let here = std::panic::Location::caller();
    format!("{}:{}", here.file(), here.line() + lines)
}

pub(super) fn a_conflicting_preflight_is_refused_at_once_with_both_places(device: TestDevice) {
    let rig = Arc::new(Rig::new(device));
    let [a, b] = rig.streams();
    let data = rig.zeros(8, a);
    let kinds: [fn(&mut LaunchRecorder, &TrackedCudaSlice<u32>); 3] =
        [|r, s| _ = r.read(s), |r, s| _ = r.write(s), |r, s| _ = r.read_write(s)];
    for (first, one) in kinds.iter().enumerate() {
        for (second, two) in kinds.iter().enumerate().filter(|(second, _)| first + second > 0) {
            let (here, there) = (place(1), place(2));
            let mut holder = LaunchRecorder::new_strict(a);
            let mut comer = LaunchRecorder::new_strict(b);
            one(&mut holder, &data);
            two(&mut comer, &data);
            holder.preflight(&rig.runtime).unwrap_or_else(fail);
            // Refused on any thread, without waiting.
            let theirs = Arc::clone(&rig);
            let (mut comer, refusal) = within("a conflicting preflight", move || {
                let refusal = misuse(comer.preflight(&theirs.runtime));
                (comer, refusal)
            });
            let parts = [&*here, &*there, "has not committed yet", &format!("{:#x}", data.ptr())];
            assert_says(&refusal, &parts);
            let at_home = misuse(comer.preflight(&rig.runtime));
            assert_says(&at_home, &[&*here, &*there, "has not committed yet"]);
            assert!(holder.commit(&rig.runtime).is_ok(), "{first} then {second}");
            comer.preflight(&rig.runtime).unwrap_or_else(fail);
            comer.commit(&rig.runtime).unwrap_or_else(fail);
        }
    }
}

pub(super) fn readers_do_not_conflict(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (data, seen) = (rig.zeros(64, a), rig.zeros(64, b));
    let mut readers: Vec<_> = [a, b, a].map(LaunchRecorder::new_strict).into();
    for reader in &mut readers {
        reader.read(&data).preflight(&rig.runtime).unwrap_or_else(fail);
    }
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    let mut writer = LaunchRecorder::new_strict(b);
    writer.write(&data);
    // Not before the last of them is committed.
    for reader in readers {
        misuse(writer.preflight(&rig.runtime));
        reader.commit(&rig.runtime).unwrap_or_else(fail);
    }
    writer.preflight(&rig.runtime).unwrap_or_else(fail);
    writer.commit(&rig.runtime).unwrap_or_else(fail);
}

pub(super) fn a_refused_preflight_leaves_no_claims_behind(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let slices: [_; 3] = std::array::from_fn(|_| rig.zeros(8, a));
    let holder = claimed(&rig, &slices[2], a);
    let mut comer = LaunchRecorder::new_strict(b);
    comer.write(&slices[0]).read(&slices[1]).write(&slices[2]);
    misuse(comer.preflight(&rig.runtime));
    assert_unclaimed(&rig, &slices[0], b);
    assert_unclaimed(&rig, &slices[1], b);
    holder.commit(&rig.runtime).unwrap_or_else(fail);
    comer.preflight(&rig.runtime).unwrap_or_else(fail);
    comer.commit(&rig.runtime).unwrap_or_else(fail);
}

pub(super) fn the_builder_waits_for_another_threads_claim(device: TestDevice) {
    let rig = Arc::new(Rig::new(device));
    let [a, b] = rig.streams();
    let data = Arc::new(rig.zeros(64, a));
    rig.fill(&data, 0, a).unwrap_or_else(fail);
    let recorder = claimed(&rig, &data, a);
    let launches = rig.driver.count(DriverCall::Launch);
    let (sender, receiver) = mpsc::channel();
    let (theirs, block) = (Arc::clone(&rig), Arc::clone(&data));
    thread::spawn(move || sender.send(theirs.fill(&block, 2, b)));
    assert!(!comes_true(|| rig.driver.count(DriverCall::Launch) > launches), "it does not wait");
    fill_raw(&rig, &data, 1, a);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    let launched = receiver.recv_timeout(std::time::Duration::from_secs(20));
    launched.expect("woken by the commit").unwrap_or_else(fail);
    assert_eq!(data.download().unwrap_or_else(fail), [2; 64], "behind the launch it waited for");
}

pub(super) fn the_builder_refuses_to_wait_for_its_own_thread(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let mut data = rig.zeros(8, a);
    rig.fill(&data, 0, a).unwrap_or_else(fail);
    let here = place(1);
    let recorder = claimed(&rig, &data, a);
    let launches = rig.driver.count(DriverCall::Launch);
    assert_says(&misuse(rig.fill(&data, 1, b)), &["its own thread", &here]);
    // Copies go the same way, and name the caller's line.
    let (there, refusal) = (place(0), misuse(data.upload_on(&[1; 8], b)));
    assert_says(&refusal, &["its own thread", &here, &there]);
    let (there, refusal) = (place(0), misuse(data.fill_bytes(1, b)));
    assert_says(&refusal, &["its own thread", &here, &there]);
    let (there, refusal) = (place(0), misuse(data.download()));
    assert_says(&refusal, &["its own thread", &here, &there]);
    let (there, refusal) = (place(0), misuse(data.start_download(b)));
    assert_says(&refusal, &["its own thread", &here, &there]);
    let mut to = rig.zeros(8, b);
    let (there, refusal) = (place(0), misuse(to.copy_from(&data, b)));
    assert_says(&refusal, &["its own thread", &here, &there]);
    assert_eq!(rig.driver.count(DriverCall::Launch), launches);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    rig.fill(&data, 1, b).unwrap_or_else(fail);
    assert_eq!(data.download().unwrap_or_else(fail), [1; 8]);
}

pub(super) fn a_writer_waits_for_every_reader(device: TestDevice) {
    let rig = Arc::new(Rig::new(device));
    let [a, b] = rig.streams();
    let data = Arc::new(rig.zeros(8, a));
    rig.fill(&data, 0, a).unwrap_or_else(fail);
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let mut recorder = LaunchRecorder::new_strict(a);
            recorder.read(&data).preflight(&rig.runtime).unwrap_or_else(fail);
            recorder
        })
        .collect();
    let launches = rig.driver.count(DriverCall::Launch);
    let (theirs, block) = (Arc::clone(&rig), Arc::clone(&data));
    let writer = thread::spawn(move || theirs.fill(&block, 2, b));
    for reader in readers {
        assert!(!comes_true(|| rig.driver.count(DriverCall::Launch) > launches));
        reader.commit(&rig.runtime).unwrap_or_else(fail);
    }
    within("the writer", move || writer.join().expect("no panic")).unwrap_or_else(fail);
    assert_eq!(data.download().unwrap_or_else(fail), [2; 8]);
}

pub(super) fn a_circle_of_two_threads_is_refused_rather_than_a_deadlock(device: TestDevice) {
    let rig = Arc::new(Rig::new(device));
    let streams: [StreamId; 2] = rig.streams();
    let blocks = Arc::new(streams.map(|stream| rig.zeros(8, stream)));
    rig.fill(&blocks[0], 0, streams[0]).unwrap_or_else(fail);
    for _ in 0..50 {
        let refused = Arc::new(AtomicUsize::new(0));
        let both_hold = Arc::new(Barrier::new(2));
        let threads = [0usize, 1].map(|me| {
            let (rig, blocks) = (Arc::clone(&rig), Arc::clone(&blocks));
            let (refused, both_hold) = (Arc::clone(&refused), Arc::clone(&both_hold));
            thread::spawn(move || {
                let mine = claimed(&rig, &blocks[me], streams[me]);
                both_hold.wait();
                match rig.fill(&blocks[1 - me], 1, streams[me]) {
                    Ok(()) => mine.commit(&rig.runtime).unwrap_or_else(fail),
                    Err(error) => {
                        refused.fetch_add(1, Ordering::SeqCst);
                        let text = misuse::<()>(Err(error));
                        assert_says(&text, &["waits for this one", "has not committed yet"]);
                        // Committing is what lets the other go on.
                        mine.commit(&rig.runtime).unwrap_or_else(fail);
                    }
                }
            })
        });
        within("two threads that wait for each other", move || {
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        assert_eq!(refused.load(Ordering::SeqCst), 1, "one is refused, the other goes on");
    }
    assert_works(&rig, streams[0]);
}

/// Frees a block between preflight and commit, with the work in flight held back.
fn free_while_claimed(rig: &Rig) {
    let [a, b] = rig.streams();
    let (data, seen) = (rig.zeros(64, a), rig.zeros(64, b));
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    rig.fill(&seen, 0, b).unwrap_or_else(fail);
    rig.runtime.synchronize(b).unwrap_or_else(fail);
    let (address, id) = (data.ptr(), BlockId::from_block(block_of(&data)));
    let (live, frees) = (rig.resource.live_bytes(), rig.driver.count(DriverCall::FreeOn));
    let gate = Gate::new(rig);
    let mut recorder = LaunchRecorder::new_strict(b);
    recorder.read(&data).write(&seen).preflight(&rig.runtime).unwrap_or_else(fail);
    gate.hold(rig, b);
    let mut arguments = xlog_driver::Arguments::new();
    arguments.push_pointer(address);
    arguments.push_pointer(seen.ptr());
    arguments.push_value(64u64);
    rig.launch_raw(&kernels::COPY_U32, &arguments, LaunchDims::for_elements(64), b);
    drop(data);
    assert_eq!(rig.driver.count(DriverCall::FreeOn), frees, "not freed before commit");
    assert_eq!(rig.resource.live_bytes(), live);
    assert!(rig.runtime.prepare_block_use(id, a, Access::Read).is_err(), "gone for everyone else");
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(rig.driver.count(DriverCall::FreeOn), frees + 1, "freed by commit");
    assert_eq!(rig.resource.live_bytes(), live - 64 * 4);
    // The next owner of the address cannot spoil what the held launch reads.
    let next = rig.manager.alloc_on::<u32>(64, a, AllocTag("next")).unwrap_or_else(fail);
    rig.fill(&next, 8, a).unwrap_or_else(fail);
    if next.ptr() == address {
        assert!(!comes_true(|| rig.is_idle(a)), "memory in use was handed out");
    }
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [7; 64]);
}

pub(super) fn a_free_of_a_claimed_block_takes_effect_after_commit(device: TestDevice) {
    free_while_claimed(&Rig::new(device));
}

pub(super) fn a_free_of_a_claimed_block_waits_for_commit_under_adaptors_too(device: TestDevice) {
    free_while_claimed(&watched(device).0);
}

pub(super) fn several_recorders_of_one_thread_never_deadlock(device: TestDevice) {
    let rig = Arc::new(Rig::new(device));
    let [a, b] = rig.streams();
    let theirs = Arc::clone(&rig);
    within("one thread with several recorders", move || {
        let rig = theirs;
        let blocks: [_; 4] = std::array::from_fn(|_| rig.zeros(8, a));
        let mut held: Vec<_> = blocks.iter().map(|block| claimed(&rig, block, a)).collect();
        // Every way to touch a block that is held answers; none waits.
        for block in &blocks {
            let mut other = LaunchRecorder::new_strict(b);
            misuse(other.read(block).preflight(&rig.runtime));
            misuse(rig.increment(block, 1, b));
            misuse(block.download());
        }
        // Committed in any order.
        held.swap(0, 2);
        for recorder in held {
            recorder.commit(&rig.runtime).unwrap_or_else(fail);
        }
        for block in &blocks {
            rig.increment(block, 1, b).unwrap_or_else(fail);
            assert_eq!(block.download().unwrap_or_else(fail), [1; 8]);
        }
    });
}

pub(super) fn bare_prepare_and_finish_hold_no_claim(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let data = rig.zeros(8, a);
    let id = BlockId::from_block(block_of(&data));
    let writes = [BlockUse::new(id, Access::Write)];
    rig.runtime.prepare_block_use(id, a, Access::Write).unwrap_or_else(fail);
    rig.runtime.prepare_uses(&writes, b).unwrap_or_else(fail);
    assert_unclaimed(&rig, &data, b);
    rig.increment(&data, 1, b).unwrap_or_else(fail);
    // Nor does a claim keep them out: they are the caller's own business.
    let recorder = claimed(&rig, &data, b);
    rig.runtime.prepare_block_use(id, a, Access::Write).unwrap_or_else(fail);
    rig.runtime.finish_block_use(id, a, Access::Write).unwrap_or_else(fail);
    rig.runtime.finish_uses(&writes, b).unwrap_or_else(fail);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(data.download().unwrap_or_else(fail), [1; 8]);
}

/// More launches than any queue takes.
const TOO_MANY: usize = 4000;

/// A thread runs into the full queue of a held stream, in the middle of a launch; nobody who has
/// nothing to do with that stream notices. `waits` makes it run into it while a wait is queued.
fn full_queue(device: TestDevice, waits: bool) {
    let rig = Arc::new(Rig::new(device));
    let [busy, feeder, free] = rig.streams();
    let mine = Arc::new(rig.zeros(64, free));
    let (theirs, fed) = (rig.zeros(64, busy), rig.zeros(64, feeder));
    rig.increment(&mine, 0, free).unwrap_or_else(fail);
    assert_eq!(mine.download().unwrap_or_else(fail), [0; 64]);
    let touch = rig.kernel(&kernels::EMPTY_1);
    let read = rig.kernel(&kernels::EMPTY_READ_1);
    let gate = Arc::new(Gate::new(&rig));
    gate.hold(&rig, busy);
    gate.hold(&rig, feeder);
    let (stop, launched) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let launcher = {
        let (rig, stop, launched) = (Arc::clone(&rig), Arc::clone(&stop), Arc::clone(&launched));
        let dims = LaunchDims::linear(1, 1);
        thread::spawn(move || {
            if waits {
                // An odd one, so that it is the wait that finds the queue full.
                let mut odd = LaunchBuilder::new(&rig.runtime, &touch, busy);
                odd.in_out(&theirs);
                odd.launch(dims).unwrap_or_else(fail);
            }
            for _ in 0..TOO_MANY {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                if waits {
                    let mut write = LaunchBuilder::new(&rig.runtime, &touch, feeder);
                    write.in_out(&fed);
                    write.launch(dims).unwrap_or_else(fail);
                    let mut read = LaunchBuilder::new(&rig.runtime, &read, busy);
                    read.input(&fed);
                    read.launch(dims).unwrap_or_else(fail);
                } else {
                    let mut one = LaunchBuilder::new(&rig.runtime, &touch, busy);
                    one.in_out(&theirs);
                    one.launch(dims).unwrap_or_else(fail);
                }
                launched.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let mut last = usize::MAX;
    eventually("the queue is full", || {
        let now = launched.load(Ordering::SeqCst);
        now > 400
            && std::mem::replace(&mut last, now) == now
            && !comes_true(|| launched.load(Ordering::SeqCst) != now)
    });
    let (rest, block) = (Arc::clone(&rig), Arc::clone(&mine));
    let opener = Arc::clone(&gate);
    // A thread stuck in a full queue of the CUDA driver holds a lock of the driver's own: there,
    // only that the queue drains can be shown; that no lock of ours is held, on the host device.
    let rounds = if device == TestDevice::Host { 100 } else { 0 };
    let done = within("work on other streams and other blocks", move || {
        for round in 0..rounds {
            let recorder = claimed(&rest, &block, free);
            fill_raw(&rest, &block, round, free);
            recorder.commit(&rest.runtime).unwrap_or_else(fail);
            let fresh = rest.zeros(64, free);
            rest.fill(&fresh, round, free).unwrap_or_else(fail);
            assert_eq!(fresh.download().unwrap_or_else(fail), [round; 64]);
            drop(fresh);
            rest.runtime.try_reap().unwrap_or_else(fail);
            let more = rest.pool.acquire().unwrap_or_else(fail);
            rest.increment(&block, 1, more).unwrap_or_else(fail);
            assert_eq!(block.download().unwrap_or_else(fail), [round + 1; 64]);
            rest.pool.release(more).unwrap_or_else(fail);
            assert!(rest.pool.stats().streams >= 4);
        }
        drop(opener);
        true
    });
    let stuck = launched.load(Ordering::SeqCst) < TOO_MANY;
    stop.store(true, Ordering::SeqCst);
    gate.open();
    within("the launcher", move || launcher.join().expect("no panic"));
    assert!(done && stuck, "the queue was never full");
    rig.runtime.synchronize(busy).unwrap_or_else(fail);
}

pub(super) fn a_full_queue_blocks_nobody_else_at_a_launch(device: TestDevice) {
    full_queue(device, false);
}

pub(super) fn a_full_queue_blocks_nobody_else_at_a_wait(device: TestDevice) {
    full_queue(device, true);
}
