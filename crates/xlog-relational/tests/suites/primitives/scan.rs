//! Prefix sums against a loop.

use libtest_mimic::Trial;
use xlog_relational::{
    Engine,
    primitives::{Summable, exclusive_sum},
};

use super::support::{LENGTHS, Random, assert_same, download, poison, stream, trial, upload};

fn every_length<T: Summable>(engine: &Engine, value: fn(u64) -> T) {
    let mut random = Random::fresh();
    let stream = stream(engine);
    let tiles = [2686, 2687, 2688, 2689, 5375, 5376, 5377];
    for len in LENGTHS.into_iter().chain(tiles) {
        let values: Vec<T> = (0..len).map(|_| value(random.bits())).collect();
        let mut sums = vec![0u64];
        let mut sum = 0u64;
        sums.extend(values.iter().map(|&value| {
            sum = sum.wrapping_add(value.into());
            sum
        }));
        let input = upload(engine, stream, &values);
        poison(engine, stream, 8 * len);
        let got = exclusive_sum(engine, stream, &input, len as u64).expect("sums");
        let what = format!("{len} values, seed {}", random.seed);
        assert_same(&download(&got, stream, len + 1), &sums, &what);
    }
}

fn more_than_there_is_is_refused(engine: &Engine) {
    let stream = stream(engine);
    let input = upload(engine, stream, &[1u32; 4]);
    let refusal = exclusive_sum(engine, stream, &input, 6).expect_err("a refusal").to_string();
    assert!(refusal.contains("6 were named, the memory has 5"), "{refusal}");
    let refusal = exclusive_sum(engine, stream, &input, u64::MAX).expect_err("a refusal");
    assert!(refusal.to_string().contains("the values to sum"), "{refusal}");
}

/// The suite.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    vec![
        trial("scan::u32", engine, |engine| every_length::<u32>(engine, |bits| bits as u32)),
        trial("scan::u64", engine, |engine| every_length::<u64>(engine, |bits| bits)),
        trial("scan::more_than_there_is", engine, more_than_there_is_is_refused),
    ]
}
