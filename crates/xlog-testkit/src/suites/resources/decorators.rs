//! Resources that users write: the least one can be, and a decorator that knows only the older,
//! per-block forms.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use xlog_cuda::{
    LaunchDims,
    device_runtime::{
        Access, AllocTag, AsyncCudaResource, BlockId, BlockUse, DeviceBlock, DeviceMemoryResource,
        ResourceError, ResourceResult, StreamId,
    },
    kernels,
    launch::{LaunchBuilder, LaunchRecorder},
};
use xlog_driver::Arguments;

use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, eventually, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    four_methods_make_a_resource_and_the_rest_has_defaults,
    a_resource_without_tracking_is_refused_by_preflight,
    a_decorator_of_the_per_block_forms_sees_every_use_of_a_launch,
    a_decorator_of_the_per_block_forms_keeps_the_order_of_streams,
    a_decorator_that_refuses_a_prepare_keeps_the_work_from_being_enqueued,
    batch_finish_goes_on_after_a_block_that_fails,
    a_commit_that_a_decorator_refuses_protects_the_work_all_the_same,
    a_free_between_preflight_and_commit_waits_for_the_launch_through_a_decorator,
    a_shared_resource_answers_as_the_one_inside,
];

/// The least a resource can be: what is required, and nothing else.
struct Least(Arc<AsyncCudaResource>);

impl DeviceMemoryResource for Least {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        self.0.allocate(bytes, stream, tag)
    }
    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        self.0.deallocate(block)
    }
    fn device_ordinal(&self) -> u32 {
        self.0.device_ordinal()
    }
    fn bytes_outstanding(&self) -> usize {
        self.0.bytes_outstanding()
    }
}

fn four_methods_make_a_resource_and_the_rest_has_defaults(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let least: Box<dyn DeviceMemoryResource + Send + Sync> =
        Box::new(Least(Arc::clone(&rig.resource)));
    let block = least.allocate(1024, stream, AllocTag("least")).unwrap_or_else(fail);
    let id = BlockId::from_block(&block);
    let uses = [BlockUse::new(id, Access::Read)];
    assert!(!least.supports_block_use_tracking());
    least.reap_pending().unwrap_or_else(fail);
    least.try_reap().unwrap_or_else(fail);
    for access in [Access::Read, Access::Write, Access::ReadWrite] {
        for answer in [
            least.prepare_block_use(id, stream, access),
            least.finish_block_use(id, stream, access),
            least.prepare_uses(&uses, stream),
            least.finish_uses(&uses, stream),
            least.record_block_use(&block, stream),
        ] {
            // Never a silent Ok: false safety is worse than none.
            assert!(matches!(answer, Err(ResourceError::StreamMisuse(_))), "{answer:?}");
        }
    }
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    let (returned, _) = least.try_deallocate(block).expect_err("the driver failed");
    assert_eq!((BlockId::from_block(&returned), returned.tag), (id, AllocTag("least")));
    rig.resource.reap_pending().unwrap_or_else(fail);
}

fn a_resource_without_tracking_is_refused_by_preflight(device: TestDevice) {
    let rig = Rig::decorated(device, |resource| Box::new(Least(resource)));
    let [stream] = rig.streams();
    assert!(!rig.runtime.supports_block_use_tracking());
    let slice = rig.manager.alloc::<u32>(64).unwrap_or_else(fail);
    let launches = rig.driver.count_during(DriverCall::Launch, || {
        let error = rig.fill(&slice, 1, stream).expect_err("nothing tracks the slice");
        assert!(matches!(error, ResourceError::StreamMisuse(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("does not support cross-stream use tracking"), "{text}");
    });
    assert_eq!(launches, 0);
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Prepared(BlockId, StreamId, Access),
    Finished(BlockId, StreamId, Access),
}

#[derive(Default)]
struct Diary {
    seen: Mutex<Vec<Seen>>,
    refuse_prepare: Mutex<Option<BlockId>>,
    refuse_finish: Mutex<Option<BlockId>>,
}

/// Writes down what passes through the per-block forms; knows nothing of the batch forms.
struct PerBlock(Arc<AsyncCudaResource>, Arc<Diary>);

impl DeviceMemoryResource for PerBlock {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        self.0.allocate(bytes, stream, tag)
    }
    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        self.0.deallocate(block)
    }
    fn device_ordinal(&self) -> u32 {
        self.0.device_ordinal()
    }
    fn bytes_outstanding(&self) -> usize {
        self.0.bytes_outstanding()
    }
    fn reap_pending(&self) -> ResourceResult<()> {
        self.0.reap_pending()
    }
    fn supports_block_use_tracking(&self) -> bool {
        self.0.supports_block_use_tracking()
    }
    fn prepare_block_use(
        &self,
        block: BlockId,
        stream: StreamId,
        access: Access,
    ) -> ResourceResult<()> {
        if *self.1.refuse_prepare.lock() == Some(block) {
            return Err("the decorator refuses".into());
        }
        self.1.seen.lock().push(Seen::Prepared(block, stream, access));
        self.0.prepare_block_use(block, stream, access)
    }
    fn finish_block_use(
        &self,
        block: BlockId,
        stream: StreamId,
        access: Access,
    ) -> ResourceResult<()> {
        if *self.1.refuse_finish.lock() == Some(block) {
            return Err("the decorator refuses".into());
        }
        self.1.seen.lock().push(Seen::Finished(block, stream, access));
        self.0.finish_block_use(block, stream, access)
    }
}

fn watched(device: TestDevice) -> (Rig, Arc<Diary>) {
    let diary = Arc::new(Diary::default());
    let shared = Arc::clone(&diary);
    (Rig::decorated(device, |resource| Box::new(PerBlock(resource, shared))), diary)
}

fn id_of<T>(slice: &xlog_cuda::memory::TrackedCudaSlice<T>) -> BlockId {
    BlockId::from_block(slice.runtime_block().expect("a runtime's slice has a block"))
}

fn a_decorator_of_the_per_block_forms_sees_every_use_of_a_launch(device: TestDevice) {
    let (rig, diary) = watched(device);
    let [a, b] = rig.streams();
    let [x, y, z] = [(); 3].map(|()| rig.zeros(16, a));
    let ids = [id_of(&x), id_of(&y), id_of(&z)];
    diary.seen.lock().clear();

    // Through the builder: the kernel reads x, writes y; z is declared beside them.
    LaunchBuilder::new(&rig.runtime, &rig.kernel(&kernels::COPY_U32), b)
        .input(&x)
        .output(&y)
        .value(16u64)
        .also(Access::ReadWrite, &z)
        .launch(LaunchDims::for_elements(16))
        .unwrap_or_else(fail);
    let accesses = [Access::Read, Access::Write, Access::ReadWrite];
    let check = |seen: Vec<Seen>| {
        assert_eq!(seen.len(), 6, "{seen:?}");
        for (id, access) in ids.into_iter().zip(accesses) {
            let (prepared, finished) =
                (Seen::Prepared(id, b, access), Seen::Finished(id, b, access));
            let at = |one| seen.iter().position(|seen| *seen == one).expect("every use is seen");
            assert!(at(prepared) < 3 && at(finished) >= 3, "{seen:?}");
        }
    };
    check(std::mem::take(&mut *diary.seen.lock()));

    // Through the recorder, step by step; several registrations of a block are one use.
    let mut recorder = LaunchRecorder::new_strict(b);
    recorder.read(&x).write(&y).read(&z).write(&z).read(&x);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(diary.seen.lock().len(), 3, "prepared, nothing finished yet");
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    check(std::mem::take(&mut *diary.seen.lock()));
    assert_eq!(rig.resource.pending_use_event_count(x.ptr()), Some(2));
}

fn a_decorator_of_the_per_block_forms_keeps_the_order_of_streams(device: TestDevice) {
    let (rig, _) = watched(device);
    let [a, b] = rig.streams();
    let (data, seen) = (rig.zeros(256, a), rig.zeros(256, b));
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, a);
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    let _ = eventually(Duration::from_millis(5), || rig.is_idle(b));
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [7; 256]);
}

fn a_decorator_that_refuses_a_prepare_keeps_the_work_from_being_enqueued(device: TestDevice) {
    let (rig, diary) = watched(device);
    let [a, b] = rig.streams();
    let (x, y) = (rig.zeros(16, a), rig.zeros(16, a));
    *diary.refuse_prepare.lock() = Some(id_of(&y));
    let launches = rig.driver.count_during(DriverCall::Launch, || {
        rig.copy(&x, &y, b).expect_err("the decorator refused");
    });
    assert_eq!(launches, 0);
    assert_eq!(rig.resource.pending_use_event_count(x.ptr()), Some(1), "no use is published");
    // The claims are gone with it: the next launch is not refused.
    *diary.refuse_prepare.lock() = None;
    rig.copy(&x, &y, b).unwrap_or_else(fail);
}

fn batch_finish_goes_on_after_a_block_that_fails(device: TestDevice) {
    let (rig, diary) = watched(device);
    let [a, b] = rig.streams();
    let blocks = [(); 3].map(|()| rig.zeros(16, a));
    for refused in 0..3 {
        let before = blocks.each_ref().map(|block| {
            rig.fill(block, 1, a).unwrap_or_else(fail);
            rig.resource.pending_use_event_count(block.ptr())
        });
        assert_eq!(before, [Some(1); 3]);
        *diary.refuse_finish.lock() = Some(id_of(&blocks[refused]));
        let uses = blocks.each_ref().map(|block| BlockUse::new(id_of(block), Access::Read));
        rig.runtime.prepare_uses(&uses, b).unwrap_or_else(fail);
        rig.runtime.finish_uses(&uses, b).expect_err("one block was refused");
        for (index, block) in blocks.iter().enumerate() {
            let expected = if index == refused { 1 } else { 2 };
            assert_eq!(rig.resource.pending_use_event_count(block.ptr()), Some(expected));
        }
        // A launch does not leave it at that: its work is in flight.
        let mut recorder = LaunchRecorder::new_strict(b);
        for block in &blocks {
            recorder.read(block);
        }
        recorder.preflight(&rig.runtime).unwrap_or_else(fail);
        recorder.commit(&rig.runtime).expect_err("one block was refused");
        for block in &blocks {
            assert_eq!(rig.resource.pending_use_event_count(block.ptr()), Some(2));
        }
        *diary.refuse_finish.lock() = None;
    }
}

/// A layer above the tracker refuses to record a use of work that is in flight: the launch says so,
/// and is protected all the same.
fn a_commit_that_a_decorator_refuses_protects_the_work_all_the_same(device: TestDevice) {
    let (rig, diary) = watched(device);
    let [a, b] = rig.streams();
    let (data, seen) = (rig.zeros(256, a), rig.zeros(256, a));
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    rig.fill(&seen, 0, b).unwrap_or_else(fail);
    rig.device.synchronize().unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, b);
    *diary.refuse_finish.lock() = Some(id_of(&data));
    rig.copy(&data, &seen, b).expect_err("the decorator refused");
    *diary.refuse_finish.lock() = None;
    rig.fill(&data, 9, a).unwrap_or_else(fail);
    let early = eventually(Duration::from_millis(10), || rig.is_idle(a));
    gate.open();
    assert!(!early, "work in flight was left without protection");
    assert_eq!(seen.download().unwrap_or_else(fail), [7; 256]);
}

/// The block is freed while a launch that reads it is claimed, held back and not yet committed;
/// whoever gets its address next must not be able to write it before that read.
fn a_free_between_preflight_and_commit_waits_for_the_launch_through_a_decorator(
    device: TestDevice,
) {
    let (rig, _) = watched(device);
    let [a, b] = rig.streams();
    let (data, seen) = (rig.zeros(256, a), rig.zeros(256, b));
    rig.fill(&data, 7, a).unwrap_or_else(fail);
    rig.copy(&data, &seen, b).unwrap_or_else(fail);
    rig.fill(&seen, 0, b).unwrap_or_else(fail);
    rig.device.synchronize().unwrap_or_else(fail);
    let address = data.ptr();
    let gate = Gate::new(&rig);
    gate.hold(&rig, b);

    let mut recorder = LaunchRecorder::new_strict(b);
    recorder.read(&data).write(&seen);
    recorder.preflight(&rig.runtime).unwrap_or_else(fail);
    let mut arguments = Arguments::new();
    arguments.push_pointer(address);
    arguments.push_pointer(seen.ptr());
    arguments.push_value(256u64);
    rig.launch_raw(&kernels::COPY_U32, &arguments, LaunchDims::for_elements(256), b);
    let live = rig.resource.live_bytes();
    drop(data);
    assert_eq!(rig.resource.live_bytes(), live, "the free takes effect after the commit");
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert!(rig.resource.live_bytes() < live);

    let next = rig.manager.alloc_on::<u32>(256, a, AllocTag("next")).unwrap_or_else(fail);
    rig.fill(&next, 9, a).unwrap_or_else(fail);
    let _ = eventually(Duration::from_millis(5), || rig.is_idle(a));
    gate.open();
    assert_eq!(seen.download().unwrap_or_else(fail), [7; 256]);
}

fn a_shared_resource_answers_as_the_one_inside(device: TestDevice) {
    let rig = Rig::new(device);
    let [stream] = rig.streams();
    let shared: Box<dyn DeviceMemoryResource + Send + Sync> = Box::new(Arc::clone(&rig.resource));
    assert!(shared.supports_block_use_tracking());
    assert_eq!(shared.device_ordinal(), 0);
    let block = shared.allocate(1024, stream, AllocTag::UNTAGGED).unwrap_or_else(fail);
    let id = BlockId::from_block(&block);
    shared.prepare_block_use(id, stream, Access::Read).unwrap_or_else(fail);
    shared.finish_block_use(id, stream, Access::Read).unwrap_or_else(fail);
    shared.record_block_use(&block, stream).unwrap_or_else(fail);
    shared.prepare_uses(&[BlockUse::new(id, Access::Write)], stream).unwrap_or_else(fail);
    shared.finish_uses(&[BlockUse::new(id, Access::Write)], stream).unwrap_or_else(fail);
    assert_eq!(shared.bytes_outstanding(), block.bytes);
    shared.try_deallocate(block).map_err(|(_, error)| error).unwrap_or_else(fail);
    shared.try_reap().unwrap_or_else(fail);
    shared.reap_pending().unwrap_or_else(fail);
    assert_eq!((shared.bytes_outstanding(), rig.resource.bytes_outstanding()), (0, 0));
}
