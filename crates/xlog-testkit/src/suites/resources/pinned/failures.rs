//! A driver that fails.

use xlog_cuda::device_runtime::{ResourceError, StreamId};

use super::{super::super::support::*, *};
use crate::{TestDevice, fail};

const LEN: usize = 1000;

/// Everything a program does with pinned memory. Answers the errors.
fn program(rig: &Rig, pool: &PinnedPoolResource, stream: StreamId) -> Vec<ResourceError> {
    let mut errors = Vec::new();
    let slice = rig.manager.alloc::<u32>(LEN);
    let Ok(mut slice) = slice.map_err(|error| errors.push(error)) else { return errors };
    for round in 0..3 {
        let buffer = match pool.allocate(4 * LEN) {
            Ok(mut buffer) => {
                buffer.fill(round);
                buffer
            }
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let up = slice.start_upload_from(buffer, stream).map_err(|refused| refused.error);
        // Waited for, or dropped in the middle.
        let up = up.and_then(|copy| if round == 1 { copy.wait().map(drop) } else { Ok(()) });
        errors.extend(up.err());
        let down = pool.allocate(4 * LEN).and_then(|buffer| {
            let copy = slice.start_download_into(buffer, stream)?;
            let done = copy.is_done().map(drop);
            let arrived = copy.wait();
            if let (Ok(arrived), true) = (&arrived, errors.is_empty()) {
                assert!(arrived.iter().all(|byte| *byte == round), "other bytes arrived");
            }
            done.and(arrived.map(drop))
        });
        errors.extend(down.err());
        errors.extend(pool.trim().err());
        assert_consistent(pool);
    }
    errors
}

pub(super) fn each_failing_driver_call_loses_no_buffer(device: TestDevice) {
    let calls = [
        DriverCall::AllocatePinned,
        DriverCall::FreePinned,
        DriverCall::CopyToDevice,
        DriverCall::CopyToHost,
        DriverCall::RecordEvent,
        DriverCall::EventDone,
        DriverCall::SynchronizeEvent,
        DriverCall::WaitEvent,
        DriverCall::SynchronizeStream,
    ];
    let mut failed = 0;
    for (call, pass, often) in calls
        .iter()
        .flat_map(|call| (0..4).flat_map(move |pass| [1, 3].map(|often| (*call, pass, often))))
    {
        let text = format!("{call:?} after {pass}, {often} times");
        let rig = Rig::new(device);
        let [a] = rig.streams();
        let pool = pool(&rig);
        rig.driver.fail_after(call, pass, often);
        let errors = program(&rig, &pool, a);
        assert!(errors.iter().all(is_injected), "{text}: {errors:?}");
        failed += usize::from(!errors.is_empty());
        rig.driver.heal();
        rig.device.synchronize().unwrap_or_else(fail);
        pool.trim().unwrap_or_else(fail);
        let report = pool.report();
        assert_eq!((report.held_bytes, report.leaked_bytes), (0, 0), "{text}: {report:?}");
        assert_eq!((report.in_use_buffers, report.copying_bytes), (0, 0), "{text}: {report:?}");
        assert_eq!(program(&rig, &pool, a), [], "{text}: and it works again");
    }
    assert!(failed >= 40, "only {failed} of 72 programs saw a failure");
}

pub(super) fn what_the_driver_does_not_take_back_is_tried_again(device: TestDevice) {
    let rig = Rig::new(device);
    let plain = plain(&rig);
    rig.driver.fail_after(DriverCall::FreePinned, 0, 2);
    drop(plain.allocate(100).unwrap_or_else(fail));
    assert_eq!(plain.bytes_outstanding(), 100, "still counted");
    assert!(plain.reap_pending().as_ref().is_err_and(is_injected));
    assert_eq!(plain.bytes_outstanding(), 100);
    plain.reap_pending().unwrap_or_else(fail);
    assert_eq!(plain.bytes_outstanding(), 0);
    plain.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.driver.count(DriverCall::FreePinned), 3, "freed once, after two failures");
    // A pool keeps it for the next one.
    let pool = pool(&rig);
    let buffer = pool.allocate(100).unwrap_or_else(fail);
    let address = buffer.as_ptr().addr();
    drop(buffer);
    rig.driver.fail_after(DriverCall::FreePinned, 0, 1);
    assert!(pool.trim().as_ref().is_err_and(is_injected));
    assert_eq!((pool.report().held_bytes, pool.inner().bytes_outstanding()), (4096, 4096));
    assert_eq!(pool.allocate(1).unwrap_or_else(fail).as_ptr().addr(), address);
    pool.trim().unwrap_or_else(fail);
    assert_eq!((pool.report().held_bytes, pool.inner().bytes_outstanding()), (0, 0));
}

pub(super) fn a_copy_that_nobody_can_follow_leaks_its_buffer(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let pool = pool(&rig);
    let mut slice = rig.filled(LEN, 0, a);
    let buffer = pool.allocate(4 * LEN).unwrap_or_else(fail);
    let address = buffer.as_ptr().addr();
    rig.driver.fail_always(DriverCall::RecordEvent);
    rig.driver.fail_always(DriverCall::SynchronizeStream);
    let refused = slice.start_upload_from(buffer, a).expect_err("neither event nor wait");
    rig.driver.heal();
    assert!(is_injected(&refused.error) && refused.buffer.is_none(), "{refused:?}");
    let report = pool.report();
    assert_eq!((report.leaked_bytes, report.held_bytes, report.in_use_bytes), (4096, 4096, 0));
    let others: Vec<_> = (0..4).map(|_| pool.allocate(4 * LEN).unwrap_or_else(fail)).collect();
    assert!(others.iter().all(|other| other.as_ptr().addr() != address), "never used again");
    drop(others);
    rig.device.synchronize().unwrap_or_else(fail);
    pool.trim().unwrap_or_else(fail);
    assert_eq!((pool.report().held_bytes, pool.report().leaked_bytes), (4096, 4096));
    // With an event that fails and a wait that does not, the copy is over, and nothing is lost.
    let buffer = pool.allocate(4 * LEN).unwrap_or_else(fail);
    let mut other = rig.filled(LEN, 0, a);
    rig.driver.fail_always(DriverCall::RecordEvent);
    let refused = other.start_upload_from(buffer, a).expect_err("no event");
    rig.driver.heal();
    assert!(refused.buffer.is_some_and(|buffer| buffer.len() == 4 * LEN));
    assert_eq!(pool.report().leaked_bytes, 4096);
}

pub(super) fn a_lost_device_hands_out_no_pinned_memory(device: TestDevice) {
    let rig = Rig::new(device);
    let (plain, pool) = (plain(&rig), pool(&rig));
    let (mut held, idle) =
        (pool.allocate(100).unwrap_or_else(fail), pool.allocate(100).unwrap_or_else(fail));
    drop(idle);
    rig.driver.lose_device_at(DriverCall::AllocatePinned);
    plain.allocate(100).expect_err("the device is lost");
    let lost = ResourceError::DeviceLost;
    assert_eq!(plain.allocate(100).expect_err("lost"), lost);
    assert_eq!(pool.allocate(100).expect_err("lost"), lost, "not even an idle one");
    assert_eq!((plain.reap_pending(), pool.trim()), (Err(lost.clone()), Err(lost)));
    // What is host memory stays usable, and counted.
    held.fill(1);
    assert_eq!((pool.report().held_bytes, pool.report().in_use_bytes), (8192, 4096));
    drop(held);
    assert_eq!((pool.report().held_bytes, pool.report().in_use_bytes), (8192, 0));
}
