//! The rules of types and of text, one by one. `tests/suites/expressions.rs` holds expressions
//! against their oracle.

use std::sync::Arc;

use xlog_cuda::{CudaDevice, device_runtime::StreamId};

use super::*;
use crate::{
    DataType, Engine, Field, RelationalError, Schema, Table,
    reference::{HostColumn, Relation},
    strategies::fields_of_all_types,
};

fn schema() -> Schema {
    Schema::new(fields_of_all_types()).unwrap()
}

/// Whether an expression was refused because it is too large for one step.
fn is_too_large(error: &RelationalError) -> bool {
    matches!(error, RelationalError::UnsupportedExpression { reason, .. }
        if reason.contains("project parts of it first"))
}

/// Which rows the device would keep; `None` if the predicate is too large for one step.
fn kept_on_device(
    engine: &Engine,
    input: &Relation,
    expr: &Expr,
) -> Option<Result<Vec<usize>, RelationalError>> {
    let table = Table::from_batch(engine, &input.to_batch().unwrap(), StreamId::DEFAULT).unwrap();
    let program = match expr.compile(&table) {
        Ok(program) => program,
        Err(error) if is_too_large(&error) => return None,
        Err(error) => return Some(Err(error)),
    };
    let mask = program.mask(&table, StreamId::DEFAULT).unwrap();
    if let Err(error) = mask.refuse_overflow() {
        return Some(Err(error));
    }
    let words = mask.words().download().unwrap();
    let rows = 0..words.len() * 32;
    Some(Ok(rows.filter(|row| words[row / 32] >> (row % 32) & 1 == 1).collect()))
}

fn host() -> Engine {
    Engine::new(Arc::new(CudaDevice::host())).unwrap()
}

#[test]
fn more_rows_than_a_piece_are_evaluated() {
    let numbers: Vec<i64> = (0..5000).collect();
    let engine = host();
    let column = crate::Column::from_slice(&engine, &numbers, StreamId::DEFAULT).unwrap();
    let table = Table::new(&engine, [("n", column)]).unwrap();
    let program = (col("n") % 7 * 3).compile(&table).unwrap();
    let result = program.evaluate(&table, StreamId::DEFAULT).unwrap().finish().unwrap();
    let crate::Values::Longs(values) = result.values() else { panic!("an i64 is a long") };
    let expected: Vec<u64> = numbers.iter().map(|n| (n % 7 * 3) as u64).collect();
    assert_eq!(values.download().unwrap(), expected);
}

#[test]
fn integers_of_all_types_are_compared_by_what_they_stand_for() {
    use crate::Scalar::{I32, I64, U32, U64};
    let all = [
        [0, 1, u32::MAX, 7].map(U32),
        [0, 1 << 63, u64::MAX, 7].map(U64),
        [-1, i32::MIN, i32::MAX, 7].map(I32),
        [-1, i64::MIN, i64::MAX, 7].map(I64),
    ];
    for left in &all {
        for right in &all {
            let pairs = || left.iter().flat_map(|a| right.iter().map(move |b| (a, b)));
            let side = |name: &str, values: Vec<Scalar>| HostColumn {
                field: Field::new(name, values[0].data_type()),
                values: values.into_iter().map(Some).collect(),
            };
            let a = side("a", pairs().map(|(a, _)| a.clone()).collect());
            let b = side("b", pairs().map(|(_, b)| b.clone()).collect());
            let input = Relation::new(vec![a, b]).unwrap();
            for comparison in Comparison::ALL {
                let expr = Expr::Compare(comparison, Box::new(col("a")), Box::new(col("b")));
                let kept = kept_on_device(&host(), &input, &expr).unwrap().unwrap();
                let whole = |value: &Scalar| super::whole_number(value).unwrap();
                let expected = pairs().map(|(a, b)| comparison.holds(whole(a).cmp(&whole(b))));
                let expected = expected.enumerate().filter(|(_, holds)| *holds);
                assert_eq!(kept, expected.map(|(row, _)| row).collect::<Vec<_>>(), "{expr}");
                // The same with a literal on the right, in whatever way that is worked out.
                for literal in right {
                    let literal = Box::new(Expr::Literal(literal.clone()));
                    let expr = Expr::Compare(comparison, Box::new(col("a")), literal);
                    let kept = kept_on_device(&host(), &input, &expr).unwrap().unwrap();
                    let expected = crate::reference::filter(&input, &expr).unwrap();
                    assert!(input.take(&kept).same_in_order(&expected), "{expr}: {kept:?}");
                }
            }
        }
    }
}

#[test]
fn types_widen_as_the_rules_say() {
    let of = |expr: Expr| expr.check(&schema()).unwrap().data_type();
    assert_eq!(of(col("u32") + col("u64")), DataType::U64);
    assert_eq!(of(col("u32") + col("u32")), DataType::U64);
    assert_eq!(of(col("u32") + col("i32")), DataType::I64);
    assert_eq!(of(col("u64") + col("i64")), DataType::I64);
    assert_eq!(of(col("u64") - col("u64")), DataType::I64);
    assert_eq!(of(-col("u32")), DataType::I64);
    assert_eq!(of(col("u64") + 1), DataType::U64);
    assert_eq!(of(col("u64") + -1), DataType::I64);
    assert_eq!(of(col("f32") * 2), DataType::F32);
    assert_eq!(of(col("f32") * 0.5), DataType::F32);
    assert_eq!(of(col("f32") * 0.1), DataType::F64);
    assert_eq!(of(col("i32") / 2.0), DataType::F64);
    assert_eq!(of(col("f32") + col("i32")), DataType::F64);
    assert_eq!(of(col("u64").lt(col("i64"))), DataType::Bool);
}

#[test]
fn missing_values_spread_as_the_rules_say() {
    let nullable = |expr: Expr| expr.check(&schema()).unwrap().is_nullable();
    assert!(!nullable(col("u32") + 1) && nullable(col("u64") + 1));
    assert!(nullable(col("u32") / 2), "by zero it is missing");
    assert!(!nullable(col("u64").is_null()) && !nullable(col("u64").is_not_null()));
    assert!(!nullable(col("u32").in_list([1])));
    let with_null = Expr::InList(Box::new(col("u32")), vec![Some(1.into()), None]);
    assert!(nullable(with_null));
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let refused = |expr: Expr| expr.check(&schema()).unwrap_err().to_string();
    let error = refused(col("text") + 1);
    assert!(error.contains("text in text + 1 is utf8; expected a number"), "{error}");
    let error = refused(col("date").lt(col("when")));
    assert!(error.contains("when in date < when is timestamp; expected date"), "{error}");
    let error = refused(col("u32").and(col("bool")));
    assert!(error.contains("u32 in u32 and bool is u32; expected bool"), "{error}");
    let error = refused(col("text").in_list([1]));
    assert!(error.contains("1 in text in (1) is i32; expected utf8"), "{error}");
    assert!(refused(col("u23").eq(1)).contains("did you mean \"u32\"?"));
    let error = col("u32").check_predicate(&schema()).unwrap_err().to_string();
    assert!(error.contains("the predicate u32 is u32; expected bool"), "{error}");
}

#[test]
fn what_is_too_large_for_one_step_is_refused_with_a_way_out() {
    let engine = host();
    let column = crate::Column::from_slice(&engine, &[1u32], StreamId::DEFAULT).unwrap();
    let named = (0..9).map(|index| (format!("c{index}"), column.clone()));
    let table = Table::new(&engine, named).unwrap();
    let nine = (1..9).fold(col("c0"), |sum, index| sum + col(format!("c{index}")));
    assert!(is_too_large(&nine.compile(&table).unwrap_err()));
    let eight = (1..8).fold(col("c0"), |sum, index| sum + col(format!("c{index}")));
    assert!(eight.compile(&table).is_ok());
    let deep = (0..20).fold(col("c0"), |right, _| col("c1") + right);
    assert!(is_too_large(&deep.compile(&table).unwrap_err()));
}

#[test]
fn a_program_is_refused_by_a_table_it_was_not_compiled_for() {
    let engine = host();
    let words = crate::Column::from_slice(&engine, &[1u32], StreamId::DEFAULT).unwrap();
    let longs = crate::Column::from_slice(&engine, &[1u64], StreamId::DEFAULT).unwrap();
    let narrow = Table::new(&engine, [("c", words)]).unwrap();
    let wide = Table::new(&engine, [("c", longs)]).unwrap();
    let program = (col("c") + 1).compile(&wide).unwrap();
    let error = program.evaluate(&narrow, StreamId::DEFAULT).unwrap_err().to_string();
    assert!(error.contains("compiled for another table"), "{error}");
}

#[test]
fn overflow_is_an_error_that_names_the_operation() {
    let engine = host();
    let column = crate::Column::from_slice(&engine, &[i64::MAX], StreamId::DEFAULT).unwrap();
    let table = Table::new(&engine, [("c", column)]).unwrap();
    let of = |expr: Expr| {
        let program = expr.compile(&table).unwrap();
        program.evaluate(&table, StreamId::DEFAULT).unwrap().finish().map(|_| ())
    };
    let error = of(col("c") * 2).unwrap_err();
    assert_eq!(error, RelationalError::Overflow { operation: "*".to_owned() });
    assert_eq!(of(col("c") * null(DataType::I64)), Ok(()), "a missing value overflows nothing");
    assert_eq!(of(col("c") / 0), Ok(()), "it is missing");
    assert_eq!(of(-(-col("c") - 1)).map_err(|e| e.to_string().contains("sign")), Err(true));
}

#[test]
fn expressions_read_as_they_are_written() {
    let show = |expr: Expr| expr.to_string();
    assert_eq!(show(col("a") - (col("b") - col("c"))), "a - (b - c)");
    assert_eq!(show(col("a") - col("b") - col("c")), "a - b - c");
    assert_eq!(show(-(col("a") + 1)), "-(a + 1)");
    assert_eq!(show(!(col("a").eq(1).or(col("b").is_not_null()))), "not (a = 1 or b is not null)");
    assert_eq!(show(col("a").between(1, 2)), "a >= 1 and a <= 2");
    assert_eq!(show(col("a b").in_list(["x", "y"])), "\"a b\" in ('x', 'y')");
    assert_eq!(show(col("or").eq("it's")), "\"or\" = 'it''s'");
    assert_eq!(show(lit(Scalar::Date32(3)).lt(col("d"))), "date '1970-01-04' < d");
}

#[test]
fn text_beside_a_date_or_a_timestamp_is_one_if_it_is_written_as_one() {
    let schema = schema();
    let check = |expr: Expr| expr.check(&schema);
    let day = lit(Scalar::Date32(1));
    assert_eq!(check(col("date").eq("1970-01-02")), check(col("date").eq(day.clone())));
    assert_eq!(check(lit("1970-01-02").lt(col("date"))), check(day.clone().lt(col("date"))));
    let midnight = lit(Scalar::Timestamp(86_400_000_000));
    assert_eq!(check(col("when").gt("1970-01-02")), check(col("when").gt(midnight.clone())));
    assert_eq!(check(col("when").gt(day)), check(col("when").gt(midnight)));
    let listed = check(col("date").in_list(["1970-01-02"]));
    assert_eq!(listed, check(col("date").in_list([Scalar::Date32(1)])));
    for wrong in [col("date").eq("soon"), col("date").in_list(["soon"]), col("text").eq(1)] {
        assert!(matches!(check(wrong), Err(RelationalError::TypeMismatch { .. })));
    }
}
