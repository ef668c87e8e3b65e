//! Joins and group-bys by hash, against maps on the host.

// Each test program uses its part of these.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, missing_docs)]

mod checked;
mod group;
mod join;

use libtest_mimic::Trial;
use xlog_cuda::{
    device_runtime::{AllocTag, StreamId},
    memory::TrackedCudaSlice,
};
use xlog_relational::{
    Engine,
    primitives::{KeyColumn, KeyWords},
};

/// A test: what it shows, and how.
pub type Case = (&'static str, fn(&Engine));

/// Every test of joins and group-bys; those on the checked device too where that is the host.
pub fn tests(engine: &Engine, on_host: bool) -> Vec<Trial> {
    let suites = join::CASES.iter().chain(group::CASES);
    let mut trials: Vec<_> = suites
        .map(|&(name, test)| {
            let engine = engine.clone();
            Trial::test(name, move || {
                test(&engine);
                Ok(())
            })
        })
        .collect();
    let own = if on_host { checked::CASES } else { &[] };
    trials.extend(own.iter().map(|&(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    }));
    trials
}

/// A small source of chance; each program run has another seed, which a failing test names.
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = now.as_nanos() as u64;
        println!("seed {seed}");
        Self(seed)
    }

    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Zipf's law with exponent 1 over `keys` keys, nearly: the key is uniform in its logarithm.
    pub fn zipf(&mut self, keys: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((keys as f64).powf(unit) as u64).min(keys) - 1
    }
}

/// A column on the host: words of 32 or 64 bits, some of them null.
#[derive(Clone, Debug)]
pub struct Column {
    pub long: bool,
    pub values: Vec<Option<u64>>,
    pub nullable: bool,
}

impl Column {
    pub fn words(values: impl IntoIterator<Item = u32>) -> Self {
        let values = values.into_iter().map(|v| Some(u64::from(v))).collect();
        Self { long: false, values, nullable: false }
    }

    pub fn longs(values: impl IntoIterator<Item = u64>) -> Self {
        Self { long: true, values: values.into_iter().map(Some).collect(), nullable: false }
    }

    /// The same with every `nth` value null.
    pub fn with_nulls(mut self, random: &mut Random, nth: u64) -> Self {
        self.nullable = true;
        self.values.iter_mut().for_each(|v| *v = v.filter(|_| random.below(nth) != 0));
        self
    }
}

/// A column on the device.
pub struct Stored {
    words: Option<TrackedCudaSlice<u32>>,
    longs: Option<TrackedCudaSlice<u64>>,
    bits: Option<TrackedCudaSlice<u32>>,
    rows: usize,
}

pub fn upload<T: bytemuck::Pod>(engine: &Engine, values: &[T]) -> TrackedCudaSlice<T> {
    let len = values.len().max(1);
    let slice = engine.manager().alloc_on(len, StreamId::DEFAULT, AllocTag("test")).unwrap();
    if !values.is_empty() {
        slice.view(..values.len()).unwrap().upload_on(values, StreamId::DEFAULT).unwrap();
    }
    slice
}

pub fn bitmap(set: impl Iterator<Item = bool>) -> Vec<u32> {
    let mut words = Vec::new();
    for (at, set) in set.enumerate() {
        if at % 32 == 0 {
            words.push(0);
        }
        words[at / 32] |= u32::from(set) << (at % 32);
    }
    words
}

impl Stored {
    /// Nulls get words that must not matter.
    pub fn new(engine: &Engine, column: &Column) -> Self {
        let raw = column.values.iter().map(|v| v.unwrap_or(0x5a5a_5a5a));
        let (mut words, mut longs) = (None, None);
        if column.long {
            longs = Some(upload(engine, &raw.collect::<Vec<_>>()));
        } else {
            words = Some(upload(engine, &raw.map(|v| v as u32).collect::<Vec<_>>()));
        }
        let bits = column
            .nullable
            .then(|| upload(engine, &bitmap(column.values.iter().map(Option::is_some))));
        Self { words, longs, bits, rows: column.values.len() }
    }

    pub fn key(&self) -> KeyColumn<'_> {
        let words = match (&self.words, &self.longs) {
            (Some(words), _) => KeyWords::U32(words.view(..self.rows).unwrap()),
            (_, Some(longs)) => KeyWords::U64(longs.view(..self.rows).unwrap()),
            _ => unreachable!(),
        };
        KeyColumn { words, validity: self.validity() }
    }

    pub fn validity(&self) -> Option<xlog_cuda::memory::SliceView<'_, u32>> {
        self.bits.as_ref().map(TrackedCudaSlice::as_view)
    }

    pub fn words(&self) -> &TrackedCudaSlice<u32> {
        self.words.as_ref().unwrap()
    }

    pub fn longs(&self) -> &TrackedCudaSlice<u64> {
        self.longs.as_ref().unwrap()
    }
}

/// The first `count` values of a slice.
pub fn download<T: bytemuck::Pod>(slice: &TrackedCudaSlice<T>, count: u64) -> Vec<T> {
    if count == 0 {
        return Vec::new();
    }
    slice.view(..count as usize).unwrap().download().unwrap()
}
