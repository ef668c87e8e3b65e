use std::sync::{
    Arc, Barrier,
    atomic::{AtomicUsize, Ordering},
};

use xlog_cuda::CudaDevice;

use super::*;
use crate::Column;

fn engine() -> Engine {
    Engine::new(Arc::new(CudaDevice::host())).expect("a host device")
}

fn table(engine: &Engine, rows: &[u32]) -> Table {
    let column = Column::from_slice(engine, rows, StreamId::DEFAULT).expect("a column");
    Table::new(engine, [("id", column)]).expect("a table")
}

/// A copy of the first input, with a column of its own memory on the step's stream.
fn copy(step: &Step<'_>, tables: &[Table]) -> RelationalResult<Table> {
    let rows = vec![7u32; tables[0].rows() as usize];
    let column = Column::from_slice(step.engine(), &rows, step.stream())?;
    Table::new(step.engine(), [("id", column)])
}

#[test]
fn only_what_the_outputs_need_is_called_and_each_node_once() {
    let engine = engine();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = |calls: &Arc<AtomicUsize>| {
        let calls = Arc::clone(calls);
        move |step: &Step<'_>, tables: &[Table]| {
            calls.fetch_add(1, Ordering::SeqCst);
            copy(step, tables)
        }
    };
    let mut plan = Plan::new();
    let source = plan.source("source", table(&engine, &[1, 2, 3]));
    let shared = plan.node("shared", &[source], counted(&calls));
    let left = plan.node("left", &[shared], counted(&calls));
    let right = plan.node("right", &[shared, shared], counted(&calls));
    let join = plan.node("join", &[left, right], counted(&calls));
    plan.node("unused", &[join], counted(&calls));
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let executor = Executor::new(&engine).with_threads(4).with_progress(move |progress| {
        let line = (progress.node.to_owned(), progress.done, progress.total, progress.rows);
        telling.lock().push(line);
    });
    let tables = executor.run(&plan, &[join, shared, join]).expect("a result");
    assert_eq!(tables.iter().map(Table::rows).collect::<Vec<_>>(), [3, 3, 3]);
    assert_eq!(calls.load(Ordering::SeqCst), 4, "shared, left, right and join");
    let mut told = told.lock().clone();
    told.sort_by_key(|(_, done, ..)| *done);
    assert_eq!(told.len(), 5);
    assert_eq!(told.last(), Some(&("join".to_owned(), 5, 5, 3)));
}

#[test]
fn independent_nodes_are_called_at_the_same_time_on_streams_of_their_own() {
    let engine = engine();
    let barrier = Arc::new(Barrier::new(3));
    let mut plan = Plan::new();
    let source = plan.source("source", table(&engine, &[1]));
    let nodes: Vec<_> = (0..3)
        .map(|_| {
            let barrier = Arc::clone(&barrier);
            plan.node("meets the others", &[source], move |step, tables| {
                // Comes back only if all three are under way.
                barrier.wait();
                copy(step, tables)
            })
        })
        .collect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let behind: Vec<_> = nodes
        .iter()
        .map(|node| {
            let seen = Arc::clone(&seen);
            plan.node("behind", &[*node], move |step, tables| {
                seen.lock().push(step.stream());
                Ok(tables[0].clone())
            })
        })
        .collect();
    Executor::new(&engine).with_threads(3).with_streams(3).run(&plan, &behind).expect("a result");
    let mut streams = seen.lock().clone();
    streams.sort_by_key(|stream| stream.0);
    streams.dedup();
    assert_eq!(streams.len(), 3, "{streams:?}");
}

#[test]
fn a_chain_stays_on_one_stream() {
    let engine = engine();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut plan = Plan::new();
    let mut last = plan.source("source", table(&engine, &[1]));
    for _ in 0..5 {
        let seen = Arc::clone(&seen);
        last = plan.node("link", &[last], move |step, tables| {
            seen.lock().push(step.stream());
            copy(step, tables)
        });
    }
    Executor::new(&engine).with_threads(2).run(&plan, &[last]).expect("a result");
    let streams = seen.lock();
    assert!(streams.iter().all(|stream| *stream == streams[0]), "{streams:?}");
}

#[test]
fn a_failure_ends_the_plan_names_its_node_and_frees_everything() {
    let engine = engine();
    let before = engine.manager().held_bytes();
    let mut plan = Plan::new();
    let source = plan.source("source", table(&engine, &[1, 2]));
    let made = plan.node("made", &[source], copy);
    let wrong = plan.node("wrong", &[made], |_, tables| tables[0].select(&["nothing"]));
    let never = plan.node("never", &[wrong], |_, _| panic!("not to be called"));
    let error = Executor::new(&engine).run(&plan, &[never, made]).expect_err("a failure");
    assert!(error.to_string().starts_with("wrong: no column is called \"nothing\""), "{error}");
    let panics = plan.node("panics", &[source], |_, _| panic!("on purpose"));
    let error = Executor::new(&engine).run(&plan, &[panics]).expect_err("a failure");
    assert!(error.to_string().contains("on purpose"), "{error}");
    drop(plan);
    assert_eq!(engine.manager().held_bytes(), before);
}

#[test]
fn a_cancelled_plan_begins_nothing_more() {
    let engine = engine();
    let token = CancelToken::new();
    let mut plan = Plan::new();
    let source = plan.source("source", table(&engine, &[1]));
    let cancelling = token.clone();
    let first = plan.node("first", &[source], move |step, tables| {
        cancelling.cancel();
        assert_eq!(step.check(), Err(RelationalError::Cancelled));
        Ok(tables[0].clone())
    });
    let second = plan.node("second", &[first], |_, _| panic!("not to be called"));
    let executor = Executor::new(&engine).with_threads(2).with_cancel(&token);
    assert_eq!(executor.run(&plan, &[second]).err(), Some(RelationalError::Cancelled));
    assert_eq!(executor.run(&plan, &[source]).err(), Some(RelationalError::Cancelled));
}

#[test]
fn nodes_of_another_plan_are_refused() {
    let engine = engine();
    let mut other = Plan::new();
    for _ in 0..3 {
        other.source("source", table(&engine, &[1]));
    }
    let foreign = other.source("foreign", table(&engine, &[1]));
    let mut plan = Plan::new();
    let source = plan.source("source", table(&engine, &[1]));
    let reads = plan.node("reads", &[foreign], copy);
    for outputs in [vec![source], vec![reads], vec![foreign]] {
        let error = Executor::new(&engine).run(&plan, &outputs).expect_err("a refusal");
        assert!(matches!(error, RelationalError::InvalidPlan { .. }), "{error}");
    }
    assert!(Executor::new(&engine).run(&Plan::new(), &[]).expect("nothing").is_empty());
}

#[test]
fn a_table_is_dropped_once_its_last_reader_is_done() {
    const ROWS: usize = 1 << 18;
    let engine = engine();
    let mut plan = Plan::new();
    let source = plan.source("source", table(&engine, &[1]));
    let large = plan.node("large", &[source], |step, _| {
        let column = Column::from_slice(step.engine(), &vec![7u32; ROWS], step.stream())?;
        Table::new(step.engine(), [("id", column)])
    });
    let held = Arc::new(Mutex::new(Vec::new()));
    let looks = |held: &Arc<Mutex<Vec<usize>>>| {
        let held = Arc::clone(held);
        move |step: &Step<'_>, _: &[Table]| {
            held.lock().push(step.engine().manager().held_bytes());
            Ok(table(step.engine(), &[1]))
        }
    };
    let small = plan.node("small", &[large], looks(&held));
    let last = plan.node("last", &[small], looks(&held));
    Executor::new(&engine).with_threads(1).run(&plan, &[last]).expect("a result");
    let held = held.lock();
    assert!(held[0] >= 4 * ROWS && held[1] < 4 * ROWS, "{held:?} bytes were held");
}
