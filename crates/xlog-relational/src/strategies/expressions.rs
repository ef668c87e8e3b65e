//! Random expressions over a table that has every type.

use proptest::prelude::*;

use crate::{
    expr::{Comparison, Expr, Operator, col, null},
    scalar::Scalar,
    types::{DataType, Field},
};

/// The columns that [`number`] and [`predicate`] speak of: every type, text twice, some nullable.
#[must_use]
pub fn fields_of_all_types() -> Vec<Field> {
    let types = [
        ("u32", DataType::U32),
        ("u64", DataType::U64),
        ("i32", DataType::I32),
        ("i64", DataType::I64),
        ("f32", DataType::F32),
        ("f64", DataType::F64),
        ("bool", DataType::Bool),
        ("date", DataType::Date32),
        ("when", DataType::Timestamp),
        ("text", DataType::Utf8),
        ("name", DataType::Utf8),
    ];
    let field = |(index, (name, data_type)): (usize, (&str, DataType))| Field {
        name: name.to_owned(),
        data_type,
        nullable: index % 3 != 0,
    };
    types.into_iter().enumerate().map(field).collect()
}

/// A number: a column, a literal, or one made of others.
pub fn number() -> impl Strategy<Value = Expr> {
    let columns = ["u32", "u64", "i32", "i64", "f32", "f64"];
    let types = [DataType::U32, DataType::U64, DataType::I32, DataType::I64, DataType::F64];
    let leaf = prop_oneof![
        4 => prop::sample::select(columns.to_vec()).prop_map(col),
        2 => prop::sample::select(types.to_vec())
            .prop_flat_map(super::value)
            .prop_map(Expr::Literal),
        1 => Just(null(DataType::I64)),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        let operator = prop::sample::select(Operator::ALL.to_vec());
        prop_oneof![
            5 => (operator, inner.clone(), inner.clone())
                .prop_map(|(op, a, b)| Expr::Arithmetic(op, Box::new(a), Box::new(b))),
            1 => inner.prop_map(|a| -a),
        ]
    })
}

/// Something to compare that is no number, and something to compare it with.
fn others() -> impl Strategy<Value = (Expr, Expr)> {
    let of = |names: [&'static str; 2], data_type| {
        let side = move || {
            prop_oneof![
                3 => prop::sample::select(names.to_vec()).prop_map(col),
                2 => super::value(data_type).prop_map(Expr::Literal),
                1 => Just(null(data_type)),
            ]
        };
        (side(), side()).boxed()
    };
    prop_oneof![
        of(["bool", "bool"], DataType::Bool),
        of(["date", "date"], DataType::Date32),
        of(["when", "when"], DataType::Timestamp),
        of(["text", "name"], DataType::Utf8),
        of(["text", "name"], DataType::Utf8),
    ]
}

fn list(data_type: DataType) -> impl Strategy<Value = Vec<Option<Scalar>>> {
    let one = prop_oneof![6 => super::value(data_type).prop_map(Some), 1 => Just(None)];
    prop::collection::vec(one, 0..6)
}

/// A truth value.
pub fn predicate() -> impl Strategy<Value = Expr> {
    let comparison = || prop::sample::select(Comparison::ALL.to_vec());
    let compared = |(comparison, (a, b)): (Comparison, (Expr, Expr))| {
        Expr::Compare(comparison, Box::new(a), Box::new(b))
    };
    let in_list = |(a, values): (Expr, _)| Expr::InList(Box::new(a), values);
    let leaf = prop_oneof![
        4 => (comparison(), (number(), number())).prop_map(compared),
        4 => (comparison(), others()).prop_map(compared),
        1 => number().prop_map(Expr::is_null),
        1 => others().prop_map(|(a, _)| a.is_not_null()),
        2 => (number(), list(DataType::I64)).prop_map(in_list),
        1 => (number(), list(DataType::F64)).prop_map(in_list),
        1 => (Just(col("text")), list(DataType::Utf8)).prop_map(in_list),
        1 => Just(col("bool")),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| a.and(b)),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| a.or(b)),
            inner.prop_map(|a| !a),
        ]
    })
}

/// Columns compared with literals of their types: one comparison, or several joined by `and`.
pub fn range() -> impl Strategy<Value = Expr> {
    let one = one_column_in_range();
    let more = prop::collection::vec(one_column_in_range(), 2..4)
        .prop_map(|ranges| ranges.into_iter().reduce(Expr::and).unwrap_or(Expr::from(true)));
    prop_oneof![2 => one, 1 => more]
}

fn one_column_in_range() -> impl Strategy<Value = Expr> {
    let fields = fields_of_all_types();
    prop::sample::select(fields).prop_flat_map(|field| {
        let one = || {
            let comparison = prop::sample::select(Comparison::ALL.to_vec());
            let (name, swapped) = (field.name.clone(), any::<bool>());
            (comparison, super::value(field.data_type), swapped).prop_map(
                move |(comparison, value, swapped)| {
                    let sides = (Box::new(col(name.clone())), Box::new(Expr::Literal(value)));
                    match swapped {
                        false => Expr::Compare(comparison, sides.0, sides.1),
                        true => Expr::Compare(comparison, sides.1, sides.0),
                    }
                },
            )
        };
        prop_oneof![one(), (one(), one()).prop_map(|(a, b)| a.and(b))]
    })
}
