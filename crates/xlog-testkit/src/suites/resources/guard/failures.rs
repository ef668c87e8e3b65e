//! A driver that fails, and threads that meet.

use std::sync::Arc;

use xlog_cuda::device_runtime::{Access, AllocTag, DeviceMemoryResource, GuardOptions};

use super::{super::super::support::*, block, guarded, write_raw};
use crate::{DriverCall, TestDevice, fail};

pub(super) fn each_failing_driver_call_is_an_error_and_loses_nothing(device: TestDevice) {
    let calls = [
        DriverCall::AllocateOn,
        DriverCall::FillBytes,
        DriverCall::AllocatePinned,
        DriverCall::CopyToHost,
        DriverCall::SynchronizeStream,
        DriverCall::RecordEvent,
        DriverCall::WaitEvent,
        DriverCall::FreeOn,
    ];
    let mut failed = 0;
    for (call, pass, often) in calls
        .iter()
        .flat_map(|call| (0..4).flat_map(move |pass| [1, 3].map(|often| (*call, pass, often))))
    {
        let text = format!("{call:?} after {pass}, {often} times");
        let (rig, guard) = guarded(device, GuardOptions::default().with_quarantine(1 << 20, 1));
        let [a, b] = rig.streams();
        rig.driver.fail_after(call, pass, often);
        let mut errors = Vec::new();
        for _ in 0..3 {
            match guard.allocate(1000, a, AllocTag("test")) {
                Err(error) => errors.push(error),
                Ok(one) => {
                    let id = xlog_cuda::device_runtime::BlockId::from_block(&one);
                    let used = guard.prepare_block_use(id, b, Access::Write);
                    let used = used.and_then(|()| guard.finish_block_use(id, b, Access::Write));
                    errors.extend(used.err());
                    errors.extend(guard.deallocate(one).err());
                }
            }
            errors.extend(guard.reap_pending().err());
        }
        errors.extend(guard.check().err());
        assert!(errors.iter().all(is_injected), "{text}: {errors:?}");
        failed += usize::from(!errors.is_empty());
        rig.driver.heal();
        rig.device.synchronize().unwrap_or_else(fail);
        guard.reap_pending().unwrap_or_else(fail);
        guard.check().unwrap_or_else(fail);
        guard.empty_quarantine().unwrap_or_else(fail);
        guard.reap_pending().unwrap_or_else(fail);
        let leaked = rig.pool.stats().leaked_blocks;
        if leaked == 0 {
            assert_eq!((guard.bytes_outstanding(), rig.pool.stats().blocks), (0, 0), "{text}");
        }
        assert_eq!(guard.findings().len(), 0, "{text}");
        assert_works(&rig, a);
    }
    assert!(failed > 45, "only {failed} of 64 programs saw a failure");
}

pub(super) fn a_free_the_guard_cannot_look_at_is_looked_at_by_the_next_reap(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a] = rig.streams();
    let keys = block(&rig, 1000, a, "keys");
    let ptr = keys.ptr;
    write_raw(&rig, ptr, 251, a);
    rig.driver.fail_always(DriverCall::CopyToHost);
    rig.driver.fail_always(DriverCall::FillBytes);
    let error = guard.deallocate(keys).expect_err("the driver failed");
    assert!(is_injected(&error), "{error}");
    assert_eq!((guard.quarantined().0, guard.findings().len()), (1, 0));
    assert!(guard.reap_pending().as_ref().is_err_and(is_injected));
    assert!(guard.check().as_ref().is_err_and(is_injected));
    rig.driver.heal();
    guard.reap_pending().unwrap_or_else(fail);
    assert_eq!(guard.findings().len(), 1, "the write behind its end");
    write_raw(&rig, ptr, 1, a);
    guard.check().expect_err("both mistakes");
    assert_eq!(guard.findings().len(), 2, "and the one after the free");
}

pub(super) fn a_failed_free_gives_the_block_back_usable(device: TestDevice) {
    for call in [DriverCall::CopyToHost, DriverCall::FillBytes, DriverCall::SynchronizeStream] {
        let (rig, guard) = guarded(device, GuardOptions::default());
        let [a, b] = rig.streams();
        let keys = block(&rig, 256, a, "keys");
        rig.driver.fail_after(call, 0, 1);
        let (keys, error) = rig.runtime.try_deallocate(keys).expect_err("the driver failed");
        assert!(is_injected(&error), "{call:?}: {error}");
        assert_eq!(guard.quarantined().0, 0);
        rig.runtime.reap_pending().unwrap_or_else(fail);
        rig.touch(&keys, b, Access::Write);
        rig.runtime.deallocate(keys).unwrap_or_else(fail);
        guard.check().unwrap_or_else(fail);
        assert_eq!((guard.quarantined().0, guard.findings().len()), (1, 0));
    }
}

pub(super) fn a_lost_device_is_an_error(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a] = rig.streams();
    let (keys, rows) = (block(&rig, 256, a, "keys"), block(&rig, 256, a, "rows"));
    rig.driver.lose_device_at(DriverCall::CopyToHost);
    let bytes = guard.bytes_outstanding();
    guard.deallocate(keys).expect_err("the device is lost");
    let lost = Err(xlog_cuda::device_runtime::ResourceError::DeviceLost);
    assert_eq!(guard.deallocate(rows), lost);
    assert_eq!(
        (guard.check(), guard.reap_pending(), guard.try_reap()),
        (lost.clone(), lost.clone(), lost)
    );
    assert_eq!((guard.bytes_outstanding(), guard.findings().len()), (bytes, 0));
}

pub(super) fn threads_do_not_disturb_each_other(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default().with_quarantine(1 << 16, 6));
    let streams: [_; 4] = rig.streams();
    let shared = Arc::new(rig.filled(128, 5, streams[0]));
    std::thread::scope(|scope| {
        for (index, stream) in streams.into_iter().enumerate() {
            let (rig, guard, shared) = (&rig, &guard, &shared);
            scope.spawn(move || {
                for round in 0..60_u32 {
                    let mine = rig.zeros(128 + index, stream);
                    rig.fill(&mine, round, stream).unwrap_or_else(fail);
                    let copy = rig.zeros(128, stream);
                    rig.copy(shared, &copy, stream).unwrap_or_else(fail);
                    assert_eq!(copy.download().unwrap_or_else(fail), [5; 128]);
                    if round % 16 == index as u32 {
                        guard.check().unwrap_or_else(fail);
                    }
                    assert_eq!(mine.download().unwrap_or_else(fail), vec![round; 128 + index]);
                }
            });
        }
        scope.spawn(|| (0..20).for_each(|_| guard.empty_quarantine().unwrap_or_else(fail)));
    });
    drop(shared);
    guard.empty_quarantine().unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!((guard.findings().len(), rig.runtime.bytes_outstanding()), (0, 0));
    assert_eq!(rig.pool.stats().blocks, 0);
}
