//! What operators on small tables ask of the driver: that is what they cost.

use std::sync::Arc;

use xlog_cuda::{CudaDevice, device_runtime::StreamId};
use xlog_relational::{
    Aggregate, Column, Engine, JoinKind, RelationalResult, Table,
    ops::{except, group_by, hash_join, intersect},
};
use xlog_testkit::{DriverCall, LayeredDriver, TestCase, TestDevice, cases};

pub(crate) const CASES: &[TestCase] =
    cases![small_tables_take_few_launches, large_tables_take_more, operators_record_few_events];

const STREAM: StreamId = StreamId::DEFAULT;

/// A driver that counts, and an engine over it.
fn counted(device: TestDevice) -> (Arc<LayeredDriver>, Engine) {
    let driver = Arc::new(LayeredDriver::new(device.driver()));
    let device = Arc::new(CudaDevice::with_driver(Arc::clone(&driver) as _));
    (driver, Engine::new(device).expect("a stack over a working device"))
}

/// Launches, fills and copies to the host while an operator runs.
fn calls(driver: &LayeredDriver, run: impl FnOnce() -> RelationalResult<Table>) -> [u64; 3] {
    let kinds = [DriverCall::Launch, DriverCall::FillBytes, DriverCall::CopyToHost];
    let before = kinds.map(|call| driver.count(call));
    run().expect("a table");
    let after = kinds.map(|call| driver.count(call));
    std::array::from_fn(|kind| after[kind] - before[kind])
}

/// Two columns of four bytes, of which the first repeats.
fn table(engine: &Engine, rows: u32, step: u32) -> Table {
    let keys: Vec<u32> = (0..rows).map(|row| row * step % (rows / 2)).collect();
    let values: Vec<u32> = (0..rows).collect();
    let column = |values: &[u32]| Column::from_slice(engine, values, STREAM).expect("a column");
    let columns = [("key", column(&keys)), ("value", column(&values))];
    Table::new(engine, columns).expect("a table")
}

fn small_tables_take_few_launches(device: TestDevice) {
    let (driver, engine) = counted(device);
    let (left, right) = (table(&engine, 1000, 3), table(&engine, 1000, 7));
    let [one, other] = [&left, &right].map(|table| table.select(&["key"]).expect("a column"));
    let on = [("key", "key")];
    // What is found, then the pairs.
    let inner = calls(&driver, || hash_join(&left, &right, &on, JoinKind::Inner, STREAM));
    assert_eq!(inner, [2, 0, 0]);
    // What is found, then a gather for each column.
    let semi = calls(&driver, || hash_join(&left, &right, &on, JoinKind::Semi, STREAM));
    assert_eq!(semi, [3, 0, 0]);
    // Values, written where they are found.
    assert_eq!(calls(&driver, || intersect(&one, &other, false, STREAM)), [1, 0, 0]);
    assert_eq!(calls(&driver, || except(&one, &other, true, STREAM)), [1, 0, 0]);
    // Two columns of both tables packed, what is found, a gather for each column.
    assert_eq!(calls(&driver, || except(&left, &right, false, STREAM)), [7, 0, 0]);
    // Groups, a gather for the key, a fill and a launch for the sum.
    let sum = [Aggregate::sum("value")];
    assert_eq!(calls(&driver, || group_by(&left, &["key"], &sum, STREAM)), [3, 1, 0]);
}

fn large_tables_take_more(device: TestDevice) {
    let (driver, engine) = counted(device);
    let (left, right) = (table(&engine, 5000, 3), table(&engine, 5000, 7));
    let on = [("key", "key")];
    let inner = calls(&driver, || hash_join(&left, &right, &on, JoinKind::Inner, STREAM));
    assert!(inner[0] > 2 && inner[2] == 2, "{inner:?}");
}

/// Keys that come once: what is tried first holds.
fn unique(engine: &Engine, rows: u32) -> Table {
    let values: Vec<u32> = (0..rows).rev().collect();
    let column = |values: &[u32]| Column::from_slice(engine, values, STREAM).expect("a column");
    let columns = [("key", column(&values)), ("value", column(&values))];
    Table::new(engine, columns).expect("a table")
}

/// With several streams every use needs an event; the steps of an operator share theirs.
fn operators_record_few_events(device: TestDevice) {
    let (driver, engine) = counted(device);
    let streams = engine.worker_streams(2).expect("streams");
    assert_eq!(streams.len(), 2);
    let (left, right) = (unique(&engine, 6000), unique(&engine, 6000));
    let events = |run: &dyn Fn() -> RelationalResult<Table>| {
        run().expect("a table");
        driver.count_during(DriverCall::RecordEvent, || {
            run().expect("a table");
        })
    };
    let on = [("key", "key")];
    // Fills, the table, the pairs and their number.
    let join = events(&|| hash_join(&left, &right, &on, JoinKind::Inner, streams[0]));
    assert_eq!(join, 1);
    // The groups, then a gather for the key, a fill and a launch for the sum.
    let sum = [Aggregate::sum("value")];
    let groups = events(&|| group_by(&left, &["key"], &sum, streams[0]));
    assert!(groups <= 4, "{groups}");
    // The rows that are found, then all columns of both sides.
    let wide = left.select(&["key", "value"]).expect("columns");
    let more = ["a", "b"].iter().fold(wide, |table, name| {
        let column = table.column("value").expect("a column").clone();
        let columns = table.columns().map(|(name, column)| (name.to_owned(), column.clone()));
        let columns = columns.chain([((*name).to_owned(), column)]).collect::<Vec<_>>();
        Table::new(&engine, columns).expect("a table")
    });
    let join = events(&|| hash_join(&more, &more, &on, JoinKind::Inner, streams[0]));
    assert_eq!(join, 2);
}
