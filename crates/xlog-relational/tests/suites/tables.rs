//! Tables up and down again.

use proptest::prop_assert;
use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Table,
    reference::{Relation, limit},
    strategies,
};
use xlog_testkit::{TestCase, TestDevice, cases};

use super::{engine, hold};

pub(crate) const CASES: &[TestCase] =
    cases![any_table_comes_back_bit_by_bit, any_slice_comes_back_bit_by_bit];

fn any_table_comes_back_bit_by_bit(device: TestDevice) {
    let engine = engine(device);
    hold(200, strategies::any_relation(200), |relation| {
        let batch = relation.to_batch().expect("a batch");
        let table = Table::from_batch(&engine, &batch, StreamId::DEFAULT).expect("an upload");
        let found = table.download(StreamId::DEFAULT).expect("a download");
        let found = Relation::from_batch(&found).expect("known types");
        prop_assert!(found.same_in_order(&relation), "{:?}{:?}", found, relation);
        Ok(())
    });
}

fn any_slice_comes_back_bit_by_bit(device: TestDevice) {
    let engine = engine(device);
    let slices = (strategies::any_relation(300), 0usize..100, 0usize..200);
    hold(200, slices, |(relation, offset, count)| {
        let offset = offset.min(relation.rows());
        let count = count.min(relation.rows() - offset);
        let batch = relation.to_batch().expect("a batch").slice(offset, count);
        let table = Table::from_batch(&engine, &batch, StreamId::DEFAULT).expect("an upload");
        let found = table.download(StreamId::DEFAULT).expect("a download");
        let found = Relation::from_batch(&found).expect("known types");
        let expected = limit(&relation, offset as u64, count as u64);
        prop_assert!(found.same_in_order(&expected), "{:?}{:?}", found, expected);
        Ok(())
    });
}
