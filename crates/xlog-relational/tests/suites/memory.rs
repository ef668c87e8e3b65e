//! Memory that runs out: an error, nothing kept, inputs as they were.

use std::sync::Arc;

use xlog_cuda::{
    CudaDevice,
    device_runtime::{
        DriverError, FaultInjectionResource, FaultPlan, Operation, ResourceStack, StreamId,
    },
};
use xlog_relational::{
    Engine, Expr, RelationalError, RelationalResult, Table, col,
    reference::Relation,
    strategies::{fields_of_all_types, relation},
};
use xlog_testkit::{TestCase, TestDevice, cases};

use super::hold;

pub(crate) const CASES: &[TestCase] = cases![every_allocation_may_fail];

/// An engine whose `n`-th allocation fails.
fn failing_at(device: TestDevice, n: u64) -> Engine {
    let device = Arc::new(CudaDevice::with_driver(device.driver()));
    let stack = ResourceStack::production(device).expect("a stack").with(|inner| {
        let plan = FaultPlan::nth(Operation::Allocate, n).with_code(DriverError::OUT_OF_MEMORY);
        Box::new(FaultInjectionResource::new(inner, plan))
    });
    Engine::over(&stack.build().expect("a stack"))
}

/// Evaluates the expression both ways.
fn evaluate(table: &Table, expr: &Expr) -> RelationalResult<()> {
    let program = expr.compile(table)?;
    program.mask(table, StreamId::DEFAULT)?.refuse_overflow()?;
    program.evaluate(table, StreamId::DEFAULT)?.finish()?;
    Ok(())
}

fn every_allocation_may_fail(device: TestDevice) {
    // Interpreted with a table of ranks, interpreted with numbers, and two ranges.
    let expressions = [
        col("text").lt("b").or(col("bool")),
        (col("f64") * 2.0).gt(col("f32")),
        col("u32").gt(1u32).and(col("f64").lt(0.5)),
    ];
    hold(3, relation(fields_of_all_types(), 100), |input| {
        let batch = input.to_batch().expect("a batch");
        for expr in &expressions {
            let (mut uploads, mut evaluations) = (0, 0);
            for n in 1.. {
                let engine = failing_at(device, n);
                let held = || engine.manager().held_bytes();
                let is_full = |error: &RelationalError| {
                    assert!(error.is_out_of_memory(), "{error}");
                    assert!(error.to_string().contains("bytes in all"), "{error}");
                };
                let table = match Table::from_batch(&engine, &batch, StreamId::DEFAULT) {
                    Ok(table) => table,
                    Err(error) => {
                        is_full(&error);
                        assert_eq!(held(), 0, "an upload that failed keeps nothing");
                        uploads += 1;
                        continue;
                    }
                };
                let before = held();
                let evaluated = evaluate(&table, expr);
                assert_eq!(held(), before, "what was evaluated is gone");
                let found = table.download(StreamId::DEFAULT).expect("the table is there");
                let found = Relation::from_batch(&found).expect("known types");
                assert!(found.same_in_order(&input), "the input is as it was");
                match evaluated {
                    Ok(()) => break, // There is no n-th allocation any more.
                    Err(error) => is_full(&error),
                }
                evaluations += 1;
            }
            assert!(uploads >= input.columns().len(), "each column is an allocation");
            let fewest = if input.rows() == 0 { 2 } else { 5 };
            assert!(evaluations >= fewest, "{expr} has {evaluations} allocations");
        }
        Ok(())
    });
}
