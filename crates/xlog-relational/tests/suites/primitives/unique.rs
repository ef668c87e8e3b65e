//! Runs against a loop.

use libtest_mimic::Trial;
use xlog_relational::{
    Engine,
    primitives::{Runs, run_starts, unique},
};

use super::support::{
    LENGTHS, Random, TestValue, assert_same, download, poison, stream, trial, upload, values,
};

fn check<T: TestValue + Runs>(engine: &Engine, values: &[T], what: &str) {
    let stream = stream(engine);
    let len = values.len() as u64;
    let input = upload(engine, stream, values);
    poison(engine, stream, size_of_val(values));
    let is_start = |&row: &usize| row == 0 || values[row].to_bits() != values[row - 1].to_bits();
    let rows: Vec<usize> = (0..values.len()).filter(is_start).collect();
    let expected: Vec<_> = rows.iter().map(|&row| values[row].to_bits()).collect();

    let (got, count) = unique(engine, stream, &input, len).expect("runs").wait().expect("a count");
    let got = download(&got, stream, count as usize);
    assert_same(&got.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), &expected, what);

    let starts = run_starts(engine, stream, &input, len).expect("runs");
    let (starts, count) = starts.wait().expect("a count");
    let rows: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
    assert_same(&download(&starts, stream, count as usize), &rows, what);
}

fn every_length<T: TestValue + Runs>(engine: &Engine) {
    let mut random = Random::fresh();
    for len in LENGTHS {
        for shape in ["few", "random", "equal", "extremes"] {
            let mut values = values::<T>(shape, len, &mut random);
            let what = format!("{len} {shape} values, seed {}", random.seed);
            check(engine, &values, &what);
            values.sort_by_key(|value| value.to_ordered());
            check(engine, &values, &what);
        }
    }
}

/// The suite.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    macro_rules! of_values {
        ($($value:ty),*) => {
            vec![$(
                trial(concat!("unique::", stringify!($value)), engine, every_length::<$value>),
            )*]
        };
    }
    of_values!(u32, i32, f32, u64, i64, f64)
}
