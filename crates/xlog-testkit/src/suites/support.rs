//! What several suites need: answers taken apart, bounded waits, and numbers to compute with.

use std::{
    fmt::Debug,
    sync::{Arc, mpsc},
    time::Duration,
};

use xlog_core::MemoryBudget;
use xlog_cuda::{
    GpuMemoryManager, LaunchDims,
    device_runtime::{AllocTag, DeviceBlock, ResourceError, ResourceResult, StreamId},
    kernels,
    memory::TrackedCudaSlice,
};
use xlog_driver::Arguments;

use crate::{Rig, fail};

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

/// Waits until `condition` holds; ends the test if it never does.
#[track_caller]
pub(super) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(crate::eventually(LONGEST, condition), "never came true: {what}");
}

/// Gives `condition` every chance to come true, for a short bounded time. Whatever must not happen
/// gets its chance here; a machine too busy to let it happen only makes the test weaker.
pub(super) fn comes_true(condition: impl FnMut() -> bool) -> bool {
    crate::eventually(Duration::from_millis(10), condition)
}

/// Loads every kernel and touches every stream before anything is held: loading may wait for the
/// device, and so may the first use of staging memory.
pub(super) fn warm_up(rig: &Rig, len: usize, streams: &[StreamId]) {
    for stream in streams {
        let (from, to) = (rig.filled(len, 1, *stream), rig.filled(len, 2, *stream));
        rig.copy(&from, &to, *stream).unwrap_or_else(fail);
        rig.increment(&to, 1, *stream).unwrap_or_else(fail);
        assert_eq!(to.download().unwrap_or_else(fail), vec![2; len]);
    }
    rig.runtime.reap_pending().unwrap_or_else(fail);
    let _ = rig.kernel(&kernels::SIGNAL);
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

/// Copies past the recorder.
pub(super) fn copy_raw(
    rig: &Rig,
    from: &TrackedCudaSlice<u32>,
    to: &TrackedCudaSlice<u32>,
    stream: StreamId,
) {
    let mut arguments = Arguments::new();
    arguments.push_pointer(from.ptr());
    arguments.push_pointer(to.ptr());
    arguments.push_value(from.len() as u64);
    rig.launch_raw(&kernels::COPY_U32, &arguments, LaunchDims::for_elements(from.len()), stream);
}

/// Memory on `stream` at the address of a block freed there. Which of its idle memory a driver
/// hands out first is its own affair, so it is asked until the address comes back.
pub(super) fn recycled(
    rig: &Rig,
    len: usize,
    stream: StreamId,
    address: u64,
) -> Option<TrackedCudaSlice<u32>> {
    let mut others = Vec::new();
    for _ in 0..100 {
        let slice = rig.manager.alloc_on(len, stream, AllocTag("next")).unwrap_or_else(fail);
        if slice.ptr() == address {
            return Some(slice);
        }
        others.push(slice);
    }
    None
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

/// A second handle of the same block: what a mistaken program has.
pub(super) fn handle_of(block: &DeviceBlock) -> DeviceBlock {
    DeviceBlock {
        ptr: block.ptr,
        device_ordinal: block.device_ordinal,
        alloc_stream: block.alloc_stream,
        bytes: block.bytes,
        align: block.align,
        tag: block.tag,
        generation: block.generation,
        state: block.state,
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
