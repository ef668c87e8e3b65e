//! Joins against pairs found with a map.

use std::{
    collections::{HashMap, HashSet},
    slice::from_ref,
};

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Engine,
    primitives::{JoinKind, Keys, NO_ROW, Tuning, inner_join_payloads_tuned, join, join_tuned},
};

use super::{Case, Column, Random, Stored, download};

pub const CASES: &[Case] = &[
    ("join::unique_keys_of_every_size", unique_keys_of_every_size),
    ("join::repeated_keys_on_both_sides", repeated_keys_on_both_sides),
    ("join::all_keys_equal", all_keys_equal),
    ("join::zipf_keys_on_the_probe_side", zipf_keys_on_the_probe_side),
    ("join::one_key_with_many_rows_on_one_side", one_key_with_many_rows_on_one_side),
    ("join::no_key_in_common_and_empty_sides", no_key_in_common_and_empty_sides),
    ("join::extreme_keys", extreme_keys),
    ("join::nulls_match_nothing", nulls_match_nothing),
    ("join::several_columns", several_columns),
    ("join::long_keys", long_keys),
    ("join::keys_that_all_collide", keys_that_all_collide),
    ("join::payloads", payloads),
    ("join::sizes_around_what_one_block_takes", sizes_around_what_one_block_takes),
    ("join::every_row_meets_every_row", every_row_meets_every_row),
    ("join::a_million_rows", a_million_rows),
    ("join::bad_input_is_refused", bad_input_is_refused),
];

pub const KINDS: [JoinKind; 5] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];

/// The keys of each row; `None` if one of them is null.
fn keys_of(columns: &[Column]) -> Vec<Option<Vec<u64>>> {
    let rows = columns[0].values.len();
    (0..rows).map(|row| columns.iter().map(|c| c.values[row]).collect()).collect()
}

/// What the join must yield, sorted.
fn expected(kind: JoinKind, build: &[Column], probe: &[Column]) -> Vec<(u32, u32)> {
    let mut rows: HashMap<Vec<u64>, Vec<u32>> = HashMap::new();
    let build = keys_of(build);
    for (row, key) in build.iter().enumerate() {
        if let Some(key) = key {
            rows.entry(key.clone()).or_default().push(row as u32);
        }
    }
    let mut pairs = Vec::new();
    let mut met = HashSet::new();
    for (row, key) in keys_of(probe).into_iter().enumerate() {
        let row = row as u32;
        let partners = key.as_ref().and_then(|key| rows.get(key));
        match (kind, partners) {
            (JoinKind::Semi, Some(_)) | (JoinKind::Anti, None) => pairs.push((0, row)),
            (JoinKind::Left | JoinKind::Full, None) => pairs.push((NO_ROW, row)),
            (JoinKind::Inner | JoinKind::Left | JoinKind::Full, Some(partners)) => {
                pairs.extend(partners.iter().map(|&partner| (partner, row)));
                met.extend(partners.iter().copied());
            }
            _ => {}
        }
    }
    if kind == JoinKind::Full {
        let all = 0..build.len() as u32;
        pairs.extend(all.filter(|row| !met.contains(row)).map(|row| (row, NO_ROW)));
    }
    pairs.sort_unstable();
    pairs
}

/// Every kind of join of these columns, by one block if they are small, by many, and split, yields
/// what a map finds.
pub fn check(engine: &Engine, build: &[Column], probe: &[Column], kinds: &[JoinKind]) {
    for tuning in WAYS {
        check_tuned(engine, build, probe, kinds, tuning);
    }
}

/// As it suits; as large tables are joined; split.
const WAYS: [Tuning; 3] = [
    Tuning::DEFAULT,
    Tuning { one_block: false, ..Tuning::DEFAULT },
    Tuning { split_from: Some(0), ..Tuning::DEFAULT },
];

pub fn check_tuned(
    engine: &Engine,
    build: &[Column],
    probe: &[Column],
    kinds: &[JoinKind],
    tuning: Tuning,
) {
    let stored =
        [build, probe].map(|side| side.iter().map(|c| Stored::new(engine, c)).collect::<Vec<_>>());
    let columns =
        [&stored[0], &stored[1]].map(|side| side.iter().map(Stored::key).collect::<Vec<_>>());
    let rows = [build, probe].map(|side| side[0].values.len() as u64);
    let [build_keys, probe_keys] =
        [0, 1].map(|side| Keys { columns: &columns[side], rows: rows[side] });
    for &kind in kinds {
        let joined =
            join_tuned(engine, StreamId::DEFAULT, kind, &build_keys, &probe_keys, tuning).unwrap();
        let probe_rows = download(&joined.probe, joined.count);
        let build_rows = match &joined.build {
            Some(rows) => download(rows, joined.count),
            None => vec![0; joined.count as usize],
        };
        let mut got: Vec<_> = build_rows.into_iter().zip(probe_rows).collect();
        got.sort_unstable();
        let expected = expected(kind, build, probe);
        assert_eq!(got.len(), expected.len(), "{kind:?} of {rows:?} rows, {tuning:?}");
        assert!(got == expected, "{kind:?} of {rows:?} rows, {tuning:?}: other rows");
    }
}

fn shuffled(random: &mut Random, mut values: Vec<u32>) -> Vec<u32> {
    for at in (1..values.len()).rev() {
        values.swap(at, random.below(at as u64 + 1) as usize);
    }
    values
}

/// Distinct keys, half of which the other side has too.
fn unique(random: &mut Random, rows: u32, from: u32) -> Column {
    let keys = (from..from + rows).map(|v| v.wrapping_mul(0x9e37_79b1)).collect();
    Column::words(shuffled(random, keys))
}

fn unique_keys_of_every_size(engine: &Engine) {
    let random = &mut Random::new();
    for rows in [1, 2, 3, 31, 32, 33, 1000, 1024, 1025, 100_000] {
        let (build, probe) = (unique(random, rows, 0), unique(random, rows, rows / 2));
        check(engine, &[build], &[probe], &KINDS);
    }
    let (build, probe) = (unique(random, 10, 0), unique(random, 5000, 4));
    check(engine, from_ref(&build), from_ref(&probe), &KINDS);
    check(engine, &[probe], &[build], &KINDS);
}

fn repeated_keys_on_both_sides(engine: &Engine) {
    let random = &mut Random::new();
    for (rows, keys) in [(2, 1), (100, 10), (1000, 300), (3000, 1000), (20_000, 9000)] {
        let [build, probe] =
            [0, 1].map(|_| Column::words((0..rows).map(|_| random.below(keys) as u32)));
        check(engine, &[build], &[probe], &KINDS);
    }
}

fn all_keys_equal(engine: &Engine) {
    let [build, probe] = [700, 900].map(|rows| Column::words(vec![7; rows]));
    check(engine, &[build], from_ref(&probe), &KINDS);
    check(engine, &[Column::words([7])], &[probe], &KINDS);
}

fn zipf_keys_on_the_probe_side(engine: &Engine) {
    let random = &mut Random::new();
    let build = unique(random, 10_000, 0);
    let probe = (0..100_000).map(|_| (random.zipf(20_000) as u32).wrapping_mul(0x9e37_79b1));
    let probe = Column::words(probe.collect::<Vec<_>>());
    check(engine, from_ref(&build), from_ref(&probe), &KINDS);
    check(engine, &[probe], &[build], &KINDS);
}

fn one_key_with_many_rows_on_one_side(engine: &Engine) {
    let random = &mut Random::new();
    let mut keys: Vec<_> = (0..50_000).collect();
    keys.extend(std::iter::repeat_n(77, 50_000));
    let heavy = Column::words(shuffled(random, keys));
    let light = Column::words(shuffled(random, (0..60_000).collect()));
    check(engine, from_ref(&heavy), from_ref(&light), &KINDS);
    check(engine, &[light], &[heavy], &KINDS);
}

fn no_key_in_common_and_empty_sides(engine: &Engine) {
    let (low, high) = (Column::words(0..1000), Column::words(5000..6000));
    check(engine, from_ref(&low), &[high], &KINDS);
    let empty = Column::words([]);
    check(engine, from_ref(&empty), from_ref(&low), &KINDS);
    check(engine, &[low], from_ref(&empty), &KINDS);
    check(engine, from_ref(&empty), from_ref(&empty), &KINDS);
}

fn extreme_keys(engine: &Engine) {
    let words = [u32::MAX, 0, 1, u32::MAX - 1, 1 << 31, (1 << 31) - 1];
    let (some, others) = (Column::words(words), Column::words([u32::MAX, 5, 0]));
    check(engine, from_ref(&some), from_ref(&others), &KINDS);
    check(engine, &[others], &[some], &KINDS);
    let (ones, one) = (Column::words([u32::MAX; 3]), Column::words([u32::MAX]));
    check(engine, from_ref(&ones), from_ref(&ones), &KINDS);
    check(engine, from_ref(&one), &[ones], &KINDS);
    check(engine, &[one], &[Column::words([1])], &KINDS);
    let longs = [u64::MAX, 0, 1, u64::MAX - 1, u64::from(u32::MAX), !u64::from(u32::MAX)];
    let (some, others) = (Column::longs(longs), Column::longs([u64::MAX, 0, u64::MAX]));
    check(engine, from_ref(&some), from_ref(&others), &KINDS);
    check(engine, &[others], &[some], &KINDS);
}

fn nulls_match_nothing(engine: &Engine) {
    let random = &mut Random::new();
    for rows in [1, 50, 1000, 5000] {
        let build = unique(random, rows, 0).with_nulls(random, 3);
        let probe = unique(random, rows, rows / 2).with_nulls(random, 4);
        check(engine, from_ref(&build), from_ref(&probe), &KINDS);
        check(engine, &[build], &[unique(random, rows, 0)], &KINDS);
        check(engine, &[unique(random, rows, 0)], &[probe], &KINDS);
        let [some, others] = [0, 1].map(|_| {
            let keys = (0..rows).map(|_| random.below(u64::from(rows) / 3 + 1) as u32);
            Column::words(keys.collect::<Vec<_>>()).with_nulls(random, 5)
        });
        check(engine, &[some], &[others], &KINDS);
    }
    let none = unique(random, 100, 0).with_nulls(random, 1);
    check(engine, from_ref(&none), from_ref(&none), &KINDS);
}

/// Columns of `shape` (whether each is long), with few values each and some nulls.
fn columns(
    random: &mut Random,
    shape: &[bool],
    rows: u64,
    values: u64,
    nulls: bool,
) -> Vec<Column> {
    shape
        .iter()
        .map(|&long| {
            let column = if long {
                Column::longs((0..rows).map(|_| random.below(values) << 33).collect::<Vec<_>>())
            } else {
                Column::words((0..rows).map(|_| random.below(values) as u32).collect::<Vec<_>>())
            };
            if nulls { column.with_nulls(random, 9) } else { column }
        })
        .collect()
}

fn several_columns(engine: &Engine) {
    let random = &mut Random::new();
    let shapes: [&[bool]; 7] = [
        &[false, false],
        &[false, false, false],
        &[true, false],
        &[false, true],
        &[true, true],
        &[false, true, false, true],
        &[false; 8],
    ];
    for shape in shapes {
        for nulls in [false, true] {
            // Mostly distinct keys, then mostly repeated ones.
            for (rows, values) in [(1500, 1 << 16), (1500, 5)] {
                let build = columns(random, shape, rows, values, nulls);
                let mut probe = columns(random, shape, rows, values, nulls);
                for (column, from) in probe.iter_mut().zip(&build) {
                    let half = rows as usize / 2;
                    column.values[..half].copy_from_slice(&from.values[..half]);
                }
                check(engine, &build, &probe, &KINDS);
            }
        }
    }
}

fn long_keys(engine: &Engine) {
    let random = &mut Random::new();
    for rows in [1, 1000, 50_000] {
        let keys: Vec<_> = (0..rows).map(|_| random.next()).collect();
        let mut others: Vec<_> = keys.iter().map(|key| key ^ random.below(2) << 40).collect();
        others.reverse();
        check(engine, &[Column::longs(keys)], &[Column::longs(others)], &KINDS);
    }
}

fn keys_that_all_collide(engine: &Engine) {
    let random = &mut Random::new();
    for hash_mask in [0, 1 << 31, 3] {
        for way in WAYS {
            let tuning = Tuning { hash_mask, ..way };
            for nulls in [false, true] {
                for shape in [&[false][..], &[true], &[false, false], &[true, false, false]] {
                    let build = columns(random, shape, 300, 400, nulls);
                    let probe = columns(random, shape, 400, 400, nulls);
                    check_tuned(engine, &build, &probe, &KINDS, tuning);
                }
            }
        }
    }
}

fn payloads(engine: &Engine) {
    let random = &mut Random::new();
    for tuning in WAYS {
        for (rows, keys) in [(1, 1), (1000, 100_000), (5000, 2000), (70_000, u64::MAX)] {
            let mut side = || -> Vec<(u32, u32)> {
                let key = |random: &mut Random, at: u64| match keys {
                    u64::MAX => (at as u32).wrapping_mul(0x9e37_79b1),
                    _ => random.below(keys) as u32,
                };
                (0..rows).map(|at| (key(random, at), random.next() as u32)).collect()
            };
            let mut sides = [side(), side()];
            // Payloads and keys that look like marks of the table.
            sides[0][0] = (u32::MAX, u32::MAX);
            sides[1][0] = (u32::MAX, 5);
            let mut partners: HashMap<u32, Vec<u32>> = HashMap::new();
            sides[0].iter().for_each(|(key, load)| partners.entry(*key).or_default().push(*load));
            let mut expected: Vec<_> = sides[1]
                .iter()
                .flat_map(|(key, load)| {
                    let loads = partners.get(key).into_iter().flatten();
                    loads.map(move |other| (*key, *other, *load))
                })
                .collect();
            expected.sort_unstable();
            let stored = sides.each_ref().map(|side| {
                let [keys, loads] =
                    [side.iter().map(|s| s.0).collect(), side.iter().map(|s| s.1).collect()]
                        .map(|words: Vec<u32>| super::upload(engine, &words));
                [keys, loads]
            });
            let views = stored.each_ref().map(|side| side.each_ref().map(|s| s.as_view()));
            let stream = StreamId::DEFAULT;
            let got =
                inner_join_payloads_tuned(engine, stream, views[0], views[1], tuning).unwrap();
            let columns =
                [&got.keys, &got.build, &got.probe].map(|column| download(column, got.count));
            let mut got: Vec<_> = (0..got.count as usize)
                .map(|row| (columns[0][row], columns[1][row], columns[2][row]))
                .collect();
            got.sort_unstable();
            assert!(got == expected, "{rows} rows, {keys} keys, {tuning:?}");
        }
    }
}

fn sizes_around_what_one_block_takes(engine: &Engine) {
    let random = &mut Random::new();
    let shapes: [&[bool]; 4] = [&[false], &[true], &[false, false], &[true, false, false]];
    for rows in [[2047, 4096], [2048, 4095], [2048, 4096], [2049, 4096], [2048, 4097], [1, 4096]] {
        // Keys that mostly differ, that mostly repeat, and that are few.
        for (shape, values) in shapes.into_iter().zip([1 << 14, 500, 9, 40]) {
            for nulls in [false, true] {
                let [build, probe] = rows.map(|rows| columns(random, shape, rows, values, nulls));
                check_tuned(engine, &build, &probe, &KINDS, Tuning::default());
            }
        }
    }
    // Where a thread takes one row more.
    for rows in [511, 512, 513, 1023, 1024, 1025, 1536, 1537] {
        let [build, probe] =
            [rows, rows + 1].map(|rows| columns(random, &[false], rows, 300, true));
        check_tuned(engine, &build, &probe, &KINDS, Tuning::default());
    }
}

fn every_row_meets_every_row(engine: &Engine) {
    let same = |rows: usize| Column::words(vec![u32::MAX; rows]);
    check(engine, &[same(2048)], &[same(3)], &KINDS);
    check(engine, &[same(3)], &[same(4096)], &KINDS);
    check_tuned(engine, &[same(2048)], &[same(4096)], &[JoinKind::Inner], Tuning::default());
}

fn a_million_rows(engine: &Engine) {
    let random = &mut Random::new();
    let (build, probe) = (unique(random, 1_000_000, 0), unique(random, 1_000_000, 500_000));
    check(engine, &[build], &[probe], &[JoinKind::Inner, JoinKind::Anti]);
    let [build, probe] =
        [0, 1].map(|_| Column::words((0..1_000_000).map(|_| random.below(700_000) as u32)));
    check(engine, &[build], &[probe], &[JoinKind::Inner]);
}

fn bad_input_is_refused(engine: &Engine) {
    let stored = Stored::new(engine, &Column::words(0..10));
    let long = Stored::new(engine, &Column::longs(0..10));
    let (words, longs) = ([stored.key()], [long.key()]);
    let good = Keys { columns: &words, rows: 10 };
    let stream = StreamId::DEFAULT;
    let refused = |build: &Keys<'_>, probe: &Keys<'_>| {
        join(engine, stream, JoinKind::Inner, build, probe).unwrap_err().to_string()
    };
    let text = refused(&good, &Keys { columns: &words, rows: 11 });
    assert!(text.contains("key column 0 has 10 words") && text.contains("11 rows"), "{text}");
    let text = refused(&Keys { columns: &words, rows: 1 << 32 }, &good);
    assert!(text.contains("4294967296 rows") && text.contains("split"), "{text}");
    let text = refused(&good, &Keys { columns: &longs, rows: 10 });
    assert!(text.contains("same word sizes"), "{text}");
    let text = refused(&good, &Keys { columns: &[], rows: 10 });
    assert!(text.contains("0 key columns"), "{text}");
}
