//! Distinct rows, and rows as sets.

use std::collections::HashSet;

use libtest_mimic::Trial;
use proptest::strategy::Strategy;
use xlog_relational::{
    Column, Engine, RelationalError, RelationalResult, Table, Values,
    ops::{distinct, except, except_tuned, intersect, intersect_tuned, union},
    primitives::Tuning,
    reference::{self, Relation},
    strategies,
};

use super::{
    super::primitives::support::{Random, trial},
    cases::{assert_same_rows, download, relation, upload},
    property::{STREAM, for_all},
};

pub fn tests(engine: &Engine) -> Vec<Trial> {
    vec![
        trial("operators::sets::distinct_rows_are_those_of_the_reference", engine, distinct_rows),
        trial("operators::sets::set_operations_are_those_of_the_reference", engine, as_reference),
        trial("operators::sets::sizes_around_what_one_block_takes", engine, around_one_block),
        trial("operators::sets::one_value_and_many_are_counted", engine, one_value_and_many),
        trial("operators::sets::rows_of_many_columns_are_told_apart", engine, many_columns),
        trial("operators::sets::one_column_of_many_values_is_sorted", engine, one_column),
        trial("operators::sets::what_is_not_alike_is_refused_by_name", engine, refusals),
    ]
}

fn distinct_rows(engine: &Engine) {
    for_all(200, strategies::any_relation(90), |relation| {
        let table = upload(engine, &relation, STREAM);
        let expected = Ok(reference::distinct(&relation));
        assert_same_rows(distinct(&table, None, STREAM), expected, STREAM, "all columns");
        for column in relation.columns() {
            let name = column.field.name.as_str();
            let one = reference::Relation::new(vec![column.clone()]).expect("a relation");
            let got = distinct(&table, Some(&[name]), STREAM);
            assert_same_rows(got, Ok(reference::distinct(&one)), STREAM, name);
        }
        assert!(download(&table, STREAM).same_in_order(&relation), "the input is as it was");
    });
}

fn as_reference(engine: &Engine) {
    for_all(200, strategies::two_relations(60), |(left, right)| {
        let (a, b) = (upload(engine, &left, STREAM), upload(engine, &right, STREAM));
        let same = |got, expected, what| assert_same_rows(got, expected, STREAM, what);
        same(union(&a, &b, STREAM), reference::union(&left, &right), "union");
        for one_block in [true, false] {
            both_ways(&a, &b, [&left, &right], Tuning { one_block, ..Tuning::DEFAULT });
        }
        assert!(download(&a, STREAM).same_in_order(&left), "the left input is as it was");
        assert!(download(&b, STREAM).same_in_order(&right), "the right input is as it was");
    });
}

/// Intersections and differences, of sets and of bags.
fn both_ways(a: &Table, b: &Table, [left, right]: [&Relation; 2], tuning: Tuning) {
    for all in [false, true] {
        let what = format!("{} and {} rows, all: {all}, {tuning:?}", a.rows(), b.rows());
        let got = intersect_tuned(a, b, all, tuning, STREAM);
        let expected = reference::intersect(left, right, all);
        assert_same_rows(got, expected, STREAM, &format!("intersect of {what}"));
        let got = except_tuned(a, b, all, tuning, STREAM);
        let expected = reference::except(left, right, all);
        assert_same_rows(got, expected, STREAM, &format!("except of {what}"));
    }
}

/// Columns of both widths and of bytes, alone and together.
const SHAPES: [&[&str]; 6] =
    [&["id"], &["wide"], &["flag"], &["real"], &["name", "id"], &["wide", "real", "name"]];

fn around_one_block(engine: &Engine) {
    let sizes =
        [(2048, 2047), (2048, 2048), (1, 4095), (4096, 0), (0, 4096), (2049, 2048), (300, 213)];
    for (seed, (above, below)) in sizes.into_iter().enumerate() {
        for nulls in [false, true] {
            let relations =
                [relation(above, seed as u64, nulls), relation(below, 99 + seed as u64, nulls)];
            for names in SHAPES {
                let [left, right] = relations.each_ref().map(|all| {
                    let columns = names.iter().map(|name| all.column(name).expect("it").clone());
                    Relation::new(columns.collect()).expect("a relation")
                });
                let (a, b) = (upload(engine, &left, STREAM), upload(engine, &right, STREAM));
                both_ways(&a, &b, [&left, &right], Tuning::DEFAULT);
                if above + below < 1000 {
                    both_ways(&a, &b, [&left, &right], Tuning { hash_mask: 0, ..Tuning::DEFAULT });
                }
            }
        }
    }
}

/// Rows that are all alike, and rows that are all different.
fn one_value_and_many(engine: &Engine) {
    let table = |values: Vec<u64>| {
        let column = Column::from_slice(engine, &values, STREAM).expect("a column");
        Table::new(engine, [("value", column)]).expect("a table")
    };
    let (many, few) = (table(vec![7; 3000]), table(vec![7; 1000]));
    let counted = |got: RelationalResult<Table>, rows: u64| {
        assert_eq!(got.expect("a table").rows(), rows);
    };
    counted(intersect(&many, &few, true, STREAM), 1000);
    counted(intersect(&many, &few, false, STREAM), 1);
    counted(except(&many, &few, true, STREAM), 2000);
    counted(except(&many, &few, false, STREAM), 0);
    counted(except(&few, &many, true, STREAM), 0);
    let (low, high) = (table((0..2048).collect()), table((1024..3072).collect()));
    for all in [false, true] {
        counted(intersect(&low, &high, all, STREAM), 1024);
        counted(except(&low, &high, all, STREAM), 1024);
    }
}

fn many_columns(engine: &Engine) {
    let tables = strategies::fields(9, 12).prop_flat_map(|fields| {
        (strategies::relation(fields.clone(), 20), strategies::relation(fields, 20))
    });
    for_all(10, tables, |(left, right)| {
        // Every row of the left table twice, and some of them in both tables.
        let left = reference::concat(&left, &left).expect("the same columns");
        let right = reference::concat(&right, &left).expect("the same columns");
        let (a, b) = (upload(engine, &left, STREAM), upload(engine, &right, STREAM));
        let same = |got, expected, what| assert_same_rows(got, expected, STREAM, what);
        same(distinct(&a, None, STREAM), Ok(reference::distinct(&left)), "distinct");
        same(except(&b, &a, true, STREAM), reference::except(&right, &left, true), "except");
    });
}

fn one_column(engine: &Engine) {
    let mut random = Random::fresh();
    // So few values that what was sorted is mostly given back, and so many that it is not.
    for below in [3, 1 << 40] {
        let rows = 400_000;
        let values: Vec<u64> = (0..rows).map(|_| random.below(below)).collect();
        let column = Column::from_slice(engine, &values, STREAM).expect("a column");
        let table = Table::new(engine, [("value", column)]).expect("a table");
        let once = distinct(&table, None, STREAM).expect("distinct values");
        let Values::Longs(memory) = once.column("value").expect("the column").values() else {
            panic!("values of eight bytes");
        };
        let len = once.rows() as usize;
        let got = memory.view(..len).expect("a part").download().expect("values");
        let expected: HashSet<u64> = values.into_iter().collect();
        assert_eq!(got.iter().copied().collect::<HashSet<_>>(), expected, "{}", random.seed);
        assert_eq!(got.len(), expected.len(), "each once; seed {}", random.seed);
        assert!(memory.len() <= 2 * len.max(1 << 16), "memory for {len}: {}", memory.len());
    }
}

fn refusals(engine: &Engine) {
    let column = |values: &[u32]| Column::from_slice(engine, values, STREAM).expect("a column");
    let one = Table::new(engine, [("a", column(&[1]))]).expect("a table");
    let two = Table::new(engine, [("a", column(&[1])), ("b", column(&[1]))]).expect("a table");
    let other = Column::from_slice(engine, &[1i32], STREAM).expect("a column");
    let other = Table::new(engine, [("z", other)]).expect("a table");
    let elsewhere = Engine::new(engine.runtime().device().clone()).expect("an engine");
    let foreign = Column::from_slice(&elsewhere, &[1u32], STREAM).expect("a column");
    let foreign = Table::new(&elsewhere, [("a", foreign)]).expect("a table");
    type Operator = fn(&Table, &Table) -> RelationalResult<Table>;
    let operators: [Operator; 3] = [
        |a, b| union(a, b, STREAM),
        |a, b| intersect(a, b, true, STREAM),
        |a, b| except(a, b, false, STREAM),
    ];
    for operator in operators {
        let error = operator(&one, &two).expect_err("a refusal");
        assert_eq!(error, RelationalError::WidthMismatch { expected: 1, found: 2 });
        let error = operator(&one, &other).expect_err("a refusal");
        let said = error.to_string();
        assert!(said.contains("\"z\" of the right table is i32; expected u32"), "{said}");
        let error = operator(&one, &foreign).expect_err("a refusal");
        assert_eq!(error, RelationalError::ForeignColumn { column: "a".into() });
    }
    let error = distinct(&two, Some(&["c"]), STREAM).expect_err("a refusal");
    assert!(matches!(error, RelationalError::UnknownColumn { .. }), "{error}");
}
