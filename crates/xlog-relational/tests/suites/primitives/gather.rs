//! Gathers, fills and row numbers against loops.

use std::fmt::Debug;

use libtest_mimic::Trial;
use xlog_relational::{
    Engine,
    primitives::{Gatherable, RowNumber, fill, gather, gather_bits, iota, rows_valid},
};

use super::support::{LENGTHS, Random, assert_same, download, poison, stream, trial, upload};

/// Row numbers of a source of `length` rows; every ninth or so names no row.
fn rows<R: RowNumber>(
    count: usize,
    length: usize,
    row: fn(u64) -> R,
    random: &mut Random,
) -> Vec<R> {
    (0..count)
        .map(|_| match random.below(9) {
            0 => R::NULL,
            1 => row(length as u64),
            _ if length == 0 => R::NULL,
            _ => row(random.below(length as u64)),
        })
        .collect()
}

fn values<T, R>(engine: &Engine, value: fn(u64) -> T, row: fn(u64) -> R)
where
    T: Gatherable + PartialEq + Debug,
    R: RowNumber + Into<u64>,
{
    let mut random = Random::fresh();
    let stream = stream(engine);
    for count in LENGTHS {
        let length = [count, 1, 300, 0][random.below(4) as usize];
        let source: Vec<T> = (0..length).map(|_| value(random.bits())).collect();
        let rows = rows(count, length, row, &mut random);
        let expected: Vec<T> = rows
            .iter()
            .map(|&row| source.get(row.into() as usize).copied().unwrap_or(T::zeroed()))
            .collect();
        let (from, by) = (upload(engine, stream, &source), upload(engine, stream, &rows));
        poison(engine, stream, size_of_val(&expected[..]));
        let got = gather(engine, stream, &from, length as u64, &by, count as u64).expect("values");
        let what = format!("{count} of {length}, seed {}", random.seed);
        assert_same(&download(&got, stream, count), &expected, &what);
    }
}

fn bits<R: RowNumber + Into<u64>>(engine: &Engine, row: fn(u64) -> R) {
    let mut random = Random::fresh();
    let stream = stream(engine);
    for count in LENGTHS {
        let length = [count, 1, 300, 0][random.below(4) as usize];
        let source: Vec<u32> = (0..length.div_ceil(32)).map(|_| random.bits() as u32).collect();
        let rows = rows(count, length, row, &mut random);
        let mut expected = vec![0u32; count.div_ceil(32)];
        let mut valid = expected.clone();
        for (place, &row) in rows.iter().enumerate() {
            let row: u64 = row.into();
            if row < length as u64 {
                valid[place / 32] |= 1 << (place % 32);
                let bit = source[row as usize / 32] >> (row % 32) & 1;
                expected[place / 32] |= bit << (place % 32);
            }
        }
        let (from, by) = (upload(engine, stream, &source), upload(engine, stream, &rows));
        poison(engine, stream, 4 * expected.len());
        let (length, places) = (length as u64, count as u64);
        let what = format!("{count} of {length}, seed {}", random.seed);
        let got = gather_bits(engine, stream, &from, length, &by, places).expect("bits");
        assert_same(&download(&got, stream, expected.len()), &expected, &what);
        let got = rows_valid(engine, stream, &by, length, places).expect("bits");
        assert_same(&download(&got, stream, expected.len()), &valid, &what);
    }
}

fn made_from_nothing(engine: &Engine) {
    let stream = stream(engine);
    for count in LENGTHS {
        poison(engine, stream, 8 * count);
        let got = iota(engine, stream, 7u32, count as u64).expect("numbers");
        let expected: Vec<u32> = (7..7 + count as u32).collect();
        assert_same(&download(&got, stream, count), &expected, "u32");
        let got = iota(engine, stream, 1u64 << 40, count as u64).expect("numbers");
        let expected: Vec<u64> = (0..count as u64).map(|i| (1 << 40) + i).collect();
        assert_same(&download(&got, stream, count), &expected, "u64");
        let got = fill(engine, stream, 0xa5u8, count as u64).expect("values");
        assert_same(&download(&got, stream, count), &vec![0xa5u8; count], "u8");
        let got = fill(engine, stream, -1.5f32, count as u64).expect("values");
        assert_same(&download(&got, stream, count), &vec![-1.5f32; count], "f32");
        let got = fill(engine, stream, i64::MIN, count as u64).expect("values");
        assert_same(&download(&got, stream, count), &vec![i64::MIN; count], "i64");
    }
}

fn what_does_not_fit_is_refused(engine: &Engine) {
    let stream = stream(engine);
    let (source, rows) = (upload(engine, stream, &[1u8, 2]), upload(engine, stream, &[0u32]));
    let refusal = gather(engine, stream, &source, 4, &rows, 1).expect_err("a refusal").to_string();
    assert!(refusal.contains("the values to gather from: 4 were named"), "{refusal}");
    let refusal = gather(engine, stream, &source, 2, &rows, 3).expect_err("a refusal").to_string();
    assert!(refusal.contains("the row numbers to gather by: 3 were named"), "{refusal}");
    let refusal = iota(engine, stream, 1u32, u64::from(u32::MAX)).expect_err("a refusal");
    assert!(refusal.to_string().contains("count in 64 bits"), "{refusal}");
}

/// The suite.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    macro_rules! of_values {
        ($($value:ty: $make:expr),*) => {
            vec![$(
                trial(concat!("gather::by_u32::", stringify!($value)), engine, |engine| {
                    values::<$value, u32>(engine, $make, |row| row as u32);
                }),
                trial(concat!("gather::by_u64::", stringify!($value)), engine, |engine| {
                    values::<$value, u64>(engine, $make, |row| row);
                }),
            )*]
        };
    }
    let mut trials = of_values!(
        u8: |bits| bits as u8,
        u32: |bits| bits as u32,
        i32: |bits| bits as i32,
        f32: |bits| bits as f32,
        u64: |bits| bits,
        i64: |bits| bits as i64,
        f64: |bits| bits as f64
    );
    trials.push(trial("gather::bits_by_u32", engine, |engine| bits(engine, |row| row as u32)));
    trials.push(trial("gather::bits_by_u64", engine, |engine| bits(engine, |row| row)));
    trials.push(trial("gather::made_from_nothing", engine, made_from_nothing));
    trials.push(trial("gather::what_does_not_fit", engine, what_does_not_fit_is_refused));
    trials
}
