//! The words of the runtime, each with the shape and the meaning the specification gives it.

use std::{collections::HashSet, error::Error, fmt::Debug, hash::Hash};

use xlog_cuda::{
    device_runtime::{
        Access, AllocTag, BlockId, BlockState, BlockUse, DeviceBlock, DriverError, Generation,
        ResourceError, ResourceResult, StreamId,
    },
    launch::LaunchRecorder,
};

use crate::{DriverCall, INJECTED, Rig, TestCase, TestDevice, cases, fail};

pub(super) const CASES: &[TestCase] = cases![
    stream_id_is_a_number_and_the_default_is_zero,
    alloc_tag_is_a_label_and_the_default_says_untagged,
    generations_grow_and_are_distinct_across_threads,
    a_reused_address_gets_a_larger_generation,
    access_says_whether_it_reads_and_whether_it_writes,
    a_block_id_is_a_literal_of_four_fields,
    a_block_id_from_a_block_carries_its_identity,
    a_block_state_is_one_of_four,
    a_device_block_has_exactly_its_fields_and_no_clone,
    a_granted_block_says_what_was_asked_and_what_was_given,
    a_block_use_carries_its_block_and_its_access,
    every_resource_error_says_what_happened,
    a_resource_error_is_an_error_with_its_cause,
    a_driver_error_has_its_call_and_its_code,
    a_driver_error_is_made_from_text,
    after_a_sticky_error_everything_answers_device_lost_and_counters_freeze,
    a_free_that_waited_for_a_commit_does_not_touch_a_lost_device,
];

/// Compiles only for a plain value that can be copied, compared and shown.
fn is_plain<T: Copy + Eq + Debug + Send + Sync>() {}

/// Compiles only for a key.
fn is_key<T: Copy + Eq + Hash + Debug + Send + Sync>() {}

fn stream_id_is_a_number_and_the_default_is_zero(device: TestDevice) {
    is_key::<StreamId>();
    assert_eq!(StreamId::DEFAULT, StreamId(0));
    assert_ne!(StreamId(1), StreamId(2));
    assert_eq!(format!("{:?}", StreamId(7)), "StreamId(7)");
    let rig = Rig::new(device);
    assert!(rig.pool.resolve(StreamId::DEFAULT).is_some(), "without acquire");
    let [first] = rig.streams();
    assert_eq!(first, StreamId(1));
    assert_ne!(rig.pool.resolve(first), rig.pool.resolve(StreamId::DEFAULT));
}

fn alloc_tag_is_a_label_and_the_default_says_untagged(_: TestDevice) {
    is_key::<AllocTag>();
    assert_eq!(AllocTag::UNTAGGED, AllocTag("untagged"));
    assert_ne!(AllocTag("left"), AllocTag("right"));
    assert_eq!(format!("{:?}", AllocTag("left")), "AllocTag(\"left\")");
}

fn generations_grow_and_are_distinct_across_threads(_: TestDevice) {
    is_key::<Generation>();
    assert!(Generation(1) < Generation(2));
    let each = || -> Vec<Generation> {
        let mine: Vec<_> = (0..10_000).map(|_| Generation::next()).collect();
        assert!(mine.is_sorted_by(|a, b| a < b), "later ones are larger");
        mine
    };
    let all: Vec<Generation> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(each)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let distinct: HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), 40_000);
}

fn a_reused_address_gets_a_larger_generation(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let first = rig.block(4096, stream);
    let stale = BlockId::from_block(&first);
    rig.runtime.deallocate(first).unwrap_or_else(fail);
    let second = rig.block(4096, stream);
    assert_eq!(second.ptr, stale.ptr, "a stream gets its own memory back at once");
    assert!(second.generation > stale.generation);
    assert_ne!(BlockId::from_block(&second), stale, "the stale handle is told apart");
    assert_eq!(
        rig.runtime.prepare_block_use(stale, stream, Access::Read),
        Err(ResourceError::UseAfterFree { generation: stale.generation })
    );
}

fn access_says_whether_it_reads_and_whether_it_writes(_: TestDevice) {
    is_plain::<Access>();
    let table = [Access::Read, Access::Write, Access::ReadWrite];
    assert_eq!(table.map(Access::reads), [true, false, true]);
    assert_eq!(table.map(Access::writes), [false, true, true]);
    assert_eq!(format!("{table:?}"), "[Read, Write, ReadWrite]");
}

fn a_block_id_is_a_literal_of_four_fields(_: TestDevice) {
    is_plain::<BlockId>();
    let id = BlockId {
        ptr: 0x1000,
        generation: Generation(3),
        alloc_stream: StreamId(2),
        device_ordinal: 1,
    };
    // Without `..`: another field would not compile.
    let BlockId { ptr, generation, alloc_stream, device_ordinal } = id;
    assert_eq!(
        (ptr, generation, alloc_stream, device_ordinal),
        (0x1000u64, Generation(3), StreamId(2), 1u32)
    );
    assert_ne!(id, BlockId { ptr: 0x2000, ..id });
    assert_ne!(id, BlockId { generation: Generation(4), ..id });
    assert_ne!(id, BlockId { alloc_stream: StreamId(3), ..id });
    assert_ne!(id, BlockId { device_ordinal: 2, ..id });
}

fn a_block_id_from_a_block_carries_its_identity(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let block = rig.block(512, stream);
    let id = BlockId::from_block(&block);
    assert_eq!(id.ptr, block.ptr);
    assert_eq!(id.generation, block.generation);
    assert_eq!(id.alloc_stream, stream);
    assert_eq!(id.device_ordinal, rig.runtime.device_ordinal());
    // No borrow is left: the block can go while the identity stays.
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    assert_ne!(id.ptr, 0);
}

fn a_block_state_is_one_of_four(_: TestDevice) {
    is_plain::<BlockState>();
    let name = |state: BlockState| match state {
        BlockState::Live => "Live",
        BlockState::Retired => "Retired",
        BlockState::Quarantined => "Quarantined",
        BlockState::Freed => "Freed",
    };
    let all = [BlockState::Live, BlockState::Retired, BlockState::Quarantined, BlockState::Freed];
    for state in all {
        assert_eq!(format!("{state:?}"), name(state));
    }
}

/// Resolves for a type that is not `Clone`, and is ambiguous, so does not compile, for one that is.
trait NotClone<Marker> {
    fn is_not_clone() {}
}
impl<T: ?Sized> NotClone<()> for T {}
struct IsClone;
impl<T: Clone> NotClone<IsClone> for T {}

fn a_device_block_has_exactly_its_fields_and_no_clone(_: TestDevice) {
    <DeviceBlock as NotClone<_>>::is_not_clone();
    let block = DeviceBlock {
        ptr: 0x1000,
        device_ordinal: 1,
        alloc_stream: StreamId(2),
        bytes: 512,
        align: 256,
        tag: AllocTag("column"),
        generation: Generation(9),
        state: BlockState::Live,
    };
    assert!(format!("{block:?}").contains("column"), "the label is shown");
    // Without `..`: another field would not compile.
    let DeviceBlock { ptr, device_ordinal, alloc_stream, bytes, align, tag, generation, state } =
        block;
    assert_eq!((ptr, device_ordinal, alloc_stream), (0x1000u64, 1u32, StreamId(2)));
    assert_eq!((bytes, align), (512usize, 256usize));
    assert_eq!((tag, generation, state), (AllocTag("column"), Generation(9), BlockState::Live));
}

fn a_granted_block_says_what_was_asked_and_what_was_given(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    for bytes in [1, 255, 256, 1000, 1 << 20] {
        let before = rig.resource.live_bytes();
        let block = rig.runtime.allocate(bytes, stream, AllocTag("asked")).unwrap_or_else(fail);
        assert_ne!(block.ptr, 0);
        assert!(block.bytes >= bytes, "{} granted of {bytes}", block.bytes);
        assert!(block.align.is_power_of_two() && block.ptr.is_multiple_of(block.align as u64));
        assert_eq!((block.tag, block.state), (AllocTag("asked"), BlockState::Live));
        assert_eq!((block.alloc_stream, block.device_ordinal), (stream, 0));
        assert_eq!(rig.resource.live_bytes() - before, block.bytes, "counters count the grant");
    }
}

fn a_block_use_carries_its_block_and_its_access(_: TestDevice) {
    is_plain::<BlockUse>();
    let block = BlockId {
        ptr: 0x1000,
        generation: Generation(3),
        alloc_stream: StreamId(2),
        device_ordinal: 1,
    };
    let one = BlockUse::new(block, Access::ReadWrite);
    assert_eq!((one.block(), one.access()), (block, Access::ReadWrite));
}

fn every_resource_error_says_what_happened(_: TestDevice) {
    let shown = |error: ResourceError| error.to_string();
    assert_eq!(
        shown(ResourceError::OutOfBudget { requested: 4096, remaining: 1024 }),
        "out of budget: requested 4096 bytes, remaining 1024 bytes"
    );
    let driver = shown(ResourceError::Driver(DriverError::new("cuMemAlloc", 2, "no memory")));
    assert!(driver.contains("driver error") && driver.contains("cuMemAlloc"), "{driver}");
    assert!(driver.contains('2') && driver.contains("no memory"), "{driver}");
    let misuse = shown(ResourceError::StreamMisuse("stream 9 is not in this pool".into()));
    assert!(misuse.contains("stream misuse: stream 9 is not in this pool"), "{misuse}");
    let stale = shown(ResourceError::UseAfterFree { generation: Generation(77) });
    assert!(stale.contains("use after free") && stale.contains("77"), "{stale}");
    let outside = shown(ResourceError::OutOfBounds { generation: Generation(78) });
    assert!(outside.contains("out of bounds") && outside.contains("78"), "{outside}");
    let lost = shown(ResourceError::DeviceLost);
    assert!(lost.contains("device lost"), "{lost}");
}

fn a_resource_error_is_an_error_with_its_cause(_: TestDevice) {
    let boxed: Box<dyn Error + Send + Sync> =
        Box::new(ResourceError::Driver(DriverError::new("cuLaunchKernel", 700, "bad address")));
    let source = boxed.source().expect("the driver's error is the cause");
    assert!(source.to_string().contains("cuLaunchKernel"));
    assert!(ResourceError::DeviceLost.source().is_none());
    let result: ResourceResult<()> = Err(ResourceError::DeviceLost);
    assert!(result.is_err());
}

fn a_driver_error_has_its_call_and_its_code(device: TestDevice) {
    let rig = Rig::new(device);
    rig.driver.fail_after(DriverCall::AllocateOn, 0, 1);
    match rig.runtime.allocate(64, StreamId::DEFAULT, AllocTag::UNTAGGED) {
        Err(ResourceError::Driver(error)) => {
            assert_eq!((error.call(), error.code()), ("AllocateOn", INJECTED));
            assert!(!error.is_sticky());
        }
        other => panic!("a driver's failure is passed on, not {other:?}"),
    }
}

fn a_driver_error_is_made_from_text(_: TestDevice) {
    let from_str = DriverError::from("no such kernel");
    let from_string = DriverError::from(String::from("no such kernel"));
    assert_eq!(from_str, from_string);
    assert_eq!(from_str.to_string(), "no such kernel");
    assert_eq!(from_str.code(), DriverError::NO_CODE);
    let error = ResourceError::Driver("a user's resource failed".into());
    assert!(error.to_string().contains("a user's resource failed"));
}

fn after_a_sticky_error_everything_answers_device_lost_and_counters_freeze(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let kept = rig.block(1024, a);
    let freed = rig.block(2048, a);
    rig.runtime.deallocate(freed).unwrap_or_else(fail);
    let doomed = rig.block(512, b);
    let id = BlockId::from_block(&kept);

    rig.driver.lose_device_at(DriverCall::AllocateOn);
    let losing = rig.runtime.allocate(64, a, AllocTag::UNTAGGED);
    assert!(
        matches!(losing, Err(ResourceError::Driver(_) | ResourceError::DeviceLost)),
        "{losing:?}"
    );
    // From here on the layer fails nothing: the runtime itself must know.
    rig.driver.heal();
    let books = rig.books();
    assert!(books.live_bytes > 0 && books.pending_free_bytes > 0);

    #[track_caller]
    fn lost(answer: ResourceResult<()>) {
        assert_eq!(answer, Err(ResourceError::DeviceLost));
    }
    let rt = &rig.runtime;
    lost(rt.allocate(64, a, AllocTag::UNTAGGED).map(drop));
    lost(rt.prepare_block_use(id, b, Access::Read));
    lost(rt.finish_block_use(id, b, Access::Read));
    lost(rt.record_block_use(&kept, b));
    lost(rt.prepare_uses(&[BlockUse::new(id, Access::Write)], b));
    lost(rt.finish_uses(&[BlockUse::new(id, Access::Write)], b));
    lost(rt.reap_pending());
    lost(rt.try_reap());
    lost(rt.synchronize(a));
    lost(rt.deallocate(kept));
    lost(rig.pool.acquire().map(drop));
    let (returned, error) = rt.try_deallocate(doomed).expect_err("the device is lost");
    assert_eq!((returned.alloc_stream, error), (b, ResourceError::DeviceLost));
    assert_eq!(rig.books(), books);
}

fn a_free_that_waited_for_a_commit_does_not_touch_a_lost_device(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let slice = rig.zeros(16, stream);
    let mut recorder = LaunchRecorder::new_strict(stream);
    recorder.write(&slice);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    drop(slice);
    rig.driver.lose_device_at(DriverCall::AllocateOn);
    rig.runtime.allocate(64, stream, AllocTag::UNTAGGED).expect_err("the device is lost");
    rig.driver.heal();
    let books = rig.books();
    let freed = rig.driver.count_during(DriverCall::FreeOn, || {
        assert_eq!(recorder.commit(&rig.runtime), Err(ResourceError::DeviceLost));
    });
    assert_eq!((freed, rig.books()), (0, books));
}
