//! Sorts against the standard library's.

use std::fmt::Debug;

use libtest_mimic::Trial;
use xlog_cuda::device_runtime::ResourceResult;
use xlog_relational::{
    Engine,
    primitives::{SortBy, SortKey, SortValue, order::Ordered, sort_keys, sort_pairs},
};

use super::support::{
    LENGTHS, Random, TestValue, assert_same, download, poison, stream, trial, upload, values,
};

/// Shapes of input that sorts have trouble with.
const SHAPES: [&str; 8] =
    ["random", "few", "equal", "sorted", "reversed", "low byte", "high byte", "extremes"];

/// The bits of keys: NaNs are not equal to themselves.
fn bits<K: Ordered>(keys: &[K]) -> Vec<K::Bits> {
    keys.iter().map(|key| key.to_bits()).collect()
}

/// What a sort must give: keys and the rows they came from.
fn expected<K: TestValue + SortKey>(keys: &[K], by: &SortBy) -> Vec<usize> {
    let part = |row: &usize| {
        use xlog_relational::primitives::order::Bits;
        keys[*row].to_ordered().between(by.bits.start, by.bits.end)
    };
    let mut rows: Vec<usize> = (0..keys.len()).collect();
    if by.descending {
        rows.sort_by_key(|row| std::cmp::Reverse(part(row)));
    } else {
        rows.sort_by_key(part);
    }
    rows
}

fn check_keys<K: TestValue + SortKey>(engine: &Engine, keys: &[K], by: &SortBy, what: &str) {
    let stream = stream(engine);
    let input = upload(engine, stream, keys);
    poison(engine, stream, size_of_val(keys));
    let sorted = sort_keys(engine, stream, &input, keys.len() as u64, by).expect("a sort");
    let expected: Vec<K> = expected(keys, by).iter().map(|&row| keys[row]).collect();
    assert_same(&bits(&download(&sorted, stream, keys.len())), &bits(&expected), what);
    assert_same(&bits(&download(&input, stream, keys.len())), &bits(keys), "the input");
}

fn check_pairs<K: TestValue + SortKey, V: SortValue + TryFrom<usize> + PartialEq + Debug>(
    engine: &Engine,
    keys: &[K],
    by: &SortBy,
    what: &str,
) where
    V::Error: Debug,
{
    let stream = stream(engine);
    let numbers: Vec<V> = (0..keys.len()).map(|row| V::try_from(row).expect("a row")).collect();
    let (input, rows) = (upload(engine, stream, keys), upload(engine, stream, &numbers));
    poison(engine, stream, size_of_val(keys));
    let sorted = sort_pairs(engine, stream, &input, &rows, keys.len() as u64, by);
    let (sorted, rows) = sorted.expect("a sort");
    let expected = expected(keys, by);
    let expected_keys: Vec<K> = expected.iter().map(|&row| keys[row]).collect();
    let expected: Vec<V> = expected.iter().map(|&row| numbers[row]).collect();
    assert_same(&bits(&download(&sorted, stream, keys.len())), &bits(&expected_keys), what);
    assert_same(&download(&rows, stream, keys.len()), &expected, what);
}

fn every_length<K: TestValue + SortKey>(engine: &Engine) {
    let mut random = Random::fresh();
    for len in LENGTHS {
        let what = format!("{len} random keys, seed {}", random.seed);
        let keys = values::<K>("random", len, &mut random);
        check_keys(engine, &keys, &SortBy::ascending::<K>(), &what);
    }
}

fn every_shape<K: TestValue + SortKey>(engine: &Engine) {
    let mut random = Random::fresh();
    for shape in SHAPES {
        for len in [1999, 30_000] {
            let keys = values::<K>(shape, len, &mut random);
            for by in [SortBy::ascending::<K>(), SortBy::descending::<K>()] {
                let what = format!("{len} {shape} keys, {by:?}, seed {}", random.seed);
                check_keys(engine, &keys, &by, &what);
                check_pairs::<K, u32>(engine, &keys, &by, &what);
                check_pairs::<K, u64>(engine, &keys, &by, &what);
            }
        }
    }
}

fn pairs_at_every_length<K: TestValue + SortKey>(engine: &Engine) {
    let mut random = Random::fresh();
    for len in LENGTHS {
        // Duplicates, so that what is not stable shows.
        let shape = if len % 2 == 0 { "few" } else { "low byte" };
        let keys = values::<K>(shape, len, &mut random);
        let what = format!("{len} {shape} keys, seed {}", random.seed);
        check_pairs::<K, u32>(engine, &keys, &SortBy::ascending::<K>(), &what);
        check_pairs::<K, u64>(engine, &keys, &SortBy::descending::<K>(), &what);
    }
}

fn some_bits<K: TestValue + SortKey>(engine: &Engine) {
    let mut random = Random::fresh();
    let width = 8 * size_of::<K>() as u32;
    let ranges = [0..0, 0..1, 3..7, 0..8, 5..14, 0..17, 9..width, width - 1..width, width..width];
    for range in ranges {
        for len in [1500, 20_000] {
            let keys = values::<K>("random", len, &mut random);
            for descending in [false, true] {
                let by = SortBy { bits: range.clone(), descending };
                let what = format!("{len} keys, {by:?}, seed {}", random.seed);
                check_keys(engine, &keys, &by, &what);
                check_pairs::<K, u32>(engine, &keys, &by, &what);
            }
        }
    }
}

/// More rows than a cache holds, most of them of few values: what is taken apart by one digit is
/// taken apart again.
fn large_shapes<K: TestValue + SortKey>(engine: &Engine) {
    let mut random = Random::fresh();
    for shape in ["random", "few", "equal", "low byte", "high byte", "extremes"] {
        let keys = values::<K>(shape, 300_000, &mut random);
        let what = format!("many {shape} keys, seed {}", random.seed);
        check_keys(engine, &keys, &SortBy::descending::<K>(), &what);
        check_pairs::<K, u32>(engine, &keys, &SortBy::ascending::<K>(), &what);
        let by = SortBy { bits: 3..8 * size_of::<K>() as u32 - 5, descending: false };
        check_pairs::<K, u64>(engine, &keys, &by, &what);
    }
}

fn a_large_sort(engine: &Engine) {
    let mut random = Random::fresh();
    let keys = values::<u32>("random", 10_000_019, &mut random);
    let what = format!("a large sort, seed {}", random.seed);
    check_keys(engine, &keys, &SortBy::ascending::<u32>(), &what);
    check_pairs::<u32, u32>(engine, &keys, &SortBy::ascending::<u32>(), &what);
}

fn what_does_not_fit_is_refused(engine: &Engine) {
    let stream = stream(engine);
    let (keys, rows) = (upload(engine, stream, &[1u32, 2]), upload(engine, stream, &[1u32]));
    let by = SortBy::ascending::<u32>();
    let refusal = |result: ResourceResult<()>| result.expect_err("a refusal").to_string();
    let text = refusal(sort_keys(engine, stream, &keys, 4, &by).map(drop));
    assert!(text.contains("4 rows were named, the memory has 3"), "{text}");
    let text = refusal(sort_keys(engine, stream, &keys, 1 << 32, &by).map(drop));
    assert!(text.contains("more than the 4294967295"), "{text}");
    let text = refusal(sort_pairs(engine, stream, &keys, &rows, 3, &by).map(drop));
    assert!(text.contains("the values to sort along"), "{text}");
    let by = SortBy { bits: 0..33, descending: false };
    let text = refusal(sort_keys(engine, stream, &keys, 2, &by).map(drop));
    assert!(text.contains("bits 0..33 of keys that have 32"), "{text}");
}

/// The suite.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    macro_rules! of_keys {
        ($($key:ty),*) => {
            vec![$(
                trial(concat!("sort::keys_of_every_length::", stringify!($key)), engine,
                      every_length::<$key>),
                trial(concat!("sort::every_shape::", stringify!($key)), engine,
                      every_shape::<$key>),
                trial(concat!("sort::pairs_of_every_length::", stringify!($key)), engine,
                      pairs_at_every_length::<$key>),
                trial(concat!("sort::some_bits::", stringify!($key)), engine, some_bits::<$key>),
            )*]
        };
    }
    let mut trials = of_keys!(u32, i32, f32, u64, i64, f64);
    trials.push(trial("sort::large_shapes::u32", engine, large_shapes::<u32>));
    trials.push(trial("sort::large_shapes::u64", engine, large_shapes::<u64>));
    trials.push(trial("sort::large_shapes::f64", engine, large_shapes::<f64>));
    trials.push(trial("sort::a_large_sort", engine, a_large_sort));
    trials.push(trial("sort::what_does_not_fit", engine, what_does_not_fit_is_refused));
    trials
}
