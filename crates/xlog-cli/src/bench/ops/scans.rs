//! Operators over one table: sort, filter, distinct, group-by.

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Aggregate, Column, SortKey, col, lit,
    ops::{self},
};

use super::{
    Lab,
    data::{checksum, make, random, table},
    longs,
    report::Report,
    row, verify, words,
};
use crate::Failure;

const SEED: u64 = 0x0dd_ba11;

fn word(row: u64) -> u32 {
    (random(SEED, row) >> 32) as u32
}

/// Keys of four bytes, the same with a value, keys of eight.
pub(super) fn sort(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let by = [SortKey::new("key")];
    for &rows in lab.sizes() {
        let keys = make(rows as usize, word);
        let sum = checksum(keys.iter().map(|key| u64::from(*key)));
        let column = Column::from_slice(&lab.engine, &keys, StreamId::DEFAULT)?;
        drop(keys);
        let input = table(&lab.engine, [("key", column.clone())])?;
        let (ms, sorted) = lab.time(|stream| ops::sort(&input, &by, stream))?;
        report.add(&row("sort", "u32", rows, ms, &sorted));
        let sorted = words(&sorted, "key")?;
        verify(sorted.is_sorted(), "keys in order")?;
        let found = checksum(sorted.iter().map(|key| u64::from(*key)));
        verify(found == sum && sorted.len() as u64 == rows, "the same keys")?;
        drop(sorted);

        let numbers = make(rows as usize, |row| row as u32);
        let numbers = Column::from_slice(&lab.engine, &numbers, StreamId::DEFAULT)?;
        let input = table(&lab.engine, [("key", column), ("row", numbers)])?;
        let (ms, sorted) = lab.time(|stream| ops::sort(&input, &by, stream))?;
        report.add(&row("sort", "u32 pairs", rows, ms, &sorted));
        let (keys, numbers) = (words(&sorted, "key")?, words(&sorted, "row")?);
        let stable = keys.iter().zip(&numbers).is_sorted();
        let same = keys.iter().zip(&numbers).all(|(key, row)| *key == word(u64::from(*row)));
        verify(stable && same && keys.len() as u64 == rows, "pairs in order, each as it was")?;
        drop((keys, numbers, sorted, input));

        let keys = make(rows as usize, |row| random(SEED, row));
        let sum = checksum(keys.iter().copied());
        let column = Column::from_slice(&lab.engine, &keys, StreamId::DEFAULT)?;
        drop(keys);
        let input = table(&lab.engine, [("key", column)])?;
        let (ms, sorted) = lab.time(|stream| ops::sort(&input, &by, stream))?;
        report.add(&row("sort", "u64", rows, ms, &sorted));
        let sorted = longs(&sorted, "key")?;
        verify(sorted.is_sorted(), "keys in order")?;
        verify(checksum(sorted.into_iter()) == sum, "the same keys")?;
    }
    Ok(())
}

/// Every other row, by a comparison with a literal.
pub(super) fn filter(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let below = 1u32 << 31;
    for &rows in lab.sizes() {
        let keys = make(rows as usize, word);
        let column = Column::from_slice(&lab.engine, &keys, StreamId::DEFAULT)?;
        let input = table(&lab.engine, [("key", column)])?;
        let half = col("key").lt(lit(below));
        let (ms, kept) = lab.time(|stream| ops::filter(&input, &half, stream))?;
        report.add(&row("filter", "u32", rows, ms, &kept));
        let kept = words(&kept, "key")?;
        let expected = keys.iter().filter(|key| **key < below);
        verify(kept.iter().eq(expected), "the rows below, in their order")?;
    }
    Ok(())
}

/// Keys of four bytes, nearly all of them different.
pub(super) fn distinct(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    for &rows in &lab.sizes()[..1] {
        let keys = make(rows as usize, word);
        let column = Column::from_slice(&lab.engine, &keys, StreamId::DEFAULT)?;
        let input = table(&lab.engine, [("key", column)])?;
        let (ms, different) = lab.time(|stream| ops::distinct(&input, None, stream))?;
        report.add(&row("distinct", "u32", rows, ms, &different));
        let mut seen = vec![0u64; 1 << 26];
        keys.iter().for_each(|key| seen[*key as usize / 64] |= 1 << (key % 64));
        for key in words(&different, "key")? {
            let place = &mut seen[key as usize / 64];
            verify(*place >> (key % 64) & 1 == 1, "each key once, and only keys there are")?;
            *place &= !(1 << (key % 64));
        }
        verify(seen.iter().all(|left| *left == 0), "every key")?;
    }
    Ok(())
}

/// Sums of twenty groups, and of a million.
pub(super) fn group_by(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let rows = lab.sizes()[0];
    let values = make(rows as usize, |row| (random(SEED + 1, row) >> 40) as u32);
    let column = Column::from_slice(&lab.engine, &values, StreamId::DEFAULT)?;
    let total = [Aggregate::sum("value").named("total")];
    for groups in [20u64, 1 << 20] {
        let key = |row| (random(SEED, row) % groups) as u32;
        let keys = make(rows as usize, key);
        let mut sums = vec![0u64; groups as usize];
        let added = keys.iter().zip(&values);
        added.for_each(|(key, value)| sums[*key as usize] += u64::from(*value));
        let present = sums.iter().filter(|sum| **sum != 0).count();
        let keys = Column::from_slice(&lab.engine, &keys, StreamId::DEFAULT)?;
        let input = table(&lab.engine, [("key", keys), ("value", column.clone())])?;
        let (ms, grouped) = lab.time(|stream| ops::group_by(&input, &["key"], &total, stream))?;
        report.add(&row("group_by", format!("u32, {groups} groups"), rows, ms, &grouped));
        let (keys, totals) = (words(&grouped, "key")?, longs(&grouped, "total")?);
        let right = keys.iter().zip(&totals).all(|(key, sum)| sums[*key as usize] == *sum);
        let mut keys = keys;
        keys.sort_unstable();
        keys.dedup();
        verify(right && keys.len() == totals.len(), "the sum of each group, once")?;
        verify(keys.len() >= present, "every group")?;
    }
    Ok(())
}
