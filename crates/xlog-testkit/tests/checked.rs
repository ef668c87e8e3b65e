//! The runtime itself under simulation and the oracle.

use std::sync::Arc;

use xlog_cuda::{
    CudaDevice, LaunchDims,
    device_runtime::{AllocTag, DeviceStack, ResourceStack, StreamId},
    kernels,
    launch::{LaunchBuilder, LaunchRecorder},
    memory::TrackedCudaSlice,
};
use xlog_driver::{Arguments, host::HostDriver};
use xlog_testkit::{
    CheckedDevice, DriverCall,
    oracle::{Edit, FindingKind, Oracle, Step, Trace},
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

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        for production in [false, true] {
            assert!(run(seed, production) == run(seed, production), "seed {seed}");
        }
    }
    assert!(run(1, false) != run(2, false));
}

#[test]
fn with_its_waits_swallowed_the_runtime_is_found_out_on_every_seed() {
    for seed in 0..200 {
        let checked = CheckedDevice::new(seed);
        checked.layer.set_deaf(true);
        let stack = if seed % 2 == 0 { checked.plain_stack() } else { checked.production_stack() };
        let stack = stack.expect("a stack");
        let (runtime, manager) = (&stack.runtime, stack.manager());
        let (writer, reader) = two_streams(&stack);
        let slice = manager.alloc_on::<u32>(LENGTH, writer, AllocTag("shared")).expect("memory");
        let fill = runtime.load_kernel(&kernels::FILL_U32).expect("a kernel");
        for stream in [writer, reader] {
            LaunchBuilder::new(runtime, &fill, stream)
                .output(&slice)
                .value(7u32)
                .value(LENGTH as u64)
                .launch(LaunchDims::for_elements(LENGTH))
                .expect("a launch");
        }
        let findings = checked.finish();
        let race = findings.iter().find(|finding| finding.kind == FindingKind::WriteAfterWrite);
        let race = race.unwrap_or_else(|| panic!("seed {seed}: {findings:?}"));
        let text = race.to_string();
        assert!(text.contains("xlog_fill_u32 on stream"), "{text}");
        assert!(text.contains("of block \"shared\" (generation"), "{text}");
        assert!(text.contains("checked.rs:"), "{text}");
        assert_ne!(checked.oracle.trace().races(None), [], "seed {seed}");
    }
}

fn two_streams(stack: &DeviceStack) -> (StreamId, StreamId) {
    let acquire = || stack.streams().acquire().expect("a stream");
    (acquire(), acquire())
}

#[test]
fn a_wait_of_the_runtime_is_seen_by_the_trace_and_missed_when_it_is_gone() {
    let checked = CheckedDevice::new(1);
    let stack = checked.plain_stack().expect("a stack");
    let (writer, reader) = two_streams(&stack);
    let mut from = stack.manager().alloc_on::<u32>(16, writer, AllocTag("from")).expect("memory");
    let mut to = stack.manager().alloc_on::<u32>(16, reader, AllocTag("to")).expect("memory");
    from.fill_bytes(1, writer).expect("a fill");
    to.copy_from(&from, reader).expect("a copy");
    checked.assert_clean();
    let trace = checked.oracle.trace();
    let waits: Vec<_> = trace.waits().collect();
    assert_eq!(waits.len() as u64, checked.layer.count(DriverCall::WaitEvent));
    for edit in [Edit::Remove(waits[0]), Edit::EndEarlier(waits[0])] {
        let kinds: Vec<_> = trace.races(Some(edit)).iter().map(|race| race.kind).collect();
        assert!(kinds.contains(&FindingKind::ReadAfterWrite), "{edit:?}: {kinds:?}");
    }
}

#[test]
fn a_recorder_declares_from_preflight_to_commit() {
    let checked = CheckedDevice::new(1);
    let stack = checked.plain_stack().expect("a stack");
    let (runtime, manager) = (&stack.runtime, stack.manager());
    let (stream, _) = two_streams(&stack);
    let declared = manager.alloc_on::<u32>(16, stream, AllocTag("declared")).expect("memory");
    let other = manager.alloc_on::<u32>(16, stream, AllocTag("other")).expect("memory");
    let fill = runtime.load_kernel(&kernels::FILL_U32).expect("a kernel");
    for slice in [&declared, &other] {
        let mut recorder = LaunchRecorder::new_strict(stream);
        recorder.write(&declared);
        recorder.preflight(runtime).expect("a preflight");
        let mut arguments = Arguments::new();
        arguments.push_pointer(slice.ptr());
        arguments.push_value(7u32);
        arguments.push_value(16u64);
        // SAFETY: the arguments are the kernel's; that one slice is not recorded is the test.
        unsafe { runtime.enqueue(&fill, LaunchDims::linear(1, 16), &arguments, stream) }
            .expect("a launch");
        recorder.commit(runtime).expect("a commit");
    }
    let findings = checked.finish();
    let kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::Undeclared]);
    assert_eq!(findings[0].second.block.map(|block| block.tag), Some("other"));
}

#[test]
fn the_debugging_stack_is_clean_too() {
    for seed in 0..20 {
        let checked = CheckedDevice::new(seed);
        {
            let stack = checked.debugging_stack().expect("a stack");
            let (got, expected) = program(&stack, seed, 40);
            assert_eq!(got, expected, "seed {seed}");
        }
        checked.assert_clean();
    }
}

#[test]
fn no_failed_call_leaves_work_unordered() {
    for seed in 0..300 {
        let checked = CheckedDevice::new(seed);
        let stack = checked.plain_stack().expect("a stack");
        let (runtime, manager) = (&stack.runtime, stack.manager());
        let (one, other) = two_streams(&stack);
        let fill = runtime.load_kernel(&kernels::FILL_U32).expect("a kernel");
        checked.layer.fail_randomly(seed, 8, 3);
        for round in 0..20 {
            let stream = if round % 3 == 0 { one } else { other };
            let Ok(slice) = manager.alloc_on::<u32>(LENGTH, stream, AllocTag("faults")) else {
                continue;
            };
            for stream in [stream, one, other] {
                let _ = LaunchBuilder::new(runtime, &fill, stream)
                    .output(&slice)
                    .value(7u32)
                    .value(LENGTH as u64)
                    .launch(LaunchDims::for_elements(LENGTH));
            }
        }
        checked.layer.heal();
        checked.assert_clean();
    }
}

#[test]
fn two_recorders_open_on_one_stream_keep_their_declarations_apart() {
    let checked = CheckedDevice::new(1);
    let stack = checked.plain_stack().expect("a stack");
    let (runtime, manager) = (&stack.runtime, stack.manager());
    let (stream, _) = two_streams(&stack);
    let fill = runtime.load_kernel(&kernels::FILL_U32).expect("a kernel");
    let slices = ["one", "other"].map(|tag| {
        let slice = manager.alloc_on::<u32>(16, stream, AllocTag(tag)).expect("memory");
        let mut recorder = LaunchRecorder::new_strict(stream);
        recorder.write(&slice);
        recorder.preflight(runtime).expect("a preflight");
        (slice, recorder)
    });
    for (slice, recorder) in slices {
        let mut arguments = Arguments::new();
        arguments.push_pointer(slice.ptr());
        arguments.push_value(7u32);
        arguments.push_value(16u64);
        // SAFETY: the arguments are the kernel's, and the slice is recorded.
        unsafe { runtime.enqueue(&fill, LaunchDims::linear(1, 16), &arguments, stream) }
            .expect("a launch");
        recorder.commit(runtime).expect("a commit");
        // Freed while the other recorder still holds its claim: nobody else's business.
        drop(slice);
    }
    checked.assert_clean();
    let is_launch = |uses: &usize| *uses > 0;
    let uses: Vec<_> = checked.oracle.trace().steps.iter().filter_map(uses_of).collect();
    assert_eq!(uses.into_iter().filter(is_launch).collect::<Vec<_>>(), [1, 1]);
}

fn uses_of(step: &Step) -> Option<usize> {
    match step {
        Step::Operation { uses, .. } => Some(uses.len()),
        _ => None,
    }
}

#[test]
fn threads_over_the_parallel_device_are_clean_under_the_oracle() {
    for round in 0..10 {
        let oracle = Arc::new(Oracle::new());
        let driver = HostDriver::new(0).watched_by(Arc::clone(&oracle) as _);
        let device = Arc::new(CudaDevice::with_driver(Arc::new(driver)));
        let stack = ResourceStack::over_driver(Arc::clone(&device)).build().expect("a stack");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let stack = &stack;
                scope.spawn(move || {
                    let (got, expected) = program(stack, round * 4 + thread, 40);
                    assert_eq!(got, expected);
                });
            }
        });
        drop(stack);
        device.synchronize().expect("the end");
        oracle.assert_clean();
        assert_eq!(oracle.trace().races(None), []);
    }
}

#[test]
fn every_wait_of_the_runtime_is_needed_and_none_covers_more() {
    for production in [false, true] {
        for seed in 0..50 {
            let trace = run(seed, production);
            // By events alone: where the host learns more than the runtime uses, a wait can be
            // idle in one run and needed in the next.
            let analysis = trace.analysis().ignoring_host();
            let as_it_is = analysis.races(None).len();
            for wait in trace.waits() {
                for edit in [Edit::Remove(wait), Edit::EndEarlier(wait)] {
                    let races = analysis.races(Some(edit)).len();
                    assert!(races > as_it_is, "seed {seed}: {edit:?} changes nothing");
                }
            }
        }
    }
}
