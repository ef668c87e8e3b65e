//! The tables that operators are measured on: every value is a function of its row and a seed, so
//! that another program can make the same ones.

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{Column, Engine, RelationalResult, Table};

/// Value `row` of stream `seed` of SplitMix64.
pub(super) fn random(seed: u64, row: u64) -> u64 {
    mix(seed.wrapping_add((row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// The output function of SplitMix64; also what rows are hashed with to compare results.
pub(super) fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A bijection of 32-bit numbers, so that keys of different rows differ.
pub(super) fn unique_key(row: u32) -> u32 {
    let h = (row ^ (row >> 16)).wrapping_mul(0x85eb_ca6b);
    let h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// The key of a row under Zipf's law with exponent 1 over `keys` keys, nearly: uniform in the
/// logarithm.
pub(super) fn zipf(seed: u64, row: u64, keys: u64) -> u64 {
    let unit = (random(seed, row) >> 11) as f64 / (1u64 << 53) as f64;
    ((keys as f64).powf(unit) as u64).clamp(1, keys) - 1
}

/// `rows` values.
pub(super) fn make<T: Send + Copy + Default>(
    rows: usize,
    value: impl Fn(u64) -> T + Sync,
) -> Vec<T> {
    let mut values = vec![T::default(); rows];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = rows.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (number, values) in values.chunks_mut(part).enumerate() {
            let value = &value;
            scope.spawn(move || {
                let first = (number * part) as u64;
                values.iter_mut().zip(first..).for_each(|(place, row)| *place = value(row));
            });
        }
    });
    values
}

/// A table of columns on the device, uploaded and settled.
pub(super) fn table<const N: usize>(
    engine: &Engine,
    columns: [(&str, Column); N],
) -> RelationalResult<Table> {
    let table = Table::new(engine, columns)?;
    engine.runtime().synchronize(StreamId::DEFAULT)?;
    Ok(table)
}

/// A number that depends on which values there are, and not on their order.
pub(super) fn checksum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, |sum, value| sum.wrapping_add(mix(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_skewed_ones_stay_within_bounds() {
        let mut keys: Vec<u32> = (0..100_000).map(unique_key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100_000);
        let skewed = make(100_000, |row| zipf(7, row, 1000));
        assert!(skewed.iter().all(|key| *key < 1000));
        let least = skewed.iter().filter(|key| **key == 0).count();
        assert!((5_000..20_000).contains(&least), "{least} of the commonest key");
        assert_eq!(checksum([1, 2, 3].into_iter()), checksum([3, 1, 2].into_iter()));
        assert_ne!(checksum([1, 2, 3].into_iter()), checksum([3, 1, 1].into_iter()));
    }
}
