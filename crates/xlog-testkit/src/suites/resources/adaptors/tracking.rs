//! The resource that knows who holds what.

use std::backtrace::BacktraceStatus;

use xlog_cuda::device_runtime::{
    AllocTag, BlockId, DeviceBlock, DeviceMemoryResource, ResourceError, StreamId, TrackingResource,
};

use super::{super::super::support::*, over};
use crate::{DriverCall, Rig, TestDevice, fail};

fn allocate(rig: &Rig, bytes: usize, stream: StreamId, tag: &'static str) -> DeviceBlock {
    rig.runtime.allocate(bytes, stream, AllocTag(tag)).unwrap_or_else(fail)
}

/// Address, generation, bytes and sequence of what is held.
fn held(tracked: &TrackingResource) -> Vec<(u64, u64, usize, u64)> {
    let holders = tracked.holders();
    holders.iter().map(|one| (one.ptr, one.generation.0, one.bytes, one.sequence)).collect()
}

fn entry(block: &DeviceBlock, sequence: u64) -> (u64, u64, usize, u64) {
    (block.ptr, block.generation.0, block.bytes, sequence)
}

pub(super) fn tracking_knows_who_holds_what(device: TestDevice) {
    let (rig, tracked) = over(device, TrackingResource::new);
    let [a, b] = rig.streams();
    assert_eq!((held(&tracked), tracked.by_tag()), (vec![], vec![]));
    let keys = allocate(&rig, 100, a, "keys");
    let rows = allocate(&rig, 300, b, "rows");
    let more = allocate(&rig, 250, a, "keys");
    rig.runtime.allocate(0, a, AllocTag("nothing")).expect_err("of nothing");
    rig.driver.fail_after(DriverCall::AllocateOn, 0, 1);
    rig.runtime.allocate(64, a, AllocTag("nothing")).expect_err("the driver failed");
    assert_eq!(held(&tracked), [entry(&keys, 1), entry(&rows, 2), entry(&more, 3)]);
    let holders = tracked.holders();
    let places: Vec<_> = holders.iter().map(|one| (one.tag.0, one.stream)).collect();
    assert_eq!(places, [("keys", a), ("rows", b), ("keys", a)]);
    assert!(holders.iter().all(|one| one.backtrace.is_none()));
    assert_eq!(tracked.by_tag(), [(AllocTag("keys"), 2, 350), (AllocTag("rows"), 1, 300)]);
    let line = |block: &DeviceBlock, sequence: u64| {
        let (bytes, ptr, stream) = (block.bytes, block.ptr, block.alloc_stream.0);
        let generation = block.generation.0;
        format!(
            "    {bytes} bytes at {ptr:#x} on stream {stream}, generation {generation}, \
             allocation number {sequence}"
        )
    };
    let expected = [
        "device 0: 3 blocks held, 650 bytes".to_owned(),
        "  \"keys\": 2 blocks, 350 bytes".to_owned(),
        line(&keys, 1),
        line(&more, 3),
        "  \"rows\": 1 block, 300 bytes".to_owned(),
        line(&rows, 2),
    ];
    assert_eq!(tracked.leak_report().lines().collect::<Vec<_>>(), expected);

    let foreign = DeviceBlock { device_ordinal: 7, ..handle_of(&more) };
    rig.runtime.deallocate(foreign).expect_err("another device's");
    rig.runtime.deallocate(keys).unwrap_or_else(fail);
    assert_eq!(held(&tracked), [entry(&rows, 2), entry(&more, 3)]);
    assert_eq!(tracked.by_tag(), [(AllocTag("rows"), 1, 300), (AllocTag("keys"), 1, 250)]);
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    let (rows, _) = rig.runtime.try_deallocate(rows).expect_err("the driver failed");
    assert_eq!(held(&tracked), [entry(&rows, 2), entry(&more, 3)]);
    rig.runtime.try_deallocate(rows).map_err(|(_, error)| error).unwrap_or_else(fail);
    assert_eq!(tracked.by_tag(), [(AllocTag("keys"), 1, 250)]);
    assert_says(&format!("{tracked:?}"), &["TrackingResource", "keys", "250"]);
    rig.runtime.deallocate(more).unwrap_or_else(fail);
    assert_eq!(tracked.leak_report(), "device 0: no block is held");
}

pub(super) fn tracking_tells_blocks_at_one_address_apart(device: TestDevice) {
    let (rig, tracked) = over(device, TrackingResource::new);
    let [stream] = rig.streams();
    let old = rig.block(4096, stream);
    let stale = handle_of(&old);
    rig.runtime.deallocate(old).unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    // Which of its idle memory a driver hands out first is its own affair.
    let mut blocks = vec![rig.block(4096, stream)];
    while blocks.last().is_some_and(|block| block.ptr != stale.ptr) {
        assert!(blocks.len() < 1_000, "the address never came back");
        blocks.push(rig.block(4096, stream));
    }
    let expected: Vec<_> = (2..).zip(&blocks).map(|(n, block)| entry(block, n)).collect();
    assert_eq!(held(&tracked), expected);
    let error = ResourceError::UseAfterFree { generation: stale.generation };
    assert_eq!(rig.runtime.deallocate(stale), Err(error));
    assert_eq!(held(&tracked), expected);
    for block in blocks {
        rig.runtime.deallocate(block).unwrap_or_else(fail);
    }
    assert_eq!(held(&tracked), []);
}

pub(super) fn tracking_holds_a_block_whose_free_failed_until_it_is_reaped(device: TestDevice) {
    let (rig, tracked) = over(device, TrackingResource::new);
    let [stream] = rig.streams();
    let reaps: [fn(&Rig) -> _; 2] =
        [|rig| rig.runtime.reap_pending(), |rig| rig.runtime.try_reap()];
    for (round, reap) in (1..).zip(reaps) {
        let block = rig.block(4096, stream);
        let expected = [entry(&block, round)];
        rig.driver.fail_after(DriverCall::FreeOn, 0, 2);
        let error = rig.runtime.deallocate(block).expect_err("the driver failed");
        assert!(is_injected(&error), "{error:?}");
        assert_eq!(held(&tracked), expected);
        reap(&rig).expect_err("the driver failed again");
        assert_eq!(held(&tracked), expected);
        reap(&rig).unwrap_or_else(fail);
        assert_eq!(held(&tracked), []);
        assert_eq!(rig.resource.live_bytes(), 0);
    }
}

pub(super) fn tracking_sees_slices_and_captures_where_they_were_allocated(device: TestDevice) {
    let (rig, tracked) = over(device, TrackingResource::with_backtraces);
    let [stream] = rig.streams();
    let slice = rig.zeros(1024, stream);
    let holders = tracked.holders();
    assert_eq!(holders.len(), 1, "{holders:?}");
    let id = BlockId::from_block(block_of(&slice));
    assert_eq!((holders[0].ptr, holders[0].generation), (id.ptr, id.generation));
    assert_eq!(tracked.by_tag(), [(AllocTag("zeros"), 1, tracked.bytes_outstanding())]);
    let backtrace = holders[0].backtrace.as_ref().expect("backtraces are captured");
    assert_eq!(backtrace.status(), BacktraceStatus::Captured);
    let (report, frames) = (tracked.leak_report(), backtrace.to_string().lines().count());
    assert!(frames > 0);
    assert_eq!(report.lines().count(), 3 + frames, "{report}");
    assert_says(&report, &["\"zeros\": 1 block"]);
    drop(slice);
    assert_eq!(held(&tracked), []);
}
