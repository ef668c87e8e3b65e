//! Groups and aggregates against a map.

use std::{collections::HashMap, slice::from_ref};

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Engine,
    primitives::{Aggregate, Keys, Tuning, Values, group_by, group_by_tuned},
};

use super::{Case, Column, Random, Stored, download};

pub const CASES: &[Case] = &[
    ("group::every_size_and_number_of_groups", every_size_and_number_of_groups),
    ("group::skewed_and_extreme_keys", skewed_and_extreme_keys),
    ("group::several_and_null_keys", several_and_null_keys),
    ("group::keys_that_all_collide", keys_that_all_collide),
    ("group::a_first_table_that_is_too_small", a_first_table_that_is_too_small),
    ("group::sums_that_leave_64_bits", sums_that_leave_64_bits),
    ("group::floats_in_total_order", floats_in_total_order),
    ("group::a_million_rows", a_million_rows),
    ("group::bad_input_is_refused", bad_input_is_refused),
];

type Key = Vec<Option<u64>>;

fn rows_by_key(keys: &[Column]) -> HashMap<Key, Vec<usize>> {
    let mut groups: HashMap<Key, Vec<usize>> = HashMap::new();
    for row in 0..keys[0].values.len() {
        groups.entry(keys.iter().map(|c| c.values[row]).collect()).or_default().push(row);
    }
    groups
}

pub fn check(engine: &Engine, random: &mut Random, keys: &[Column]) {
    check_tuned(engine, random, keys, Tuning::default());
    check_tuned(engine, random, keys, Tuning { one_block: false, ..Tuning::default() });
}

/// Every integer aggregate of random values, with and without nulls.
pub fn check_tuned(engine: &Engine, random: &mut Random, keys: &[Column], tuning: Tuning) {
    let rows = keys[0].values.len();
    let words = Column::words((0..rows).map(|_| random.next() as u32).collect::<Vec<_>>());
    let words = words.with_nulls(random, 6);
    let longs = Column::longs((0..rows).map(|_| random.next()).collect::<Vec<_>>());
    let longs = longs.with_nulls(random, 6);
    let (stored_words, stored_longs) = (Stored::new(engine, &words), Stored::new(engine, &longs));
    let stored: Vec<_> = keys.iter().map(|c| Stored::new(engine, c)).collect();
    let columns: Vec<_> = stored.iter().map(Stored::key).collect();
    let (w, l) = (stored_words.words().as_view(), stored_longs.longs().as_view());
    let (wv, lv) = (stored_words.validity(), stored_longs.validity());
    let aggregates = [
        Aggregate::Count { validity: None },
        Aggregate::Count { validity: wv },
        Aggregate::Sum { values: Values::U32(w), validity: wv },
        Aggregate::Sum { values: Values::I32(w), validity: wv },
        Aggregate::Sum { values: Values::U64(l), validity: lv },
        Aggregate::Sum { values: Values::I64(l), validity: lv },
        Aggregate::Min { values: Values::U32(w), validity: wv },
        Aggregate::Max { values: Values::U32(w), validity: wv },
        Aggregate::Min { values: Values::I32(w), validity: wv },
        Aggregate::Max { values: Values::I32(w), validity: wv },
        Aggregate::Min { values: Values::U64(l), validity: lv },
        Aggregate::Max { values: Values::U64(l), validity: lv },
        Aggregate::Min { values: Values::I64(l), validity: lv },
        Aggregate::Max { values: Values::I64(l), validity: lv },
    ];
    let table = Keys { columns: &columns, rows: rows as u64 };
    let groups = group_by_tuned(engine, StreamId::DEFAULT, &table, &aggregates, tuning).unwrap();
    let mut expected = rows_by_key(keys);
    assert_eq!(groups.count, expected.len() as u64, "{rows} rows, {tuning:?}");
    let first = download(&groups.rows, groups.count);
    let got: Vec<_> = groups.aggregates.iter().map(|a| download(&a.words, groups.count)).collect();
    let high =
        |index: usize| download(groups.aggregates[index].high.as_ref().unwrap(), groups.count);
    let (high_u64, high_i64) = (high(4), high(5));
    for group in 0..groups.count as usize {
        let row = first[group] as usize;
        let key: Key = keys.iter().map(|c| c.values[row]).collect();
        let members = expected.remove(&key).expect("a group of its own");
        let known: Vec<u32> =
            members.iter().filter_map(|&m| words.values[m]).map(|v| v as u32).collect();
        let wide: Vec<u64> = members.iter().filter_map(|&m| longs.values[m]).collect();
        let is = |index: usize, value: u64| {
            assert_eq!(got[index][group], value, "aggregate {index} of {key:?}");
        };
        is(0, members.len() as u64);
        is(1, known.len() as u64);
        is(2, known.iter().map(|&v| u64::from(v)).sum());
        is(3, known.iter().map(|&v| i64::from(v as i32)).sum::<i64>() as u64);
        let sum: u128 = wide.iter().map(|&v| u128::from(v)).sum();
        assert_eq!((high_u64[group], got[4][group]), ((sum >> 64) as u64, sum as u64));
        let sum: i128 = wide.iter().map(|&v| i128::from(v as i64)).sum();
        assert_eq!((high_i64[group], got[5][group]), ((sum >> 64) as u64, sum as u64));
        if let (Some(&min), Some(&max)) = (known.iter().min(), known.iter().max()) {
            is(6, u64::from(min));
            is(7, u64::from(max));
            is(8, u64::from(known.iter().map(|&v| v as i32).min().unwrap() as u32));
            is(9, u64::from(known.iter().map(|&v| v as i32).max().unwrap() as u32));
        }
        if let (Some(&min), Some(&max)) = (wide.iter().min(), wide.iter().max()) {
            is(10, min);
            is(11, max);
            is(12, wide.iter().map(|&v| v as i64).min().unwrap() as u64);
            is(13, wide.iter().map(|&v| v as i64).max().unwrap() as u64);
        }
    }
}

fn words(random: &mut Random, rows: u64, keys: u64) -> Column {
    Column::words((0..rows).map(|_| random.below(keys) as u32 ^ 0x8000_0001).collect::<Vec<_>>())
}

fn every_size_and_number_of_groups(engine: &Engine) {
    let random = &mut Random::new();
    for (rows, keys) in
        [(0, 1), (1, 1), (2, 1), (2, 9), (33, 5), (1000, 20), (1000, 1 << 20), (100_000, 1)]
    {
        let column = words(random, rows, keys);
        check(engine, random, &[column]);
    }
    // Around the most rows that one block takes, and where each thread takes one more.
    for rows in [511, 512, 513, 1025, 3585, 4095, 4096, 4097] {
        let column = words(random, rows, rows / 3);
        check(engine, random, &[column]);
        let column = words(random, rows, 1 << 30).with_nulls(random, 5);
        check(engine, random, &[column]);
        let longs = (0..rows).map(|_| random.below(rows) << 31 | 1).collect::<Vec<_>>();
        check(engine, random, &[Column::longs(longs)]);
    }
    // Around the most groups that fit shared memory.
    for keys in [1000, 1024, 1025, 1100, 40_000] {
        let column = Column::words((0..60_000).map(|at| at % keys));
        check(engine, random, &[column]);
    }
}

fn skewed_and_extreme_keys(engine: &Engine) {
    let random = &mut Random::new();
    let zipf = Column::words((0..100_000).map(|_| random.zipf(5000) as u32).collect::<Vec<_>>());
    check(engine, random, &[zipf]);
    check(engine, random, &[Column::words([u32::MAX, 0, u32::MAX, 1, u32::MAX - 1])]);
    check(engine, random, &[Column::longs([u64::MAX, 0, u64::MAX, 1 << 32, 1, u64::MAX - 1])]);
    // Pairs of every extreme: one of them has the bits of an empty slot.
    let extremes = || (0..900u32).map(|at| [0, 1, 2, 3, u32::MAX - 1, u32::MAX][at as usize % 6]);
    let others = || (0..900u32).map(|at| [0, u32::MAX, 1, 2, 3][at as usize % 5]);
    check(engine, random, &[Column::words(extremes()), Column::words(others())]);
    let one = Column::words(extremes()).with_nulls(random, 3);
    let other = Column::words(others()).with_nulls(random, 3);
    check(engine, random, &[one, other]);
}

fn several_and_null_keys(engine: &Engine) {
    let random = &mut Random::new();
    let shapes: [&[bool]; 7] = [
        &[false],
        &[true],
        &[false, false],
        &[true, false],
        &[false, false, false],
        &[false, true, true],
        &[false; 8],
    ];
    for shape in shapes {
        for nulls in [false, true] {
            for values in [3, 1 << 20] {
                let columns: Vec<_> = shape
                    .iter()
                    .map(|&long| {
                        let column = if long {
                            let keys = (0..2000).map(|_| random.below(values) << 31);
                            Column::longs(keys.collect::<Vec<_>>())
                        } else {
                            words(random, 2000, values)
                        };
                        if nulls { column.with_nulls(random, 5) } else { column }
                    })
                    .collect();
                check(engine, random, &columns);
            }
        }
    }
}

fn keys_that_all_collide(engine: &Engine) {
    let random = &mut Random::new();
    for hash_mask in [0, 1 << 31] {
        for one_block in [false, true] {
            let tuning = Tuning { hash_mask, one_block, ..Tuning::default() };
            let column = words(random, 1000, 300);
            check_tuned(engine, random, from_ref(&column), tuning);
            let nullable = column.with_nulls(random, 4);
            check_tuned(engine, random, &[nullable], tuning);
            let pair = [words(random, 1000, 20).with_nulls(random, 4), words(random, 1000, 20)];
            check_tuned(engine, random, &pair, tuning);
        }
    }
}

fn a_first_table_that_is_too_small(engine: &Engine) {
    let random = &mut Random::new();
    let tuning = Tuning { first_slots: 1024, ..Tuning::default() };
    for keys in [500, 1000, 1020, 5000, 60_000] {
        let column = words(random, 50_000, keys);
        check_tuned(engine, random, from_ref(&column), tuning);
        let nullable = column.with_nulls(random, 7);
        check_tuned(engine, random, from_ref(&nullable), tuning);
        // Keys with a null have fewer slots, and may be the ones that find none.
        let other = words(random, 50_000, 2).with_nulls(random, 2);
        check_tuned(engine, random, &[nullable, other], tuning);
    }
}

fn sums_that_leave_64_bits(engine: &Engine) {
    let rows = 5000u64;
    let keys = Stored::new(engine, &Column::words((0..rows as u32).map(|at| at % 2)));
    let greatest = Stored::new(engine, &Column::longs((0..rows).map(|_| u64::MAX)));
    let least = Stored::new(engine, &Column::longs((0..rows).map(|_| i64::MIN as u64)));
    let columns = [keys.key()];
    let table = Keys { columns: &columns, rows };
    let sum = |values| Aggregate::Sum { values, validity: None };
    let aggregates =
        [sum(Values::U64(greatest.longs().as_view())), sum(Values::I64(least.longs().as_view()))];
    let groups = group_by(engine, StreamId::DEFAULT, &table, &aggregates).unwrap();
    assert_eq!(groups.count, 2);
    let wide = |index: usize, group: usize| {
        let sum = &groups.aggregates[index];
        let high = download(sum.high.as_ref().unwrap(), 2)[group];
        u128::from(high) << 64 | u128::from(download(&sum.words, 2)[group])
    };
    for group in 0..2 {
        assert_eq!(wide(0, group), u128::from(u64::MAX) * 2500);
        assert_eq!(wide(1, group) as i128, i128::from(i64::MIN) * 2500);
    }
}

fn floats_in_total_order(engine: &Engine) {
    let narrow = [1.5f32, -0.0, 0.0, f32::NAN, f32::INFINITY, -f32::NAN, f32::MIN, -1.0, 3.0];
    let rows = narrow.len() as u64;
    let keys = Stored::new(engine, &Column::words([0, 1, 1, 2, 2, 3, 3, 4, 4]));
    let small = Stored::new(engine, &Column::words(narrow.map(f32::to_bits)));
    let large = Stored::new(
        engine,
        &Column::longs(narrow.map(|v| {
            f64::from_bits(f64::from(v).to_bits() | if v.is_sign_negative() { 1 << 63 } else { 0 })
                .to_bits()
        })),
    );
    let columns = [keys.key()];
    let table = Keys { columns: &columns, rows };
    let (s, l) = (small.words().as_view(), large.longs().as_view());
    let aggregates = [
        Aggregate::Min { values: Values::F32(s), validity: None },
        Aggregate::Max { values: Values::F32(s), validity: None },
        Aggregate::Min { values: Values::F64(l), validity: None },
        Aggregate::Max { values: Values::F64(l), validity: None },
        Aggregate::Sum { values: Values::F32(s), validity: None },
        Aggregate::Sum { values: Values::F64(l), validity: None },
    ];
    let groups = group_by(engine, StreamId::DEFAULT, &table, &aggregates).unwrap();
    assert_eq!(groups.count, 5);
    let got: Vec<_> = groups.aggregates.iter().map(|a| download(&a.words, 5)).collect();
    for (group, row) in download(&groups.rows, 5).into_iter().enumerate() {
        let key = [0, 1, 1, 2, 2, 3, 3, 4, 4][row as usize];
        let members: Vec<f32> = (0..9usize)
            .filter(|&at| [0, 1, 1, 2, 2, 3, 3, 4, 4][at] == key)
            .map(|at| narrow[at])
            .collect();
        let min = members.iter().copied().min_by(f32::total_cmp).unwrap();
        let max = members.iter().copied().max_by(f32::total_cmp).unwrap();
        assert_eq!(got[0][group], u64::from(min.to_bits()), "min of {members:?}");
        assert_eq!(got[1][group], u64::from(max.to_bits()), "max of {members:?}");
        assert_eq!(f64::from_bits(got[2][group]).is_nan(), min.is_nan());
        assert_eq!(f64::from_bits(got[2][group]).is_sign_negative(), min.is_sign_negative());
        assert_eq!(f64::from_bits(got[3][group]).is_sign_negative(), max.is_sign_negative());
        let sum: f64 = members.iter().map(|&v| f64::from(v)).sum();
        for words in &got[4..] {
            let got = f64::from_bits(words[group]);
            assert!(got == sum || got.is_nan() && sum.is_nan(), "{got} is not {sum}");
        }
    }
}

fn a_million_rows(engine: &Engine) {
    let random = &mut Random::new();
    for keys in [20, 300_000] {
        let column = words(random, 1_000_000, keys);
        check(engine, random, &[column]);
    }
}

fn bad_input_is_refused(engine: &Engine) {
    let keys = Stored::new(engine, &Column::words(0..10));
    let few = Stored::new(engine, &Column::words(0..5));
    let columns = [keys.key()];
    let table = Keys { columns: &columns, rows: 10 };
    let sum = Aggregate::Sum { values: Values::U32(few.words().as_view()), validity: None };
    let refused = group_by(engine, StreamId::DEFAULT, &table, &[sum]).unwrap_err().to_string();
    assert!(refused.contains("aggregate 0 has 5 values"), "{refused}");
    let many = Keys { columns: &columns, rows: u64::from(u32::MAX) };
    let refused = group_by(engine, StreamId::DEFAULT, &many, &[]).unwrap_err().to_string();
    assert!(refused.contains("4294967295 rows"), "{refused}");
}
