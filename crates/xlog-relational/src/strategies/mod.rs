//! Random tables for property tests: every type, missing values, and the shapes operators stumble
//! over.

mod expressions;

pub use expressions::{fields_of_all_types, number, predicate, range};

use proptest::{prelude::*, strategy::Union};

use crate::{
    reference::{HostColumn, Relation},
    scalar::Scalar,
    types::{DataType, Field},
};

/// Any type.
pub fn data_type() -> impl Strategy<Value = DataType> + Clone {
    proptest::sample::select(DataType::ALL.to_vec())
}

/// A value of a type: often one of few, so that values repeat and keys meet; often an extreme.
pub fn value(data_type: DataType) -> BoxedStrategy<Scalar> {
    macro_rules! integers {
        ($rust:ty, $variant:ident) => {
            prop_oneof![
                4 => (0 as $rust..5).prop_map(Scalar::$variant),
                1 => any::<$rust>().prop_map(Scalar::$variant),
                1 => proptest::sample::select(vec![<$rust>::MIN, <$rust>::MAX, 1, 0])
                    .prop_map(Scalar::$variant),
            ]
            .boxed()
        };
    }
    macro_rules! floats {
        ($rust:ident, $variant:ident) => {
            prop_oneof![
                3 => (-3i8..4).prop_map(|whole| Scalar::$variant($rust::from(whole))),
                2 => any::<$rust>().prop_map(Scalar::$variant),
                2 => proptest::sample::select(vec![
                    0.0,
                    -0.0,
                    $rust::NAN,
                    -$rust::NAN,
                    $rust::INFINITY,
                    $rust::NEG_INFINITY,
                    $rust::MIN,
                    $rust::MAX,
                    $rust::MIN_POSITIVE,
                    $rust::from_bits(1),
                ])
                .prop_map(Scalar::$variant),
            ]
            .boxed()
        };
    }
    match data_type {
        DataType::U32 => integers!(u32, U32),
        DataType::U64 => integers!(u64, U64),
        DataType::I32 => integers!(i32, I32),
        DataType::I64 => integers!(i64, I64),
        DataType::Date32 => integers!(i32, Date32),
        DataType::Timestamp => integers!(i64, Timestamp),
        DataType::F32 => floats!(f32, F32),
        DataType::F64 => floats!(f64, F64),
        DataType::Bool => any::<bool>().prop_map(Scalar::Bool).boxed(),
        DataType::Utf8 => prop_oneof![
            4 => "[a-c]{0,2}".prop_map(Scalar::from),
            1 => "[a-zäß😀 ]{0,12}".prop_map(Scalar::from),
        ]
        .boxed(),
    }
}

/// The values of a column: at random, all equal, one of two most of the time, or all missing.
pub fn values(field: &Field, rows: usize) -> BoxedStrategy<Vec<Option<Scalar>>> {
    let there = value(field.data_type);
    let one = match field.nullable {
        false => there.clone().prop_map(Some).boxed(),
        true => prop_oneof![3 => there.clone().prop_map(Some), 1 => Just(None)].boxed(),
    };
    let any_values = proptest::collection::vec(one.clone(), rows).boxed();
    let equal = one.clone().prop_map(move |value| vec![value; rows]).boxed();
    let skewed = (one.clone(), one.clone())
        .prop_flat_map(move |(a, b)| {
            let few = prop_oneof![8 => Just(a), 2 => Just(b), 1 => one.clone()];
            proptest::collection::vec(few, rows)
        })
        .boxed();
    let mut shapes = vec![(6, any_values), (1, equal), (3, skewed)];
    if field.nullable {
        shapes.push((1, Just(vec![None; rows]).boxed()));
    }
    Union::new_weighted(shapes).boxed()
}

/// A table with these columns and a number of rows up to `most`, often none, one, or one around a
/// multiple of 32, where the words of the validity end.
pub fn relation(fields: Vec<Field>, most: usize) -> BoxedStrategy<Relation> {
    let rows = prop_oneof![
        1 => Just(0),
        1 => Just(1.min(most)),
        2 => proptest::sample::select(vec![31, 32, 33, 63, 64, 65]).prop_map(move |n| n.min(most)),
        6 => 0..=most,
    ];
    rows.prop_flat_map(move |rows| {
        let columns: Vec<_> = fields.iter().map(|field| values(field, rows)).collect();
        let fields = fields.clone();
        columns.prop_map(move |columns| {
            let columns = fields.iter().cloned().zip(columns);
            let columns = columns.map(|(field, values)| HostColumn { field, values });
            Relation::new(columns.collect()).expect("values of the fields' types")
        })
    })
    .boxed()
}

/// Fields `c0`, `c1`, … of any types, `least` to `most` of them.
pub fn fields(least: usize, most: usize) -> impl Strategy<Value = Vec<Field>> {
    proptest::collection::vec((data_type(), any::<bool>()), least..=most).prop_map(|types| {
        let named = types.into_iter().enumerate();
        named
            .map(|(index, (data_type, nullable))| Field {
                name: format!("c{index}"),
                data_type,
                nullable,
            })
            .collect()
    })
}

/// Any table of up to five columns and `most` rows.
pub fn any_relation(most: usize) -> impl Strategy<Value = Relation> {
    fields(1, 5).prop_flat_map(move |fields| relation(fields, most))
}

/// Two tables of the same columns: for sets.
pub fn two_relations(most: usize) -> impl Strategy<Value = (Relation, Relation)> {
    fields(1, 3)
        .prop_flat_map(move |fields| (relation(fields.clone(), most), relation(fields, most)))
}
