//! Sizes, contents, books, limits and threads.

use std::sync::{
    Barrier,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use parking_lot::Mutex;
use xlog_cuda::device_runtime::{PinnedBuffer, ResourceError};

use super::{super::super::support::*, *};
use crate::{TestDevice, fail};

pub(super) fn pinned_memory_is_aligned_keeps_its_contents_and_is_counted(device: TestDevice) {
    let rig = Rig::new(device);
    for pinned in Pinned::both(&rig) {
        let name = pinned.name();
        let (mut ranges, mut buffers, mut held) = (Ranges::default(), Vec::new(), 0);
        for (value, bytes) in (1..).zip([1, 2, 63, 4095, 4096, 4097, 100_000, 1 << 20, 1]) {
            let mut buffer = pinned.allocate(bytes).unwrap_or_else(fail);
            assert_eq!((buffer.len(), buffer.as_ptr().addr() % 256), (bytes, 0), "{name}");
            assert!(buffer.capacity() >= bytes, "{name}");
            ranges.add(&buffer);
            buffer.fill(value);
            held += buffer.capacity();
            assert_eq!(pinned.in_use(), held, "{name}");
            buffers.push(buffer);
        }
        for (value, buffer) in (1..).zip(buffers) {
            assert!(buffer.iter().all(|byte| *byte == value), "{name}: {} bytes", buffer.len());
            held -= buffer.capacity();
            drop(buffer);
            assert_eq!(pinned.in_use(), held, "{name}");
        }
    }
    assert_eq!(with_driver(&rig), 0, "both are gone");
}

pub(super) fn sizes_that_no_buffer_can_have_are_refused(device: TestDevice) {
    let rig = Rig::new(device);
    for pinned in Pinned::both(&rig) {
        let zero = pinned.allocate(0).expect_err("no bytes");
        assert!(matches!(zero, ResourceError::Driver(_)), "{zero:?}");
        assert_says(&zero.to_string(), &["zero bytes"]);
        let calls = rig.driver.count(DriverCall::AllocatePinned);
        for bytes in [usize::MAX, isize::MAX as usize + 1] {
            let refused = pinned.allocate(bytes).expect_err("too many").to_string();
            assert_says(&refused, &[&bytes.to_string(), "more than any host has"]);
        }
        assert_eq!(rig.driver.count(DriverCall::AllocatePinned), calls, "the driver was not asked");
        let more = pinned.allocate(1 << 50).expect_err("more than this host has");
        assert!(matches!(more, ResourceError::Driver(_)), "{more:?}");
        assert_eq!(pinned.in_use(), 0);
        if let Pinned::Pool(pool) = &pinned {
            assert_eq!(pool.report(), Default::default());
        }
        assert_eq!(pinned.allocate(100).unwrap_or_else(fail).len(), 100);
    }
}

pub(super) fn pinned_memory_keeps_its_books_in_any_order_of_calls(device: TestDevice) {
    let rig = Rig::new(device);
    for pinned in Pinned::both(&rig) {
        // Every one of the plain resource's goes to the driver, which takes its time.
        let steps = if matches!(pinned, Pinned::Plain(_)) { 60 } else { 400 };
        let mut random = Random::from_seed(3);
        let (mut live, mut ranges) = (Vec::<(PinnedBuffer, u8)>::new(), Ranges::default());
        let (mut peak, mut most_held) = (0, 0);
        for step in 0..steps {
            match random.below(8) {
                0..=3 if live.len() < 12 => {
                    let bits = random.below(17);
                    let bytes = 1 + random.below(1 << bits);
                    let mut buffer = pinned.allocate(bytes).unwrap_or_else(fail);
                    assert_eq!(buffer.len(), bytes, "{}/{step}", pinned.name());
                    ranges.add(&buffer);
                    buffer.fill(step as u8);
                    live.push((buffer, step as u8));
                }
                7 if step % 5 == 0 => {
                    if let Pinned::Pool(pool) = &pinned {
                        pool.trim().unwrap_or_else(fail);
                        let report = pool.report();
                        assert_eq!(report.held_bytes, report.in_use_bytes, "{step}");
                    }
                }
                _ if !live.is_empty() => {
                    let (buffer, value) = live.swap_remove(random.below(live.len()));
                    assert!(buffer.iter().all(|byte| *byte == value), "{step}: lost");
                    ranges.remove(&buffer);
                }
                _ => {}
            }
            let held: usize = live.iter().map(|(buffer, _)| buffer.capacity()).sum();
            peak = peak.max(held);
            assert_eq!(pinned.in_use(), held, "{}/{step}", pinned.name());
            if let Pinned::Pool(pool) = &pinned {
                assert_consistent(pool);
                let report = pool.report();
                most_held = most_held.max(report.held_bytes);
                assert_eq!(report.in_use_buffers, live.len(), "{step}");
                assert_eq!(report.held_buffers as u64, with_driver(&rig), "{step}");
                assert_eq!((report.copying_bytes, report.leaked_bytes), (0, 0), "{step}");
                assert_eq!((report.peak_in_use_bytes, report.peak_held_bytes), (peak, most_held));
            }
        }
    }
    assert_eq!(with_driver(&rig), 0);
}

pub(super) fn threads_drop_each_others_buffers(device: TestDevice) {
    let rig = Rig::new(device);
    for pinned in Pinned::both(&rig) {
        let rounds = if matches!(pinned, Pinned::Plain(_)) { 20 } else { 200 };
        let ranges = Mutex::new(Ranges::default());
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::sync_channel::<(PinnedBuffer, u8)>(8);
            scope.spawn({
                let ranges = &ranges;
                move || {
                    for (buffer, value) in receive {
                        assert!(buffer.iter().all(|byte| *byte == value), "another's bytes");
                        ranges.lock().remove(&buffer);
                        drop(buffer);
                    }
                }
            });
            for thread in 0..4_u8 {
                let (pinned, ranges, send) = (&pinned, &ranges, send.clone());
                scope.spawn(move || {
                    let mut random = Random::from_seed(u64::from(thread) + 1);
                    for round in 0..rounds {
                        let bytes = 1 + random.below(20_000);
                        let mut buffer = pinned.allocate(bytes).unwrap_or_else(fail);
                        ranges.lock().add(&buffer);
                        let value = 50 * thread + round as u8 % 50;
                        buffer.fill(value);
                        send.send((buffer, value)).expect("the other thread is there");
                    }
                });
            }
        });
        assert_eq!(pinned.in_use(), 0, "{}", pinned.name());
        if let Pinned::Pool(pool) = &pinned {
            assert_consistent(pool);
            assert!(pool.report().held_buffers < 60, "reused: {:?}", pool.report());
        }
    }
    assert_eq!(with_driver(&rig), 0);
}

pub(super) fn a_pool_hands_out_the_same_buffer_again(device: TestDevice) {
    let rig = Rig::new(device);
    let pool = pool(&rig);
    let addresses: Vec<_> = [5000, 8192, 4097, 6000]
        .map(|bytes| {
            let buffer = pool.allocate(bytes).unwrap_or_else(fail);
            assert_eq!((buffer.len(), buffer.capacity()), (bytes, 8192));
            buffer.as_ptr().addr()
        })
        .into();
    assert!(addresses.iter().all(|address| *address == addresses[0]));
    assert_eq!(rig.driver.count(DriverCall::AllocatePinned), 1);
    // Another size is another buffer, and both are kept.
    drop(pool.allocate(4096).unwrap_or_else(fail));
    assert_eq!((pool.report().held_buffers, pool.report().held_bytes), (2, 8192 + 4096));
    assert_eq!(rig.driver.count(DriverCall::FreePinned), 0);
}

pub(super) fn a_pool_never_passes_its_maximum(device: TestDevice) {
    let rig = Rig::new(device);
    let pool = pool_of(&rig, 20_000);
    let first = pool.allocate(4096).unwrap_or_else(fail);
    let second = pool.allocate(8192).unwrap_or_else(fail);
    let refused = |bytes, remaining| {
        let calls = rig.driver.count(DriverCall::AllocatePinned);
        let requested = 8192.max(bytes);
        let expected = ResourceError::OutOfBudget { requested, remaining };
        assert_eq!(pool.allocate(bytes).expect_err("full"), expected);
        assert_eq!(rig.driver.count(DriverCall::AllocatePinned), calls);
    };
    refused(5000, 20_000 - 12_288);
    // What is idle still counts; a trim makes room.
    drop(first);
    refused(8192, 20_000 - 12_288);
    pool.trim().unwrap_or_else(fail);
    let third = pool.allocate(5000).unwrap_or_else(fail);
    assert_eq!(pool.report().held_bytes, 16_384);
    // A failure of the driver leaves no trace in what remains.
    drop(third);
    pool.trim().unwrap_or_else(fail);
    rig.driver.fail_after(DriverCall::AllocatePinned, 0, 1);
    assert!(pool.allocate(8192).as_ref().is_err_and(is_injected));
    drop(pool.allocate(8192).unwrap_or_else(fail));
    pool.set_maximum(Some(8192));
    refused(16_384, 0);
    pool.set_maximum(None);
    drop((pool.allocate(1 << 20).unwrap_or_else(fail), second));
    assert_consistent(&pool);
}

pub(super) fn a_full_pool_hands_out_a_larger_buffer_before_it_refuses(device: TestDevice) {
    let rig = Rig::new(device);
    let pool = pool_of(&rig, 65_536 + 4096);
    drop(pool.allocate(65_536).unwrap_or_else(fail));
    let small = pool.allocate(100).unwrap_or_else(fail);
    let larger = pool.allocate(100).unwrap_or_else(fail);
    assert_eq!((small.capacity(), larger.capacity(), larger.len()), (4096, 65_536, 100));
    assert_eq!(pool.report().in_use_bytes, 65_536 + 4096);
    assert!(pool.allocate(100).is_err_and(|error| error.is_out_of_memory()));
    drop(larger);
    // On its own shelf again.
    assert_eq!(pool.allocate(65_000).unwrap_or_else(fail).capacity(), 65_536);
    assert_eq!(with_driver(&rig), 2);
}

pub(super) fn threads_together_never_pass_the_maximum(device: TestDevice) {
    let rig = Rig::new(device);
    let pool = pool_of(&rig, 5 * 4096);
    let (together, got) = (Barrier::new(6), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for round in 1..=30 {
                    together.wait();
                    let kept: Vec<_> = (0..2).filter_map(|_| pool.allocate(4096).ok()).collect();
                    got.fetch_add(kept.len(), Ordering::Relaxed);
                    together.wait();
                    assert_eq!(got.load(Ordering::Relaxed), 5 * round, "no more, and no fewer");
                    assert_eq!(pool.report().in_use_bytes, 5 * 4096);
                    together.wait();
                    drop(kept);
                }
            });
        }
    });
    assert_eq!((pool.report().held_buffers, pool.report().peak_held_bytes), (5, 5 * 4096));
    // What another thread is just asking the driver for counts too.
    pool.trim().unwrap_or_else(fail);
    pool.set_maximum(Some(4096));
    let stall = rig.driver.stall(DriverCall::AllocatePinned);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| pool.allocate(4096).map(drop));
        stall.wait_until_entered();
        let full = ResourceError::OutOfBudget { requested: 4096, remaining: 0 };
        assert_eq!(pool.allocate(1).expect_err("asked for"), full);
        drop(stall);
        asking.join().expect("no panic").unwrap_or_else(fail);
    });
    drop(pool.allocate(1).unwrap_or_else(fail));
    // A trim in the middle of it all gives back only what nobody has; until it has, that counts.
    pool.set_maximum(None);
    std::thread::scope(|scope| {
        for value in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for _ in 0..100 {
                    let mut buffer = pool.allocate(4096).unwrap_or_else(fail);
                    buffer.fill(value);
                    assert!(buffer.iter().all(|byte| *byte == value));
                }
            });
        }
        scope.spawn(|| (0..10).for_each(|_| pool.trim().unwrap_or_else(fail)));
    });
    assert_consistent(&pool);
}

pub(super) fn trim_gives_back_what_nobody_has(device: TestDevice) {
    let rig = Rig::new(device);
    let pool = pool(&rig);
    let kept = pool.allocate(100).unwrap_or_else(fail);
    let others = [4096, 8192, 70_000].map(|bytes| pool.allocate(bytes).unwrap_or_else(fail));
    assert_eq!(with_driver(&rig), 4);
    drop(others);
    pool.trim().unwrap_or_else(fail);
    assert_eq!((with_driver(&rig), pool.report().held_bytes), (1, 4096));
    assert_eq!(pool.report().peak_held_bytes, 4096 + 4096 + 8192 + 131_072);
    drop(kept);
    pool.trim().unwrap_or_else(fail);
    assert_eq!((with_driver(&rig), pool.report().held_buffers), (0, 0));
}
