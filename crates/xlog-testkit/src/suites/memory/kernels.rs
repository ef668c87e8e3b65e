//! Every kernel of the runtime against the same thing in plain Rust, on fresh numbers, with
//! poisoned outputs.

use xlog_cuda::{
    LaunchDims,
    device_runtime::{AllocTag, StreamId},
    kernels as device,
    launch::{DeviceElement, LaunchBuilder},
    memory::TrackedCudaSlice,
};
use xlog_driver::{Arguments, KernelDefinition};

use super::super::support::{Random, comes_true};
use crate::{Gate, Rig, TestDevice, fail};

const POISON: u32 = 0xdead_beef;

/// Elements past the end that no kernel may touch.
const GUARD: usize = 37;

/// Lengths around the pieces and blocks kernels work in, and two that nobody chose.
fn lengths(random: &mut Random) -> [usize; 9] {
    [1, 2, 255, 256, 257, 2048, 2049, 1 + random.below(10_000), 1 + random.below(100_000)]
}

fn uploaded<T: DeviceElement>(rig: &Rig, values: &[T], stream: StreamId) -> TrackedCudaSlice<T> {
    let tag = AllocTag("values");
    let mut slice = rig.manager.alloc_on(values.len(), stream, tag).unwrap_or_else(fail);
    slice.upload(values).unwrap_or_else(fail);
    slice
}

fn poisoned(rig: &Rig, len: usize, stream: StreamId) -> TrackedCudaSlice<u32> {
    uploaded(rig, &vec![POISON; len + GUARD], stream)
}

#[track_caller]
fn assert_result(out: &TrackedCudaSlice<u32>, mut expected: Vec<u32>) {
    expected.resize(expected.len() + GUARD, POISON);
    let found = out.download().unwrap_or_else(fail);
    let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!((found.len(), differs), (expected.len(), None));
}

pub(super) fn elementwise_kernels_give_what_plain_code_gives(test: TestDevice) {
    let rig = Rig::new(test);
    let [s] = rig.streams();
    let mut random = Random::new();
    for n in lengths(&mut random) {
        let dims = LaunchDims::for_elements(n);
        let launch = |definition| LaunchBuilder::new(&rig.runtime, &rig.kernel(definition), s);
        let (input, data) = (random.u32s(n), random.u32s(n));
        let scalar = random.next() as u32;
        let (on_device, len) = (uploaded(&rig, &input, s), n as u64);

        let out = poisoned(&rig, n, s);
        let mut fill = launch(&device::FILL_U32);
        fill.output(&out).value(scalar).value(len);
        fill.launch(dims).unwrap_or_else(fail);
        assert_result(&out, vec![scalar; n]);

        let out = poisoned(&rig, n, s);
        let mut copy = launch(&device::COPY_U32);
        copy.input(&on_device).output(&out).value(len);
        copy.launch(dims).unwrap_or_else(fail);
        assert_result(&out, input.clone());

        let mut with_guard = data.clone();
        with_guard.resize(n + GUARD, POISON);
        let out = uploaded(&rig, &with_guard, s);
        let mut increment = launch(&device::INCREMENT_U32);
        increment.in_out(&out).value(scalar).value(len);
        increment.launch(dims).unwrap_or_else(fail);
        assert_result(&out, data.iter().map(|value| value.wrapping_add(scalar)).collect());

        let out = uploaded(&rig, &with_guard, s);
        let mut mixing = launch(&device::MIX_U32);
        mixing.input(&on_device).in_out(&out).value(scalar);
        mixing.value(len).launch(dims).unwrap_or_else(fail);
        let mixed = data.iter().zip(&input).map(|(d, i)| mix(*d, *i, scalar)).collect();
        assert_result(&out, mixed);
        assert_eq!(on_device.download().unwrap_or_else(fail), input, "inputs stay");

        let (out, left) = (uploaded(&rig, &with_guard, s), poisoned(&rig, n, s));
        let (b, mut blend) = (uploaded(&rig, &data, s), launch(&device::BLEND_U32));
        blend.input(&on_device).input(&b).in_out(&out).output(&left).value(scalar);
        blend.value(len).launch(dims).unwrap_or_else(fail);
        let blended: Vec<u32> = input.iter().zip(&data).map(|(a, b)| mix(*a, *b, scalar)).collect();
        assert_result(&left, blended.clone());
        assert_result(&out, data.iter().zip(&blended).map(|(d, b)| scramble(d ^ b)).collect());
        assert_eq!(b.download().unwrap_or_else(fail), data, "inputs stay");

        let float = |bits: &u32| f32::from_bits(bits >> 2) * 1e-3;
        let (a, x): (f32, Vec<f32>) = (float(&scalar), input.iter().map(float).collect());
        let y: Vec<f32> = data.iter().map(float).collect();
        let (x_on, y_on) = (uploaded(&rig, &x, s), uploaded(&rig, &y, s));
        let mut axpy = launch(&device::AXPY_F32);
        axpy.value(a).input(&x_on).in_out(&y_on).value(len);
        axpy.launch(dims).unwrap_or_else(fail);
        let found = y_on.download().unwrap_or_else(fail);
        for i in 0..n {
            // Bit for bit: the product is rounded, then the sum.
            assert_eq!(found[i].to_bits(), (y[i] + a * x[i]).to_bits(), "{a} {} {}", x[i], y[i]);
        }
    }
}

/// MurmurHash3's finalizer twice, written down a second time: the device's own helper is checked
/// with it.
fn mix(data: u32, input: u32, salt: u32) -> u32 {
    let mixed = scramble(data ^ scramble(input.wrapping_add(salt)));
    assert_eq!(device::mix_u32(data, input, salt), mixed);
    assert_eq!(device::blend_u32(data, input, !salt, salt), (scramble(!salt ^ mixed), mixed));
    mixed
}

fn scramble(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

pub(super) fn the_checksum_gives_what_plain_code_gives(test: TestDevice) {
    let rig = Rig::new(test);
    let [s] = rig.streams();
    let mut random = Random::new();
    for n in lengths(&mut random) {
        let values = random.u32s(n);
        let start = random.next();
        let expected = values.iter().enumerate().fold(start, |sum, (index, value)| {
            // SplitMix64's output function over index and value.
            let mut z = ((index as u64) << 32) ^ u64::from(*value);
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            sum.wrapping_add(z ^ (z >> 31))
        });
        assert_eq!(start.wrapping_add(device::checksum_u32(&values)), expected);
        let (input, sum) = (uploaded(&rig, &values, s), uploaded(&rig, &[start, !0], s));
        LaunchBuilder::new(&rig.runtime, &rig.kernel(&device::CHECKSUM_U32), s)
            .input(&input)
            .in_out(&sum)
            .value(n as u64)
            .launch(LaunchDims::for_elements(n))
            .unwrap_or_else(fail);
        assert_eq!(sum.download().unwrap_or_else(fail), [expected, !0]);
    }
}

pub(super) fn touching_kernels_add_to_the_first_element_of_each_block(test: TestDevice) {
    let rig = Rig::new(test);
    let [s] = rig.streams();
    let mut random = Random::new();
    let kernels = [(&device::TOUCH_1, 1), (&device::TOUCH_4, 4), (&device::TOUCH_8, 8)];
    for (definition, blocks) in kernels {
        let kernel = rig.kernel(definition);
        let before: Vec<Vec<u32>> = (0..blocks).map(|_| random.u32s(3)).collect();
        let slices: Vec<_> = before.iter().map(|values| uploaded(&rig, values, s)).collect();
        let amount = random.next() as u32;
        let mut builder = LaunchBuilder::new(&rig.runtime, &kernel, s);
        for slice in &slices {
            builder.in_out(slice);
        }
        builder.value(amount).launch(LaunchDims::linear(1, 1)).unwrap_or_else(fail);
        for (slice, mut expected) in slices.iter().zip(before) {
            expected[0] = expected[0].wrapping_add(amount);
            assert_eq!(slice.download().unwrap_or_else(fail), expected);
        }
    }
}

pub(super) fn empty_kernels_change_nothing(test: TestDevice) {
    let rig = Rig::new(test);
    let [s] = rig.streams();
    let mut random = Random::new();
    let kernels: [(&'static KernelDefinition, usize, bool); 6] = [
        (&device::EMPTY_1, 1, true),
        (&device::EMPTY_4, 4, true),
        (&device::EMPTY_8, 8, true),
        (&device::EMPTY_READ_1, 1, false),
        (&device::EMPTY_READ_4, 4, false),
        (&device::EMPTY_READ_8, 8, false),
    ];
    for (definition, blocks, writes) in kernels {
        let kernel = rig.kernel(definition);
        let before: Vec<Vec<u32>> = (0..blocks).map(|_| random.u32s(100)).collect();
        let slices: Vec<_> = before.iter().map(|values| uploaded(&rig, values, s)).collect();
        let mut builder = LaunchBuilder::new(&rig.runtime, &kernel, s);
        for slice in &slices {
            if writes {
                builder.in_out(slice)
            } else {
                builder.input(slice)
            };
        }
        builder.launch(LaunchDims::linear(1, 32)).unwrap_or_else(fail);
        for (slice, expected) in slices.iter().zip(before) {
            assert_eq!(slice.download().unwrap_or_else(fail), expected);
        }
    }
}

pub(super) fn a_gate_holds_until_its_signal_or_its_time(test: TestDevice) {
    let rig = Rig::new(test);
    let [held, free] = rig.streams();
    let _ = rig.kernel(&device::SIGNAL);
    let gate = Gate::new(&rig);
    gate.hold(&rig, held);
    assert!(!comes_true(|| rig.is_idle(held)), "the gate is open");
    let mut arguments = Arguments::new();
    arguments.push_pointer(gate.address());
    arguments.push_value(1u32);
    rig.launch_raw(&device::SIGNAL, &arguments, LaunchDims::linear(1, 1), free);
    rig.runtime.synchronize(held).unwrap_or_else(fail);
    // Without a signal it ends by itself.
    let flag = rig.zeros(1, held);
    let kernel = rig.kernel(&device::GATE);
    let mut builder = LaunchBuilder::new(&rig.runtime, &kernel, held);
    builder.input(&flag);
    builder.value(2_000_000u64).launch(LaunchDims::linear(1, 1)).unwrap_or_else(fail);
    rig.runtime.synchronize(held).unwrap_or_else(fail);
    assert_eq!(flag.download().unwrap_or_else(fail), [0]);
}
