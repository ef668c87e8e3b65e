//! Sorts and joins on several streams, from two threads: work worth a picture.

use std::{sync::Arc, thread};

use xlog_cuda::{CudaDevice, device_runtime::StreamId};
use xlog_driver::Driver;
use xlog_relational::{Column, Engine, JoinKind, SortKey, Table, ops};

pub(crate) type Failure = Box<dyn std::error::Error>;

/// Runs `rounds` rounds on tables of `rows` rows on a device.
pub(crate) fn run(driver: Arc<dyn Driver>, rounds: usize, rows: u64) -> Result<(), Failure> {
    let engine = Engine::new(Arc::new(CudaDevice::with_driver(driver)))?;
    let pool = engine.runtime().stream_pool();
    let pairs = [(pool.acquire()?, pool.acquire()?), (pool.acquire()?, pool.acquire()?)];
    let people = table(&engine, rows, "id", "age", StreamId::DEFAULT)?;
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for pair in pairs {
            let (engine, people) = (&engine, &people);
            let work = move || {
                (0..rounds)
                    .try_for_each(|_| round(engine, people, rows, pair))
                    .map_err(|error| error.to_string())
            };
            let name = format!("worker {}", pair.0.0);
            threads.push(thread::Builder::new().name(name).spawn_scoped(scope, work)?);
        }
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })
}

/// Sorts orders on one stream and people on another, and joins the two on the first.
fn round(
    engine: &Engine,
    people: &Table,
    rows: u64,
    (stream, other): (StreamId, StreamId),
) -> Result<(), Failure> {
    let orders = table(engine, rows, "customer", "amount", stream)?;
    let by_amount = ops::sort(&orders, &[SortKey::new("amount").descending()], stream)?;
    let by_age = ops::sort(people, &[SortKey::new("age")], other)?;
    let keys = [("customer", "id")];
    let joined = ops::hash_join(&by_amount, &by_age, &keys, JoinKind::Inner, stream)?;
    let by_key = ops::sort(&joined, &[SortKey::new("customer")], other)?;
    let first = ops::limit(&by_key, 0, 10, stream)?.download(stream)?;
    if first.num_rows() == 10 { Ok(()) } else { Err("the join lost rows".into()) }
}

/// A table of `rows` rows with keys that are all different, in no order.
fn table(
    engine: &Engine,
    rows: u64,
    key: &str,
    value: &str,
    stream: StreamId,
) -> Result<Table, Failure> {
    let keys: Vec<u32> = (0..rows).map(|row| (row * 7_919 % rows) as u32).collect();
    let values: Vec<u32> = (0..rows).map(|row| ((row * 2_654_435_761) >> 7) as u32).collect();
    let keys = Column::from_slice(engine, &keys, stream)?;
    let values = Column::from_slice(engine, &values, stream)?;
    Ok(Table::new(engine, [(key, keys), (value, values)])?)
}
