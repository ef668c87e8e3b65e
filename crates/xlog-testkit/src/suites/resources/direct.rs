//! The plain synchronous allocator: no pool, no tracking, and no way to forget either.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use xlog_cuda::{
    device_runtime::{
        Access, AllocTag, BlockId, DeviceBlock, DeviceMemoryResource, DirectCudaResource,
        Generation, ResourceError, StreamId,
    },
    launch::LaunchRecorder,
};

use super::super::support::handle_of;
use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, eventually, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    plain_memory_is_granted_counted_and_freed,
    plain_memory_refuses_zero_bytes_and_more_than_there_is,
    a_plain_block_that_is_foreign_stale_or_unknown_changes_nothing,
    a_failed_plain_free_keeps_the_block_counted_and_the_next_reap_frees_it,
    a_plain_block_whose_free_failed_is_out_of_use,
    a_plain_try_deallocate_gives_the_block_back,
    a_plain_free_waits_for_the_device,
    plain_memory_tracks_no_uses_and_says_so,
    preflight_refuses_plain_memory_before_anything_is_enqueued,
    a_plain_resource_with_a_wrong_ordinal_is_refused_unless_the_device_takes_any,
];

fn plain(rig: &Rig) -> DirectCudaResource {
    DirectCudaResource::new(Arc::clone(&rig.device), 0)
}

fn get(resource: &DirectCudaResource, bytes: usize) -> DeviceBlock {
    resource.allocate(bytes, StreamId::DEFAULT, AllocTag("plain")).unwrap_or_else(fail)
}

fn plain_memory_is_granted_counted_and_freed(device: TestDevice) {
    let rig = Rig::new(device);
    let resource = plain(&rig);
    let (first, second) = (get(&resource, 1000), get(&resource, 3000));
    assert!(first.bytes >= 1000 && first.ptr.is_multiple_of(first.align as u64));
    assert!(second.generation > first.generation && first.tag == AllocTag("plain"));
    assert_eq!(resource.device_ordinal(), 0);
    let calls = [DriverCall::Allocate, DriverCall::AllocateOn].map(|call| rig.driver.count(call));
    assert_eq!(calls, [2, 0], "nothing stream-ordered");
    assert_eq!(resource.bytes_outstanding(), first.bytes + second.bytes);
    let left = second.bytes;
    resource.deallocate(first).unwrap_or_else(fail);
    assert_eq!(resource.bytes_outstanding(), left, "a plain free is over when it returns");
    resource.deallocate(second).unwrap_or_else(fail);
    assert_eq!(resource.bytes_outstanding(), 0);
    resource.reap_pending().unwrap_or_else(fail);
    resource.try_reap().unwrap_or_else(fail);
}

fn plain_memory_refuses_zero_bytes_and_more_than_there_is(device: TestDevice) {
    let rig = Rig::new(device);
    let resource = plain(&rig);
    let total = rig.device.memory().unwrap_or_else(fail).total as usize;
    for bytes in [0, total + 1, usize::MAX] {
        let answer = resource.allocate(bytes, StreamId::DEFAULT, AllocTag::UNTAGGED);
        assert!(matches!(answer, Err(ResourceError::Driver(_))), "{bytes}: {answer:?}");
    }
    assert_eq!(resource.bytes_outstanding(), 0);
}

fn a_plain_block_that_is_foreign_stale_or_unknown_changes_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let resource = plain(&rig);
    let block = get(&resource, 4096);
    let bytes = block.bytes;
    let refused = |wrong: DeviceBlock| {
        let error = resource.deallocate(wrong).expect_err("a wrong block");
        assert_eq!(resource.bytes_outstanding(), bytes);
        assert_eq!(rig.driver.count(DriverCall::Free), 0, "the driver was not asked");
        error
    };
    let foreign = refused(DeviceBlock { device_ordinal: 7, ..handle_of(&block) });
    assert!(matches!(foreign, ResourceError::Driver(_)), "{foreign:?}");
    for unknown in [
        DeviceBlock { generation: Generation::next(), ..handle_of(&block) },
        DeviceBlock { ptr: block.ptr + 256, ..handle_of(&block) },
    ] {
        let generation = unknown.generation;
        assert_eq!(refused(unknown), ResourceError::UseAfterFree { generation });
    }
    let stale = handle_of(&block);
    resource.deallocate(block).unwrap_or_else(fail);
    let generation = stale.generation;
    assert_eq!(resource.deallocate(stale), Err(ResourceError::UseAfterFree { generation }));
    assert_eq!(resource.bytes_outstanding(), 0);
}

fn a_failed_plain_free_keeps_the_block_counted_and_the_next_reap_frees_it(device: TestDevice) {
    let rig = Rig::new(device);
    let resource = plain(&rig);
    let block = get(&resource, 4096);
    let bytes = block.bytes;
    rig.driver.fail_after(DriverCall::Free, 0, 2);
    resource.deallocate(block).expect_err("the driver failed");
    assert_eq!(resource.bytes_outstanding(), bytes);
    resource.reap_pending().expect_err("the driver failed again");
    assert_eq!(resource.bytes_outstanding(), bytes);
    resource.reap_pending().unwrap_or_else(fail);
    assert_eq!(resource.bytes_outstanding(), 0);
    resource.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.driver.count(DriverCall::Free), 3, "freed once, after two failures");
}

fn a_plain_block_whose_free_failed_is_out_of_use(device: TestDevice) {
    let rig = Rig::new(device);
    let resource = plain(&rig);
    let block = get(&resource, 4096);
    let second = handle_of(&block);
    let generation = second.generation;
    rig.driver.fail_after(DriverCall::Free, 0, 1);
    resource.deallocate(block).expect_err("the driver failed");
    assert_eq!(resource.deallocate(second), Err(ResourceError::UseAfterFree { generation }));
    resource.reap_pending().unwrap_or_else(fail);
    assert_eq!(resource.bytes_outstanding(), 0);
}

fn a_plain_try_deallocate_gives_the_block_back(device: TestDevice) {
    let rig = Rig::new(device);
    let resource = plain(&rig);
    let block = get(&resource, 4096);
    let id = BlockId::from_block(&block);
    rig.driver.fail_after(DriverCall::Free, 0, 1);
    let (block, _) = resource.try_deallocate(block).expect_err("the driver failed");
    assert_eq!((BlockId::from_block(&block), resource.bytes_outstanding()), (id, block.bytes));
    resource.reap_pending().unwrap_or_else(fail);
    assert_eq!(resource.bytes_outstanding(), block.bytes, "the caller's: no reap takes it away");
    resource.try_deallocate(block).map_err(|(_, error)| error).unwrap_or_else(fail);
    assert_eq!(resource.bytes_outstanding(), 0);
}

fn a_plain_free_waits_for_the_device(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let resource = plain(&rig);
    let block = get(&resource, 4096);
    let gate = Gate::new(&rig);
    gate.hold(&rig, stream);
    let returned = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            resource.deallocate(block).unwrap_or_else(fail);
            returned.store(true, Ordering::SeqCst);
        });
        let early = eventually(Duration::from_millis(20), || returned.load(Ordering::SeqCst));
        gate.open();
        assert!(!early, "the free returned while the device was at work");
    });
    assert_eq!(resource.bytes_outstanding(), 0);
}

fn plain_memory_tracks_no_uses_and_says_so(device: TestDevice) {
    let rig = Rig::new(device);
    let resource = plain(&rig);
    let block = get(&resource, 4096);
    let (id, stream) = (BlockId::from_block(&block), StreamId::DEFAULT);
    assert!(!resource.supports_block_use_tracking());
    for answer in [
        resource.prepare_block_use(id, stream, Access::Read),
        resource.finish_block_use(id, stream, Access::Read),
        resource.record_block_use(&block, stream),
    ] {
        assert!(matches!(answer, Err(ResourceError::StreamMisuse(_))), "{answer:?}");
    }
    resource.deallocate(block).unwrap_or_else(fail);
}

fn preflight_refuses_plain_memory_before_anything_is_enqueued(device: TestDevice) {
    let rig = Rig::decorated(device, |tracking| {
        Box::new(DirectCudaResource::new(Arc::clone(tracking.device()), 0))
    });
    let [stream] = rig.streams();
    let slice = rig.manager.alloc::<u32>(64).unwrap_or_else(fail);
    let enqueued = || {
        [DriverCall::Launch, DriverCall::WaitEvent, DriverCall::RecordEvent]
            .map(|call| rig.driver.count(call))
    };
    let before = enqueued();
    let mut recorder = LaunchRecorder::new_strict(stream);
    recorder.write(&slice);
    let error = recorder.preflight(&rig.runtime).expect_err("nothing tracks the slice");
    assert!(matches!(error, ResourceError::StreamMisuse(_)), "{error:?}");
    assert!(error.to_string().contains("does not support cross-stream use tracking"), "{error}");
    rig.fill(&slice, 1, stream).expect_err("the builder refuses it too");
    assert_eq!(enqueued(), before);
    drop(recorder);
}

fn a_plain_resource_with_a_wrong_ordinal_is_refused_unless_the_device_takes_any(
    device: TestDevice,
) {
    let rig = Rig::new(device);
    let resource = DirectCudaResource::new(Arc::clone(&rig.device), 7);
    assert_eq!(resource.device_ordinal(), 7);
    let answer = resource.allocate(64, StreamId::DEFAULT, AllocTag::UNTAGGED);
    match device {
        TestDevice::Host => {
            let block = answer.unwrap_or_else(fail);
            assert_eq!(block.device_ordinal, 7);
            resource.deallocate(block).unwrap_or_else(fail);
        }
        TestDevice::Cuda => assert!(matches!(answer, Err(ResourceError::Driver(_)))),
    }
}
