//! Windows of rows, and tables one behind the other.

use std::sync::Arc;

use libtest_mimic::Trial;
use proptest::prelude::*;
use xlog_cuda::CudaDevice;
use xlog_relational::{Column, Engine, RelationalError, Table, ops, reference, strategies};

use super::support::{agrees, download_table, large_relation, property, upload_table};
use crate::suites::primitives::support::{Random, stream, trial};

fn random_windows(engine: &Engine) {
    let stream = stream(engine);
    let end = prop_oneof![8 => 0u64..100, 1 => Just(u64::MAX)];
    let window = (prop_oneof![2 => Just(0), 3 => 0u64..100], end);
    property(300, (strategies::any_relation(90), window), |(relation, (offset, count))| {
        let table = upload_table(engine, &relation, stream);
        let got = ops::limit(&table, offset, count, stream);
        agrees(got, Ok(reference::limit(&relation, offset, count)), stream)?;
        // A window of a window, whose memory is longer than its rows.
        let half = ops::limit(&table, 0, offset, stream);
        let expected = reference::limit(&relation, 0, offset);
        let again = half.and_then(|half| ops::limit(&half, 3, count, stream));
        agrees(again, Ok(reference::limit(&expected, 3, count)), stream)
    });
}

fn random_tables_behind_each_other(engine: &Engine) {
    let stream = stream(engine);
    let three = strategies::fields(1, 4).prop_flat_map(|fields| {
        // Whether values can be missing may differ from table to table.
        let plain =
            fields.iter().cloned().map(|field| xlog_relational::Field { nullable: false, ..field });
        let plain: Vec<_> = plain.collect();
        (
            strategies::relation(fields.clone(), 70),
            strategies::relation(plain, 40),
            strategies::relation(fields, 40),
        )
    });
    property(300, three, |(a, b, c)| {
        let tables = [&a, &b, &c].map(|relation| upload_table(engine, relation, stream));
        let got = ops::concat(&[&tables[0], &tables[1], &tables[2]], stream);
        let expected = reference::concat(&a, &b).and_then(|ab| reference::concat(&ab, &c));
        agrees(got, expected, stream)
    });
}

fn large_tables(engine: &Engine) {
    let stream = stream(engine);
    let mut random = Random::fresh();
    let (a, b) = (large_relation(5003, &mut random), large_relation(9000, &mut random));
    let tables = [&a, &b].map(|relation| upload_table(engine, relation, stream));
    let both = ops::concat(&[&tables[0], &tables[1]], stream).expect("a table");
    let expected = reference::concat(&a, &b).expect("a relation");
    assert!(agrees(Ok(both.clone()), Ok(expected.clone()), stream).is_ok(), "{}", random.seed);
    for (offset, count) in [(0, 13_000), (77, 9000), (5001, 40), (0, 5)] {
        let got = ops::limit(&both, offset, count, stream);
        let expected = reference::limit(&expected, offset, count);
        let what = format!("{count} from {offset} on, seed {}", random.seed);
        assert!(agrees(got, Ok(expected), stream).is_ok(), "{what}");
    }
}

fn what_does_not_stand_behind_each_other_is_refused(engine: &Engine) {
    let stream = stream(engine);
    let column = |engine: &Engine| Column::from_slice(engine, &[3u32, 1], stream).expect("values");
    let one = Table::new(engine, [("a", column(engine))]).expect("a table");
    let two = Table::new(engine, [("a", column(engine)), ("b", column(engine))]).expect("a table");
    let float = Column::from_slice(engine, &[0.5f32], stream).expect("values");
    let float = Table::new(engine, [("x", float)]).expect("a table");
    let refused = |tables: &[&Table]| ops::concat(tables, stream).expect_err("a refusal");

    assert!(matches!(refused(&[]), RelationalError::InvalidPlan { .. }));
    let error = refused(&[&one, &two]);
    assert_eq!(error, RelationalError::WidthMismatch { expected: 1, found: 2 });
    let error = refused(&[&one, &one, &float]).to_string();
    assert!(error.contains("\"x\"") && error.contains("expected u32, like \"a\""), "{error}");
    let other = Engine::new(Arc::new(CudaDevice::host())).expect("an engine");
    let host = Column::from_slice(&other, &[1u32], xlog_cuda::device_runtime::StreamId::DEFAULT);
    let foreign = Table::new(&other, [("theirs", host.expect("values"))]).expect("a table");
    let error = refused(&[&one, &foreign]);
    assert_eq!(error, RelationalError::ForeignColumn { column: "theirs".to_owned() });
    // The second one's name does not matter.
    let renamed = one.rename("a", "z").expect("a table");
    let both = ops::concat(&[&one, &renamed], stream).expect("a table");
    assert_eq!(download_table(&both, stream).schema().to_string(), "a: u32");
}

/// The suite.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    vec![
        trial("one_table::rows::random_windows", engine, random_windows),
        trial("one_table::rows::random_tables_behind", engine, random_tables_behind_each_other),
        trial("one_table::rows::large_tables", engine, large_tables),
        trial(
            "one_table::rows::what_does_not_fit",
            engine,
            what_does_not_stand_behind_each_other_is_refused,
        ),
    ]
}
