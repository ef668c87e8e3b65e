//! The pool under many calls: against a model, and from many threads.

use std::{
    collections::BTreeMap,
    sync::{Barrier, mpsc},
};

use parking_lot::Mutex;
use xlog_cuda::device_runtime::{Access, DeviceBlock, DeviceMemoryResource, StreamId};

use super::{
    super::support::Random,
    suballocation::{SLAB, pooled},
};
use crate::{TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    random_programs_agree_with_a_model,
    threads_with_streams_of_their_own_never_share_memory,
    blocks_freed_on_other_threads_come_back,
];

/// Allocations, uses, frees and trims in any order, over three streams: no two live blocks
/// overlap, and the counters agree with a model after every step.
fn random_programs_agree_with_a_model(device: TestDevice) {
    for seed in 1..=12 {
        let (rig, pool) = pooled(device, Some(64 << 20));
        let streams: [StreamId; 3] = rig.streams();
        let mut random = Random::from_seed(seed);
        let mut live: Vec<DeviceBlock> = Vec::new();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for step in 0..400 {
            let stream = streams[random.below(3)];
            match random.below(10) {
                0..=4 => {
                    let bits = 4 + random.below(16);
                    let bytes = 1 + random.below(1 << bits);
                    let block = rig.block(bytes, stream);
                    assert!(block.bytes >= bytes && block.ptr % 256 == 0);
                    let (start, end) = (block.ptr, block.ptr + block.bytes as u64);
                    let before = model.range(..end).next_back();
                    assert!(before.is_none_or(|(_, end)| *end <= start), "{seed}/{step}: overlap");
                    model.insert(start, end);
                    live.push(block);
                }
                5..=6 if !live.is_empty() => {
                    let access = [Access::Read, Access::Write, Access::ReadWrite][random.below(3)];
                    rig.touch(&live[random.below(live.len())], stream, access);
                }
                7..=8 if !live.is_empty() => {
                    let block = live.swap_remove(random.below(live.len()));
                    model.remove(&block.ptr);
                    rig.runtime.deallocate(block).unwrap_or_else(fail);
                }
                9 if random.below(8) == 0 => pool.trim().unwrap_or_else(fail),
                _ => {}
            }
            let bytes: u64 = model.iter().map(|(start, end)| end - start).sum();
            let report = pool.report();
            assert_eq!(
                (report.live_bytes, report.live_blocks, pool.bytes_outstanding()),
                (bytes as usize, live.len(), bytes as usize),
                "{seed}/{step}"
            );
            assert_eq!(report.free_bytes + report.live_bytes, report.slab_bytes, "{seed}/{step}");
        }
        live.drain(..).for_each(|block| rig.runtime.deallocate(block).unwrap_or_else(fail));
        pool.trim().unwrap_or_else(fail);
        rig.runtime.reap_pending().unwrap_or_else(fail);
        assert_eq!((pool.report().slabs, rig.resource.bytes_outstanding()), (0, 0), "{seed}");
    }
}

fn threads_with_streams_of_their_own_never_share_memory(device: TestDevice) {
    const THREADS: usize = 8;
    let (rig, pool) = pooled(device, None);
    let streams: [StreamId; THREADS] = rig.streams();
    let owned: Mutex<BTreeMap<u64, u64>> = Mutex::default();
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for (thread, stream) in streams.into_iter().enumerate() {
            let (rig, pool, owned, start) = (&rig, &pool, &owned, &start);
            scope.spawn(move || {
                let mut random = Random::from_seed(thread as u64 + 99);
                let mut mine = Vec::new();
                start.wait();
                for _ in 0..2_000 {
                    if random.below(2) == 0 || mine.is_empty() {
                        let bytes = 1 + random.below(200_000);
                        let block = rig.block(bytes, stream);
                        let end = block.ptr + block.bytes as u64;
                        let mut owned = owned.lock();
                        let before = owned.range(..end).next_back();
                        assert!(before.is_none_or(|(_, end)| *end <= block.ptr), "overlap");
                        owned.insert(block.ptr, end);
                        mine.push(block);
                    } else {
                        let block = mine.swap_remove(random.below(mine.len()));
                        owned.lock().remove(&block.ptr);
                        pool.deallocate(block).unwrap_or_else(fail);
                    }
                }
                for block in mine {
                    owned.lock().remove(&block.ptr);
                    pool.deallocate(block).unwrap_or_else(fail);
                }
            });
        }
    });
    assert_eq!((pool.bytes_outstanding(), pool.report().live_blocks), (0, 0));
}

fn blocks_freed_on_other_threads_come_back(device: TestDevice) {
    let (rig, pool) = pooled(device, Some(8 * SLAB));
    let [a, b] = rig.streams();
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<DeviceBlock>(4);
        scope.spawn({
            let pool = &pool;
            move || receive.iter().for_each(|block| pool.deallocate(block).unwrap_or_else(fail))
        });
        for round in 0..3_000 {
            let stream = if round % 2 == 0 { a } else { b };
            let block = rig.block(300_000, stream);
            rig.touch(&block, stream, Access::Write);
            send.send(block).expect("the other thread is there");
        }
    });
    assert_eq!((pool.bytes_outstanding(), pool.report().live_blocks), (0, 0));
}
