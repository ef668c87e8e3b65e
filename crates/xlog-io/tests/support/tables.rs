//! Tables of any kind.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Float32Array, Float64Array, Int32Array, Int64Array,
    RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use proptest::prelude::*;
use xlog_io::ColumnType;

/// A table, and the types of its columns by name.
#[derive(Clone, Debug)]
pub(crate) struct AnyTable {
    pub(crate) batch: RecordBatch,
    pub(crate) types: Vec<(String, ColumnType)>,
}

/// Tables of all types, with everything that is special in some format.
pub(crate) fn any_table() -> impl Strategy<Value = AnyTable> {
    use proptest::{collection::vec, option::of};
    const TEXT: &str = "([a-z,\"\n\r; \u{e9}\u{1f600}]|\r\n|\"\"){0,6}";
    (1usize..5, 0usize..20).prop_flat_map(|(columns, rows)| {
        let column = prop_oneof![
            vec(of(any::<bool>()), rows)
                .prop_map(|v| (ColumnType::Bool, Arc::new(BooleanArray::from(v)) as ArrayRef)),
            vec(of(any::<u32>()), rows)
                .prop_map(|v| (ColumnType::U32, Arc::new(UInt32Array::from(v)) as ArrayRef)),
            vec(of(any::<u64>()), rows)
                .prop_map(|v| (ColumnType::U64, Arc::new(UInt64Array::from(v)) as ArrayRef)),
            vec(of(any::<i32>()), rows)
                .prop_map(|v| (ColumnType::I32, Arc::new(Int32Array::from(v)) as ArrayRef)),
            vec(of(any::<i64>()), rows)
                .prop_map(|v| (ColumnType::I64, Arc::new(Int64Array::from(v)) as ArrayRef)),
            vec(of(proptest::num::f32::ANY), rows)
                .prop_map(|v| (ColumnType::F32, Arc::new(Float32Array::from(v)) as ArrayRef)),
            vec(of(proptest::num::f64::ANY), rows)
                .prop_map(|v| (ColumnType::F64, Arc::new(Float64Array::from(v)) as ArrayRef)),
            vec(of(any::<i32>()), rows)
                .prop_map(|v| (ColumnType::Date, Arc::new(Date32Array::from(v)) as ArrayRef)),
            vec(of(any::<i64>()), rows).prop_map(|v| {
                let array = TimestampMicrosecondArray::from(v);
                (ColumnType::Timestamp, Arc::new(array) as ArrayRef)
            }),
            vec(of(TEXT), rows)
                .prop_map(|v| (ColumnType::Utf8, Arc::new(StringArray::from(v)) as ArrayRef)),
        ];
        vec(column, columns).prop_map(|columns| {
            let name = |place: usize| format!("c \"{place},");
            let types = columns.iter().enumerate();
            let types = types.map(|(place, (column_type, _))| (name(place), *column_type));
            let types = types.collect();
            let named = columns.into_iter().enumerate();
            let named = named.map(|(place, (_, array))| (name(place), array, true));
            let batch = RecordBatch::try_from_iter_with_nullable(named).unwrap();
            AnyTable { batch, types }
        })
    })
}
