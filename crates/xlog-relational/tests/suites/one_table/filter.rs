//! Filters and projections.

use arrow_array::{
    cast::AsArray,
    types::{Float32Type, Float64Type},
};
use libtest_mimic::Trial;
use proptest::prelude::*;
use xlog_relational::{
    Column, Comparison, DataType, Engine, Expr, Field, Operator, RelationalError, Scalar, Table,
    col, lit, ops, ops::FilterBy, reference, reference::Relation, strategies,
};

use super::support::{agrees, download_table, large_relation, property, upload_table};
use crate::suites::primitives::support::{Random, stream, trial};

/// A column of a table compared with a literal of its type, either side first.
fn comparison(field: &Field) -> BoxedStrategy<Expr> {
    let name = field.name.clone();
    let comparison = prop::sample::select(Comparison::ALL.to_vec());
    (comparison, strategies::value(field.data_type), any::<bool>())
        .prop_map(move |(comparison, value, flipped)| {
            let (column, literal) = (Box::new(col(name.clone())), Box::new(lit(value)));
            match flipped {
                true => Expr::Compare(comparison, literal, column),
                false => Expr::Compare(comparison, column, literal),
            }
        })
        .boxed()
}

/// Something true or false of one column.
fn simple(field: &Field) -> BoxedStrategy<Expr> {
    let name = field.name.clone();
    let values = prop::collection::vec(strategies::value(field.data_type), 0..4);
    prop_oneof![
        4 => comparison(field),
        1 => any::<bool>().prop_map(move |null| match null {
            true => col(name.clone()).is_null(),
            false => col(name.clone()).is_not_null(),
        }),
        1 => (Just(field.name.clone()), values)
            .prop_map(|(name, values)| col(name).in_list(values)),
    ]
    .boxed()
}

/// A table, and a predicate over its columns.
fn filtered(most: usize) -> impl Strategy<Value = (Relation, Expr)> {
    strategies::fields(1, 4).prop_flat_map(move |fields| {
        let one = || {
            let fields: Vec<_> = fields.iter().map(simple).collect();
            proptest::strategy::Union::new(fields)
        };
        let predicate = prop_oneof![
            3 => one(),
            1 => (one(), one()).prop_map(|(a, b)| a.and(b)),
            1 => (one(), one()).prop_map(|(a, b)| a.or(!b)),
            1 => any::<bool>().prop_map(lit),
        ];
        (strategies::relation(fields.clone(), most), predicate)
    })
}

fn random_filters(engine: &Engine) {
    let stream = stream(engine);
    property(1000, filtered(90), |(relation, predicate)| {
        let table = upload_table(engine, &relation, stream);
        let expected = reference::filter(&relation, &predicate);
        for by in [FilterBy::Rows, FilterBy::Mask] {
            let got = ops::filter_tuned(&table, &predicate, by, stream);
            agrees(got, expected.clone(), stream)?;
        }
        Ok(())
    });
}

/// Every comparison of every type with every value that some row has: what is fused into the
/// selection.
fn fused_comparisons(engine: &Engine) {
    let stream = stream(engine);
    for data_type in DataType::ALL {
        let field = vec![Field::new("c", data_type)];
        let pair = (strategies::relation(field.clone(), 70), comparison(&field[0]));
        property(60, pair, |(relation, predicate)| {
            let table = upload_table(engine, &relation, stream);
            let got = ops::filter(&table, &predicate, stream);
            agrees(got, reference::filter(&relation, &predicate), stream)
        });
    }
}

/// Sizes beyond a tile, and selections that keep all, some, few and none.
fn large_filters(engine: &Engine) {
    let stream = stream(engine);
    let mut random = Random::fresh();
    let predicates = [
        col("u32").lt(25u32),
        col("u32").gt_eq(0u32),
        col("u32").eq(1_000_000u32),
        col("i32").gt(28),
        col("when").gt_eq(lit(Scalar::Timestamp(3))),
        col("name").eq("ab"),
        col("name").eq("not there"),
        col("f32").lt(f32::NAN),
        col("bool").and(col("u64").gt(20u64)),
        col("i64").is_null().or(col("text").gt("ab")),
    ];
    for rows in [6000, 20_001] {
        let relation = large_relation(rows, &mut random);
        let table = upload_table(engine, &relation, stream);
        for predicate in &predicates {
            let expected = reference::filter(&relation, predicate);
            let result = [FilterBy::Rows, FilterBy::Mask].into_iter().try_for_each(|by| {
                let got = ops::filter_tuned(&table, predicate, by, stream);
                agrees(got, expected.clone(), stream)
            });
            assert!(result.is_ok(), "{rows} rows where {predicate}, seed {}", random.seed);
        }
        let narrow = ["u32", "when", "f32"].map(|name| relation.column(name).expect("it").clone());
        for column in narrow {
            let name = column.field.name.clone();
            let part = Relation::new(vec![column]).expect("a relation");
            let predicate = match name.as_str() {
                "u32" => col("u32").lt(3u32),
                "when" => col("when").lt(lit(Scalar::Timestamp(9))),
                _ => col("f32").gt_eq(0.0f32),
            };
            let part_table = table.select(&[&name]).expect("a column");
            let got = ops::filter(&part_table, &predicate, stream);
            let result = agrees(got, reference::filter(&part, &predicate), stream);
            assert!(result.is_ok(), "{rows} rows where {predicate}, seed {}", random.seed);
        }
    }
}

fn random_projections(engine: &Engine) {
    let stream = stream(engine);
    let fields = || {
        let types = DataType::ALL.into_iter().enumerate();
        let field = |(index, data_type): (usize, DataType)| Field {
            name: data_type.to_string(),
            data_type,
            nullable: index % 2 == 0,
        };
        types.map(field).collect::<Vec<_>>()
    };
    let number = || prop::sample::select(vec!["u32", "u64", "i32", "i64", "f32", "f64"]);
    let expression = prop_oneof![
        2 => prop::sample::select(fields()).prop_map(|field| col(field.name)),
        3 => (number(), number(), prop::sample::select(Operator::ALL.to_vec())).prop_map(
            |(a, b, operator)| Expr::Arithmetic(operator, Box::new(col(a)), Box::new(col(b)))
        ),
        1 => prop::sample::select(fields()).prop_flat_map(|field| simple(&field)),
        1 => strategies::data_type().prop_flat_map(strategies::value).prop_map(lit),
    ];
    let columns = prop::collection::vec(expression, 0..5);
    property(250, (strategies::relation(fields(), 70), columns), |(relation, columns)| {
        let table = upload_table(engine, &relation, stream);
        let names = ["a", "b", "c", "d", "e"];
        let columns: Vec<(&str, Expr)> = names.into_iter().zip(columns).collect();
        let got = ops::project(&table, &columns, stream);
        let expected = reference::project(&relation, &columns);
        agrees(got, expected, stream)
    });
}

/// Devices differ in the sign and the lower bits of a NaN that they calculate; here it is one.
fn a_nan_that_is_calculated_is_always_the_same(engine: &Engine) {
    let stream = stream(engine);
    let odd = f64::from_bits(0xfff8_0000_0000_0123);
    let narrow = f32::from_bits(0xffc0_0123);
    let f64s = Column::from_slice(engine, &[odd, f64::INFINITY, -1.0], stream).expect("a column");
    let f32s = Column::from_slice(engine, &[narrow, f32::INFINITY, 2.0], stream).expect("a column");
    let table = Table::new(engine, [("wide", f64s), ("narrow", f32s)]).expect("a table");
    let columns = [
        ("wide", col("wide") - col("wide")),
        ("narrow", col("narrow") - col("narrow")),
        ("mixed", col("narrow") * col("wide")),
        ("rest", col("wide") % lit(0.0f64)),
    ];
    let got = ops::project(&table, &columns, stream).expect("four columns");
    let got = got.download(stream).expect("a batch");
    let bits = |name: &str| -> Vec<u64> {
        let column = got.column_by_name(name).expect("a column");
        column.as_primitive::<Float64Type>().values().iter().map(|value| value.to_bits()).collect()
    };
    let nan = f64::NAN.to_bits();
    assert_eq!(bits("wide"), [nan, nan, 0]);
    assert_eq!(bits("mixed"), [nan, f64::INFINITY.to_bits(), (-2.0f64).to_bits()]);
    assert_eq!(bits("rest"), [nan; 3]);
    let narrow = got.column_by_name("narrow").expect("a column");
    let narrow = narrow.as_primitive::<Float32Type>().values();
    let narrow: Vec<u32> = narrow.iter().map(|value| value.to_bits()).collect();
    assert_eq!(narrow, [f32::NAN.to_bits(), f32::NAN.to_bits(), 0]);
}

fn what_cannot_be_evaluated_is_refused(engine: &Engine) {
    let stream = stream(engine);
    let column = Column::from_slice(engine, &[3u64, u64::MAX], stream).expect("a column");
    let table = Table::new(engine, [("amount", column)]).expect("a table");
    let refused = |predicate: Expr| ops::filter(&table, &predicate, stream).expect_err("a refusal");

    let error = refused(col("amonut").gt(1));
    assert!(matches!(error, RelationalError::UnknownColumn { .. }), "{error}");
    let error = refused(col("amount") + 1);
    assert!(error.to_string().contains("expected bool"), "{error}");
    let error = refused(col("amount").eq("many"));
    assert!(matches!(error, RelationalError::TypeMismatch { .. }), "{error}");
    // What overflows in a row that would not be kept is an error all the same.
    let error = refused((col("amount") + 1).lt(5));
    assert!(matches!(error, RelationalError::Overflow { .. }), "{error}");

    let project = |columns: &[(&str, Expr)]| ops::project(&table, columns, stream);
    let error = project(&[("a", col("amount")), ("b", col("amount") * 2)]).expect_err("overflow");
    assert!(matches!(error, RelationalError::Overflow { .. }), "{error}");
    let error = project(&[("a", col("amount")), ("a", col("amount"))]).expect_err("a refusal");
    assert_eq!(error, RelationalError::DuplicateColumn { name: "a".to_owned() });
    let renamed = project(&[("b", col("amount"))]).expect("a table");
    assert_eq!(download_table(&renamed, stream).columns()[0].field.name, "b");
}

/// The suite.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    vec![
        trial("one_table::filter::random_filters", engine, random_filters),
        trial("one_table::filter::fused_comparisons", engine, fused_comparisons),
        trial("one_table::filter::large_filters", engine, large_filters),
        trial("one_table::filter::random_projections", engine, random_projections),
        trial(
            "one_table::filter::a_nan_that_is_calculated",
            engine,
            a_nan_that_is_calculated_is_always_the_same,
        ),
        trial(
            "one_table::filter::what_cannot_be_evaluated",
            engine,
            what_cannot_be_evaluated_is_refused,
        ),
    ]
}
