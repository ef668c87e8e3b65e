//! Joins: different keys, skewed ones, and two that may be missing.

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{Aggregate, Column, JoinKind, Table, ops};

use super::{
    Lab,
    data::{checksum, make, random, table, unique_key, zipf},
    report::{Report, Row},
    row, verify, words,
};
use crate::Failure;

const SEED: u64 = 0x5eed;
/// Coprime to every number of rows there is here: rows of one side meet those of the other in no
/// order at all.
const STRIDE: u64 = 7_368_787;

/// A table of keys, `i32`, and the numbers of their rows.
fn keyed(lab: &Lab, keys: &[i32], rows: &'static str) -> Result<Table, Failure> {
    let numbers = make(keys.len(), |row| row as u32);
    let keys = Column::from_slice(&lab.engine, keys, StreamId::DEFAULT)?;
    let numbers = Column::from_slice(&lab.engine, &numbers, StreamId::DEFAULT)?;
    Ok(table(&lab.engine, [("key", keys), (rows, numbers)])?)
}

fn shuffled(row: u64, rows: u64) -> u32 {
    ((row * STRIDE) % rows) as u32
}

/// Ten million rows on either side.
pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let rows = lab.millions();
    let unique = make(rows as usize, |row| unique_key(row as u32) as i32);
    let other = make(rows as usize, |row| unique_key(shuffled(row, rows)) as i32);
    let skewed = make(rows as usize, |row| unique_key(zipf(SEED, row, rows) as u32) as i32);
    // One key of a tenth of the rows, the others different.
    let often = rows / 10;
    let heavy = make(rows as usize, |row| {
        let key = shuffled(row, rows);
        unique_key(key.saturating_sub(often as u32 - 1)) as i32
    });
    let left = keyed(lab, &unique, "left_row")?;
    let [plain, zipfian, one_key] = [
        keyed(lab, &other, "right_row")?,
        keyed(lab, &skewed, "right_row")?,
        keyed(lab, &heavy, "right_row")?,
    ];
    let on = [("key", "key")];
    let join = |right: &Table, stream| ops::hash_join(&left, right, &on, JoinKind::Inner, stream);
    let mut uniform = None;
    for (kind, right, keys) in [
        ("i32 unique", &plain, &other),
        ("i32 zipf", &zipfian, &skewed),
        ("i32 one key often", &one_key, &heavy),
    ] {
        let [(plain_ms, _), (ms, joined)] = lab
            .time_in_turn([&mut |stream| join(&plain, stream), &mut |stream| {
                join(right, stream)
            }])?;
        let peer = uniform.map(|()| ("unique", plain_ms));
        report.add(&Row { peer, ..row("join", kind, rows, ms, &joined) });
        uniform = Some(());
        let (found, left_rows, right_rows) =
            (words(&joined, "key")?, words(&joined, "left_row")?, words(&joined, "right_row")?);
        let pairs = found.iter().zip(left_rows.iter().zip(&right_rows));
        let matching = pairs.clone().all(|(key, (left, right))| {
            unique[*left as usize] == *key as i32 && keys[*right as usize] == *key as i32
        });
        verify(matching, "keys that match on both sides")?;
        // Left keys differ and every right key is among them: each right row matches once.
        let sum = checksum(0..rows);
        let all = checksum(right_rows.iter().map(|row| u64::from(*row)));
        verify(all == sum && found.len() as u64 == rows, "every right row once")?;
    }
    Ok(())
}

/// Two keys, one row in sixteen missing in each, beside one key that is always there.
pub(super) fn nullable(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let rows = lab.millions();
    let missing = |column: u64, row: u64| random(SEED + column, row).is_multiple_of(16);
    let halves = |key: &dyn Fn(u64) -> u32, name: &'static str| -> Result<[Table; 2], Failure> {
        let keys: Vec<u32> = (0..rows).map(key).collect();
        let half = |column: u64, shift: u32| -> Vec<Option<i32>> {
            let part = |row: u64| (keys[row as usize] >> shift & 0xffff) as i32;
            (0..rows).map(|row| (!missing(column, row)).then(|| part(row))).collect()
        };
        let (high, low) = (half(1, 16), half(2, 0));
        let on_device =
            |column: &[Option<i32>]| Column::from_options(&lab.engine, column, StreamId::DEFAULT);
        let numbers = make(rows as usize, |row| row as u32);
        let numbers = Column::from_slice(&lab.engine, &numbers, StreamId::DEFAULT)?;
        let single: Vec<i32> = keys.iter().map(|key| *key as i32).collect();
        let single = Column::from_slice(&lab.engine, &single, StreamId::DEFAULT)?;
        Ok([
            table(&lab.engine, [("key", single), (name, numbers.clone())])?,
            table(
                &lab.engine,
                [("high", on_device(&high)?), ("low", on_device(&low)?), (name, numbers)],
            )?,
        ])
    };
    let [left_one, left_two] = halves(&|row| unique_key(row as u32), "left_row")?;
    let [right_one, right_two] = halves(&|row| unique_key(shuffled(row, rows)), "right_row")?;
    let (one, two) = ([("key", "key")], [("high", "high"), ("low", "low")]);
    let [(single_ms, _), (ms, joined)] = lab.time_in_turn([
        &mut |stream| ops::hash_join(&left_one, &right_one, &one, JoinKind::Inner, stream),
        &mut |stream| ops::hash_join(&left_two, &right_two, &two, JoinKind::Inner, stream),
    ])?;
    let peer = Some(("one key", single_ms));
    report.add(&Row { peer, ..row("join", "two nullable i32", rows, ms, &joined) });
    let there = |row: u64| !missing(1, row) && !missing(2, row);
    let (left_rows, right_rows) = (words(&joined, "left_row")?, words(&joined, "right_row")?);
    let mut pairs = left_rows.iter().zip(&right_rows).map(|(l, r)| (u64::from(*l), u64::from(*r)));
    let right = pairs.all(|(l, r)| u64::from(shuffled(r, rows)) == l && there(l) && there(r));
    let matches = (0..rows).filter(|row| there(*row) && there(u64::from(shuffled(*row, rows))));
    verify(right && left_rows.len() == matches.count(), "pairs whose keys are there and equal")?;
    drop((left_one, left_two, right_one, right_two, joined));

    let groups = |row: u64| {
        let key = random(SEED, row) as u32;
        (key >> 8 & 0xff) << 16 | key & 0xff
    };
    let [table_one, table_two] = halves(&groups, "row")?;
    let count = [Aggregate::count_rows().named("count")];
    let [(single_ms, _), (ms, grouped)] = lab.time_in_turn([
        &mut |stream| ops::group_by(&table_one, &["key"], &count, stream),
        &mut |stream| ops::group_by(&table_two, &["high", "low"], &count, stream),
    ])?;
    let peer = Some(("one key", single_ms));
    report.add(&Row { peer, ..row("group_by", "two nullable i32", rows, ms, &grouped) });
    let counts = super::longs(&grouped, "count")?;
    verify(counts.iter().sum::<u64>() == rows, "every row in a group")?;
    // 256 values and missing, twice: all pairs occur among this many rows.
    verify(grouped.rows() == 257 * 257 || lab.quick, "a group for each pair of keys")
}
