//! The runtime itself under simulation and the oracle.

use xlog_cuda::{
    LaunchDims,
    device_runtime::{AllocTag, DeviceStack, StreamId},
    kernels,
    launch::LaunchBuilder,
    memory::TrackedCudaSlice,
};
use xlog_testkit::{
    CheckedDevice,
    oracle::{FindingKind, Trace},
};

const LENGTH: usize = 256;

/// A small source of chance, so that each seed is another program.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Launches over four streams and up to eight blocks that come and go; the answer is what a last
/// download saw, and what it should have seen.
fn program(stack: &DeviceStack, seed: u64, launches: usize) -> (Vec<u32>, Vec<u32>) {
    let (runtime, manager) = (&stack.runtime, stack.manager());
    let mut random = Random(seed);
    let mut streams = vec![StreamId::DEFAULT];
    streams.extend((0..3).map(|_| stack.streams().acquire().expect("a stream")));
    let increment = runtime.load_kernel(&kernels::INCREMENT_U32).expect("a kernel");
    let copy = runtime.load_kernel(&kernels::COPY_U32).expect("a kernel");
    let dims = LaunchDims::for_elements(LENGTH);
    let fresh = |stream| -> (TrackedCudaSlice<u32>, u32) {
        let mut slice = manager.alloc_on(LENGTH, stream, AllocTag("program")).expect("memory");
        slice.fill_bytes(0, stream).expect("a fill");
        (slice, 0)
    };
    let mut blocks: Vec<_> = (0..6).map(|i| fresh(streams[i % 4])).collect();
    for _ in 0..launches {
        let stream = streams[random.below(4)];
        let (one, other) = (random.below(6), random.below(6));
        match random.below(8) {
            0 => blocks[one] = fresh(stream),
            1 | 2 if one != other => {
                LaunchBuilder::new(runtime, &copy, stream)
                    .input(&blocks[one].0)
                    .output(&blocks[other].0)
                    .value(LENGTH as u64)
                    .launch(dims)
                    .expect("a launch");
                blocks[other].1 = blocks[one].1;
            }
            3 => {
                let started = blocks[one].0.start_download(stream).expect("a download");
                let got = started.wait().expect("its values");
                assert_eq!(got[0], blocks[one].1, "seed {seed}");
            }
            _ => {
                LaunchBuilder::new(runtime, &increment, stream)
                    .in_out(&blocks[one].0)
                    .value(3u32)
                    .value(LENGTH as u64)
                    .launch(dims)
                    .expect("a launch");
                blocks[one].1 += 3;
            }
        }
    }
    blocks.iter().map(|(slice, value)| (slice.download().expect("a download")[7], *value)).unzip()
}

fn run(seed: u64, production: bool) -> Trace {
    let checked = CheckedDevice::new(seed);
    {
        let stack = if production { checked.production_stack() } else { checked.plain_stack() };
        let (got, expected) = program(&stack.expect("a stack"), seed, 60);
        assert_eq!(got, expected, "seed {seed}");
    }
    checked.assert_clean();
    let trace = checked.oracle.trace();
    assert_eq!(trace.races(None), [], "seed {seed}");
    trace
}

#[test]
fn two_hundred_seeds_over_the_stream_ordered_resource_find_nothing() {
    (0..200).for_each(|seed| drop(run(seed, false)));
}

#[test]
fn two_hundred_seeds_over_the_production_stack_find_nothing() {
    (0..200).for_each(|seed| drop(run(seed, true)));
}
