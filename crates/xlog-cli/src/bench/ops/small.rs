//! Every operator on a thousand rows, in turn with the bare replay of its launches.

use std::time::Instant;

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Aggregate, Column, JoinKind, RelationalResult, SortKey, Table, col, lit, ops,
    reference::{self, Relation},
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
/// Rounds before the first that counts.
const WARM_UP: usize = 20;

/// An operator with its inputs, and what the reference makes of them.
struct Case<'c> {
    op: &'static str,
    kind: &'static str,
    run: Box<dyn Fn(StreamId) -> RelationalResult<Table> + 'c>,
    expected: RelationalResult<Relation>,
}

fn case<'c>(
    op: &'static str,
    expected: RelationalResult<Relation>,
    run: impl Fn(StreamId) -> RelationalResult<Table> + 'c,
) -> Case<'c> {
    Case { op, kind: "1000 rows", run: Box::new(run), expected }
}

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
    let host = |table: &Table| Relation::from_batch(&table.download(StreamId::DEFAULT)?);
    let (l, r) = (host(&left)?, host(&right)?);
    let (a, b) = (host(&one)?, host(&other)?);
    let inner = JoinKind::Inner;
    let cases = vec![
        case("sort", reference::sort(&l, &by), |s| ops::sort(&left, &by, s)),
        case("top_k", reference::top_k(&l, &by, 10), |s| ops::top_k(&left, &by, 10, s)),
        case("filter", reference::filter(&l, &half), |s| ops::filter(&left, &half, s)),
        Case {
            kind: "1000 rows, two terms",
            ..case("filter", reference::filter(&l, &both), |s| ops::filter(&left, &both, s))
        },
        case("project", reference::project(&l, &double), |s| ops::project(&left, &double, s)),
        case("join", reference::join(&l, &r, &on, inner), |s| {
            ops::hash_join(&left, &right, &on, inner, s)
        }),
        case("group_by", reference::group_by(&l, &["key"], &total), |s| {
            ops::group_by(&left, &["key"], &total, s)
        }),
        case("distinct", Ok(reference::distinct(&a)), |s| ops::distinct(&one, None, s)),
        case("union", reference::union(&a, &b), |s| ops::union(&one, &other, s)),
        case("intersect", reference::intersect(&a, &b, false), |s| {
            ops::intersect(&one, &other, false, s)
        }),
        case("except", reference::except(&a, &b, false), |s| ops::except(&one, &other, false, s)),
        case("concat", reference::concat(&l, &r), |s| ops::concat(&[&left, &right], s)),
        case("limit", Ok(reference::limit(&l, 10, 500)), |s| ops::limit(&left, 10, 500, s)),
    ];
    for Case { op, kind, run: operator, expected } in cases {
        let start = || -> Result<Table, Failure> {
            let result = operator(lab.stream)?;
            lab.engine.runtime().synchronize(lab.stream)?;
            Ok(result)
        };
        verify(host(&start()?)?.same_rows(&expected?), op)?;
        let (tape, recorded) = lab.driver.record(start);
        let recorded = recorded?;
        let (mut times, mut bare) = (Vec::new(), Vec::new());
        let rounds = if lab.quick { 3 } else { 201 };
        for round in 0..rounds + WARM_UP {
            let begun = Instant::now();
            let result = start()?;
            let took = begun.elapsed();
            drop(result);
            // SAFETY: the recorded memory is the recorded result's, the inputs' and the pool's,
            // which keeps what it has; nothing else runs, and what ran before is dropped.
            let replayed = unsafe { tape.replay(lab.driver.as_ref()) }?;
            if round >= WARM_UP {
                times.push(took.as_secs_f64() * 1e3);
                bare.push(replayed.as_secs_f64() * 1e3);
            }
        }
        let peer = Some(("replay", measure::median(bare)));
        let launches = Some(tape.launches());
        let ms = measure::median(times);
        report.add(&Row { peer, launches, ..row(op, kind, ROWS, ms, &recorded) });
    }
    Ok(())
}
