//! What the suites of operators share: tables there and back, and properties over random ones.

use std::fmt::Debug;

use proptest::{
    strategy::Strategy,
    test_runner::{Config, TestCaseError, TestRunner},
};
use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    DataType, Engine, Field, RelationalError, RelationalResult, Scalar, Table,
    reference::{HostColumn, Relation},
};

use crate::suites::primitives::support::Random;

/// A table of the oracle on a device.
pub fn upload_table(engine: &Engine, relation: &Relation, stream: StreamId) -> Table {
    let batch = relation.to_batch().expect("a batch");
    let table = Table::from_batch(engine, &batch, stream).expect("a table");
    assert_eq!(table.rows(), relation.rows() as u64);
    table
}

/// A table of a device as the oracle has it.
pub fn download_table(table: &Table, stream: StreamId) -> Relation {
    let batch = table.download(stream).expect("a batch");
    Relation::from_batch(&batch).expect("a relation")
}

/// Ends a property if an operator did not do what the oracle did, row by row.
pub fn agrees(
    got: RelationalResult<Table>,
    expected: RelationalResult<Relation>,
    stream: StreamId,
) -> Result<(), TestCaseError> {
    match (got, expected) {
        (Ok(got), Ok(expected)) => {
            let got = download_table(&got, stream);
            if !got.same_in_order(&expected) {
                let difference = format!("got {got:?}\nexpected {expected:?}");
                return Err(TestCaseError::fail(difference));
            }
            Ok(())
        }
        (Err(RelationalError::Overflow { .. }), Err(RelationalError::Overflow { .. })) => Ok(()),
        (Err(got), Err(expected)) if got == expected => Ok(()),
        // What is too large for one step says so; the oracle knows no such limit.
        (Err(RelationalError::UnsupportedExpression { reason, .. }), _)
            if reason.contains("project parts of it first") =>
        {
            Ok(())
        }
        (got, expected) => Err(TestCaseError::fail(format!("got {got:?}\nexpected {expected:?}"))),
    }
}

/// Holds a property against random values, new ones in each run; a failure is made smaller first.
pub fn property<S: Strategy>(
    cases: u32,
    strategy: S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) where
    S::Value: Debug,
{
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    #[allow(clippy::panic)] // a property that does not hold fails its test
    if let Err(error) = TestRunner::new(config).run(&strategy, test) {
        panic!("{error}");
    }
}

/// A table with a column of every type, about a quarter of the nullable ones' values missing:
/// `i32`, `f64?`, `u64?`, `text?`, `bool?`, `when`, `f32`, `name`, `date?`, `u32`, `i64?`.
pub fn large_relation(rows: usize, random: &mut Random) -> Relation {
    let texts = ["", "ab", "b", "abc", "zebra", "ä", "b "];
    let columns = [
        ("i32", DataType::I32, false),
        ("f64", DataType::F64, true),
        ("u64", DataType::U64, true),
        ("text", DataType::Utf8, true),
        ("bool", DataType::Bool, true),
        ("when", DataType::Timestamp, false),
        ("f32", DataType::F32, false),
        ("name", DataType::Utf8, false),
        ("date", DataType::Date32, true),
        ("u32", DataType::U32, false),
        ("i64", DataType::I64, true),
    ];
    let mut value = |data_type, nullable: bool| {
        let bits = random.bits();
        if nullable && bits.is_multiple_of(4) {
            return None;
        }
        // Few values, so that keys are equal now and then, and extremes.
        let small = (bits >> 8) % 50;
        let bits = if bits >> 60 == 0 { bits } else { small };
        Some(match data_type {
            DataType::U32 => Scalar::U32(bits as u32),
            DataType::U64 => Scalar::U64(bits),
            DataType::I32 => Scalar::I32(bits as i32 - 20),
            DataType::I64 => Scalar::I64((bits as i64).wrapping_sub(20)),
            DataType::F32 => Scalar::F32(f32::from_bits((bits as u32).wrapping_mul(0x0808_0808))),
            DataType::F64 => Scalar::F64(f64::from_bits(bits.wrapping_mul(0x0808_0808_0808_0808))),
            DataType::Bool => Scalar::Bool(bits & 1 == 1),
            DataType::Date32 => Scalar::Date32(bits as i32 - 20),
            DataType::Timestamp => Scalar::Timestamp((bits as i64).wrapping_sub(20)),
            _ => Scalar::from(texts[(bits % texts.len() as u64) as usize]),
        })
    };
    let columns = columns.map(|(name, data_type, nullable)| {
        let values = (0..rows).map(|_| value(data_type, nullable)).collect();
        let field = Field { name: name.to_owned(), data_type, nullable };
        HostColumn { field, values }
    });
    Relation::new(columns.into()).expect("a relation")
}
