//! What is a finding, and what is not.

use xlog_cuda::{
    LaunchDims,
    device_runtime::{
        AllocTag, DeviceBlock, DeviceMemoryResource, FindingKind, Generation, GuardOptions,
        ResourceError, StreamId,
    },
    kernels,
    launch::{LaunchBuilder, LaunchRecorder},
};

use super::{super::super::support::*, block, found, guarded, write_raw};
use crate::{Gate, TestDevice, fail};

pub(super) fn a_write_behind_the_end_is_named_when_the_block_is_freed(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a, b] = rig.streams();
    let (other, keys) = (block(&rig, 64, b, "other"), block(&rig, 1000, a, "keys"));
    write_raw(&rig, keys.ptr, 251, a);
    let (ptr, generation) = (keys.ptr, keys.generation);
    assert_eq!(rig.runtime.deallocate(keys), Err(ResourceError::OutOfBounds { generation }));
    assert_eq!(found(&guard), [(FindingKind::OutOfBoundsAfter, "keys", 1000, 4, 2)]);
    let finding = guard.findings().remove(0);
    assert_eq!((finding.ptr, finding.bytes), (ptr, 1000));
    assert_eq!((finding.generation, finding.stream), (generation, a));
    let number = format!("generation {}", generation.0);
    let parts = ["4 bytes behind", "1 bytes past", "\"keys\"", &number, "allocated on stream 1"];
    assert_says(&finding.to_string(), &parts);
    // It was taken all the same, and is no second finding there.
    assert_eq!(guard.quarantined(), (1, 1512));
    assert_eq!(guard.check(), Err(ResourceError::OutOfBounds { generation }));
    guard.empty_quarantine().unwrap_or_else(fail);
    rig.runtime.deallocate(other).unwrap_or_else(fail);
    assert_eq!((guard.findings().len(), guard.check()), (1, Ok(())));
}

pub(super) fn a_write_before_the_start_is_named_when_the_block_is_freed(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a] = rig.streams();
    let rows = block(&rig, 512, a, "rows");
    let generation = rows.generation;
    write_raw(&rig, rows.ptr - 8, 3, a);
    assert_eq!(rig.runtime.deallocate(rows), Err(ResourceError::OutOfBounds { generation }));
    assert_eq!(found(&guard), [(FindingKind::OutOfBoundsBefore, "rows", -8, 8, 1)]);
    assert_says(&guard.findings()[0].to_string(), &["in front of", "8 bytes before its start"]);
}

pub(super) fn a_check_finds_a_write_outside_of_a_block_in_use(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default().with_margin(1000));
    let [a, b] = rig.streams();
    let (keys, rows) = (block(&rig, 64, a, "keys"), block(&rig, 128, b, "rows"));
    guard.check().unwrap_or_else(fail);
    // The last bytes of the margins, which are as wide as was asked for.
    write_raw(&rig, rows.ptr + 128 + 1020, 1, b);
    write_raw(&rig, rows.ptr - 1024, 1, b);
    let wrong = Err(ResourceError::OutOfBounds { generation: rows.generation });
    assert_eq!((guard.check(), guard.check()), (wrong.clone(), wrong.clone()), "wrong as it is");
    let expected = [
        (FindingKind::OutOfBoundsBefore, "rows", -1024, 4, 2),
        (FindingKind::OutOfBoundsAfter, "rows", 128 + 1020, 4, 2),
    ];
    assert_eq!(found(&guard), expected, "each is said once");
    rig.runtime.deallocate(keys).unwrap_or_else(fail);
    assert_eq!(rig.runtime.deallocate(rows), wrong);
    assert_eq!(found(&guard), expected);
}

pub(super) fn a_block_with_a_broken_margin_can_be_given_back_to_its_owner(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a] = rig.streams();
    let keys = block(&rig, 64, a, "keys");
    write_raw(&rig, keys.ptr, 17, a);
    let wrong = ResourceError::OutOfBounds { generation: keys.generation };
    let (keys, error) = rig.runtime.try_deallocate(keys).expect_err("a broken margin");
    assert_eq!((error, guard.quarantined()), (wrong.clone(), (0, 0)));
    rig.touch(&keys, a, xlog_cuda::device_runtime::Access::Write);
    assert_eq!(rig.runtime.deallocate(keys), Err(wrong));
    assert_eq!((guard.findings().len(), guard.quarantined().0), (1, 1));
}

pub(super) fn a_write_after_free_is_found_by_a_check(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a, b] = rig.streams();
    let keys = block(&rig, 256, a, "keys");
    let (ptr, generation) = (keys.ptr, keys.generation);
    rig.runtime.deallocate(keys).unwrap_or_else(fail);
    guard.check().unwrap_or_else(fail);
    write_raw(&rig, ptr + 16, 2, b);
    assert_eq!(guard.check(), Err(ResourceError::UseAfterFree { generation }));
    assert_eq!(found(&guard), [(FindingKind::WriteAfterFree, "keys", 16, 8, 1)]);
    let text = guard.findings()[0].to_string();
    assert_says(&text, &["write after free", "at its byte 16", "freed by thread"]);
}

pub(super) fn a_write_after_free_is_found_when_the_block_leaves_quarantine(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default().with_quarantine(1 << 20, 1));
    let [a] = rig.streams();
    let (keys, rows) = (block(&rig, 256, a, "keys"), block(&rig, 256, a, "rows"));
    let ptr = keys.ptr;
    rig.runtime.deallocate(keys).unwrap_or_else(fail);
    write_raw(&rig, ptr + 252, 1, a);
    rig.runtime.deallocate(rows).unwrap_or_else(fail);
    assert_eq!(found(&guard), [(FindingKind::WriteAfterFree, "keys", 252, 4, 1)]);
    assert_eq!(guard.quarantined().0, 1, "it went all the same");
}

pub(super) fn a_large_block_is_looked_at_as_a_whole(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a] = rig.streams();
    let bytes = (5 << 20) + 12;
    let large = block(&rig, bytes, a, "large");
    let ptr = large.ptr;
    rig.runtime.deallocate(large).unwrap_or_else(fail);
    guard.check().unwrap_or_else(fail);
    write_raw(&rig, ptr + bytes as u64 - 4, 1, a);
    write_raw(&rig, ptr + (3 << 20) - 512, 200, a);
    guard.check().expect_err("written to");
    let expected = (FindingKind::WriteAfterFree, "large", (3 << 20) - 512, 804, 1);
    assert_eq!(found(&guard), [expected]);
}

pub(super) fn a_double_free_says_who_freed_the_block_first(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a] = rig.streams();
    let keys = block(&rig, 256, a, "keys");
    let (second, generation) = (handle_of(&keys), keys.generation);
    std::thread::scope(|scope| {
        let named = std::thread::Builder::new().name("first one".into());
        let freed = named.spawn_scoped(scope, || rig.runtime.deallocate(keys));
        freed.unwrap_or_else(fail).join().expect("no panic").unwrap_or_else(fail);
    });
    assert_eq!(rig.runtime.deallocate(second), Err(ResourceError::UseAfterFree { generation }));
    assert_eq!(found(&guard), [(FindingKind::DoubleFree, "keys", 0, 0, 1)]);
    let finding = guard.findings().remove(0);
    assert_says(&finding.to_string(), &["double free", "\"keys\"", "thread \"first one\""]);
    assert!(finding.freed.is_some_and(|freed| freed.backtrace.is_some()));
    assert_eq!(guard.quarantined().0, 1);
    guard.check().unwrap_or_else(fail);
}

pub(super) fn new_blocks_and_freed_ones_are_full_of_poison(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a] = rig.streams();
    let new = rig.manager.alloc_on::<u32>(100, a, AllocTag("new")).unwrap_or_else(fail);
    assert_eq!(new.download().unwrap_or_else(fail), [0xA5A5_A5A5; 100]);
    let seen = rig.zeros(100, a);
    let mut arguments = xlog_driver::Arguments::new();
    arguments.push_pointer(new.ptr());
    arguments.push_pointer(seen.ptr());
    arguments.push_value(100_u64);
    drop(new);
    rig.launch_raw(&kernels::COPY_U32, &arguments, LaunchDims::for_elements(100), a);
    assert_eq!(seen.download().unwrap_or_else(fail), [0xDDDD_DDDD; 100]);
    assert_eq!(guard.findings().len(), 0, "a read leaves no trace");
}

pub(super) fn a_clean_program_has_no_findings(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default().with_quarantine(1 << 16, 4));
    let [a, b] = rig.streams();
    warm_up(&rig, 300, &[a, b]);
    for round in 0..20 {
        let (data, seen) = (rig.filled(300, 1, a), rig.filled(300, 2, b));
        let gate = Gate::new(&rig);
        gate.hold(&rig, a);
        rig.fill(&data, round, a).unwrap_or_else(fail);
        rig.copy(&data, &seen, b).unwrap_or_else(fail);
        let (from, to) =
            (data.view(299..).unwrap_or_else(fail), seen.view(..1).unwrap_or_else(fail));
        LaunchBuilder::new(&rig.runtime, &rig.kernel(&kernels::COPY_U32), b)
            .input(&from)
            .output(&to)
            .value(1_u64)
            .launch(LaunchDims::for_elements(1))
            .unwrap_or_else(fail);
        gate.open();
        // The free of what another stream still reads, and a check in the middle of it.
        drop(data);
        rig.increment(&seen, 1, a).unwrap_or_else(fail);
        guard.check().unwrap_or_else(fail);
        assert_eq!(seen.download().unwrap_or_else(fail), [round + 1; 300]);
    }
    guard.empty_quarantine().unwrap_or_else(fail);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!((guard.findings().len(), rig.runtime.bytes_outstanding()), (0, 0));
}

pub(super) fn a_free_waits_for_the_work_of_every_stream_before_it_poisons(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a, b] = rig.streams();
    warm_up(&rig, 64, &[a, b]);
    let (data, seen) = (rig.filled(64, 7, a), rig.zeros(64, b));
    let other = block(&rig, 64, a, "other");
    let gate = Gate::new(&rig);
    gate.hold(&rig, b);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    std::thread::scope(|scope| {
        let free = scope.spawn(|| drop(data));
        let early = comes_true(|| free.is_finished());
        gate.open();
        assert!(!early, "the free did not wait for the other stream");
    });
    assert_eq!(seen.download().unwrap_or_else(fail), [7; 64], "and not the poison");
    rig.runtime.deallocate(other).unwrap_or_else(fail);
    guard.check().unwrap_or_else(fail);
    assert_eq!(guard.findings().len(), 0);
}

pub(super) fn a_free_between_preflight_and_commit_is_no_finding(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a] = rig.streams();
    let data = rig.zeros(64, a);
    let arguments = fill_arguments(&data, 7);
    let second = handle_of(block_of(&data));
    let mut recorder = LaunchRecorder::new_strict(a);
    recorder.write(&data).preflight(&rig.runtime).unwrap_or_else(fail);
    drop(data);
    assert_eq!(guard.quarantined().0, 0, "the launch still has it");
    guard.check().unwrap_or_else(fail);
    rig.launch_raw(&kernels::FILL_U32, &arguments, LaunchDims::for_elements(64), a);
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(guard.quarantined().0, 1, "now it is free");
    guard.check().unwrap_or_else(fail);
    assert_eq!(guard.findings().len(), 0);
    write_raw(&rig, second.ptr, 1, a);
    guard.check().expect_err("from now on nobody may write to it");
    rig.runtime.deallocate(second).expect_err("freed already");
    let kinds: Vec<_> = guard.findings().into_iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [FindingKind::WriteAfterFree, FindingKind::DoubleFree]);
}

pub(super) fn wrong_handles_are_refused_and_are_no_findings(device: TestDevice) {
    let (rig, guard) = guarded(device, GuardOptions::default());
    let [a] = rig.streams();
    let keys = block(&rig, 256, a, "keys");
    let below = rig.resource.allocate(64, a, AllocTag("not the guard's")).unwrap_or_else(fail);
    let books = rig.books();
    let wrong = [
        DeviceBlock { device_ordinal: 7, ..handle_of(&keys) },
        DeviceBlock { alloc_stream: StreamId(999), ..handle_of(&keys) },
        DeviceBlock { generation: Generation::next(), ..handle_of(&keys) },
        DeviceBlock { ptr: keys.ptr - 256, ..handle_of(&keys) },
        handle_of(&below),
    ];
    for wrong in wrong {
        let error = guard.deallocate(handle_of(&wrong)).expect_err("a wrong handle");
        let (_, again) = guard.try_deallocate(wrong).expect_err("a wrong handle");
        assert_eq!((error, rig.books()), (again, books));
    }
    assert!(guard.allocate(0, a, AllocTag("nothing")).is_err());
    assert!(guard.allocate(usize::MAX, a, AllocTag("all")).is_err());
    misuse(guard.allocate(64, StreamId(999), AllocTag("nowhere")));
    assert_eq!(guard.findings().len(), 0);
    rig.resource.deallocate(below).unwrap_or_else(fail);
    rig.runtime.deallocate(keys).unwrap_or_else(fail);
}
