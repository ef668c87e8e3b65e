//! Work in parts: tables split by their keys, and joins whose one side stays the same.

use std::collections::HashMap;

use libtest_mimic::Trial;
use proptest::prelude::*;
use xlog_relational::{
    Column, DataType, Engine, JoinKind, RelationalError, RelationalResult, Table,
    ops::{JoinBuild, Partitioned, concat, concat_windows, limit, partition},
    reference::{self, Relation},
    strategies,
};

use super::{
    super::primitives::support::{Random, trial},
    cases::{assert_same_rows, download, upload},
    property::{STREAM, fields_of, for_all, types},
};

pub fn tests(engine: &Engine) -> Vec<Trial> {
    vec![
        trial("operators::parts::equal_keys_meet_in_one_part", engine, equal_keys_meet),
        trial("operators::parts::parts_of_many_rows_are_about_as_large", engine, even_parts),
        trial("operators::parts::what_cannot_be_split_is_refused", engine, refusals),
        trial("operators::parts::windows_stand_behind_each_other", engine, windows),
        trial("operators::parts::a_side_is_built_once_for_many_joins", engine, built_once),
        trial("operators::parts::a_built_side_refuses_what_a_join_does", engine, built_refusals),
    ]
}

/// Two tables of the same keys, of which each value may or may not be missing, and other columns.
fn two_tables() -> impl Strategy<Value = (usize, Relation, Relation)> {
    let shape = types(1, 3).prop_flat_map(|keys| {
        let count = keys.len();
        let side = |prefix| (fields_of("k", keys.clone()), fields_of(prefix, vec![DataType::I64]));
        (Just(count), side("l"), side("r"))
    });
    shape.prop_flat_map(|(count, (keys, mut left), (right_keys, mut right))| {
        // The keys are not always the first columns.
        left.extend(keys);
        right.splice(0..0, right_keys);
        (Just(count), strategies::relation(left, 90), strategies::relation(right, 90))
    })
}

fn key_names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("k{index}")).collect()
}

fn keys_of(relation: &Relation, names: &[&str]) -> Relation {
    let columns = names.iter().map(|name| relation.column(name).expect("a key").clone());
    Relation::new(columns.collect()).expect("keys")
}

fn equal_keys_meet(engine: &Engine) {
    for_all(150, (two_tables(), 0u32..9), |((count, left, right), log_parts)| {
        let parts = 1 << log_parts;
        let names = key_names(count);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut part_of = HashMap::new();
        for relation in [&left, &right] {
            let table = upload(engine, relation, STREAM);
            let split = match partition(&table, &names, parts, STREAM) {
                Ok(split) => split,
                Err(error) => {
                    let text = |name: &&str| {
                        relation.column(name).expect("a key").field.data_type == DataType::Utf8
                    };
                    assert!(names.iter().all(text), "{error}");
                    return;
                }
            };
            assert_eq!(split.parts(), parts);
            assert!(download(&table, STREAM).same_in_order(relation), "the input is as it was");
            let mut tables = Vec::new();
            for part in 0..parts {
                let table = Partitioned::part(&[&split], part, STREAM).expect("a part");
                assert_eq!(table.rows(), split.rows_of(part));
                let keys = keys_of(&download(&table, STREAM), &names);
                for row in 0..keys.rows() {
                    let identity = format!("{:?}", keys.row_identity(row));
                    let first = *part_of.entry(identity).or_insert(part);
                    assert_eq!(first, part, "{:?}", keys.row(row));
                }
                tables.push(table);
            }
            let all = concat(&tables.iter().collect::<Vec<_>>(), STREAM);
            assert_same_rows(all, Ok(relation.clone()), STREAM, "all parts");
        }
    });
}

fn numbers(engine: &Engine, values: &[u64]) -> Table {
    let column = Column::from_slice(engine, values, STREAM).expect("a column");
    Table::new(engine, [("n", column)]).expect("a table")
}

fn even_parts(engine: &Engine) {
    let mut random = Random::fresh();
    let values: Vec<u64> = (0..200_000).map(|_| random.below(u64::MAX)).collect();
    let counted: Vec<u64> = (0..200_000).collect();
    for values in [values, counted] {
        let split = partition(&numbers(engine, &values), &["n"], 256, STREAM).expect("parts");
        for part in 0..256 {
            let rows = split.rows_of(part);
            assert!((500..1200).contains(&rows), "part {part} has {rows} rows: {}", random.seed);
        }
        assert_eq!((split.rows_of(256), split.rows_of(usize::MAX - 1)), (0, 0));
    }
    // Which of several keys tells rows apart does not matter.
    let counted: Vec<u64> = (0..50_000).collect();
    let column = |values: &[u64]| Column::from_slice(engine, values, STREAM).expect("a column");
    let (many, one) = (column(&counted), column(&[2024; 50_000]));
    for place in 0..3 {
        let columns = (0..3).map(|c| (["a", "b", "c"][c], if c == place { &many } else { &one }));
        let table = Table::new(engine, columns.map(|(name, column)| (name, column.clone())));
        let split = partition(&table.expect("a table"), &["a", "b", "c"], 16, STREAM);
        let split = split.expect("parts");
        let largest = (0..16).map(|part| split.rows_of(part)).max();
        assert!(largest < Some(10_000), "{largest:?} of 50,000 rows by key {place}");
    }
}

fn refusals(engine: &Engine) {
    let table = numbers(engine, &[1, 2, 3]);
    for parts in [0, 3, 512] {
        let error = partition(&table, &["n"], parts, STREAM).expect_err("a refusal").to_string();
        assert!(error.contains(&format!("into {parts} parts")), "{error}");
    }
    let error = partition(&table, &["m"], 4, STREAM).expect_err("a refusal");
    assert!(matches!(error, RelationalError::UnknownColumn { .. }), "{error}");
    assert!(partition(&table, &[], 4, STREAM).is_err());
    assert!(concat_windows(&[], STREAM).is_err());
}

fn windows(engine: &Engine) {
    let tables = strategies::fields(1, 3).prop_flat_map(|fields| {
        (strategies::relation(fields.clone(), 80), strategies::relation(fields, 80))
    });
    let window = || (0u64..100, 0u64..100);
    for_all(200, (tables, window(), window()), |((a, b), first, second)| {
        let tables = [upload(engine, &a, STREAM), upload(engine, &b, STREAM)];
        let (first, second) = (first.0..first.1, second.0..second.1);
        let got =
            concat_windows(&[(&tables[0], first.clone()), (&tables[1], second.clone())], STREAM);
        let rows = |relation: &Relation, window: &std::ops::Range<u64>| {
            reference::limit(relation, window.start, window.end.saturating_sub(window.start))
        };
        let expected = reference::concat(&rows(&a, &first), &rows(&b, &second));
        let got = download(&got.expect("a table"), STREAM);
        assert!(got.same_in_order(&expected.expect("a relation")), "{first:?} and {second:?}");
    });
}

/// Whether a side with these keys can be built before the other one is known.
fn can_be_built(keys: &Relation, kind: JoinKind, is_left: bool) -> bool {
    let fits = match kind {
        JoinKind::Inner => true,
        JoinKind::Left | JoinKind::Semi | JoinKind::Anti => !is_left,
        JoinKind::Right => is_left,
        _ => false,
    };
    let types = keys.columns().iter().map(|column| column.field.data_type);
    let bytes: usize = types.map(|data_type| data_type.size().max(4)).sum();
    let there = |row: &usize| keys.row(*row).iter().all(Option::is_some);
    let mut seen: Vec<_> =
        (0..keys.rows()).filter(there).map(|row| format!("{:?}", keys.row_identity(row))).collect();
    let rows = seen.len();
    seen.sort();
    seen.dedup();
    let once = seen.len() == rows || matches!(kind, JoinKind::Semi | JoinKind::Anti);
    fits && once && bytes <= 12
}

fn built_once(engine: &Engine) {
    for_all(150, (two_tables(), any::<bool>()), |((count, left, right), is_left)| {
        let names = key_names(count);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let on: Vec<(&str, &str)> = names.iter().map(|name| (*name, *name)).collect();
        let (own, other) = if is_left { (&left, &right) } else { (&right, &left) };
        // Keys that come once are as likely as not.
        let some = reference::limit(own, 0, 6);
        for own in [own, &some] {
            let (left, right) = if is_left { (own, other) } else { (other, own) };
            let table = upload(engine, own, STREAM);
            for kind in JoinKind::ALL {
                let build = JoinBuild::new(&table, &names, kind, is_left, STREAM);
                let build = build.expect("a side, or none");
                let expected = can_be_built(&keys_of(own, &names), kind, is_left);
                assert_eq!(build.is_some(), expected, "{kind} join, left: {is_left}");
                let Some(build) = build else { continue };
                let all = upload(engine, other, STREAM);
                let parts = [(0, 20), (20, 0), (20, 100)].map(|(start, count)| {
                    build.join(&limit(&all, start, count, STREAM)?, &names, STREAM)
                });
                let parts: RelationalResult<Vec<_>> = parts.into_iter().collect();
                let joined =
                    parts.and_then(|parts| concat(&parts.iter().collect::<Vec<_>>(), STREAM));
                let expected = reference::join(left, right, &on, kind);
                assert_same_rows(joined, expected, STREAM, &format!("{kind} join"));
            }
            assert!(download(&table, STREAM).same_in_order(own), "the input is as it was");
        }
    });
}

fn built_refusals(engine: &Engine) {
    let table = numbers(engine, &[1, 2, 3]);
    let build = JoinBuild::new(&table, &["n"], JoinKind::Inner, false, STREAM);
    let build = build.expect("a side").expect("keys that do not repeat");
    let words = Column::from_slice(engine, &[1u32, 2], STREAM).expect("a column");
    let words = Table::new(engine, [("n", words)]).expect("a table");
    let error = build.join(&words, &["n"], STREAM).expect_err("a refusal").to_string();
    assert!(error.contains("u64") && error.contains("u32"), "{error}");
    assert!(build.join(&table, &["m"], STREAM).is_err());
    let error = build.join(&table, &[], STREAM).expect_err("a refusal");
    assert_eq!(error, RelationalError::WidthMismatch { expected: 1, found: 0 });
    assert!(JoinBuild::new(&table, &["m"], JoinKind::Inner, false, STREAM).is_err());
    let none = JoinBuild::new(&table, &[], JoinKind::Inner, false, STREAM).expect("an answer");
    assert!(none.is_none());
    assert_eq!(build.join(&table, &["n"], STREAM).expect("a join").rows(), 3);
}
