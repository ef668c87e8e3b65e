//! What the suites share: random data that is new in each run, and memory with it.

use std::{
    cell::Cell,
    fmt::Debug,
    hash::{BuildHasher, Hasher, RandomState},
};

use bytemuck::Pod;
use libtest_mimic::Trial;
use xlog_cuda::{
    device_runtime::{AllocTag, StreamId},
    memory::TrackedCudaSlice,
};
use xlog_relational::{Engine, primitives::order::Ordered};

/// Lengths at which blocks, tiles and portions begin and end, on either device.
pub const LENGTHS: [usize; 24] = [
    0,
    1,
    2,
    31,
    32,
    33,
    255,
    1000,
    2047,
    2048,
    2049,
    4607,
    4609,
    5759,
    5761,
    6527,
    6529,
    7680,
    7681,
    8831,
    8833,
    100_000,
    (1 << 20) + 7,
    (1 << 21) + 7681,
];

/// Random numbers from a seed that failures name.
#[derive(Debug)]
pub struct Random {
    /// What it began with.
    pub seed: u64,
    state: u64,
}

impl Random {
    /// Another sequence in each run.
    pub fn fresh() -> Self {
        Self::new(RandomState::new().build_hasher().finish())
    }

    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }
}

thread_local! {
    static STREAM: Cell<Option<StreamId>> = const { Cell::new(None) };
}

/// The calling thread's own stream of the one engine there is in a test program.
pub fn stream(engine: &Engine) -> StreamId {
    let acquire = || engine.runtime().stream_pool().acquire().expect("a stream");
    let stream = STREAM.get().unwrap_or_else(acquire);
    STREAM.set(Some(stream));
    stream
}

/// Device memory with `values`, and one more value behind them that nobody may use.
pub fn upload<T: Pod>(engine: &Engine, stream: StreamId, values: &[T]) -> TrackedCudaSlice<T> {
    let tag = AllocTag("test input");
    let slice = engine.manager().alloc_on(values.len() + 1, stream, tag).expect("memory");
    slice.view(..values.len()).expect("a part").upload_on(values, stream).expect("an upload");
    slice.view(values.len()..).expect("a part").fill_bytes(0xaa, stream).expect("a fill");
    slice
}

/// The first `len` values of device memory.
pub fn download<T: Pod>(slice: &TrackedCudaSlice<T>, stream: StreamId, len: usize) -> Vec<T> {
    let part = slice.view(..len).expect("a part");
    part.start_download(stream).expect("a download").wait().expect("its values")
}

/// Leaves poison in memory that is free, where results and temporaries come from next.
pub fn poison(engine: &Engine, stream: StreamId, bytes: usize) {
    let held: Vec<_> = (0..4)
        .map(|_| {
            let mut slice: TrackedCudaSlice<u8> = engine
                .manager()
                .alloc_on(bytes.max(1), stream, AllocTag("poison"))
                .expect("memory");
            slice.fill_bytes(0xcd, stream).expect("a fill");
            slice
        })
        .collect();
    drop(held);
}

/// A test over an engine of its own.
pub fn trial(name: &str, engine: &Engine, test: impl FnOnce(&Engine) + Send + 'static) -> Trial {
    let engine = engine.clone();
    Trial::test(name, move || {
        test(&engine);
        Ok(())
    })
}

/// A value made of random bits.
pub trait TestValue: Ordered {
    /// One whose bits are the low ones of `bits`.
    fn from_random(bits: u64) -> Self;
    /// The ends of the type, and values next to which mistakes are made.
    fn extremes() -> Vec<Self>;
    /// One that about half of all random ones are less than.
    fn middle() -> Self;
}

macro_rules! integer_keys {
    ($($key:ty),*) => {
        $(impl TestValue for $key {
            fn from_random(bits: u64) -> Self {
                bits as Self
            }
            fn middle() -> Self {
                Self::MIN / 2 + Self::MAX / 2
            }
            fn extremes() -> Vec<Self> {
                vec![Self::MIN, Self::MIN + 1, 0, 1, Self::MAX / 2, Self::MAX - 1, Self::MAX]
            }
        })*
    };
}

macro_rules! float_keys {
    ($($key:ty, $bits:ty);*) => {
        $(impl TestValue for $key {
            fn from_random(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
            fn middle() -> Self {
                0.0
            }
            fn extremes() -> Vec<Self> {
                let negative_nan = Self::from_bits(Self::NAN.to_bits() | 1 << (<$bits>::BITS - 1));
                let tiny = Self::from_bits(1);
                vec![0.0, -0.0, Self::NAN, negative_nan, Self::INFINITY, Self::NEG_INFINITY,
                     Self::MAX, Self::MIN, Self::MIN_POSITIVE, tiny, -tiny, 1.0, -1.0]
            }
        })*
    };
}

integer_keys!(u32, i32, u64, i64);
float_keys!(f32, u32; f64, u64);

/// Values of a shape that sorts and selections have trouble with, or just random ones.
pub fn values<T: TestValue>(shape: &str, len: usize, random: &mut Random) -> Vec<T> {
    let width = 8 * size_of::<T>() as u32;
    let extremes = T::extremes();
    let all = random.bits();
    let mut values: Vec<T> = (0..len)
        .map(|_| match shape {
            "few" => T::from_random(random.below(5)),
            "equal" => T::from_random(all),
            "low byte" => T::from_random(random.below(256)),
            "high byte" => T::from_random(random.below(256) << (width - 8)),
            "extremes" => extremes[random.below(extremes.len() as u64) as usize],
            _ => T::from_random(random.bits()),
        })
        .collect();
    match shape {
        "sorted" => values.sort_by_key(|value| value.to_ordered()),
        "reversed" => values.sort_by_key(|value| std::cmp::Reverse(value.to_ordered())),
        _ => {}
    }
    values
}

/// Ends the test at the first difference.
pub fn assert_same<T: PartialEq + Debug>(got: &[T], expected: &[T], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: as many");
    let differs = (0..expected.len()).find(|&at| got[at] != expected[at]);
    let at = differs.unwrap_or(0);
    let (is, must_be) = (got.get(at), expected.get(at));
    assert!(differs.is_none(), "{what}: at {at} is {is:?}, not {must_be:?}");
}
