//! Every operator on a thousand rows, beside the bare replay of its launches.

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Aggregate, Column, JoinKind, RelationalResult, SortKey, Table, col, lit, ops,
};

use super::{
    Lab,
    data::{make, random, table},
    measure,
    report::{Report, Row},
    row, verify,
};
use crate::Failure;

const ROWS: u64 = 1_000;
const SEED: u64 = 0x5a11;

/// An operator with its inputs.
type Case<'c> = (&'static str, &'static str, Box<dyn Fn(StreamId) -> RelationalResult<Table> + 'c>);

pub(super) fn run(lab: &Lab, report: &mut Report) -> Result<(), Failure> {
    let make_table = |seed: u64| -> Result<Table, Failure> {
        let keys = make(ROWS as usize, |row| (random(seed, row) % 500) as i32);
        let values = make(ROWS as usize, |row| (random(seed + 1, row) >> 40) as u32);
        let keys = Column::from_slice(&lab.engine, &keys, StreamId::DEFAULT)?;
        let values = Column::from_slice(&lab.engine, &values, StreamId::DEFAULT)?;
        Ok(table(&lab.engine, [("key", keys), ("value", values)])?)
    };
    let (left, right) = (make_table(SEED)?, make_table(SEED + 7)?);
    let by = [SortKey::new("key")];
    let on = [("key", "key")];
    let total = [Aggregate::sum("value")];
    let half = col("key").lt(lit(250));
    let both = col("key").lt(lit(250)).and(col("value").gt(lit(1000u32)));
    let (one, double) = (left.select(&["key"])?, [("double", col("value") + col("value"))]);
    let other = right.select(&["key"])?;
    let cases: Vec<Case<'_>> = vec![
        ("sort", "1000 rows", Box::new(|stream| ops::sort(&left, &by, stream))),
        ("top_k", "1000 rows", Box::new(|stream| ops::top_k(&left, &by, 10, stream))),
        ("filter", "1000 rows", Box::new(|stream| ops::filter(&left, &half, stream))),
        ("filter", "1000 rows, two terms", Box::new(|stream| ops::filter(&left, &both, stream))),
        ("project", "1000 rows", Box::new(|stream| ops::project(&left, &double, stream))),
        (
            "join",
            "1000 rows",
            Box::new(|stream| ops::hash_join(&left, &right, &on, JoinKind::Inner, stream)),
        ),
        ("group_by", "1000 rows", Box::new(|s| ops::group_by(&left, &["key"], &total, s))),
        ("distinct", "1000 rows", Box::new(|stream| ops::distinct(&one, None, stream))),
        ("union", "1000 rows", Box::new(|stream| ops::union(&one, &other, stream))),
        ("intersect", "1000 rows", Box::new(|stream| ops::intersect(&one, &other, false, stream))),
        ("except", "1000 rows", Box::new(|stream| ops::except(&one, &other, false, stream))),
        ("concat", "1000 rows", Box::new(|stream| ops::concat(&[&left, &right], stream))),
        ("limit", "1000 rows", Box::new(|stream| ops::limit(&left, 10, 500, stream))),
    ];
    for (op, kind, operator) in cases {
        let (ms, result) = lab.time(&operator)?;
        let rows = result.rows();
        drop(result);
        let (tape, result) = lab.driver.record(|| {
            let result = operator(lab.stream)?;
            lab.engine.runtime().synchronize(lab.stream)?;
            Ok::<_, Failure>(result)
        });
        let result = result?;
        verify(result.rows() == rows, "the same rows as before")?;
        let mut times = Vec::new();
        for _ in 0..if lab.quick { 3 } else { 101 } {
            // SAFETY: the recorded memory is the result's, the inputs' and the pool's, which keeps
            // what it has; nothing else runs.
            times.push(unsafe { tape.replay(lab.driver.as_ref()) }?.as_secs_f64() * 1e3);
        }
        let peer = Some(("replay", measure::median(times)));
        let launches = Some(tape.launches());
        report.add(&Row { peer, launches, ..row(op, kind, ROWS, ms, &result) });
    }
    Ok(())
}
