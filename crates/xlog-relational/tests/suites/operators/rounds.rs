//! Eight threads that sort and join the same tables at the same time.

use std::thread;

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Column, Engine, JoinKind, SortKey, Table,
    ops::{hash_join, sort},
    reference::Relation,
};

const THREADS: usize = 8;

/// Each of eight threads sorts both inputs and joins the results, `rounds` times on streams of its
/// own: one for the left side, one for the right one, and the join on either. Every result is the
/// one that a single thread gets, row by row once sorted.
pub fn rounds(engine: &Engine, rounds: usize) {
    let acquire = || engine.runtime().stream_pool().acquire().expect("a stream");
    let streams: Vec<[StreamId; 2]> = (0..THREADS).map(|_| [acquire(), acquire()]).collect();
    let home = StreamId::DEFAULT;
    let left = table(engine, home, 300, 7);
    let right = table(engine, home, 200, 11);
    let serial = round(&left, &right, [home, home], 0);
    assert!(serial.rows() > 300, "keys repeat, so that there are more pairs than rows");
    thread::scope(|scope| {
        for (number, streams) in streams.iter().enumerate() {
            let (left, right, serial) = (&left, &right, &serial);
            scope.spawn(move || {
                for turn in 0..rounds {
                    let got = round(left, right, *streams, turn);
                    assert!(got.same_in_order(serial), "thread {number}, round {turn}");
                }
            });
        }
    });
}

/// Sorts both, joins them, and puts the result in an order.
fn round(left: &Table, right: &Table, streams: [StreamId; 2], turn: usize) -> Relation {
    let by = |column: &str| SortKey::new(column);
    let left = sort(left, &[by("value")], streams[turn % 2]).expect("a sort");
    let right = sort(right, &[by("key")], streams[(turn + 1) % 2]).expect("a sort");
    let on = [("key", "key")];
    let joined = hash_join(&left, &right, &on, JoinKind::Inner, streams[0]).expect("a join");
    let keys = [by("key"), by("value"), by("value_right")];
    let sorted = sort(&joined, &keys, streams[1]).expect("a sort");
    Relation::from_batch(&sorted.download(streams[0]).expect("rows")).expect("a relation")
}

/// Keys that repeat, and a value of its own for each row.
fn table(engine: &Engine, stream: StreamId, rows: u32, factor: u32) -> Table {
    let keys: Vec<u32> = (0..rows).map(|row| row.wrapping_mul(factor * 2_654_435) % 97).collect();
    let values: Vec<u32> = (0..rows).map(|row| row.wrapping_mul(factor) % rows).collect();
    let column = |values: &[u32]| Column::from_slice(engine, values, stream).expect("a column");
    Table::new(engine, [("key", column(&keys)), ("value", column(&values))]).expect("a table")
}
