//! Expressions against their oracle.

use std::cell::Cell;

use proptest::{prop_assert, prop_assert_eq, prop_oneof, test_runner::TestCaseError};
use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Engine, Expr, RelationalError, Scalar, Table,
    reference::{self, HostColumn, Relation},
    strategies::{fields_of_all_types, number, predicate, range, relation},
};
use xlog_testkit::{CheckedDevice, TestCase, TestDevice, cases};

use super::{engine, hold};

pub(crate) const CASES: &[TestCase] = cases![
    numbers_are_what_the_oracle_says,
    truth_is_what_the_oracle_says,
    a_mask_has_the_rows_that_the_oracle_keeps,
    a_range_has_the_rows_that_the_oracle_keeps,
    the_checked_device_finds_nothing,
];

fn numbers_are_what_the_oracle_says(device: TestDevice) {
    let engine = engine(device);
    hold(1000, (relation(fields_of_all_types(), 300), number()), |(input, expr)| {
        match on_device(&engine, &input, &expr) {
            Some(found) => agree(found, reference::evaluate(&input, &expr)),
            None => Ok(()),
        }
    });
}

fn truth_is_what_the_oracle_says(device: TestDevice) {
    let engine = engine(device);
    hold(
        1000,
        (relation(fields_of_all_types(), 300), predicate()),
        |(input, expr)| match on_device(&engine, &input, &expr) {
            Some(found) => agree(found, reference::evaluate(&input, &expr)),
            None => Ok(()),
        },
    );
}

fn a_mask_has_the_rows_that_the_oracle_keeps(device: TestDevice) {
    let engine = engine(device);
    let evaluated = Cell::new(0);
    hold(1000, (relation(fields_of_all_types(), 300), predicate()), |(input, expr)| {
        let was_evaluated = same_rows_are_kept(&engine, &input, &expr)?;
        evaluated.set(evaluated.get() + u32::from(was_evaluated));
        Ok(())
    });
    assert!(evaluated.get() > 900, "{} of 1000 expressions fit one step", evaluated.get());
}

fn a_range_has_the_rows_that_the_oracle_keeps(device: TestDevice) {
    let engine = engine(device);
    hold(2000, (relation(fields_of_all_types(), 600), range()), |(input, expr)| {
        prop_assert!(same_rows_are_kept(&engine, &input, &expr)?, "a range is never too large");
        Ok(())
    });
}

/// Holds a filter against its oracle; false if the predicate is too large for one step.
fn same_rows_are_kept(
    engine: &Engine,
    input: &Relation,
    expr: &Expr,
) -> Result<bool, TestCaseError> {
    match (kept_on_device(engine, input, expr), reference::filter(input, expr)) {
        (None, _) => return Ok(false),
        (Some(Ok(kept)), Ok(expected)) => {
            prop_assert!(kept.iter().all(|row| *row < input.rows()), "{}: {:?}", expr, kept);
            prop_assert!(input.take(&kept).same_in_order(&expected), "{}: {:?}", expr, kept);
        }
        (Some(Err(found)), Err(expected)) => both_overflow(&found, &expected)?,
        (found, expected) => prop_assert!(false, "{:?} and {:?}", found, expected),
    }
    Ok(true)
}

/// On the simulated device, whichever device this was asked for: it shows what a GPU hides.
fn the_checked_device_finds_nothing(_: TestDevice) {
    let expressions = prop_oneof![predicate(), range()];
    let inputs = (relation(fields_of_all_types(), 70), expressions, 0u64..100);
    hold(200, inputs, |(input, expr, seed)| {
        let checked = CheckedDevice::new(seed);
        let engine = Engine::over(&checked.production_stack().expect("a stack"));
        same_rows_are_kept(&engine, &input, &expr)?;
        checked.assert_clean();
        Ok(())
    });
}

fn both_overflow(found: &RelationalError, expected: &RelationalError) -> Result<(), TestCaseError> {
    let overflow = |error: &RelationalError| matches!(error, RelationalError::Overflow { .. });
    prop_assert!(overflow(found) && overflow(expected), "{} and {}", found, expected);
    Ok(())
}

/// What the device makes of an expression; `None` if it is too large for one step.
fn on_device(
    engine: &Engine,
    input: &Relation,
    expr: &Expr,
) -> Option<Result<HostColumn, RelationalError>> {
    let batch = input.to_batch().expect("a batch");
    let table = Table::from_batch(engine, &batch, StreamId::DEFAULT).expect("an upload");
    let program = match expr.compile(&table) {
        Ok(program) => program,
        Err(error) if is_too_large(&error) => return None,
        Err(error) => return Some(Err(error)),
    };
    let column = program.evaluate(&table, StreamId::DEFAULT).expect("a device that works").finish();
    Some(column.map(|column| {
        let result = Table::new(engine, [("result", column)]).expect("a device that works");
        let batch = result.download(StreamId::DEFAULT).expect("a device that works");
        Relation::from_batch(&batch).expect("a device that works").columns()[0].clone()
    }))
}

/// Which rows the device would keep; `None` if the predicate is too large for one step.
fn kept_on_device(
    engine: &Engine,
    input: &Relation,
    expr: &Expr,
) -> Option<Result<Vec<usize>, RelationalError>> {
    let batch = input.to_batch().expect("a batch");
    let table = Table::from_batch(engine, &batch, StreamId::DEFAULT).expect("an upload");
    let program = match expr.compile(&table) {
        Ok(program) => program,
        Err(error) if is_too_large(&error) => return None,
        Err(error) => return Some(Err(error)),
    };
    let mask = program.mask(&table, StreamId::DEFAULT).expect("a device that works");
    if let Err(error) = mask.refuse_overflow() {
        return Some(Err(error));
    }
    let words = mask.words().download().expect("a device that works");
    let rows = 0..words.len() * 32;
    Some(Ok(rows.filter(|row| words[row / 32] >> (row % 32) & 1 == 1).collect()))
}

/// Both sides are equal, bit by bit but for NaN; or both are an overflow.
fn agree(
    found: Result<HostColumn, RelationalError>,
    expected: Result<HostColumn, RelationalError>,
) -> Result<(), TestCaseError> {
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            prop_assert_eq!(found.field.data_type, expected.field.data_type);
            prop_assert_eq!(found.values.len(), expected.values.len());
            for (row, (a, b)) in found.values.iter().zip(&expected.values).enumerate() {
                let is_nan = |value: &Option<Scalar>| match value {
                    Some(Scalar::F32(value)) => value.is_nan(),
                    Some(Scalar::F64(value)) => value.is_nan(),
                    _ => false,
                };
                let same = match (a, b) {
                    (Some(a), Some(b)) => a.sort_order(b).is_some_and(|order| order.is_eq()),
                    (a, b) => a.is_none() && b.is_none(),
                };
                prop_assert!(same || is_nan(a) && is_nan(b), "row {}: {:?} {:?}", row, a, b);
            }
        }
        (Err(found), Err(expected)) => both_overflow(&found, &expected)?,
        (found, expected) => prop_assert!(false, "{:?} and {:?}", found, expected),
    }
    Ok(())
}

/// Whether an expression was refused because it is too large for one step.
fn is_too_large(error: &RelationalError) -> bool {
    matches!(error, RelationalError::UnsupportedExpression { reason, .. }
        if reason.contains("project parts of it first"))
}
