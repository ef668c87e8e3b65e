//! Operators on many threads, and with memory that runs out.

use std::sync::Arc;

use libtest_mimic::Trial;
use xlog_cuda::device_runtime::{
    DriverError, FaultInjectionResource, FaultPlan, Operation, ResourceStack,
};
use xlog_relational::{Engine, RelationalError, RelationalResult, Table};

use super::{
    super::primitives::support::trial,
    cases::{Case, assert_same_rows, cases, download, relation, upload},
    property::STREAM,
    rounds::rounds,
};

pub fn tests(engine: &Engine) -> Vec<Trial> {
    let mut trials =
        vec![trial("operators::threads::eight_threads_get_what_one_gets", engine, |engine| {
            // Sixteen streams of their own.
            let engine = Engine::new(Arc::clone(engine.runtime().device())).expect("an engine");
            rounds(&engine, 125);
        })];
    trials.extend(cases().map(|case| {
        let name = format!("operator_memory::{}", case.name.replace(' ', "_"));
        trial(&name, engine, |engine| {
            fails_at_each_allocation(engine, case, false);
            fails_at_each_allocation(engine, case, true);
        })
    }));
    trials
}

/// An engine on the same device whose allocation number `failing` fails for lack of memory.
fn faulty(engine: &Engine, failing: u64) -> (Engine, Arc<FaultInjectionResource>) {
    let plan = FaultPlan::nth(Operation::Allocate, failing).with_code(DriverError::OUT_OF_MEMORY);
    let mut faults = None;
    let stack = ResourceStack::over_driver(Arc::clone(engine.runtime().device())).with(|below| {
        let faulty = Arc::new(FaultInjectionResource::new(below, plan));
        faults = Some(Arc::clone(&faulty));
        Box::new(faulty)
    });
    let engine = Engine::over(&stack.build().expect("a stack"));
    (engine, faults.expect("the adaptor was asked for"))
}

/// An operator whose every allocation fails in turn answers with an error, frees what it took and
/// leaves its inputs alone; the same call succeeds once there is memory.
fn fails_at_each_allocation(engine: &Engine, case: &Case, nulls: bool) {
    let relations = [relation(60, 5, nulls), relation(45, 6, nulls)];
    let expected = || (case.expected)(&relations[0], &relations[1]);
    let run = |failing: u64| -> (u64, u64, RelationalResult<Table>, Engine, [Table; 2]) {
        let (engine, faults) = faulty(engine, failing);
        let tables = [0, 1].map(|side| upload(&engine, &relations[side], STREAM));
        let before = faults.count(Operation::Allocate);
        let held = engine.manager().held_bytes();
        let result = (case.run)(&tables[0], &tables[1], STREAM);
        if result.is_err() {
            assert_eq!(engine.manager().held_bytes(), held, "{} leaks: {failing}", case.name);
        }
        (before, faults.count(Operation::Allocate), result, engine, tables)
    };
    let (first, last, result, _engine, _tables) = run(u64::MAX);
    assert_same_rows(result, expected(), STREAM, case.name);
    assert!(last > first, "{} allocates", case.name);
    for failing in first + 1..=last {
        let (_, _, result, _engine, tables) = run(failing);
        let what = format!("{}, allocation {failing} of {}..={last}", case.name, first + 1);
        let error = result.expect_err(&what);
        assert!(error.is_out_of_memory(), "{what}: {error}");
        let RelationalError::OutOfMemory { needed, .. } = &error else {
            panic!("{what}: {error:?} does not say which operator, and what it needs");
        };
        assert!(needed.is_some_and(|bytes| bytes > 0), "{what}: {error}");
        for (table, relation) in tables.iter().zip(&relations) {
            assert!(download(table, STREAM).same_in_order(relation), "{what}: inputs are intact");
        }
        let again = (case.run)(&tables[0], &tables[1], STREAM);
        assert_same_rows(again, expected(), STREAM, &what);
    }
}
