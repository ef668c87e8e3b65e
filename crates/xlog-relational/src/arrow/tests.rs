//! Round trips: what goes up comes back, whatever it was a slice of.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Int8Array, Int32Array, Int64Array,
    LargeStringArray, RecordBatch, StringArray, StringViewArray, TimestampMicrosecondArray,
    TimestampSecondArray, UInt32Array,
    types::{Int8Type, Int32Type},
};
use arrow_schema::{Field as ArrowField, Schema as ArrowSchema};
use proptest::prelude::*;
use xlog_cuda::{CudaDevice, device_runtime::StreamId};
use xlog_testkit::CheckedDevice;

use crate::{
    Column, DataType, Engine, Table, Values,
    reference::{Relation, limit},
    strategies::any_relation,
};

fn engine() -> Engine {
    Engine::new(Arc::new(CudaDevice::host())).unwrap()
}

fn batch_of(array: ArrayRef) -> RecordBatch {
    let field = ArrowField::new("c", array.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(ArrowSchema::new(vec![field])), vec![array]).unwrap()
}

/// Up and down again.
fn round_trip(engine: &Engine, batch: &RecordBatch) -> Relation {
    let table = Table::from_batch(engine, batch, StreamId::DEFAULT).unwrap();
    Relation::from_batch(&table.download(StreamId::DEFAULT).unwrap()).unwrap()
}

#[track_caller]
fn comes_back(array: ArrayRef) {
    let batch = batch_of(array);
    let expected = Relation::from_batch(&batch).unwrap();
    let found = round_trip(&engine(), &batch);
    assert!(found.same_in_order(&expected), "{found:?}{expected:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_table_comes_back_bit_by_bit(relation in any_relation(200)) {
        let found = round_trip(&engine(), &relation.to_batch().unwrap());
        prop_assert!(found.same_in_order(&relation), "{:?}{:?}", found, relation);
    }

    #[test]
    fn any_slice_comes_back_whatever_bit_its_validity_starts_at(
        relation in any_relation(200),
        offset in 0usize..100,
        count in 0usize..100,
    ) {
        let offset = offset.min(relation.rows());
        let count = count.min(relation.rows() - offset);
        let batch = relation.to_batch().unwrap().slice(offset, count);
        let expected = limit(&relation, offset as u64, count as u64);
        let found = round_trip(&engine(), &batch);
        prop_assert!(found.same_in_order(&expected), "{:?}{:?}", found, expected);
        // And a slice of what came down, which is pinned memory in Arrow's hands.
        let table = Table::from_batch(&engine(), &batch, StreamId::DEFAULT).unwrap();
        let again = table.download(StreamId::DEFAULT).unwrap().slice(0, count / 2);
        let again = Relation::from_batch(&again).unwrap();
        prop_assert!(again.same_in_order(&limit(&expected, 0, count as u64 / 2)));
    }

    #[test]
    fn words_of_validity_end_in_zeros(there in prop::collection::vec(any::<bool>(), 1..100)) {
        let array = BooleanArray::from(there.iter().map(|v| v.then_some(true)).collect::<Vec<_>>());
        // Neither end of the slice is an end of the array: what lies around it must not show.
        let (start, end) = (there.len() / 3, there.len() - there.len() / 4);
        let sliced = array.slice(start, end - start);
        let column = Column::from_array(&engine(), "c", &sliced, StreamId::DEFAULT).unwrap();
        let expected = &there[start..end];
        let words = column.validity().map(|words| words.download().unwrap());
        if let Some(words) = words {
            let bit = |row: usize| words[row / 32] >> (row % 32) & 1 == 1;
            for row in 0..words.len() * 32 {
                prop_assert_eq!(bit(row), expected.get(row).copied().unwrap_or(false));
            }
            let missing = expected.iter().filter(|there| !**there).count() as u64;
            prop_assert_eq!(column.null_count(), Some(missing));
        } else {
            prop_assert!(expected.iter().all(|there| *there));
        }
    }
}

#[test]
fn text_comes_back_in_every_encoding() {
    let strings = [Some("b"), None, Some("a"), Some("b"), Some("")];
    comes_back(Arc::new(StringArray::from(strings.to_vec())));
    comes_back(Arc::new(LargeStringArray::from(strings.to_vec())));
    comes_back(Arc::new(StringViewArray::from(strings.to_vec())));
    comes_back(Arc::new(StringArray::from(strings.to_vec()).slice(1, 3)));
    let dictionary: DictionaryArray<Int8Type> = strings.into_iter().collect();
    comes_back(Arc::new(dictionary));
    let dictionary: DictionaryArray<Int32Type> = strings.into_iter().collect();
    comes_back(Arc::new(dictionary.slice(2, 3)));
    comes_back(Arc::new(StringArray::from(Vec::<Option<&str>>::new())));
    comes_back(Arc::new(StringArray::from(vec![None::<&str>, None])));
}

#[test]
fn dictionaries_with_nulls_doubles_and_strings_of_nobody_come_back() {
    let strings = StringArray::from(vec![Some("x"), None, Some("x"), Some("unused")]);
    let keys = Int8Array::from(vec![Some(2), Some(1), None, Some(0)]);
    comes_back(Arc::new(DictionaryArray::new(keys, Arc::new(strings))));
    let nothing = StringArray::from(Vec::<Option<&str>>::new());
    let keys = Int32Array::from(vec![None, None]);
    comes_back(Arc::new(DictionaryArray::new(keys, Arc::new(nothing))));
    let large = LargeStringArray::from(vec!["p", "q"]);
    comes_back(Arc::new(DictionaryArray::new(UInt32Array::from(vec![1, 0, 1]), Arc::new(large))));
}

#[test]
fn a_key_behind_a_missing_row_never_becomes_a_code_out_of_range() {
    let nulls = Some(arrow_buffer::NullBuffer::from(vec![true, false]));
    let keys = Int32Array::new(vec![0, -7].into(), nulls);
    let array = DictionaryArray::new(keys, Arc::new(StringArray::from(vec!["only"])));
    let column = Column::from_array(&engine(), "c", &array, StreamId::DEFAULT).unwrap();
    let Values::Words(codes) = column.values() else { panic!("codes are words") };
    assert_eq!(codes.download().unwrap(), [0, 0]);
    comes_back(Arc::new(array));
}

#[test]
fn distinct_strings_of_a_dictionary_are_shared_both_ways() {
    let strings = Arc::new(StringArray::from(vec!["a", "b"]));
    let array = DictionaryArray::new(UInt32Array::from(vec![1, 0]), Arc::clone(&strings) as _);
    let column = Column::from_array(&engine(), "c", &array, StreamId::DEFAULT).unwrap();
    let back = column.start_download(StreamId::DEFAULT).unwrap().wait().unwrap();
    let back = back.as_any().downcast_ref::<DictionaryArray<arrow_array::types::UInt32Type>>();
    let values = back.unwrap().values().as_any().downcast_ref::<StringArray>().unwrap();
    assert_eq!(values.value_data().as_ptr(), strings.value_data().as_ptr());
}

#[test]
fn what_has_no_place_here_is_refused_by_name() {
    let refused = |array: &dyn Array| {
        let error = Column::from_array(&engine(), "when", array, StreamId::DEFAULT).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("\"when\""), "{error}");
        error
    };
    assert!(refused(&Int8Array::from(vec![1])).contains("Int8"));
    assert!(refused(&TimestampSecondArray::from(vec![1])).contains("microseconds"));
    let zoned = TimestampMicrosecondArray::from(vec![1]).with_timezone("Europe/Berlin");
    assert!(refused(&zoned).contains("Europe/Berlin"));
    let numbers =
        DictionaryArray::new(Int8Array::from(vec![0]), Arc::new(Int64Array::from(vec![1])));
    assert!(refused(&numbers).contains("Int64"));
}

#[test]
fn round_trips_are_clean_on_the_checked_device() {
    for seed in 0..5 {
        let checked = CheckedDevice::new(seed);
        let stack = checked.production_stack().unwrap();
        let engine = Engine::over(&stack);
        let stream = stack.streams().acquire().unwrap();
        let array = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
        let table = Table::from_batch(&engine, &batch_of(array), StreamId::DEFAULT).unwrap();
        let down = table.start_download(stream).unwrap();
        drop(table);
        assert_eq!(down.wait().unwrap().num_rows(), 3);
        checked.assert_clean();
    }
}

#[test]
fn an_empty_table_keeps_its_types() {
    for data_type in DataType::ALL {
        let field = crate::Field::new("c", data_type);
        let values = Vec::new();
        let empty = Relation::new(vec![crate::reference::HostColumn { field, values }]).unwrap();
        assert!(round_trip(&engine(), &empty.to_batch().unwrap()).same_in_order(&empty));
    }
}
