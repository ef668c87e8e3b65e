//! Joins.

use std::collections::HashMap;

use libtest_mimic::Trial;
use proptest::prelude::*;
use xlog_relational::{
    Column, Engine, JoinKind, RelationalError, Table,
    ops::{hash_join, hash_join_tuned},
    primitives::Tuning,
    reference, strategies,
};

use super::{
    super::primitives::support::{Random, trial},
    cases::{assert_same_rows, download, upload},
    property::{STREAM, fields_of, for_all, types},
};

pub fn tests(engine: &Engine) -> Vec<Trial> {
    vec![
        trial("operators::join::joins_are_those_of_the_reference", engine, as_reference),
        trial("operators::join::words_beside_words_are_joined_at_once", engine, words_beside_words),
        trial("operators::join::few_rows_of_many_keep_little_memory", engine, few_of_many),
        trial("operators::join::a_key_with_many_partners_meets_them_all", engine, many_partners),
        trial("operators::join::what_cannot_be_joined_is_refused_by_name", engine, refusals),
    ]
}

fn as_reference(engine: &Engine) {
    let shape = types(1, 3).prop_flat_map(|keys| {
        let key_fields = || fields_of("k", keys.clone());
        let others = |prefix| types(0, 2).prop_flat_map(move |types| fields_of(prefix, types));
        (key_fields(), others("l"), key_fields(), others("k1_"))
    });
    let tables = shape.prop_flat_map(|(keys, mut left, right_keys, right)| {
        let count = keys.len();
        // The keys are not always the first columns.
        left.extend(keys);
        let right: Vec<_> = right_keys.into_iter().chain(right).collect();
        (Just(count), strategies::relation(left, 50), strategies::relation(right, 50))
    });
    for_all(200, tables, |(count, left, right)| {
        let names: Vec<String> = (0..count).map(|index| format!("k{index}")).collect();
        let on: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
        let (a, b) = (upload(engine, &left, STREAM), upload(engine, &right, STREAM));
        for kind in JoinKind::ALL {
            for one_block in [true, false] {
                let tuning = Tuning { one_block, ..Tuning::DEFAULT };
                let got = hash_join_tuned(&a, &b, &on, kind, tuning, STREAM);
                let expected = reference::join(&left, &right, &on, kind);
                let what = format!("{kind} join, in one block: {one_block}");
                assert_same_rows(got, expected, STREAM, &what);
            }
        }
        assert!(download(&a, STREAM).same_in_order(&left), "the left input is as it was");
        assert!(download(&b, STREAM).same_in_order(&right), "the right input is as it was");
    });
}

fn table(engine: &Engine, columns: &[(&str, &[i32])]) -> Table {
    let columns = columns.iter().map(|(name, values)| {
        (*name, Column::from_slice(engine, values, STREAM).expect("a column"))
    });
    Table::new(engine, columns).expect("a table")
}

fn values(table: &Table, name: &str) -> Vec<i32> {
    let (column, rows) = (table.column(name).expect("a column"), table.rows() as usize);
    match column.values() {
        xlog_relational::Values::Words(words) => {
            let words = words.view(..rows).expect("a part").download().expect("values");
            words.into_iter().map(u32::cast_signed).collect()
        }
        _ => panic!("{name} has values of four bytes"),
    }
}

/// Distinct numbers in no order.
fn shuffled(random: &mut Random, count: usize) -> Vec<i32> {
    let mut numbers: Vec<i32> = (0..count as i32).map(|n| n - count as i32 / 2).collect();
    for end in (1..count).rev() {
        numbers.swap(end, random.below(end as u64 + 1) as usize);
    }
    numbers
}

fn words_beside_words(engine: &Engine) {
    let mut random = Random::fresh();
    for (left_rows, right_rows) in [(1, 1), (1000, 3000), (30_000, 20_000)] {
        let (left, right) = (shuffled(&mut random, left_rows), shuffled(&mut random, right_rows));
        let price: Vec<i32> = left.iter().map(|key| key.wrapping_mul(7)).collect();
        let size: Vec<i32> = right.iter().map(|key| key.wrapping_mul(-5)).collect();
        let a = table(engine, &[("price", &price), ("key", &left)]);
        let b = table(engine, &[("id", &right), ("size", &size)]);
        let alone = table(engine, &[("id", &right)]);
        let both = left_rows.min(right_rows);
        for (right, width) in [(&b, 4), (&alone, 3)] {
            let joined = hash_join(&a, right, &[("key", "id")], JoinKind::Inner, STREAM);
            let joined = joined.expect("a join");
            assert_eq!((joined.rows() as usize, joined.width()), (both, width), "{}", random.seed);
            let keys = values(&joined, "key");
            assert_eq!(keys, values(&joined, "id"));
            let mut met = keys.clone();
            met.sort_unstable();
            met.dedup();
            assert_eq!(met.len(), both, "each key once: {}", random.seed);
            let prices = values(&joined, "price");
            assert!(keys.iter().zip(&prices).all(|(key, price)| key.wrapping_mul(7) == *price));
            if width == 4 {
                let sizes = values(&joined, "size");
                assert!(keys.iter().zip(&sizes).all(|(key, size)| key.wrapping_mul(-5) == *size));
            }
        }
    }
}

/// One key has most of the rows of a side, and some of the other.
fn many_partners(engine: &Engine) {
    let mut random = Random::fresh();
    let mut keys = |rows: usize, often: u64| -> Vec<i32> {
        let key = |random: &mut Random| match random.below(10) < often {
            true => 0,
            false => random.below(3000) as i32,
        };
        (0..rows).map(|_| key(&mut random)).collect()
    };
    let (left, right) = (keys(4000, 9), keys(900, 1));
    let count = |keys: &[i32]| {
        let mut counts = HashMap::<i32, u64>::new();
        keys.iter().for_each(|key| *counts.entry(*key).or_default() += 1);
        counts
    };
    let (lefts, rights) = (count(&left), count(&right));
    let of = |counts: &HashMap<i32, u64>, key: &i32| counts.get(key).copied().unwrap_or(0);
    let pairs: u64 = lefts.iter().map(|(key, rows)| rows * of(&rights, key)).sum();
    let lonely = |keys: &[i32], others: &HashMap<i32, u64>| {
        keys.iter().filter(|key| of(others, key) == 0).count() as u64
    };
    let (no_right, no_left) = (lonely(&left, &rights), lonely(&right, &lefts));
    let rows: Vec<i32> = (0..left.len() as i32).collect();
    let a = table(engine, &[("key", &left), ("row", &rows), ("more", &rows)]);
    let b = table(engine, &[("key", &right), ("row", &rows[..right.len()])]);
    for (kind, expected) in [
        (JoinKind::Inner, pairs),
        (JoinKind::Left, pairs + no_right),
        (JoinKind::Right, pairs + no_left),
        (JoinKind::Full, pairs + no_right + no_left),
        (JoinKind::Semi, left.len() as u64 - no_right),
        (JoinKind::Anti, no_right),
    ] {
        let joined = hash_join(&a, &b, &[("key", "key")], kind, STREAM).expect("a join");
        assert_eq!(joined.rows(), expected, "{kind} join, seed {}", random.seed);
        if kind == JoinKind::Inner {
            let (keys, rows) = (values(&joined, "key"), values(&joined, "row"));
            assert_eq!(values(&joined, "key_right"), keys);
            assert!(keys.iter().zip(&rows).all(|(key, row)| left[*row as usize] == *key));
            let mut seen: Vec<_> = rows.into_iter().zip(values(&joined, "row_right")).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len() as u64, pairs, "each pair once");
        }
    }
}

fn few_of_many(engine: &Engine) {
    let ids: Vec<i32> = (0..600_000).collect();
    let many = table(engine, &[("id", &ids), ("many", &ids)]);
    let few = table(engine, &[("id", &[7, -1, 3]), ("few", &[1, 2, 3])]);
    // Whichever of them is looked up.
    for (left, right) in [(&many, &few), (&few, &many)] {
        let joined = hash_join(left, right, &[("id", "id")], JoinKind::Inner, STREAM);
        let joined = joined.expect("a join");
        for (name, column) in joined.columns() {
            let held = column.values().len();
            assert_eq!(column.len(), 2, "{name}");
            assert!(held < 1_000, "{name}: memory for {held} values is kept for 2");
        }
        let (left, right) = (download(left, STREAM), download(right, STREAM));
        let expected = reference::join(&left, &right, &[("id", "id")], JoinKind::Inner);
        assert_same_rows(Ok(joined), expected, STREAM, "few of many");
    }
}

fn refusals(engine: &Engine) {
    let a = table(engine, &[("key", &[1]), ("a", &[2])]);
    let wide = Column::from_slice(engine, &[1i64], STREAM).expect("a column");
    let b = Table::new(engine, [("key", wide)]).expect("a table");
    let refused = |a: &Table, b: &Table, on: &[(&str, &str)]| {
        hash_join(a, b, on, JoinKind::Inner, STREAM).expect_err("a refusal")
    };
    let error = refused(&a, &a, &[("kye", "key")]);
    assert!(error.to_string().contains("did you mean \"key\""), "{error}");
    let error = refused(&a, &b, &[("key", "key")]);
    assert!(matches!(error, RelationalError::TypeMismatch { .. }), "{error}");
    assert!(error.to_string().contains("\"key\" of the right table is i64"), "{error}");
    let error = refused(&a, &a, &[]);
    assert!(error.to_string().contains("no keys"), "{error}");
    let twice = table(engine, &[("key", &[1]), ("key_right", &[1])]);
    let error = refused(&twice, &a, &[("key", "key")]);
    assert_eq!(error, RelationalError::DuplicateColumn { name: "key_right".into() });
    let elsewhere = Engine::new(engine.runtime().device().clone()).expect("an engine");
    let foreign = table(&elsewhere, &[("key", &[1])]);
    let error = refused(&a, &foreign, &[("key", "key")]);
    assert_eq!(error, RelationalError::ForeignColumn { column: "key".into() });
}
