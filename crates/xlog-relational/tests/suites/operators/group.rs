//! Groups.

use libtest_mimic::Trial;
use proptest::prelude::*;
use xlog_relational::{
    Aggregate, AggregateFunction, Column, DataType, Engine, Field, RelationalError, Scalar, Table,
    ops::group_by,
    reference::{self, HostColumn, Relation},
    strategies,
};

use super::{
    super::primitives::support::{Random, trial},
    cases::{assert_same_rows, download, upload},
    property::{STREAM, for_all},
};

pub fn tests(engine: &Engine) -> Vec<Trial> {
    vec![
        trial("operators::group::groups_are_those_of_the_reference", engine, as_reference),
        trial("operators::group::sums_of_floats_are_those_of_the_reference", engine, float_sums),
        trial("operators::group::sums_that_do_not_fit_are_an_error", engine, overflow),
        trial("operators::group::means_of_wide_sums_are_rounded_once", engine, wide_means),
        trial("operators::group::many_groups_are_all_found", engine, many_groups),
        trial("operators::group::what_cannot_be_grouped_is_refused_by_name", engine, refusals),
    ]
}

/// Every figure that does not depend on the order of additions, of every column.
fn exact_figures(relation: &Relation) -> Vec<Aggregate> {
    let mut all = vec![Aggregate::count_rows()];
    for field in relation.schema().fields() {
        let functions = AggregateFunction::ALL.into_iter().filter(|function| match function {
            AggregateFunction::CountRows => false,
            AggregateFunction::Sum | AggregateFunction::Mean => field.data_type.is_integer(),
            _ => true,
        });
        all.extend(functions.map(|function| Aggregate::of(function, field.name.as_str())));
    }
    all
}

fn as_reference(engine: &Engine) {
    let tables = (strategies::any_relation(80), 0..5usize);
    for_all(200, tables, |(relation, keys)| {
        let schema = relation.schema();
        let keys = keys.min(schema.len());
        let keys: Vec<&str> = schema.fields()[..keys].iter().map(|f| f.name.as_str()).collect();
        let figures = exact_figures(&relation);
        let table = upload(engine, &relation, STREAM);
        let got = group_by(&table, &keys, &figures, STREAM);
        let expected = reference::group_by(&relation, &keys, &figures);
        assert_same_rows(got, expected, STREAM, &format!("by {keys:?} of {relation:?}"));
        assert!(download(&table, STREAM).same_in_order(&relation), "the input is as it was");
        // Sums that do not fit end all of it: so once more without them.
        let figures: Vec<_> =
            figures.into_iter().filter(|one| one.function != AggregateFunction::Sum).collect();
        let got = group_by(&table, &keys, &figures, STREAM);
        let expected = reference::group_by(&relation, &keys, &figures);
        assert_same_rows(got, expected, STREAM, &format!("by {keys:?} of {relation:?}"));
    });
}

/// Numbers whose sums are exact in any order, and those that swallow all others.
fn float_sums(engine: &Engine) {
    let number = prop_oneof![
        8 => (-1000i16..1000).prop_map(|n| Some(f32::from(n) / 4.0)),
        1 => prop::sample::select(vec![None, Some(-0.0), Some(f32::NAN), Some(f32::INFINITY)]),
    ];
    let rows = prop::collection::vec((0..4u32, number), 0..100);
    for_all(100, rows, |rows| {
        let of = |name: &str, data_type, value: &dyn Fn(f32) -> Scalar| {
            let values = rows.iter().map(|(_, number)| number.map(value)).collect();
            HostColumn::new(Field::new(name, data_type), values)
        };
        let keys = rows.iter().map(|(key, _)| Some(Scalar::U32(*key))).collect();
        let relation = Relation::new(vec![
            HostColumn::new(Field::new("key", DataType::U32), keys),
            of("f32", DataType::F32, &Scalar::F32),
            of("f64", DataType::F64, &|number| Scalar::F64(f64::from(number))),
        ]);
        let relation = relation.expect("a relation");
        let figures = [
            Aggregate::sum("f32"),
            Aggregate::mean("f32"),
            Aggregate::sum("f64"),
            Aggregate::mean("f64"),
        ];
        let table = upload(engine, &relation, STREAM);
        for keys in [&["key"][..], &[]] {
            let got = group_by(&table, keys, &figures, STREAM);
            let expected = reference::group_by(&relation, keys, &figures);
            assert_same_rows(got, expected, STREAM, &format!("by {keys:?}"));
        }
    });
}

fn table(engine: &Engine, columns: Vec<(&str, Column)>) -> Table {
    Table::new(engine, columns).expect("a table")
}

fn overflow(engine: &Engine) {
    let key =
        |rows: usize| Column::from_slice(engine, &vec![3u32; rows], STREAM).expect("a column");
    let unsigned = |values: &[u64]| Column::from_slice(engine, values, STREAM).expect("a column");
    let signed = |values: &[i64]| Column::from_slice(engine, values, STREAM).expect("a column");
    let run = |sums: Column| {
        let small = unsigned(&vec![1; sums.len()]);
        let columns = vec![("key", key(sums.len())), ("small", small), ("large", sums)];
        let figures = [Aggregate::sum("small"), Aggregate::sum("large")];
        group_by(&table(engine, columns), &["key"], &figures, STREAM)
    };
    let refused = |sums: Column, in_type: &str| {
        let error = run(sums).expect_err("an overflow");
        let operation = format!("sum(large) in {in_type}");
        assert_eq!(error, RelationalError::Overflow { operation });
    };
    refused(unsigned(&[u64::MAX, 1]), "u64");
    refused(unsigned(&[u64::MAX; 5]), "u64");
    refused(signed(&[i64::MAX, 1]), "i64");
    refused(signed(&[i64::MIN, -1]), "i64");
    refused(signed(&[i64::MIN; 4]), "i64");
    // What leaves the range on the way and comes back is no overflow.
    for fitting in [signed(&[i64::MAX, 1, -1]), signed(&[i64::MIN, -1, 1]), unsigned(&[u64::MAX])] {
        assert_eq!(run(fitting).expect("sums").rows(), 1);
    }
    // Of 32 bits, nothing leaves it.
    let most = Column::from_slice(engine, &[u32::MAX; 3], STREAM).expect("a column");
    assert_eq!(run(most).expect("sums").rows(), 1);
}

/// The mean of 64-bit integers comes from a sum of 128 bits.
fn wide_means(engine: &Engine) {
    let mut random = Random::fresh();
    for _ in 0..30 {
        let rows = 1 + random.below(40) as usize;
        let shift = random.below(64);
        let values: Vec<i64> = (0..rows).map(|_| (random.bits() as i64) >> shift).collect();
        let unsigned: Vec<u64> = values.iter().map(|value| value.cast_unsigned()).collect();
        let columns = vec![
            ("i64", Column::from_slice(engine, &values, STREAM).expect("a column")),
            ("u64", Column::from_slice(engine, &unsigned, STREAM).expect("a column")),
        ];
        let figures = [Aggregate::mean("i64"), Aggregate::mean("u64")];
        let means = group_by(&table(engine, columns), &[], &figures, STREAM).expect("means");
        let means = download(&means, STREAM);
        let signed = values.iter().map(|v| i128::from(*v)).sum::<i128>() as f64 / rows as f64;
        let unsigned = unsigned.iter().map(|v| u128::from(*v)).sum::<u128>() as f64 / rows as f64;
        let expected = [Some(Scalar::F64(signed)), Some(Scalar::F64(unsigned))];
        assert_eq!(means.row(0), expected, "seed {}", random.seed);
    }
}

fn many_groups(engine: &Engine) {
    let mut random = Random::fresh();
    let rows = 60_000;
    let keys: Vec<u64> = (0..rows).map(|_| random.below(40_000) << 33).collect();
    let values: Vec<i32> = keys.iter().map(|key| (key >> 33) as i32 - 20_000).collect();
    let columns = vec![
        ("key", Column::from_slice(engine, &keys, STREAM).expect("a column")),
        ("value", Column::from_slice(engine, &values, STREAM).expect("a column")),
    ];
    let figures = [Aggregate::count_rows(), Aggregate::sum("value"), Aggregate::max("value")];
    let groups = group_by(&table(engine, columns), &["key"], &figures, STREAM).expect("groups");
    let groups = download(&groups, STREAM);
    let mut counts = std::collections::HashMap::<u64, u64>::new();
    keys.iter().for_each(|key| *counts.entry(*key).or_default() += 1);
    assert_eq!(groups.rows(), counts.len(), "seed {}", random.seed);
    for row in 0..groups.rows() {
        let row = groups.row(row);
        let Some(Scalar::U64(key)) = row[0] else { panic!("a key: {row:?}") };
        let (count, value) = (counts[&key], (key >> 33) as i32 - 20_000);
        let expected = [
            Some(Scalar::U64(key)),
            Some(Scalar::U64(count)),
            Some(Scalar::I64(i64::from(value) * count as i64)),
            Some(Scalar::I32(value)),
        ];
        assert_eq!(row, expected, "seed {}", random.seed);
    }
}

fn refusals(engine: &Engine) {
    let text = Column::from_strings(engine, [Some("a")], STREAM).expect("a column");
    let id = Column::from_slice(engine, &[1u32], STREAM).expect("a column");
    let table = table(engine, vec![("text", text), ("id", id)]);
    let refused = |keys: &[&str], figures: &[Aggregate]| {
        group_by(&table, keys, figures, STREAM).expect_err("a refusal")
    };
    let error = refused(&["txet"], &[]);
    assert!(error.to_string().contains("did you mean \"text\""), "{error}");
    let error = refused(&["id"], &[Aggregate::sum("text")]);
    assert!(error.to_string().contains("\"text\" in sum is utf8; expected a number"), "{error}");
    let error = refused(&["id"], &[Aggregate::max("nothing")]);
    assert!(matches!(error, RelationalError::UnknownColumn { .. }), "{error}");
    let twice = RelationalError::DuplicateColumn { name: "id".into() };
    assert_eq!(refused(&["id", "id"], &[]), twice);
    assert_eq!(refused(&["id"], &[Aggregate::count("text").named("id")]), twice);
}
