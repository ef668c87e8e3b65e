//! Eight joins at once: on eight streams from eight threads, beside the same in a row, and beside
//! the bare replay of their launches.

use std::{
    sync::{Arc, Barrier},
    time::Instant,
};

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{Column, Engine, JoinKind, Table, ops};

use super::{
    Lab,
    data::{make, table, unique_key},
    measure,
    report::{Report, Row},
    row, verify,
};
use crate::Failure;

const THREADS: usize = 8;
const ROWS: u64 = 100_000;
/// Joins a thread makes in one round: more than starting it takes.
const JOINS: usize = 10;

pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    // A pool of its own: what larger cases took from the driver is copied for the replay otherwise.
    let engine = &Engine::new(Arc::clone(lab.engine.runtime().device()))?;
    let side = |number: usize, step: u64| -> Result<Table, Failure> {
        let key = |row: u64| unique_key(((row * step) % ROWS) as u32 + ((number as u32) << 20));
        let keys = make(ROWS as usize, |row| key(row) as i32);
        let values = make(ROWS as usize, |row| row as u32);
        let keys = Column::from_slice(engine, &keys, StreamId::DEFAULT)?;
        let values = Column::from_slice(engine, &values, StreamId::DEFAULT)?;
        let name = if step == 1 { "left" } else { "right" };
        Ok(table(engine, [("key", keys), (name, values)])?)
    };
    let tables: Vec<(Table, Table)> = (0..THREADS)
        .map(|number| Ok((side(number, 1)?, side(number, 7_919)?)))
        .collect::<Result<_, Failure>>()?;
    let pool = engine.runtime().stream_pool();
    let streams: Vec<StreamId> =
        (0..THREADS).map(|_| pool.acquire()).collect::<Result<_, _>>().map_err(Failure::from)?;
    let alone = pool.acquire()?;
    let join = |number: usize, stream: StreamId| -> Result<Table, Failure> {
        let (left, right) = &tables[number];
        Ok(ops::hash_join(left, right, &[("key", "key")], JoinKind::Inner, stream)?)
    };
    // Every thread's joins, from when all are ready until all streams are done.
    let together = |joins: usize| -> Result<f64, Failure> {
        let barrier = Barrier::new(THREADS + 1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|number| {
                    let (barrier, join, stream) = (&barrier, &join, streams[number]);
                    scope.spawn(move || -> Result<u64, String> {
                        barrier.wait();
                        let mut rows = 0;
                        for _ in 0..joins {
                            rows += join(number, stream).map_err(|error| error.to_string())?.rows();
                        }
                        let runtime = engine.runtime();
                        runtime.synchronize(stream).map_err(|error| error.to_string())?;
                        Ok(rows)
                    })
                })
                .collect();
            barrier.wait();
            let start = Instant::now();
            let mut rows = 0;
            for thread in threads {
                rows += thread.join().map_err(|_| "a thread panicked")??;
            }
            verify(rows == ROWS * (THREADS * joins) as u64, "every row of every join")?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        })
    };
    let in_a_row = || -> Result<f64, Failure> {
        let start = Instant::now();
        for _ in 0..JOINS {
            for number in 0..THREADS {
                verify(join(number, alone)?.rows() == ROWS, "every row")?;
            }
        }
        engine.runtime().synchronize(alone)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    let (mut times, mut one_by_one, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    together(JOINS)?;
    in_a_row()?;
    let (tape, recorded) = lab.driver.record(|| together(JOINS));
    recorded?;
    let apart = tape.apart(&lab.driver)?;
    let tape = &apart.tape;
    for _ in 0..if lab.quick { 3 } else { 21 } {
        times.push(together(JOINS)?);
        one_by_one.push(in_a_row()?);
        // SAFETY: every thread of the tape has memory of its own, which lives as long as it does;
        // the staging memory is the pool's, which keeps what it has, and nothing else runs.
        bare.push(unsafe { tape.replay(lab.driver.as_ref()) }?.as_secs_f64() * 1e3);
    }
    let rows = ROWS * (THREADS * JOINS) as u64;
    let (ms, one_by_one) = (measure::median(times), measure::median(one_by_one));
    let result = join(0, alone)?;
    for peer in [("in a row", one_by_one), ("replay", measure::median(bare))] {
        let (peer, launches) = (Some(peer), Some(tape.launches()));
        let kind = "8 joins on 8 streams";
        report.add(&Row { peer, launches, ..row("join", kind, rows, ms, &result) });
    }
    Ok(())
}
