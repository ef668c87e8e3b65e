//! Every primitive on the checked host device, where an access that was not declared, memory that
//! nobody wrote and a wait that is missing are found.

use xlog_cuda::{device_runtime::StreamId, memory::TrackedCudaSlice};
use xlog_relational::{
    Engine,
    primitives::{
        Comparison, Condition, SortBy, exclusive_sum, fill, gather, gather_bits, iota, rows_valid,
        run_starts, select_by_mask, select_if, select_rows_by_mask, select_rows_if, sort_keys,
        sort_pairs, unique,
    },
};
use xlog_testkit::CheckedDevice;

/// Numbers that look random and are the same in each run.
fn numbers(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| i.wrapping_mul(0x9e37_79b9).rotate_left(7)).collect()
}

fn upload<T: bytemuck::Pod>(
    engine: &Engine,
    stream: StreamId,
    values: &[T],
) -> TrackedCudaSlice<T> {
    let mut slice = engine.manager().alloc(values.len()).expect("memory");
    slice.upload_on(values, stream).expect("an upload");
    slice
}

/// Sorts on one stream what another made, with a third reading along.
fn sorts(engine: &Engine, streams: &[StreamId; 3], len: usize) {
    let count = len as u64;
    let values = numbers(len);
    let keys = upload(engine, streams[0], &values);
    let rows = iota::<u32>(engine, streams[1], 0, count).expect("row numbers");
    let by = SortBy::ascending::<u32>();
    let sorted = sort_keys(engine, streams[2], &keys, count, &by).expect("a sort");
    let pairs = sort_pairs(engine, streams[1], &keys, &rows, count, &SortBy::descending::<u32>());
    let (down, rows) = pairs.expect("a sort");
    let wide = fill(engine, streams[0], -1i64, count).expect("a fill");
    let wide = sort_keys(engine, streams[2], &wide, count, &SortBy::descending::<i64>());
    let back = gather(engine, streams[0], &keys, count, &rows, count).expect("a gather");

    let mut expected = values;
    expected.sort_unstable();
    assert_eq!(sorted.download().expect("values"), expected);
    expected.reverse();
    assert_eq!(down.download().expect("values"), expected);
    assert_eq!(back.download().expect("values"), expected);
    assert_eq!(wide.expect("a sort").download().expect("values"), vec![-1; len]);
}

/// Selections, runs and sums over what a sort left behind.
fn selections(engine: &Engine, streams: &[StreamId; 3], len: usize) {
    let count = len as u64;
    let values: Vec<u32> = numbers(len).iter().map(|value| value % 100).collect();
    let input = upload(engine, streams[0], &values);
    let condition = Condition::new(Comparison::Less, 50);
    let few = select_if(engine, streams[1], &input, count, &condition).expect("a selection");
    let rows = select_rows_if(engine, streams[2], &input, count, &condition).expect("rows");
    let mask = fill(engine, streams[2], 0x5555_5555u32, count.div_ceil(32)).expect("a mask");
    let even = select_by_mask(engine, streams[0], &input, &mask, count).expect("a selection");
    let even_rows = select_rows_by_mask(engine, streams[1], &mask, count).expect("rows");
    let sorted = sort_keys(engine, streams[1], &input, count, &SortBy::ascending::<u32>());
    let sorted = sorted.expect("a sort");
    let once = unique(engine, streams[2], &sorted, count).expect("runs");
    let starts = run_starts(engine, streams[0], &sorted, count).expect("runs");
    let sums = exclusive_sum(engine, streams[2], &input, count).expect("sums");

    let (few, found) = few.wait().expect("a count");
    let expected: Vec<u32> = values.iter().copied().filter(|value| *value < 50).collect();
    assert_eq!(few.view(..found as usize).expect("a part").download().expect("values"), expected);
    let (rows, found) = rows.wait().expect("a count");
    let again = gather(engine, streams[0], &input, count, &rows, found).expect("a gather");
    assert_eq!(again.download().expect("values"), expected);
    let valid = rows_valid(engine, streams[1], &rows, count / 2, found).expect("bits");
    let bits = gather_bits(engine, streams[2], &mask, count, &rows, found).expect("bits");
    assert_eq!(valid.len(), bits.download().expect("bits").len());
    drop(valid);

    let (even, found) = even.wait().expect("a count");
    assert_eq!(found, count.div_ceil(2));
    let (even_rows, _) = even_rows.wait().expect("a count");
    assert_eq!(even.view(..1).expect("a part").download().expect("values"), [values[0]]);
    assert_eq!(even_rows.view(..1).expect("a part").download().expect("rows"), [0]);

    let (_, distinct) = once.wait().expect("a count");
    let (_, runs) = starts.wait().expect("a count");
    assert_eq!(distinct, runs);
    let total: u64 = values.iter().map(|value| u64::from(*value)).sum();
    assert_eq!(sums.download().expect("sums").last(), Some(&total));
}

#[test]
fn no_primitive_touches_what_it_did_not_declare() {
    for seed in 0..20 {
        let checked = CheckedDevice::new(seed);
        let stack = checked.production_stack().expect("a stack");
        let engine = Engine::over(&stack);
        let acquire = || stack.streams().acquire().expect("a stream");
        let streams = [acquire(), acquire(), acquire()];
        for len in if seed == 0 { [1, 9000] } else { [40, 2500] } {
            sorts(&engine, &streams, len);
            selections(&engine, &streams, len);
        }
        drop((engine, stack));
        checked.assert_clean();
    }
}

#[test]
fn a_sort_of_several_portions_hands_its_places_on() {
    let checked = CheckedDevice::new(7);
    let stack = checked.production_stack().expect("a stack");
    let engine = Engine::over(&stack);
    let stream = stack.streams().acquire().expect("a stream");
    let mut values = numbers((1 << 20) + 9);
    let keys = upload(&engine, stream, &values);
    let by = SortBy { bits: 20..32, descending: false };
    let sorted = sort_keys(&engine, stream, &keys, values.len() as u64, &by).expect("a sort");
    values.sort_by_key(|value| value >> 20);
    assert!(sorted.download().expect("values") == values);
    drop((keys, sorted, engine, stack));
    checked.assert_clean();
}
