//! Operators with memory failing at each of their allocations in turn: an error that says what was
//! needed, nothing lost, and inputs as they were.

use std::sync::Arc;

use libtest_mimic::Trial;
use xlog_cuda::device_runtime::{
    DeviceStack, DriverError, FaultInjectionResource, FaultPlan, Operation, ResourceStack, StreamId,
};
use xlog_relational::{Engine, RelationalResult, SortKey, Table, col, ops, reference::Relation};

use super::support::{download_table, large_relation, upload_table};
use crate::suites::primitives::support::{Random, trial};

type Run = fn(&Table, &Table, StreamId) -> RelationalResult<Table>;

/// A stack in which every allocation is one of the driver's, and one can fail.
fn faulty(engine: &Engine, plan: FaultPlan) -> (DeviceStack, Arc<FaultInjectionResource>) {
    let device = Arc::clone(engine.runtime().device());
    let mut faults = None;
    let stack = ResourceStack::over_driver(device).with(|inner| {
        let resource = Arc::new(FaultInjectionResource::new(inner, plan));
        faults = Some(Arc::clone(&resource));
        Box::new(resource)
    });
    (stack.build().expect("a stack"), faults.expect("the adaptor"))
}

/// Two tables on an engine of their own.
struct Stage {
    inputs: [Table; 2],
    engine: Engine,
    stream: StreamId,
    faults: Arc<FaultInjectionResource>,
}

impl Stage {
    fn new(engine: &Engine, relations: &[Relation; 2], plan: FaultPlan) -> Self {
        let (stack, faults) = faulty(engine, plan);
        let engine = Engine::over(&stack);
        let stream = stack.streams().acquire().expect("a stream");
        let inputs = [0, 1].map(|index: usize| upload_table(&engine, &relations[index], stream));
        Self { inputs, engine, stream, faults }
    }

    fn run(&self, operator: Run) -> RelationalResult<Table> {
        operator(&self.inputs[0], &self.inputs[1], self.stream)
    }
}

fn fails_at_each_allocation(engine: &Engine, rows: usize, operator: Run) {
    let mut random = Random::new(rows as u64);
    let relations = [large_relation(rows, &mut random), large_relation(90, &mut random)];
    let whole = Stage::new(engine, &relations, FaultPlan::default());
    let before = whole.faults.count(Operation::Allocate);
    let expected = download_table(&whole.run(operator).expect("a result"), whole.stream);
    let after = whole.faults.count(Operation::Allocate);
    assert!(after > before, "an operator that allocates");

    for number in before + 1..=after {
        let plan = FaultPlan::nth(Operation::Allocate, number);
        let plan = plan.with_code(DriverError::OUT_OF_MEMORY);
        let stage = Stage::new(engine, &relations, plan);
        let held = stage.engine.manager().held_bytes();
        let error = stage.run(operator).expect_err("not enough memory");
        assert!(error.is_out_of_memory(), "allocation {number}: {error}");
        let text = error.to_string();
        assert!(text.contains("not enough memory for") && text.contains("bytes in all"), "{text}");
        assert_eq!(stage.faults.injected(), 1);
        assert_eq!(stage.engine.manager().held_bytes(), held, "allocation {number}: {error}");
        for (table, relation) in stage.inputs.iter().zip(&relations) {
            assert!(download_table(table, stage.stream).same_in_order(relation), "{number}");
        }
        let again = download_table(&stage.run(operator).expect("memory again"), stage.stream);
        assert!(again.same_in_order(&expected), "allocation {number}");
    }
}

/// The suite.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    let operators: [(&str, usize, Run); 10] = [
        ("sort_few", 300, |table, _, stream| ops::sort(table, &several(), stream)),
        ("sort_many", 3000, |table, _, stream| ops::sort(table, &several(), stream)),
        ("sort_carried", 3000, |table, _, stream| {
            let pair = table.select(&["i32", "when"])?;
            ops::sort(&pair, &[SortKey::new("i32")], stream)
        }),
        ("top_k", 3000, |table, _, stream| ops::top_k(table, &several(), 40, stream)),
        ("filter_rows", 7000, |table, _, stream| {
            ops::filter_tuned(table, &col("u32").lt(9u32), ops::FilterBy::Rows, stream)
        }),
        ("filter_marked", 7000, |table, _, stream| {
            ops::filter(table, &col("u32").lt(9u32).and(col("u64").gt(2u64)), stream)
        }),
        ("filter_masked", 300, |table, _, stream| {
            ops::filter(table, &col("text").gt("a").and((col("i32") + 1).gt(3)), stream)
        }),
        ("project", 300, |table, _, stream| {
            let columns = [("a", col("i32") + 1), ("b", col("text").eq("ab")), ("c", col("f32"))];
            ops::project(table, &columns, stream)
        }),
        ("limit", 300, |table, _, stream| ops::limit(table, 7, 100, stream)),
        ("concat", 300, |table, other, stream| ops::concat(&[table, other, table], stream)),
    ];
    let test = |(name, rows, operator): (&str, usize, Run)| {
        trial(&format!("one_table::faults::{name}"), engine, move |engine| {
            fails_at_each_allocation(engine, rows, operator);
        })
    };
    operators.into_iter().map(test).collect()
}

fn several() -> [SortKey; 3] {
    [SortKey::new("text").descending(), SortKey::new("u64"), SortKey::new("i64").nulls_first()]
}
