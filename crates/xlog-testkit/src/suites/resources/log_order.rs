//! The one order of a log, over several threads.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use xlog_cuda::device_runtime::{
    AllocTag, AsyncCudaResource, BlockId, DeviceBlock, DeviceMemoryResource, LogAction,
    LoggingResource, MemorySink, ResourceResult, StreamId,
};

use super::{super::support::Random, logging::logged};
use crate::{Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    memory_handed_out_again_before_its_free_returned_was_freed_first,
    four_threads_make_one_log_in_an_order_that_can_have_happened,
];

/// Frees at once, and returns from it only when told.
struct Lingering {
    inner: Arc<AsyncCudaResource>,
    freed: Mutex<mpsc::Sender<()>>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl DeviceMemoryResource for Lingering {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        self.inner.allocate(bytes, stream, tag)
    }
    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        let answer = self.inner.deallocate(block);
        let _ = self.freed.lock().send(());
        let _ = self.go_on.lock().recv_timeout(Duration::from_secs(15));
        answer
    }
    fn device_ordinal(&self) -> u32 {
        self.inner.device_ordinal()
    }
    fn bytes_outstanding(&self) -> usize {
        self.inner.bytes_outstanding()
    }
}

fn memory_handed_out_again_before_its_free_returned_was_freed_first(device: TestDevice) {
    let sink = Arc::new(MemorySink::new(1000));
    let ((freed, is_freed), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
    let rig = Rig::decorated(device, |inner| {
        let lingering = Lingering { inner, freed: Mutex::new(freed), go_on: Mutex::new(may_go_on) };
        Box::new(LoggingResource::new(Box::new(lingering), Arc::clone(&sink)))
    });
    let block = rig.block(4096, StreamId::DEFAULT);
    let address = block.ptr;
    thread::scope(|scope| {
        let freeing = scope.spawn(|| rig.runtime.deallocate(block));
        is_freed.recv().expect("the free is under way");
        // Which of its idle memory a driver hands out first is its own affair.
        let mut others = Vec::new();
        let again = loop {
            let next = rig.block(4096, StreamId::DEFAULT);
            if next.ptr == address {
                break next;
            }
            others.push(next);
            assert!(others.len() < 100, "the address never comes back");
        };
        assert_eq!(sink.records().len(), 1, "nothing overtakes the free");
        go_on.send(()).expect("the free waits");
        freeing.join().expect("no panic").unwrap_or_else(fail);
        drop(go_on);
        for block in others.into_iter().chain([again]) {
            rig.resource.deallocate(block).unwrap_or_else(fail);
        }
    });
    let records = sink.records();
    let of_address: Vec<_> = records
        .iter()
        .filter(|record| record.address == Some(address))
        .map(|record| record.action)
        .collect();
    assert_eq!(of_address, [LogAction::Allocate, LogAction::Free, LogAction::Allocate]);
    assert!(records.is_sorted_by_key(|record| record.time_ns));
}

fn four_threads_make_one_log_in_an_order_that_can_have_happened(device: TestDevice) {
    const ROUNDS: usize = 500;
    let (rig, sink, _) = logged(device);
    let seed = Random::new().next();
    let orders: Vec<Vec<BlockId>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|me| {
                let (rig, mut random) = (&rig, Random::from_seed(seed ^ me));
                scope.spawn(move || {
                    let (mut blocks, mut order) = (Vec::new(), Vec::new());
                    for _ in 0..ROUNDS {
                        // One stream and one size: the threads get each other's addresses.
                        let block = rig.block(4096, StreamId::DEFAULT);
                        order.push(BlockId::from_block(&block));
                        blocks.push(block);
                        while blocks.len() > random.below(3) {
                            let block = blocks.swap_remove(random.below(blocks.len()));
                            rig.runtime.deallocate(block).unwrap_or_else(fail);
                        }
                    }
                    for block in blocks {
                        rig.runtime.deallocate(block).unwrap_or_else(fail);
                    }
                    order
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });

    let records = sink.records();
    assert_eq!(records.len(), 2 * 4 * ROUNDS);
    assert!(records.iter().map(|record| record.sequence).eq(0..records.len() as u64));
    assert!(records.is_sorted_by_key(|record| record.time_ns));
    let mut live = HashMap::new();
    let mut by_thread: HashMap<u32, Vec<_>> = HashMap::new();
    for record in &records {
        let (address, generation) = (record.address.expect("one"), record.generation.expect("one"));
        match record.action {
            LogAction::Allocate => {
                let before = live.insert(address, generation);
                assert_eq!(before, None, "{address:#x} is handed out before it is freed");
                by_thread.entry(record.thread).or_default().push(generation);
            }
            _ => assert_eq!(live.remove(&address), Some(generation), "freed as it was handed out"),
        }
    }
    assert!(live.is_empty(), "every allocation has its free");
    assert_eq!(by_thread.len(), 4);
    for order in orders {
        let generations: Vec<_> = order.iter().map(|id| id.generation).collect();
        assert!(by_thread.values().any(|logged| *logged == generations), "each thread's own order");
    }
}
