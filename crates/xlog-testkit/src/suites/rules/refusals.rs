//! Rule 6: device, then stream, then (pointer, generation), and a refusal changes nothing.

use xlog_cuda::device_runtime::{
    Access, BlockId, BlockUse, DeviceBlock, Generation, ResourceError, ResourceResult, StreamId,
};

use crate::{DriverCall, Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    rule_6_the_device_is_checked_first,
    rule_6_the_stream_is_checked_second,
    rule_6_the_pointer_and_the_generation_are_checked_last,
    rule_6_a_batch_with_one_stale_block_changes_nothing,
    rule_6_a_released_stream_is_refused_by_every_call,
    record_block_use_is_the_same_as_finishing_a_read,
];

const NOWHERE: StreamId = StreamId(999);

/// Every call that names a block, made with a block and a stream that are partly wrong; the names
/// of the calls and their answers. Checks that nothing changed.
fn every_call(rig: &Rig, wrong: BlockId, stream: StreamId) -> Vec<(&'static str, ResourceError)> {
    let handle = || DeviceBlock {
        ptr: wrong.ptr,
        device_ordinal: wrong.device_ordinal,
        // Handing back names one stream: the block's own.
        alloc_stream: stream,
        bytes: 64,
        align: 256,
        tag: xlog_cuda::device_runtime::AllocTag("wrong"),
        generation: wrong.generation,
        state: xlog_cuda::device_runtime::BlockState::Live,
    };
    let counts = || {
        [DriverCall::WaitEvent, DriverCall::RecordEvent, DriverCall::FreeOn]
            .map(|call| rig.driver.count(call))
    };
    let (books, before) = (rig.books(), counts());
    let rt = &rig.runtime;
    let mut answers: Vec<(&'static str, ResourceResult<()>)> = vec![
        ("record_block_use", rt.record_block_use(&handle(), stream)),
        ("deallocate", rt.deallocate(handle())),
        ("try_deallocate", rt.try_deallocate(handle()).map_err(|(_, error)| error)),
    ];
    for access in [Access::Read, Access::Write, Access::ReadWrite] {
        let uses = [BlockUse::new(wrong, access)];
        answers.push(("prepare_block_use", rt.prepare_block_use(wrong, stream, access)));
        answers.push(("finish_block_use", rt.finish_block_use(wrong, stream, access)));
        answers.push(("prepare_uses", rt.prepare_uses(&uses, stream)));
        answers.push(("finish_uses", rt.finish_uses(&uses, stream)));
    }
    assert_eq!(rig.books(), books);
    assert_eq!(counts(), before);
    answers.into_iter().map(|(call, answer)| (call, answer.expect_err(call))).collect()
}

/// A block with a write and two reads on other streams, and those streams.
fn used_block(rig: &Rig) -> (DeviceBlock, [StreamId; 3]) {
    let [a, b, c] = rig.streams();
    let block = rig.block(64, a);
    rig.touch(&block, b, Access::Write);
    rig.touch(&block, a, Access::Read);
    rig.touch(&block, c, Access::Read);
    (block, [a, b, c])
}

fn rule_6_the_device_is_checked_first(device: TestDevice) {
    let rig = Rig::new(device);
    let (block, [a, ..]) = used_block(&rig);
    let right = BlockId::from_block(&block);
    let foreign = BlockId { device_ordinal: 3, ..right };
    let all_wrong = BlockId { ptr: 0x40, generation: Generation(u64::MAX), ..foreign };
    for (wrong, stream) in [(foreign, a), (foreign, NOWHERE), (all_wrong, a), (all_wrong, NOWHERE)]
    {
        for (call, error) in every_call(&rig, wrong, stream) {
            assert!(matches!(error, ResourceError::Driver(_)), "{call}: {error:?}");
        }
    }
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(3));
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn rule_6_the_stream_is_checked_second(device: TestDevice) {
    let rig = Rig::new(device);
    let (block, _) = used_block(&rig);
    let right = BlockId::from_block(&block);
    let stale = BlockId { generation: Generation(u64::MAX), ..right };
    for wrong in [right, stale] {
        for (call, error) in every_call(&rig, wrong, NOWHERE) {
            assert!(matches!(error, ResourceError::StreamMisuse(_)), "{call}: {error:?}");
        }
    }
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(3));
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn rule_6_the_pointer_and_the_generation_are_checked_last(device: TestDevice) {
    let rig = Rig::new(device);
    let (block, streams) = used_block(&rig);
    let right = BlockId::from_block(&block);
    for wrong in [
        BlockId { generation: Generation(right.generation.0 - 1), ..right },
        BlockId { generation: Generation(u64::MAX), ..right },
        BlockId { generation: Generation(0), ..right },
        BlockId { ptr: right.ptr + 256, ..right },
        BlockId { ptr: 0, ..right },
    ] {
        for stream in streams {
            for (call, error) in every_call(&rig, wrong, stream) {
                let expected = ResourceError::UseAfterFree { generation: wrong.generation };
                assert_eq!(error, expected, "{call}");
            }
        }
    }
    assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(3));
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn rule_6_a_batch_with_one_stale_block_changes_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let blocks = [rig.block(64, a), rig.block(64, a)];
    let stale = BlockId { generation: Generation(u64::MAX), ..BlockId::from_block(&blocks[0]) };
    let foreign = BlockId { device_ordinal: 9, ..BlockId::from_block(&blocks[0]) };
    let right = blocks.each_ref().map(BlockId::from_block);
    for wrong in [stale, foreign] {
        for place in 0..3 {
            let mut ids = right.to_vec();
            ids.insert(place, wrong);
            let uses: Vec<_> = ids.into_iter().map(|id| BlockUse::new(id, Access::Read)).collect();
            let books = rig.books();
            rig.runtime.prepare_uses(&uses, b).expect_err("one of them is wrong");
            rig.runtime.finish_uses(&uses, b).expect_err("one of them is wrong");
            assert_eq!(rig.books(), books, "no wait, no event");
            for block in &blocks {
                assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(1));
            }
        }
    }
    blocks.into_iter().for_each(|block| rig.runtime.deallocate(block).unwrap_or_else(fail));
}

fn rule_6_a_released_stream_is_refused_by_every_call(device: TestDevice) {
    let rig = Rig::new(device);
    let (block, [_, _, c]) = used_block(&rig);
    rig.pool.release(c).unwrap_or_else(fail);
    for (call, error) in every_call(&rig, BlockId::from_block(&block), c) {
        assert!(matches!(error, ResourceError::StreamMisuse(_)), "{call}: {error:?}");
    }
    rig.runtime.deallocate(block).unwrap_or_else(fail);
}

fn record_block_use_is_the_same_as_finishing_a_read(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b, c] = rig.streams();
    let (old, new) = (rig.block(64, a), rig.block(64, a));
    let calls = [DriverCall::WaitEvent, DriverCall::RecordEvent];
    let cost = |work: &dyn Fn()| {
        let before = calls.map(|call| rig.driver.count(call));
        work();
        let after = calls.map(|call| rig.driver.count(call));
        [after[0] - before[0], after[1] - before[1]]
    };
    let id = BlockId::from_block(&new);
    let older = cost(&|| rig.runtime.record_block_use(&old, b).unwrap_or_else(fail));
    let newer = cost(&|| rig.runtime.finish_block_use(id, b, Access::Read).unwrap_or_else(fail));
    assert_eq!((older, newer), ([0, 1], [0, 1]), "no wait, one event");
    for block in [&old, &new] {
        assert_eq!(rig.resource.pending_use_event_count(block.ptr), Some(2));
        // The unprepared read follows nothing: the writer waits for it and for the allocation.
        let first = cost(&|| {
            let id = BlockId::from_block(block);
            rig.runtime.prepare_block_use(id, c, Access::Write).unwrap_or_else(fail);
        });
        assert_eq!(first, [2, 0]);
    }
    for block in [old, new] {
        rig.runtime.deallocate(block).unwrap_or_else(fail);
    }
}
