//! The oracle against tables small enough to work out by hand, and against laws that hold for all.

use proptest::prelude::*;

use super::*;
use crate::{
    Aggregate, DataType, Field, JoinKind, RelationalError, Scalar, SortKey, col, strategies,
};

/// A table of nullable `i64` columns.
fn table(columns: &[(&str, &[Option<i64>])]) -> Relation {
    let columns = columns.iter().map(|(name, values)| {
        let values = values.iter().map(|value| value.map(Scalar::I64)).collect();
        HostColumn { field: Field::new(*name, DataType::I64).nullable(), values }
    });
    Relation::new(columns.collect()).unwrap()
}

fn floats(name: &str, values: &[f64]) -> Relation {
    let values = values.iter().map(|value| Some(Scalar::F64(*value))).collect();
    Relation::new(vec![HostColumn::new(Field::new(name, DataType::F64), values)]).unwrap()
}

/// The rows of a table as numbers; whatever is no `i64` is left out.
fn rows(relation: &Relation) -> Vec<Vec<Option<i64>>> {
    let number = |value: Option<Scalar>| match value {
        Some(Scalar::I64(value)) => Some(value),
        Some(Scalar::U64(value)) => i64::try_from(value).ok(),
        _ => None,
    };
    (0..relation.rows()).map(|row| relation.row(row).into_iter().map(number).collect()).collect()
}

#[test]
fn sorting_is_stable_and_puts_missing_values_where_asked() {
    let input = table(&[
        ("k", &[Some(2), None, Some(1), Some(2), None]),
        ("row", &[Some(0), Some(1), Some(2), Some(3), Some(4)]),
    ]);
    let order = |key: SortKey| -> Vec<i64> {
        rows(&sort(&input, &[key]).unwrap()).iter().map(|row| row[1].unwrap()).collect()
    };
    assert_eq!(order(SortKey::new("k")), [2, 0, 3, 1, 4]);
    assert_eq!(order(SortKey::new("k").nulls_first()), [1, 4, 2, 0, 3]);
    assert_eq!(order(SortKey::new("k").descending()), [0, 3, 2, 1, 4]);
    assert_eq!(order(SortKey::new("k").descending().nulls_first()), [1, 4, 0, 3, 2]);
    let two = [SortKey::new("k"), SortKey::new("row").descending()];
    let first = top_k(&input, &two, 2).unwrap();
    assert_eq!(rows(&first), [[Some(1), Some(2)], [Some(2), Some(3)]]);
    let error = sort(&input, &[SortKey::new("rwo")]).unwrap_err().to_string();
    assert!(error.contains("did you mean \"row\"?"), "{error}");
}

#[test]
fn floats_sort_in_total_order() {
    let input = floats("f", &[f64::NAN, 0.0, -0.0, f64::INFINITY, -f64::NAN, -1.0]);
    let sorted = sort(&input, &[SortKey::new("f")]).unwrap();
    let expected = floats("f", &[-f64::NAN, -1.0, -0.0, 0.0, f64::INFINITY, f64::NAN]);
    assert!(sorted.same_in_order(&expected), "{sorted:?}");
}

#[test]
fn every_kind_of_join_keeps_its_rows() {
    let left = table(&[("k", &[Some(1), Some(2), None, Some(2)]), ("l", &[Some(10); 4])]);
    let right = table(&[("k", &[Some(2), Some(3), None, Some(2)]), ("r", &[Some(20); 4])]);
    let of = |kind| {
        let mut rows = rows(&join(&left, &right, &[("k", "k")], kind).unwrap());
        rows.sort();
        rows
    };
    let (ten, twenty) = (Some(10), Some(20));
    let pair = vec![Some(2), ten, Some(2), twenty];
    let inner = vec![pair.clone(); 4];
    assert_eq!(of(JoinKind::Inner), inner);
    let left_rest = [vec![None, ten, None, None], vec![Some(1), ten, None, None]];
    assert_eq!(of(JoinKind::Left), [&left_rest[..], &inner].concat());
    let right_rest = [vec![None, None, None, twenty], vec![None, None, Some(3), twenty]];
    assert_eq!(of(JoinKind::Right), [&right_rest[..], &inner].concat());
    assert_eq!(of(JoinKind::Full), [&right_rest[..], &left_rest, &inner].concat());
    assert_eq!(of(JoinKind::Semi), vec![vec![Some(2), ten]; 2]);
    assert_eq!(of(JoinKind::Anti), [vec![None, ten], vec![Some(1), ten]]);
    let joined = join(&left, &right, &[("k", "k")], JoinKind::Inner).unwrap();
    assert_eq!(joined.schema().to_string(), "k: i64?, l: i64?, k_right: i64?, r: i64?");
}

#[test]
fn zeros_and_nans_meet_in_joins_and_groups() {
    let left = floats("f", &[0.0, f64::NAN]);
    let right = floats("g", &[-0.0, -f64::NAN, 1.0]);
    assert_eq!(join(&left, &right, &[("f", "g")], JoinKind::Inner).unwrap().rows(), 2);
    let keys = floats("f", &[0.0, -0.0, f64::NAN, -f64::NAN]);
    assert_eq!(group_by(&keys, &["f"], &[]).unwrap().rows(), 2);
    assert_eq!(distinct(&keys).rows(), 2);
}

#[test]
fn groups_are_summed_up_without_their_missing_values() {
    let input = table(&[
        ("k", &[Some(1), None, Some(1), None, Some(3)]),
        ("v", &[Some(5), Some(7), None, Some(7), None]),
    ]);
    let aggregates = [
        Aggregate::count_rows(),
        Aggregate::count("v"),
        Aggregate::sum("v"),
        Aggregate::min("v"),
        Aggregate::max("v"),
        Aggregate::count_distinct("v"),
    ];
    let mut found = rows(&group_by(&input, &["k"], &aggregates).unwrap());
    found.sort();
    let seven = Some(7);
    assert_eq!(
        found,
        [
            [None, Some(2), Some(2), Some(14), seven, seven, Some(1)],
            [Some(1), Some(2), Some(1), Some(5), Some(5), Some(5), Some(1)],
            [Some(3), Some(1), Some(0), None, None, None, Some(0)],
        ]
    );
    let mean = group_by(&input, &[], &[Aggregate::mean("v")]).unwrap();
    assert_eq!(mean.row(0), [Some(Scalar::F64(19.0 / 3.0))]);
    let empty = limit(&input, 0, 0);
    assert_eq!(group_by(&empty, &["k"], &aggregates).unwrap().rows(), 0);
    assert_eq!(rows(&group_by(&empty, &[], &aggregates[..2]).unwrap()), [[Some(0), Some(0)]]);
}

#[test]
fn a_sum_that_does_not_fit_is_an_error_and_one_that_does_is_not() {
    let sum = |values: &[Option<i64>]| {
        group_by(&table(&[("v", values)]), &[], &[Aggregate::sum("v")]).map(|sum| rows(&sum))
    };
    assert!(matches!(sum(&[Some(i64::MAX), Some(1)]), Err(RelationalError::Overflow { .. })));
    // In between it does not fit, in the end it does.
    assert_eq!(sum(&[Some(i64::MAX), Some(1), Some(-1)]), Ok(vec![vec![Some(i64::MAX)]]));
    let text = HostColumn::new(Field::new("t", DataType::Utf8), vec![Some("a".into())]);
    let text = Relation::new(vec![text]).unwrap();
    let error = group_by(&text, &[], &[Aggregate::sum("t")]).unwrap_err().to_string();
    assert!(error.contains("\"t\" in sum is utf8; expected a number"), "{error}");
}

#[test]
fn sets_count_rows_as_sql_does() {
    let left = table(&[("a", &[Some(1), Some(1), Some(1), None, None, Some(2)])]);
    let right = table(&[("b", &[Some(1), Some(1), None, Some(3)])]);
    let of = |relation: Relation| {
        let mut found: Vec<_> = rows(&relation).into_iter().map(|row| row[0]).collect();
        found.sort();
        found
    };
    let (one, two, three) = (Some(1), Some(2), Some(3));
    assert_eq!(of(union(&left, &right).unwrap()), [None, one, two, three]);
    assert_eq!(of(intersect(&left, &right, false).unwrap()), [None, one]);
    assert_eq!(of(intersect(&left, &right, true).unwrap()), [None, one, one]);
    assert_eq!(of(except(&left, &right, false).unwrap()), [two]);
    assert_eq!(of(except(&left, &right, true).unwrap()), [None, one, two]);
    assert_eq!(concat(&left, &right).unwrap().rows(), 10);
    let narrow = floats("f", &[1.0]);
    assert!(union(&left, &narrow).unwrap_err().to_string().contains("\"f\""));
}

#[test]
fn a_filter_keeps_what_is_true_and_a_projection_makes_columns() {
    let input = table(&[("a", &[Some(1), None, Some(3)]), ("b", &[Some(2), Some(2), Some(2)])]);
    let kept = filter(&input, &col("a").gt(col("b")).or(col("a").is_null())).unwrap();
    assert_eq!(rows(&kept), [[None, Some(2)], [Some(3), Some(2)]]);
    let sums = project(&input, &[("sum", col("a") + col("b")), ("a", col("a"))]).unwrap();
    assert_eq!(rows(&sums), [[Some(3), Some(1)], [None, None], [Some(5), Some(3)]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn sets_obey_their_laws((left, right) in strategies::two_relations(60)) {
        let both = concat(&left, &right).unwrap();
        // What is in either is in one, in the other, or in both.
        let only_left = except(&left, &right, false).unwrap();
        let shared = intersect(&left, &right, false).unwrap();
        let only_right = except(&right, &left, false).unwrap();
        let whole = concat(&concat(&only_left, &shared).unwrap(), &only_right).unwrap();
        prop_assert!(whole.same_rows(&union(&left, &right).unwrap()));
        // As bags, what is shared and what is not make up the left side.
        let rest = except(&left, &right, true).unwrap();
        let shared = intersect(&left, &right, true).unwrap();
        prop_assert!(concat(&rest, &shared).unwrap().same_rows(&left));
        prop_assert!(except(&both, &right, true).unwrap().same_rows(&left));
    }

    #[test]
    fn joins_obey_their_laws((left, right) in strategies::two_relations(40)) {
        let on = [("c0", "c0")];
        let of = |kind| join(&left, &right, &on, kind).unwrap().rows();
        let (semi, anti) = (of(JoinKind::Semi), of(JoinKind::Anti));
        prop_assert_eq!(semi + anti, left.rows());
        prop_assert_eq!(of(JoinKind::Left), of(JoinKind::Inner) + anti);
        let other_anti = join(&right, &left, &on, JoinKind::Anti).unwrap().rows();
        prop_assert_eq!(of(JoinKind::Right), of(JoinKind::Inner) + other_anti);
        prop_assert_eq!(of(JoinKind::Full), of(JoinKind::Left) + other_anti);
    }

    #[test]
    fn groups_are_distinct_keys_and_their_rows_are_all_rows(input in strategies::any_relation(80)) {
        let count = Aggregate::count_rows();
        let groups = group_by(&input, &["c0"], std::slice::from_ref(&count)).unwrap();
        let keys = project(&input, &[("c0", col("c0"))]).unwrap();
        let found = project(&groups, &[("c0", col("c0"))]).unwrap();
        prop_assert!(found.same_rows(&distinct(&keys)));
        let counted: i64 = rows(&groups).iter().filter_map(|row| *row.last()?).sum();
        prop_assert_eq!(counted, input.rows() as i64);
    }

    #[test]
    fn sorting_moves_rows_and_changes_none(input in strategies::any_relation(80)) {
        let sorted = sort(&input, &[SortKey::new("c0").descending()]).unwrap();
        prop_assert!(sorted.same_rows(&input));
        let again = sort(&sorted, &[SortKey::new("c0").descending()]).unwrap();
        prop_assert!(again.same_in_order(&sorted));
    }
}
