//! What several suites need: answers taken apart, bounded waits, and numbers to compute with.

use std::{
    fmt::Debug,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use xlog_core::MemoryBudget;
use xlog_cuda::{
    GpuMemoryManager, LaunchDims,
    device_runtime::{
        AllocTag, AsyncCudaResource, DeviceBlock, ResourceError, ResourceResult, StreamId,
    },
    kernels,
    memory::TrackedCudaSlice,
};
use xlog_driver::{Arguments, Driver, StreamProgress};

use crate::{DriverCall, Rig, fail};

/// Longer than anything here takes on a busy machine, and shorter than a gate holds: a test that
/// would hang fails instead.
const LONGEST: Duration = Duration::from_secs(15);

/// What a refusal says; anything but [`ResourceError::StreamMisuse`] ends the test.
#[track_caller]
pub(super) fn misuse<T: Debug>(answer: ResourceResult<T>) -> String {
    match answer {
        Err(ResourceError::StreamMisuse(what)) => what,
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

/// Ends the test unless `text` has all of `parts`.
#[track_caller]
pub(super) fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text:?}");
    }
}

/// Whether an error is the layer's own.
pub(super) fn is_injected(error: &ResourceError) -> bool {
    matches!(error, ResourceError::Driver(cause) if cause.code() == crate::INJECTED)
}

/// Whether everything enqueued on `stream` is done.
pub(super) fn is_idle(rig: &Rig, stream: StreamId) -> bool {
    let raw = rig.pool.resolve(stream).expect("a stream of the pool");
    // SAFETY: the stream is the pool's, and the pool is alive.
    let progress = unsafe { rig.driver.stream_progress(raw) };
    progress.unwrap_or_else(fail) == StreamProgress::Idle
}

/// Waits until `condition` holds; ends the test if it never does.
#[track_caller]
pub(super) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONGEST, "never came true: {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Gives `condition` every chance to come true, for a short bounded time. Whatever must not happen
/// gets its chance here; a machine too busy to let it happen only makes the test weaker.
pub(super) fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    (0..200).any(|_| {
        std::thread::sleep(Duration::from_micros(50));
        condition()
    })
}

/// Runs `f` on a thread of its own and waits for it; ends the test if it hangs.
#[track_caller]
pub(super) fn within<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || sender.send(f()));
    match receiver.recv_timeout(LONGEST) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs: {what}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => panic!("no answer: {what}"),
        },
    }
}

/// The arguments of [`kernels::FILL_U32`] over all of `slice`.
pub(super) fn fill_arguments(slice: &TrackedCudaSlice<u32>, value: u32) -> Arguments {
    let mut arguments = Arguments::new();
    arguments.push_pointer(slice.ptr());
    arguments.push_value(value);
    arguments.push_value(slice.len() as u64);
    arguments
}

/// Fills `slice` past the recorder: step 3 of a launch in steps.
pub(super) fn fill_raw(rig: &Rig, slice: &TrackedCudaSlice<u32>, value: u32, stream: StreamId) {
    let dims = LaunchDims::for_elements(slice.len());
    rig.launch_raw(&kernels::FILL_U32, &fill_arguments(slice, value), dims, stream);
}

/// A slice of a manager that has no runtime.
pub(super) fn untracked(rig: &Rig, len: usize) -> TrackedCudaSlice<u32> {
    let manager = GpuMemoryManager::new(Arc::clone(&rig.device), MemoryBudget::unlimited());
    manager.alloc(len).unwrap_or_else(fail)
}

/// The block behind `slice`.
pub(super) fn block_of<T>(slice: &TrackedCudaSlice<T>) -> &DeviceBlock {
    slice.runtime_block().expect("a slice of a runtime has a block")
}

/// Everything a refused call must leave as it was.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Books {
    live: usize,
    pending: usize,
    pending_per_stream: usize,
    held: usize,
    blocks: usize,
    streams: usize,
    records: u64,
    launches: u64,
    copies: u64,
    frees: u64,
}

impl Books {
    pub(super) fn of(rig: &Rig) -> Self {
        let (resource, stats): (&AsyncCudaResource, _) = (&rig.resource, rig.pool.stats());
        let count = |call| rig.driver.count(call);
        Self {
            live: resource.live_bytes(),
            pending: resource.pending_free_bytes(),
            pending_per_stream: resource.pending_per_stream_total(),
            held: rig.manager.held_bytes(),
            blocks: stats.blocks,
            streams: stats.streams,
            records: stats.records,
            launches: count(DriverCall::Launch),
            copies: count(DriverCall::CopyToDevice)
                + count(DriverCall::CopyToHost)
                + count(DriverCall::CopyOnDevice)
                + count(DriverCall::FillBytes),
            frees: count(DriverCall::Free) + count(DriverCall::FreeOn),
        }
    }
}

impl Books {
    /// The same with nothing freed: for a test that frees something itself.
    pub(super) fn ignoring_frees(mut self) -> Self {
        self.frees = 0;
        self.records = 0;
        self
    }
}

/// Shows that the runtime still works: allocates, launches on `stream`, reads back, frees.
#[track_caller]
pub(super) fn assert_works(rig: &Rig, stream: StreamId) {
    let mut slice = rig.manager.alloc_on::<u32>(64, stream, AllocTag("check")).unwrap_or_else(fail);
    slice.fill_bytes(0, stream).unwrap_or_else(fail);
    rig.fill(&slice, 77, stream).unwrap_or_else(fail);
    assert_eq!(slice.download().unwrap_or_else(fail), [77; 64]);
}

/// Shows that no claim is left on `slice`: another thread's write goes through at once.
#[track_caller]
pub(super) fn assert_unclaimed(rig: &Rig, slice: &TrackedCudaSlice<u32>, stream: StreamId) {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut recorder = xlog_cuda::launch::LaunchRecorder::new_strict(stream);
            recorder.write(slice).preflight(&rig.runtime)?;
            recorder.commit(&rig.runtime)
        });
        other.join().expect("no panic").unwrap_or_else(fail)
    });
}

/// Marsaglia's xorshift: fresh numbers without a dependency. A failing test says what they
/// started from.
#[derive(Debug)]
pub(super) struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    /// A different sequence each run.
    pub(super) fn new() -> Self {
        let nanoseconds = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |since| since.as_nanos() as u64);
        Self::from_seed(nanoseconds)
    }

    pub(super) fn from_seed(seed: u64) -> Self {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { seed, state }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }

    pub(super) fn u32s(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| (self.next() >> 32) as u32).collect()
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("random numbers from seed {}", self.seed);
        }
    }
}
