//! Sorts of tables, and the first rows of them.

use libtest_mimic::Trial;
use proptest::prelude::*;
use xlog_relational::{
    Column, Engine, RelationalError, SortKey, Table, ops, reference, reference::Relation,
    strategies,
};

use super::support::{agrees, download_table, large_relation, property, upload_table};
use crate::suites::primitives::support::{Random, stream, trial};

/// A table, and keys that name some of its columns.
fn keyed(most: usize) -> impl Strategy<Value = (Relation, Vec<SortKey>)> {
    let keys =
        prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), any::<bool>()), 0..5);
    (strategies::any_relation(most), keys).prop_map(|(relation, keys)| {
        let key = |(index, descending, nulls_first): (prop::sample::Index, _, _)| {
            let column = index.get(relation.columns()).field.name.clone();
            SortKey { column, descending, nulls_first }
        };
        let keys = keys.into_iter().map(key).collect();
        (relation, keys)
    })
}

fn random_tables(engine: &Engine) {
    let stream = stream(engine);
    property(400, keyed(90), |(relation, keys)| {
        let table = upload_table(engine, &relation, stream);
        agrees(ops::sort(&table, &keys, stream), reference::sort(&relation, &keys), stream)
    });
}

fn first_rows_of_random_tables(engine: &Engine) {
    let stream = stream(engine);
    property(200, (keyed(90), 0u64..100), |((relation, keys), count)| {
        let table = upload_table(engine, &relation, stream);
        let got = ops::top_k(&table, &keys, count, stream);
        agrees(got, reference::top_k(&relation, &keys, count), stream)
    });
}

fn key(name: &str, way: usize) -> SortKey {
    SortKey { column: name.to_owned(), descending: way & 1 == 1, nulls_first: way & 2 == 2 }
}

/// Sizes around the tile and beyond it, by keys of every type alone and several together.
fn large_tables(engine: &Engine) {
    let stream = stream(engine);
    let mut random = Random::fresh();
    let all = ["i32", "f64", "u64", "text", "bool", "when", "f32", "name", "date", "u32", "i64"];
    let mut keys: Vec<Vec<&str>> = all.iter().map(|name| vec![*name]).collect();
    keys.push(vec!["bool", "text", "date", "name", "u32"]);
    keys.push(vec!["u64", "i64", "f64"]);
    keys.push(vec!["bool", "when"]);
    for rows in [2047, 2049, 7001] {
        let relation = large_relation(rows, &mut random);
        let table = upload_table(engine, &relation, stream);
        for (way, names) in keys.iter().enumerate() {
            let way = way + rows;
            let keys: Vec<_> = names.iter().zip(way..).map(|(name, way)| key(name, way)).collect();
            let sorted = ops::sort(&table, &keys, stream);
            let expected = reference::sort(&relation, &keys);
            let what = format!("{rows} rows by {keys:?}, seed {}", random.seed);
            assert!(agrees(sorted, expected, stream).is_ok(), "{what}");
            let first = ops::top_k(&table, &keys, 33, stream);
            let expected = reference::top_k(&relation, &keys, 33);
            assert!(agrees(first, expected, stream).is_ok(), "the first 33 of {what}");
        }
    }
}

/// Tables of one and two columns, whose memory is sorted as it is.
fn narrow_tables(engine: &Engine) {
    let stream = stream(engine);
    let mut random = Random::fresh();
    let relation = large_relation(4000, &mut random);
    let table = upload_table(engine, &relation, stream);
    for (way, name) in ["i32", "when", "f32", "u32"].into_iter().enumerate() {
        for other in [None, Some("i32"), Some("when"), Some("name"), Some("bool"), Some("u64")] {
            let names: Vec<&str> =
                other.into_iter().filter(|other| *other != name).chain([name]).collect();
            let columns: Vec<_> =
                names.iter().map(|name| relation.column(name).expect("a column").clone()).collect();
            let part = Relation::new(columns).expect("a relation");
            let keys = [key(name, way)];
            let sorted = ops::sort(&table.select(&names).expect("columns"), &keys, stream);
            let result = agrees(sorted, reference::sort(&part, &keys), stream);
            assert!(result.is_ok(), "{names:?} by {keys:?}, seed {}", random.seed);
        }
    }
}

fn what_cannot_be_sorted_is_refused(engine: &Engine) {
    let stream = stream(engine);
    let column = Column::from_slice(engine, &[3u32, 1], stream).expect("a column");
    let table = Table::new(engine, [("amount", column)]).expect("a table");
    for error in [
        ops::sort(&table, &[SortKey::new("amonut")], stream).expect_err("an unknown column"),
        ops::top_k(&table, &[SortKey::new("amonut")], 9, stream).expect_err("an unknown column"),
    ] {
        assert!(matches!(error, RelationalError::UnknownColumn { .. }), "{error}");
        assert!(error.to_string().contains("did you mean \"amount\""), "{error}");
    }
    // No key leaves the order as it is, and the memory where it is.
    let same = ops::sort(&table, &[], stream).expect("a table");
    assert_eq!(download_table(&same, stream), download_table(&table, stream));
}

/// The suite.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    vec![
        trial("one_table::sort::random_tables", engine, random_tables),
        trial("one_table::sort::first_rows_of_random_tables", engine, first_rows_of_random_tables),
        trial("one_table::sort::large_tables", engine, large_tables),
        trial("one_table::sort::narrow_tables", engine, narrow_tables),
        trial("one_table::sort::what_cannot_be_sorted", engine, what_cannot_be_sorted_is_refused),
    ]
}
