//! The steps that a GPU takes, on the host device: several portions, each of several sweeps.

use std::sync::Arc;

use xlog_cuda::{CudaDevice, device_runtime::StreamId};

use super::*;

/// Sorts `keys` and their row numbers in portions of `portion_rows`.
fn in_portions<K: SortKey>(keys: &[K], by: &SortBy, portion_rows: usize) -> (Vec<K>, Vec<u32>) {
    let engine = &Engine::new(Arc::new(CudaDevice::host())).expect("an engine");
    let (len, stream) = (keys.len(), StreamId::DEFAULT);
    let numbers: Vec<u32> = (0..len as u32).collect();
    let mut input = engine.alloc::<K>(len, stream, "keys").expect("memory");
    let mut values = engine.alloc::<u32>(len, stream, "values").expect("memory");
    input.upload(keys).expect("an upload");
    values.upload(&numbers).expect("an upload");
    let fresh = || -> ResourceResult<Owned<K, u32>> {
        let keys = engine.alloc(len, stream, "sorted keys")?;
        Ok((keys, Some(engine.alloc(len, stream, "sorted values")?)))
    };
    let result = fresh().expect("memory");
    let job = Job {
        engine,
        stream,
        key: K::KERNELS,
        kernels: u32::kernels(K::KERNELS),
        len,
        bits: by.bits.clone(),
        order: Order::of::<K>(by.descending),
        steps: Steps::Sweeps { portion_rows, tile_rows: portion_rows / 4 },
    };
    job.run(Rows { keys: &input, values: Some(&values) }, &result, fresh).expect("a sort");
    let values = result.1.expect("values").download().expect("a download");
    (result.0.download().expect("a download"), values)
}

#[test]
fn portions_follow_each_other_within_every_digit() {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state ^ state >> 29
    };
    // Small numbers among them, so that keys are equal and what is not stable shows.
    let longs: Vec<u64> = (0..10_000).map(|row| next() >> (row % 2 * 58)).collect();
    let signed: Vec<i32> = longs.iter().map(|long| *long as i32).collect();
    for portion_rows in [1 << 10, 1 << 12, 1 << 14] {
        let (keys, rows) = in_portions(&longs, &SortBy::ascending::<u64>(), portion_rows);
        let mut expected: Vec<u32> = (0..10_000).collect();
        expected.sort_by_key(|row| longs[*row as usize]);
        assert_eq!(rows, expected);
        assert!(keys.iter().eq(expected.iter().map(|row| &longs[*row as usize])));

        let (_, rows) = in_portions(&signed, &SortBy::descending::<i32>(), portion_rows);
        let mut expected: Vec<u32> = (0..10_000).collect();
        expected.sort_by_key(|row| std::cmp::Reverse(signed[*row as usize]));
        assert_eq!(rows, expected);
    }
}
