//! The launch builder: every argument mistake is an error that names the parameter, with nothing
//! enqueued and nothing claimed.

use xlog_core::{Access, ScalarType};
use xlog_cuda::{
    LaunchDims, LoadedKernel,
    device_runtime::{AllocTag, ResourceError, ResourceResult, StreamId},
    kernels,
    launch::LaunchBuilder,
    memory::{Download, SliceView, TrackedCudaSlice},
};
use xlog_driver::{KernelDefinition, Parameter};

use super::support::{
    assert_says, assert_unclaimed, assert_works, comes_true, is_injected, misuse, untracked,
};
use crate::{DriverCall, Gate, Rig, TestCase, TestDevice, cases, fail};

pub(super) const CASES: &[TestCase] = cases![
    arguments_of_the_wrong_kind_name_their_parameter,
    arguments_of_the_wrong_type_name_their_parameter,
    a_count_that_leaves_the_memory_names_its_parameter,
    only_an_optional_parameter_may_be_left_out,
    too_few_and_too_many_arguments_are_refused,
    the_first_mistake_is_the_one_reported,
    a_kernel_of_another_device_is_refused,
    zero_dimensions_are_refused,
    untracked_memory_names_its_parameter,
    memory_of_another_runtime_is_refused,
    an_unknown_stream_is_refused,
    nothing_happens_without_launch,
    memory_declared_beside_the_arguments_is_waited_for,
    two_arguments_of_one_block_are_one_use,
    views_are_arguments_at_their_offset,
    a_failed_launch_publishes_nothing_and_releases_its_claims,
    a_failed_wait_enqueues_nothing,
    a_failed_record_of_a_launch_is_made_good,
];

const LEN: usize = 64;
const DIMS: LaunchDims = LaunchDims::linear(1, LEN as u32);

/// A rig with a kernel of every kind of parameter, and memory for it.
struct Scene {
    rig: Rig,
    stream: StreamId,
    mix: LoadedKernel,
    input: TrackedCudaSlice<u32>,
    data: TrackedCudaSlice<u32>,
}

impl Scene {
    fn new(device: TestDevice) -> Self {
        let rig = Rig::new(device);
        let [stream] = rig.streams();
        let mix = rig.kernel(&kernels::MIX_U32);
        let (input, data) = (rig.zeros(LEN, stream), rig.zeros(LEN, stream));
        Self { rig, stream, mix, input, data }
    }

    fn builder(&self) -> LaunchBuilder<'_> {
        LaunchBuilder::new(&self.rig.runtime, &self.mix, self.stream)
    }

    /// Runs a launch that must be refused; nothing may have changed, and the next launch works.
    #[track_caller]
    fn refused<T: std::fmt::Debug>(&self, launch: impl FnOnce() -> ResourceResult<T>) -> String {
        let before = self.rig.books();
        let refusal = misuse(launch());
        assert_eq!(self.rig.books(), before, "a refusal changes nothing: {refusal}");
        assert_unclaimed(&self.rig, &self.input, self.stream);
        assert_unclaimed(&self.rig, &self.data, self.stream);
        let mut right = self.builder();
        right.input(&self.input).in_out(&self.data).value(1u32);
        right.value(LEN as u64).launch(DIMS).unwrap_or_else(fail);
        refusal
    }
}

fn arguments_of_the_wrong_kind_name_their_parameter(device: TestDevice) {
    let scene = Scene::new(device);
    let (input, data) = (&scene.input, &scene.data);
    let end = |b: &mut LaunchBuilder<'_>| b.value(1u32).value(LEN as u64).launch(DIMS);
    for wrong in [LaunchBuilder::output::<u32>, LaunchBuilder::in_out::<u32>] {
        let refusal = scene.refused(|| end(wrong(&mut scene.builder(), input).in_out(data)));
        assert_says(&refusal, &["xlog_mix_u32", "parameter 0", "(in)", "In u32"]);
    }
    for wrong in [LaunchBuilder::input::<u32>, LaunchBuilder::output::<u32>] {
        let refusal = scene.refused(|| end(wrong(scene.builder().input(input), data)));
        assert_says(&refusal, &["xlog_mix_u32", "parameter 1", "(data)", "InOut u32"]);
    }
    let refusal = scene.refused(|| end(scene.builder().value(3u32).in_out(data)));
    assert_says(&refusal, &["parameter 0", "(in)", "Scalar u32"]);
    let refusal = scene.refused(|| {
        let mut three = scene.builder();
        three.input(input).in_out(data).input(input);
        three.value(LEN as u64).launch(DIMS)
    });
    assert_says(&refusal, &["parameter 2", "(salt)", "Scalar u32", "In u32"]);
    let fill = scene.rig.kernel(&kernels::FILL_U32);
    for wrong in [LaunchBuilder::input::<u32>, LaunchBuilder::in_out::<u32>] {
        let mut builder = LaunchBuilder::new(&scene.rig.runtime, &fill, scene.stream);
        let refusal = scene.refused(|| end(wrong(&mut builder, data)));
        assert_says(&refusal, &["xlog_fill_u32", "parameter 0", "(out)", "Out u32"]);
    }
}

fn arguments_of_the_wrong_type_name_their_parameter(device: TestDevice) {
    let scene = Scene::new(device);
    let allocate = || scene.rig.manager.alloc_on::<f32>(LEN, scene.stream, AllocTag("floats"));
    let floats = allocate().unwrap_or_else(fail);
    let refusal = scene.refused(|| {
        let mut builder = scene.builder();
        builder.input(&floats).in_out(&scene.data);
        builder.value(1u32).value(LEN as u64).launch(DIMS)
    });
    assert_says(&refusal, &["parameter 0", "(in)", "In u32", "In f32"]);
    let memory = || {
        let mut builder = scene.builder();
        builder.input(&scene.input).in_out(&scene.data);
        builder
    };
    let refusal = scene.refused(|| memory().value(1i32).value(LEN as u64).launch(DIMS));
    assert_says(&refusal, &["parameter 2", "(salt)", "u32", "i32"]);
    // The mistake people make: a length of the wrong width.
    let refusal = scene.refused(|| memory().value(1u32).value(LEN as u32).launch(DIMS));
    assert_says(&refusal, &["parameter 3", "(n)", "Scalar u64", "Scalar u32"]);
    let refusal = scene.refused(|| memory().value(1.0f64).value(LEN as i64).launch(DIMS));
    assert_says(&refusal, &["parameter 2", "f64"]);
    let refusal = scene.refused(|| memory().value(1u8).value(LEN as u64).launch(DIMS));
    assert_says(&refusal, &["parameter 2", "u8"]);
}

fn a_count_that_leaves_the_memory_names_its_parameter(device: TestDevice) {
    let scene = Scene::new(device);
    let half = scene.input.view(..LEN / 2).unwrap_or_else(fail);
    let refusal = scene.refused(|| {
        let mut builder = scene.builder();
        builder.input(&half).in_out(&scene.data).value(1u32).value(LEN as u64).launch(DIMS)
    });
    let (asked, there) = (LEN.to_string(), (LEN / 2).to_string());
    assert_says(&refusal, &["xlog_mix_u32", "parameter 0", "(in)", &asked, &there]);
    let refusal = scene.refused(|| {
        let mut builder = scene.builder();
        builder.input(&scene.input).in_out(&scene.data).value(1u32).value(u64::MAX).launch(DIMS)
    });
    assert_says(&refusal, &["parameter 0", &u64::MAX.to_string()]);
    let mut builder = scene.builder();
    let within = builder.input(&half).in_out(&scene.data).value(1u32).value(LEN as u64 / 2);
    within.launch(DIMS).unwrap_or_else(fail);
}

/// A fill that may have nothing to fill.
static FILL_IF_THERE: KernelDefinition = KernelDefinition {
    parameters: &[
        Parameter::output("out", ScalarType::U32).optional(),
        Parameter::value("value", ScalarType::U32),
        Parameter::value("n", ScalarType::U64),
    ],
    ..kernels::FILL_U32
};

fn only_an_optional_parameter_may_be_left_out(device: TestDevice) {
    let scene = Scene::new(device);
    let nothing: Option<SliceView<'_, u32>> = None;
    let refusal = scene.refused(|| {
        let mut builder = scene.builder();
        builder.input(&nothing).in_out(&scene.data).value(1u32).value(LEN as u64).launch(DIMS)
    });
    assert_says(&refusal, &["xlog_mix_u32", "parameter 0", "(in)", "left out", "optional()"]);

    let fill = scene.rig.kernel(&FILL_IF_THERE);
    let builder = || LaunchBuilder::new(&scene.rig.runtime, &fill, scene.stream);
    // It is still memory that the kernel writes, of its own type.
    let refusal = scene.refused(|| builder().input(&nothing).value(7u32).value(0u64).launch(DIMS));
    assert_says(&refusal, &["parameter 0", "(out)", "Out u32", "In u32"]);
    let floats: Option<SliceView<'_, f32>> = None;
    let refusal = scene.refused(|| builder().output(&floats).value(7u32).value(0u64).launch(DIMS));
    assert_says(&refusal, &["parameter 0", "Out f32"]);

    let launch = |memory: Option<SliceView<'_, u32>>, n: u64| {
        builder().output(&memory).value(7u32).value(n).launch(DIMS).unwrap_or_else(fail);
    };
    launch(None, 0);
    let data = scene.rig.zeros(LEN, scene.stream);
    launch(Some(data.view(..LEN / 2).unwrap_or_else(fail)), LEN as u64 / 2);
    let values = data.start_download(scene.stream).and_then(Download::wait).unwrap_or_else(fail);
    assert_eq!(values[..LEN / 2], [7; LEN / 2]);
    assert_eq!(values[LEN / 2..], [0; LEN / 2]);

    // A view that is there is declared: another stream waits for the fill.
    let [other] = scene.rig.streams();
    let gate = Gate::new(&scene.rig);
    gate.hold(&scene.rig, scene.stream);
    launch(Some(data.as_view()), LEN as u64);
    let download = data.start_download(other).unwrap_or_else(fail);
    assert!(!comes_true(|| scene.rig.is_idle(other)), "it waits for the fill");
    gate.open();
    assert_eq!(download.wait().unwrap_or_else(fail), [7; LEN]);
}

fn too_few_and_too_many_arguments_are_refused(device: TestDevice) {
    let scene = Scene::new(device);
    let three = || {
        let mut builder = scene.builder();
        builder.input(&scene.input).in_out(&scene.data).value(1u32);
        builder
    };
    assert_says(
        &scene.refused(|| scene.builder().launch(DIMS)),
        &["xlog_mix_u32", "takes 4 arguments", "0 were given"],
    );
    assert_says(&scene.refused(|| three().launch(DIMS)), &["takes 4 arguments", "3 were given"]);
    let refusal = scene.refused(|| three().value(LEN as u64).value(1u32).launch(DIMS));
    assert_says(&refusal, &["takes 4 arguments", "one more"]);
    let refusal = scene.refused(|| three().value(LEN as u64).input(&scene.data).launch(DIMS));
    assert_says(&refusal, &["takes 4 arguments", "one more"]);
    // Far more than any kernel can take.
    let refusal = scene.refused(|| {
        let mut builder = three();
        builder.value(LEN as u64);
        for _ in 0..100 {
            builder.value(1u32);
        }
        builder.launch(DIMS)
    });
    assert_says(&refusal, &["takes 4 arguments"]);
}

fn the_first_mistake_is_the_one_reported(device: TestDevice) {
    let scene = Scene::new(device);
    let refusal = scene.refused(|| {
        let mut wrong = scene.builder();
        wrong.output(&scene.input).value(1u64);
        wrong.value(2u8).launch(LaunchDims::linear(0, 0))
    });
    assert_says(&refusal, &["parameter 0", "(in)"]);
}

fn a_kernel_of_another_device_is_refused(device: TestDevice) {
    let scene = Scene::new(device);
    let other = Rig::new(device);
    let foreign = other.kernel(&kernels::FILL_U32);
    let refusal = scene.refused(|| {
        let mut builder = LaunchBuilder::new(&scene.rig.runtime, &foreign, scene.stream);
        builder.output(&scene.data).value(1u32).value(LEN as u64).launch(DIMS)
    });
    assert_says(&refusal, &["xlog_fill_u32", "another device"]);
    assert_eq!(other.driver.count(DriverCall::Launch), 0);
}

fn zero_dimensions_are_refused(device: TestDevice) {
    let scene = Scene::new(device);
    for dimension in 0..3 {
        for of_block in [false, true] {
            let mut dims = DIMS;
            let which = if of_block { &mut dims.block } else { &mut dims.grid };
            which[dimension] = 0;
            let refusal = scene.refused(|| {
                let mut builder = scene.builder();
                builder.input(&scene.input).in_out(&scene.data);
                builder.value(1u32).value(LEN as u64).launch(dims)
            });
            assert_says(&refusal, &["xlog_mix_u32", "at least 1"]);
        }
    }
}

fn untracked_memory_names_its_parameter(device: TestDevice) {
    let scene = Scene::new(device);
    let bare = untracked(&scene.rig, LEN);
    let refusal = scene.refused(|| {
        let mut builder = scene.builder();
        builder.input(&bare).in_out(&scene.data);
        builder.value(1u32).value(LEN as u64).launch(DIMS)
    });
    assert_says(&refusal, &["untracked buffer rejected", "in", "with_runtime"]);
    let view = bare.view(..LEN).unwrap_or_else(fail);
    let refusal = scene.refused(|| {
        let mut builder = scene.builder();
        builder.input(&scene.input).in_out(&view);
        builder.value(1u32).value(LEN as u64).launch(DIMS)
    });
    assert_says(&refusal, &["untracked buffer rejected: data"]);
    let refusal = scene.refused(|| {
        let mut builder = scene.builder();
        builder.input(&scene.input).in_out(&scene.data).value(1u32);
        builder.value(LEN as u64).also(Access::Read, &bare).launch(DIMS)
    });
    assert_says(&refusal, &["untracked buffer rejected", "beside the arguments"]);
}

fn memory_of_another_runtime_is_refused(device: TestDevice) {
    let scene = Scene::new(device);
    let other = Rig::new(device);
    // As many blocks as there are here, so that the foreign one's place exists here too.
    let strangers: Vec<_> = (0..4).map(|_| other.zeros(LEN, StreamId::DEFAULT)).collect();
    for stranger in &strangers {
        let before = scene.rig.books();
        let launched = scene
            .builder()
            .input(stranger)
            .in_out(&scene.data)
            .value(1u32)
            .value(LEN as u64)
            .launch(DIMS);
        let generation = stranger.runtime_block().expect("a block").generation;
        assert_eq!(launched, Err(ResourceError::UseAfterFree { generation }));
        assert_eq!(scene.rig.books(), before);
        assert_unclaimed(&scene.rig, &scene.data, scene.stream);
    }
}

fn an_unknown_stream_is_refused(device: TestDevice) {
    let scene = Scene::new(device);
    let released = scene.rig.pool.acquire().unwrap_or_else(fail);
    scene.rig.pool.release(released).unwrap_or_else(fail);
    for unknown in [StreamId(u32::MAX), StreamId(4711), released] {
        let refusal = scene.refused(|| {
            let mut builder = LaunchBuilder::new(&scene.rig.runtime, &scene.mix, unknown);
            let builder = builder.input(&scene.input).in_out(&scene.data);
            builder.value(1u32).value(LEN as u64).launch(DIMS)
        });
        assert_says(&refusal, &[&unknown.0.to_string(), "acquire"]);
    }
}

fn nothing_happens_without_launch(device: TestDevice) {
    let scene = Scene::new(device);
    let before = scene.rig.books();
    let mut builder = scene.builder();
    builder.input(&scene.input).in_out(&scene.data).value(1u32);
    drop(builder);
    assert_eq!(scene.rig.books(), before);
    assert_unclaimed(&scene.rig, &scene.data, scene.stream);
}

fn memory_declared_beside_the_arguments_is_waited_for(device: TestDevice) {
    let rig = Rig::new(device);
    let [a, b] = rig.streams();
    let (hidden, seen) = (rig.zeros(LEN, a), rig.zeros(LEN, b));
    rig.fill(&hidden, 0, a).unwrap_or_else(fail);
    let copy = rig.kernel(&kernels::COPY_U32);
    for access in [Access::Read, Access::Write, Access::ReadWrite] {
        let gate = Gate::new(&rig);
        gate.hold(&rig, a);
        rig.fill(&hidden, 9, a).unwrap_or_else(fail);
        let mut builder = LaunchBuilder::new(&rig.runtime, &copy, b);
        builder.input(&seen).output(&seen);
        let builder = builder.value(LEN as u64).also(access, &hidden);
        builder.launch(DIMS).unwrap_or_else(fail);
        assert!(!comes_true(|| rig.is_idle(b)), "{access:?}: it waits for what it declares");
        // And later work waits for it: as a reader, or as a writer that replaced everything.
        let expected = if access == Access::Read { 2 } else { 1 };
        assert_eq!(rig.resource.pending_use_event_count(hidden.ptr()), Some(expected));
        gate.open();
        rig.runtime.fence().unwrap_or_else(fail);
    }
}

fn two_arguments_of_one_block_are_one_use(device: TestDevice) {
    let scene = Scene::new(device);
    // Read and read-write of one block: two claims would refuse each other.
    let mut builder = scene.builder();
    builder.input(&scene.data).in_out(&scene.data).value(7u32);
    builder.value(LEN as u64).launch(DIMS).unwrap_or_else(fail);
    let mixed = kernels::mix_u32(0, 0, 7);
    assert_eq!(scene.data.download().unwrap_or_else(fail), [mixed; LEN]);
    assert_unclaimed(&scene.rig, &scene.data, scene.stream);
}

fn views_are_arguments_at_their_offset(device: TestDevice) {
    let scene = Scene::new(device);
    let values: Vec<u32> = (0..LEN as u32).map(|i| i * 3 + 1).collect();
    let (mut input, mut data) =
        (scene.rig.zeros(LEN, scene.stream), scene.rig.zeros(LEN, scene.stream));
    input.upload(&values).unwrap_or_else(fail);
    data.upload(&values).unwrap_or_else(fail);
    let from = input.view(5..=20).unwrap_or_else(fail);
    let to = data.view(40..56).unwrap_or_else(fail);
    let mut builder = scene.builder();
    builder.input(&from).in_out(&to).value(3u32);
    builder.value(to.len() as u64).launch(DIMS).unwrap_or_else(fail);
    let mut expected = values.clone();
    for i in 0..16 {
        expected[40 + i] = kernels::mix_u32(values[40 + i], values[5 + i], 3);
    }
    assert_eq!(data.download().unwrap_or_else(fail), expected, "only the view is touched");
    assert_eq!(input.download().unwrap_or_else(fail), values);
}

fn a_failed_launch_publishes_nothing_and_releases_its_claims(device: TestDevice) {
    let scene = Scene::new(device);
    let [other] = scene.rig.streams();
    let count = || scene.rig.resource.pending_use_event_count(scene.input.ptr());
    let records = scene.rig.pool.stats().records;
    for _ in 0..3 {
        scene.rig.driver.fail_after(DriverCall::Launch, 0, 1);
        let launched = LaunchBuilder::new(&scene.rig.runtime, &scene.mix, other)
            .input(&scene.input)
            .in_out(&scene.data)
            .value(1u32)
            .value(LEN as u64)
            .launch(DIMS);
        assert!(launched.as_ref().is_err_and(is_injected), "{launched:?}");
    }
    assert_eq!((count(), scene.rig.pool.stats().records), (Some(1), records));
    assert_unclaimed(&scene.rig, &scene.input, other);
    assert_unclaimed(&scene.rig, &scene.data, other);
    assert_eq!(scene.data.download().unwrap_or_else(fail), [0; LEN]);
    // Copies and fills go the same way.
    let mut slice = scene.rig.zeros(LEN, scene.stream);
    for call in [DriverCall::CopyToDevice, DriverCall::FillBytes, DriverCall::CopyOnDevice] {
        scene.rig.driver.fail_after(call, 0, 1);
        let failed = match call {
            DriverCall::CopyToDevice => slice.upload_on(&[1; LEN], other),
            DriverCall::FillBytes => slice.fill_bytes(1, other),
            _ => slice.copy_from(&scene.input, other),
        };
        assert!(failed.as_ref().is_err_and(is_injected), "{call:?}: {failed:?}");
        assert_unclaimed(&scene.rig, &slice, other);
    }
    scene.rig.driver.fail_after(DriverCall::CopyToHost, 0, 1);
    assert!(slice.download().as_ref().is_err_and(is_injected));
    assert_unclaimed(&scene.rig, &slice, other);
    assert_eq!(slice.download().unwrap_or_else(fail), [0; LEN]);
    assert_works(&scene.rig, other);
}

fn a_failed_wait_enqueues_nothing(device: TestDevice) {
    let scene = Scene::new(device);
    let [other] = scene.rig.streams();
    let _ = scene.rig.kernel(&kernels::INCREMENT_U32);
    let gate = Gate::new(&scene.rig);
    gate.hold(&scene.rig, scene.stream);
    let mut builder = scene.builder();
    builder.input(&scene.input).in_out(&scene.data).value(1u32);
    builder.value(LEN as u64).launch(DIMS).unwrap_or_else(fail);
    let launches = scene.rig.driver.count(DriverCall::Launch);
    scene.rig.driver.fail_after(DriverCall::WaitEvent, 0, 1);
    let launched = scene.rig.increment(&scene.data, 1, other);
    assert!(launched.as_ref().is_err_and(is_injected), "{launched:?}");
    assert_eq!(scene.rig.driver.count(DriverCall::Launch), launches);
    // The failed wait is not taken for one that stands in the stream: the next launch queues it.
    scene.rig.increment(&scene.data, 1, other).unwrap_or_else(fail);
    assert!(!comes_true(|| scene.rig.is_idle(other)), "the wait was skipped");
    gate.open();
    let expected = kernels::mix_u32(0, 0, 1).wrapping_add(1);
    assert_eq!(scene.data.download().unwrap_or_else(fail), [expected; LEN]);
}

fn a_failed_record_of_a_launch_is_made_good(device: TestDevice) {
    let scene = Scene::new(device);
    let [other] = scene.rig.streams();
    scene.rig.driver.fail_after(DriverCall::RecordEvent, 0, 1);
    let mut builder = scene.builder();
    builder.input(&scene.input).in_out(&scene.data).value(1u32);
    let launched = builder.value(LEN as u64).launch(DIMS);
    assert!(launched.as_ref().is_err_and(is_injected), "{launched:?}");
    assert!(scene.rig.is_idle(scene.stream), "the work was over before the error came back");
    assert_unclaimed(&scene.rig, &scene.data, other);
    let expected = kernels::mix_u32(0, 0, 1);
    assert_eq!(scene.data.download().unwrap_or_else(fail), [expected; LEN], "it did run");
}
