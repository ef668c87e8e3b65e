//! Aligned blocks: where they lie, what they cost, and that nothing is lost on their way back.

use std::sync::Arc;

use parking_lot::Mutex;
use xlog_cuda::{
    LaunchDims,
    device_runtime::{
        Access, AlignedResource, AllocTag, AsyncCudaResource, BlockId, Counter, DebugGuardResource,
        DeviceBlock, DeviceMemoryResource, DirectCudaResource, FindingKind, GuardOptions,
        LogAction, LogRecord, LoggingResource, MemorySink, PoolOptions, PoolResource,
        ResourceError, ResourceResult, ResourceStack, StatisticsResource, StreamId,
    },
    kernels,
    launch::LaunchRecorder,
};
use xlog_driver::Arguments;

use super::super::support::{
    assert_says, assert_works, comes_true, fill_raw, handle_of, is_injected,
};
use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    blocks_lie_at_multiples_of_every_alignment,
    small_requests_are_not_aligned_and_cost_nothing_more,
    an_alignment_that_is_none_is_refused,
    a_size_that_cannot_be_aligned_is_refused,
    layers_above_count_what_callers_have_and_layers_below_what_is_taken,
    a_log_below_names_the_blocks_below_and_a_log_above_those_of_the_caller,
    a_guard_above_keeps_the_alignment_and_finds_writes_next_to_a_block,
    a_guard_below_finds_writes_behind_what_aligning_took,
    a_free_between_preflight_and_commit_waits_for_the_commit,
    each_failing_driver_call_loses_no_aligned_block,
    a_failed_free_of_an_aligned_block_gives_it_back_usable,
    a_use_that_cannot_be_protected_leaks_the_aligned_block,
    a_resource_that_breaks_the_contract_is_refused_and_gets_its_memory_back,
    a_dropped_adaptor_gives_back_what_failed_before,
    an_allocation_that_fails_half_way_leaves_nothing_behind,
    a_stream_that_got_memory_of_another_is_counted_by_its_own,
];

const KIB: usize = 1 << 10;

fn aligned_over(
    driver: &Arc<AsyncCudaResource>,
    inner: Box<dyn DeviceMemoryResource + Send + Sync>,
    alignment: usize,
    threshold: usize,
) -> Arc<AlignedResource> {
    let streams = Arc::clone(driver.stream_pool());
    Arc::new(AlignedResource::new(inner, streams, alignment, threshold).unwrap_or_else(fail))
}

fn aligned(device: TestDevice, alignment: usize, threshold: usize) -> Rig {
    Rig::decorated(device, |driver| {
        Box::new(aligned_over(&driver, Box::new(Arc::clone(&driver)), alignment, threshold))
    })
}

/// Everything is back, and nothing has an identity any more.
#[track_caller]
fn assert_empty(rig: &Rig) {
    rig.runtime.reap_pending().unwrap_or_else(fail);
    let blocks = rig.pool.stats().blocks;
    assert_eq!((rig.runtime.bytes_outstanding(), rig.resource.live_bytes(), blocks), (0, 0, 0));
}

fn blocks_lie_at_multiples_of_every_alignment(device: TestDevice) {
    for alignment in [1, 64, 256, 512, 4 * KIB, 64 * KIB, 2048 * KIB] {
        let rig = aligned(device, alignment, 0);
        let [a, b] = rig.streams();
        let lens = [1, 200, 4_096, 100_000];
        let slices = lens.map(|len| {
            rig.manager.alloc_on::<u32>(len, a, AllocTag("aligned")).unwrap_or_else(fail)
        });
        let padding = alignment.max(256) - 256;
        for (value, slice) in (1..).zip(&slices) {
            let block = slice.runtime_block().expect("a slice of a runtime has a block");
            assert_eq!(slice.ptr() % alignment.max(256) as u64, 0, "{alignment}");
            assert_eq!((block.align, block.bytes), (alignment.max(256), 4 * slice.len()));
            rig.fill(slice, value, b).unwrap_or_else(fail);
        }
        let held: usize = lens.iter().map(|len| 4 * len + padding).sum();
        assert_eq!(rig.runtime.bytes_outstanding(), held, "{alignment}");
        assert_eq!(rig.pool.stats().blocks, lens.len(), "what is below cannot be recorded");
        for (value, slice) in (1..).zip(&slices) {
            assert_eq!(slice.download().unwrap_or_else(fail), vec![value; slice.len()]);
        }
        drop(slices);
        assert_empty(&rig);
    }
}

fn small_requests_are_not_aligned_and_cost_nothing_more(device: TestDevice) {
    let rig = aligned(device, 4 * KIB, 1000);
    let blocks = [999, 1000].map(|bytes| rig.block(bytes, StreamId::DEFAULT));
    assert_eq!(blocks.each_ref().map(|block| block.align), [256, 4 * KIB]);
    assert_eq!(rig.runtime.bytes_outstanding(), 999 + 1000 + 4 * KIB - 256);
    blocks.into_iter().for_each(|block| rig.runtime.deallocate(block).unwrap_or_else(fail));
    assert_empty(&rig);
}

fn an_alignment_that_is_none_is_refused(device: TestDevice) {
    let rig = Rig::new(device);
    let make = |alignment| {
        let below = Box::new(Arc::clone(&rig.resource));
        AlignedResource::new(below, Arc::clone(&rig.pool), alignment, 0)
    };
    for (wrong, what) in [
        (0, "not a power of two"),
        (3, "not a power of two"),
        (4097, "not a power of two"),
        (usize::MAX, "not a power of two"),
        (1 << 31, "too large"),
        (1 << 63, "too large"),
    ] {
        let error = make(wrong).expect_err("no alignment").to_string();
        assert_says(&error, &[&format!("an alignment of {wrong} bytes"), what, "pass a power"]);
    }
    assert!(make(1 << 30).is_ok_and(|made| (made.alignment(), made.threshold()) == (1 << 30, 0)));
    let stack = ResourceStack::over_driver(Arc::clone(&rig.device)).with_alignment(12, 0);
    assert!(stack.is_err());
}

fn a_size_that_cannot_be_aligned_is_refused(device: TestDevice) {
    let rig = aligned(device, 2048 * KIB, 0);
    for bytes in [usize::MAX, usize::MAX - 2048 * KIB + 257] {
        let refused = rig.runtime.allocate(bytes, StreamId::DEFAULT, AllocTag("huge"));
        assert_says(&refused.expect_err("too many").to_string(), &["are too many"]);
    }
    // What the resource below refuses, it refuses with its own words.
    let refused = rig.runtime.allocate(usize::MAX / 4, StreamId::DEFAULT, AllocTag("huge"));
    assert!(refused.is_err_and(|error| error.is_out_of_memory()));
    assert_empty(&rig);
}

fn layers_above_count_what_callers_have_and_layers_below_what_is_taken(device: TestDevice) {
    let mut parts = None;
    let rig = Rig::decorated(device, |driver| {
        let below = Arc::new(StatisticsResource::new(Box::new(Arc::clone(&driver))));
        let middle = aligned_over(&driver, Box::new(Arc::clone(&below)), 4 * KIB, 0);
        let above = Arc::new(StatisticsResource::new(Box::new(middle)));
        parts = Some((below, Arc::clone(&above)));
        Box::new(above)
    });
    let (below, above) = parts.expect("made above");
    let bytes = |part: &StatisticsResource| part.statistics().bytes;
    let block = rig.block(10_000, StreamId::DEFAULT);
    assert_eq!(bytes(&above), Counter { current: 10_000, peak: 10_000, total: 10_000 });
    let taken = 10_000 + 4096 - 256;
    let all = taken as u64;
    assert_eq!(bytes(&below), Counter { current: taken, peak: all, total: all });
    // A free that fails counts on both sides until a reap has freed the block.
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    assert!(rig.runtime.deallocate(block).as_ref().is_err_and(is_injected));
    assert_eq!((bytes(&above).current, bytes(&below).current), (10_000, taken));
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!((bytes(&above).current, bytes(&below).current), (0, 0));
    assert_empty(&rig);
}

fn a_log_below_names_the_blocks_below_and_a_log_above_those_of_the_caller(device: TestDevice) {
    let sinks = [(); 2].map(|()| Arc::new(MemorySink::new(100)));
    let rig = Rig::decorated(device, |driver| {
        let below = LoggingResource::new(Box::new(Arc::clone(&driver)), Arc::clone(&sinks[0]));
        let middle = aligned_over(&driver, Box::new(below), 64 * KIB, 0);
        Box::new(LoggingResource::new(Box::new(middle), Arc::clone(&sinks[1])))
    });
    let [a, b] = rig.streams();
    let block = rig.block(1000, a);
    rig.touch(&block, b, Access::Write);
    let id = BlockId::from_block(&block);
    rig.runtime.deallocate(block).unwrap_or_else(fail);
    let [below, above] = sinks.map(|sink| sink.records());
    let actions =
        |records: &[LogRecord]| records.iter().map(|record| record.action).collect::<Vec<_>>();
    assert_eq!(actions(&below), [LogAction::Allocate, LogAction::Free], "no use of a slab");
    assert_eq!(above.len(), 4, "with the use, prepared and finished");
    assert!(above.iter().all(|record| record.generation == Some(id.generation)));
    assert_eq!(below[0].generation, below[1].generation);
    assert_ne!(below[0].generation, Some(id.generation), "an identity of its own");
    rig.runtime.reap_pending().unwrap_or_else(fail);
}

/// A guard with such a margin.
fn guard_over(
    driver: &AsyncCudaResource,
    inner: Box<dyn DeviceMemoryResource + Send + Sync>,
    margin: usize,
) -> Arc<DebugGuardResource> {
    let options = GuardOptions::default().with_margin(margin);
    Arc::new(DebugGuardResource::new(inner, Arc::clone(driver.stream_pool()), options))
}

/// Writes 256 bytes at `ptr`, past the recorder: what a wrong kernel does.
fn write_raw(rig: &Rig, ptr: u64, stream: StreamId) {
    let mut arguments = Arguments::new();
    arguments.push_pointer(ptr);
    arguments.push_value(1_u32);
    arguments.push_value(64_u64);
    rig.launch_raw(&kernels::FILL_U32, &arguments, LaunchDims::linear(1, 64), stream);
    rig.runtime.synchronize(stream).unwrap_or_else(fail);
}

fn a_guard_above_keeps_the_alignment_and_finds_writes_next_to_a_block(device: TestDevice) {
    let mut guard = None;
    let rig = Rig::decorated(device, |driver| {
        let below = aligned_over(&driver, Box::new(Arc::clone(&driver)), 4 * KIB, 0);
        let made = guard_over(&driver, Box::new(below), 8 * KIB);
        guard = Some(Arc::clone(&made));
        Box::new(made)
    });
    let guard = guard.expect("made above");
    let [a] = rig.streams();
    let block = rig.block(4096, a);
    assert_eq!((block.ptr % 4096, block.align), (0, 4 * KIB));
    guard.check().unwrap_or_else(fail);
    write_raw(&rig, block.ptr + 4096, a);
    let found = rig.runtime.deallocate(block);
    assert!(matches!(found, Err(ResourceError::OutOfBounds { .. })), "{found:?}");
    let kinds: Vec<_> = guard.findings().iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::OutOfBoundsAfter]);
    // A margin that is no multiple of it leaves what it is a multiple of.
    let below = aligned_over(&rig.resource, Box::new(Arc::clone(&rig.resource)), 4 * KIB, 0);
    let narrow = guard_over(&rig.resource, Box::new(below), 512);
    let block = narrow.allocate(4096, a, AllocTag("narrow")).unwrap_or_else(fail);
    assert_eq!((block.ptr % 4096, block.align), (512, 512));
    narrow.deallocate(block).unwrap_or_else(fail);
}

fn a_guard_below_finds_writes_behind_what_aligning_took(device: TestDevice) {
    let mut guard = None;
    let rig = Rig::decorated(device, |driver| {
        let made = guard_over(&driver, Box::new(Arc::clone(&driver)), 256);
        guard = Some(Arc::clone(&made));
        Box::new(aligned_over(&driver, Box::new(made), 512, 0))
    });
    let guard = guard.expect("made above");
    let [a] = rig.streams();
    let block = rig.block(4096, a);
    assert_eq!((block.ptr % 512, block.align), (0, 512));
    guard.check().unwrap_or_else(fail);
    // 256 bytes were taken to align the block: on one side of it they lie, on the other a margin.
    write_raw(&rig, block.ptr - 256, a);
    write_raw(&rig, block.ptr + 4096, a);
    let found = rig.runtime.deallocate(block);
    assert!(matches!(found, Err(ResourceError::OutOfBounds { .. })), "{found:?}");
    assert_eq!(guard.findings().len(), 1, "{:?}", guard.findings());
}

fn a_free_between_preflight_and_commit_waits_for_the_commit(device: TestDevice) {
    let rig = aligned(device, 64 * KIB, 0);
    let [a, b] = rig.streams();
    let slice = rig.manager.alloc_on::<u32>(1000, a, AllocTag("claimed")).unwrap_or_else(fail);
    rig.fill(&slice, 1, a).unwrap_or_else(fail);
    rig.runtime.synchronize(a).unwrap_or_else(fail);
    let gate = Gate::new(&rig);
    gate.hold(&rig, b);
    let mut recorder = LaunchRecorder::new_strict(b);
    recorder.write(&slice).preflight(&rig.runtime).unwrap_or_else(fail);
    fill_raw(&rig, &slice, 2, b);
    let frees = rig.driver.count(DriverCall::FreeOn);
    drop(slice);
    assert_eq!(rig.driver.count(DriverCall::FreeOn), frees, "the launch holds a claim");
    recorder.commit(&rig.runtime).unwrap_or_else(fail);
    assert_eq!(rig.driver.count(DriverCall::FreeOn), frees + 1);
    assert!(rig.resource.pending_free_bytes() > 0);
    assert!(!comes_true(|| rig.runtime.try_reap().is_ok() && rig.runtime.bytes_outstanding() == 0));
    gate.open();
    assert_empty(&rig);
}

fn each_failing_driver_call_loses_no_aligned_block(device: TestDevice) {
    let calls = [
        DriverCall::AllocateOn,
        DriverCall::FreeOn,
        DriverCall::RecordEvent,
        DriverCall::WaitEvent,
        DriverCall::SynchronizeStream,
    ];
    let mut failed = 0;
    for (call, pass) in calls.iter().flat_map(|call| (0..5).map(move |pass| (*call, pass))) {
        let rig = aligned(device, 64 * KIB, 0);
        let [a, b] = rig.streams();
        rig.driver.fail_after(call, pass, 1);
        let mut errors = Vec::new();
        for _ in 0..3 {
            match rig.runtime.allocate(1000, a, AllocTag("test")) {
                Err(error) => errors.push(error),
                Ok(block) => {
                    let id = BlockId::from_block(&block);
                    let used = rig.runtime.prepare_block_use(id, b, Access::Write);
                    let used =
                        used.and_then(|()| rig.runtime.finish_block_use(id, b, Access::Write));
                    errors.extend(used.err());
                    errors.extend(rig.runtime.deallocate(block).err());
                }
            }
            errors.extend(rig.runtime.reap_pending().err());
        }
        assert!(errors.iter().all(is_injected), "{call:?} after {pass}: {errors:?}");
        failed += usize::from(!errors.is_empty());
        rig.driver.heal();
        assert_empty(&rig);
        assert_works(&rig, a);
    }
    assert!(failed > 14, "only {failed} of 25 programs saw a failure");
}

fn a_failed_free_of_an_aligned_block_gives_it_back_usable(device: TestDevice) {
    let rig = aligned(device, 4 * KIB, 0);
    let [a, b] = rig.streams();
    let block = rig.block(1000, a);
    let outstanding = rig.runtime.bytes_outstanding();
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    let (block, error) = rig.runtime.try_deallocate(block).expect_err("the driver failed");
    assert!(is_injected(&error), "{error}");
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), outstanding, "the caller's: no reap takes it");
    rig.touch(&block, b, Access::Write);
    let stale = handle_of(&block);
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    assert!(rig.runtime.deallocate(block).as_ref().is_err_and(is_injected));
    let gone = Err(ResourceError::UseAfterFree { generation: stale.generation });
    assert_eq!(rig.runtime.deallocate(handle_of(&stale)), gone, "nobody's any more");
    assert_empty(&rig);
    assert_eq!(rig.runtime.deallocate(stale), gone);
}

fn a_use_that_cannot_be_protected_leaks_the_aligned_block(device: TestDevice) {
    let rig = aligned(device, 4 * KIB, 0);
    let [a, b] = rig.streams();
    let slice = rig.manager.alloc_on::<u32>(100, a, AllocTag("lost")).unwrap_or_else(fail);
    let mut recorder = LaunchRecorder::new_strict(b);
    recorder.write(&slice).preflight(&rig.runtime).unwrap_or_else(fail);
    fill_raw(&rig, &slice, 2, b);
    rig.driver.fail_always(DriverCall::RecordEvent);
    rig.driver.fail_always(DriverCall::SynchronizeStream);
    recorder.commit(&rig.runtime).expect_err("neither recorded nor waited for");
    rig.driver.heal();
    let frees = rig.driver.count(DriverCall::FreeOn);
    drop(slice);
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.driver.count(DriverCall::FreeOn), frees, "its memory is never reused");
    assert_eq!(rig.pool.stats().leaked_blocks, 1);
    assert_eq!(rig.runtime.bytes_outstanding(), 400 + 4 * KIB - 256);
}

/// A resource whose addresses are off by some bytes.
struct Shifted {
    inner: Arc<AsyncCudaResource>,
    by: u64,
    freed: Mutex<usize>,
}

impl DeviceMemoryResource for Shifted {
    fn allocate(
        &self,
        bytes: usize,
        stream: StreamId,
        tag: AllocTag,
    ) -> ResourceResult<DeviceBlock> {
        let block = self.inner.allocate(bytes, stream, tag)?;
        Ok(DeviceBlock { ptr: block.ptr + self.by, ..block })
    }
    fn deallocate(&self, block: DeviceBlock) -> ResourceResult<()> {
        *self.freed.lock() += 1;
        self.inner.deallocate(DeviceBlock { ptr: block.ptr - self.by, ..block })
    }
    fn device_ordinal(&self) -> u32 {
        self.inner.device_ordinal()
    }
    fn bytes_outstanding(&self) -> usize {
        self.inner.bytes_outstanding()
    }
    fn reap_pending(&self) -> ResourceResult<()> {
        self.inner.reap_pending()
    }
}

fn a_resource_that_breaks_the_contract_is_refused_and_gets_its_memory_back(device: TestDevice) {
    let mut below = None;
    let rig = Rig::decorated(device, |driver| {
        let shifted = Shifted { inner: Arc::clone(&driver), by: 16, freed: Mutex::new(0) };
        let shifted = Arc::new(shifted);
        below = Some(Arc::clone(&shifted));
        Box::new(aligned_over(&driver, Box::new(shifted), 512, 0))
    });
    let [a] = rig.streams();
    let mut refused = 0;
    let mut blocks = Vec::new();
    for _ in 0..16 {
        match rig.runtime.allocate(1000, a, AllocTag("shifted")) {
            Ok(block) => {
                assert_eq!(block.ptr % 512, 0);
                blocks.push(block);
            }
            Err(error) => {
                assert_says(&error.to_string(), &["no multiple of 256"]);
                refused += 1;
            }
        }
    }
    // 16 bytes behind a multiple of 512, the next one is too far away; behind another multiple of
    // 256 it is near enough.
    assert_eq!(*below.expect("made above").freed.lock(), refused);
    blocks.into_iter().for_each(|block| rig.runtime.deallocate(block).unwrap_or_else(fail));
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}

fn a_dropped_adaptor_gives_back_what_failed_before(device: TestDevice) {
    let rig = Rig::new(device);
    let [a] = rig.streams();
    let adaptor = aligned_over(&rig.resource, Box::new(Arc::clone(&rig.resource)), 4 * KIB, 0);
    let block = adaptor.allocate(1000, a, AllocTag("failed")).unwrap_or_else(fail);
    rig.driver.fail_after(DriverCall::FreeOn, 0, 1);
    assert!(adaptor.deallocate(block).as_ref().is_err_and(is_injected));
    drop(adaptor);
    assert_empty(&rig);
}

/// Over plain memory, an allocation needs an event of its own; without one it is given up.
fn an_allocation_that_fails_half_way_leaves_nothing_behind(device: TestDevice) {
    let rig = Rig::decorated(device, |driver| {
        let plain = DirectCudaResource::new(Arc::clone(driver.device()), 0);
        Box::new(aligned_over(&driver, Box::new(plain), 4 * KIB, 0))
    });
    let [a] = rig.streams();
    for free_fails in [false, true] {
        rig.driver.fail_after(DriverCall::RecordEvent, 0, 1);
        if free_fails {
            rig.driver.fail_after(DriverCall::Free, 0, 1);
        }
        let refused = rig.runtime.allocate(1000, a, AllocTag("half way"));
        assert!(refused.as_ref().is_err_and(is_injected), "{refused:?}");
        let left = if free_fails { 1000 + 4 * KIB - 256 } else { 0 };
        assert_eq!(rig.runtime.bytes_outstanding(), left, "counted until it is freed");
        assert_empty(&rig);
    }
    assert_works(&rig, a);
}

fn a_stream_that_got_memory_of_another_is_counted_by_its_own(device: TestDevice) {
    let rig = Rig::decorated(device, |driver| {
        let streams = Arc::clone(driver.stream_pool());
        // One slab and no more, so that streams have to share it.
        let options = PoolOptions::default().with_first_slab(8 << 20).with_maximum(8 << 20);
        let pool = PoolResource::new(Box::new(Arc::clone(&driver)), streams, options);
        Box::new(aligned_over(&driver, Box::new(pool), 4 * KIB, 1000))
    });
    // Of the default stream, and free: the next stream gets its memory.
    let first = rig.block(4 << 20, StreamId::DEFAULT);
    rig.runtime.deallocate(first).unwrap_or_else(fail);
    rig.runtime.synchronize(StreamId::DEFAULT).unwrap_or_else(fail);
    for bytes in [100, 300, 5000] {
        let [a] = rig.streams();
        let calls = rig.driver.count(DriverCall::AllocateOn);
        let block = rig.block(bytes, a);
        assert_eq!(rig.driver.count(DriverCall::AllocateOn), calls, "the other stream's memory");
        let refused = rig.pool.release(a).expect_err("a block is there").to_string();
        assert_says(&refused, &["still has 1 live blocks"]);
        rig.runtime.deallocate(block).unwrap_or_else(fail);
        rig.pool.release(a).unwrap_or_else(fail);
    }
    assert_eq!(rig.runtime.bytes_outstanding(), 0);
}
