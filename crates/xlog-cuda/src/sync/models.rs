//! How a model is written and run.
//!
//! A model is a test that [`explore`] runs once for every order in which its threads can take
//! turns, and every value their loads may return. Two threads with a handful of steps each make
//! thousands of runs, so models are small, and the larger ones bound how often a thread is
//! interrupted. A run must do the same each time, given the same turns: no clocks, no chance, and
//! tables in `std`'s hands only where their contents decide nothing.
//!
//! [`must_fail_without`] runs a model with one [`Step`] left out, and demands that it fails.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use super::{Step, TinyLock};
use crate::device_runtime::VirtualThread;

thread_local! {
    /// Every thread of a model runs on the one real thread of its test.
    static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
}

/// Whether this test leaves a step out.
pub(crate) fn leaves_out(step: Step) -> bool {
    LEFT_OUT.get() == Some(step)
}

/// How often a thread may be interrupted where it could go on; `None` for any number.
pub(crate) type Interruptions = Option<usize>;

/// Runs a model in every order, and says how many there were.
pub(crate) fn explore(
    name: &str,
    interruptions: Interruptions,
    model: impl Fn() + Send + Sync + 'static,
) {
    let (runs, began) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let counted = Arc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(interruptions);
    builder.max_branches = 100_000;
    let bound = builder.preemption_bound;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let (runs, took) = (runs.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
    let bound = bound.map_or("all".into(), |most| format!("{most} interruptions"));
    println!("model {name}: {runs} interleavings ({bound}), {took:.1} s");
}

/// Runs a model with a step left out: it must fail, and say `what`.
pub(crate) fn must_fail_without(
    step: Step,
    what: &str,
    interruptions: Interruptions,
    model: impl Fn() + Send + Sync + 'static,
) {
    LEFT_OUT.set(Some(step));
    let name = format!("without {step:?}");
    let runs = catch_unwind(AssertUnwindSafe(|| explore(&name, interruptions, model)));
    LEFT_OUT.set(None);
    let panic = runs.expect_err("a model that does not notice a missing step");
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(said.contains(what), "without {step:?} it fails for another reason: {said}");
    println!("model {name}: fails, as it must");
}

/// Runs two threads of a model at once, each with a desk of its own, and waits for both.
pub(crate) fn at_once<A: 'static, B>(
    (one, first): (VirtualThread, impl FnOnce() -> A + 'static),
    (other, second): (VirtualThread, impl FnOnce() -> B),
) -> (A, B) {
    // The desks come back: nobody gives one up while the other thread is at work.
    let spawned = loom::thread::spawn(move || (one.run(first), one));
    let second = other.run(second);
    let (first, _one) = spawned.join().expect("a thread of the model");
    (first, second)
}

/// Two threads each add to a number that only the lock protects.
fn lock_keeps_others_out() {
    let total = Arc::new(TinyLock::new(0));
    let theirs = Arc::clone(&total);
    let add = |total: &TinyLock<i32>| {
        *total.lock() += 1;
    };
    let other = loom::thread::spawn(move || add(&theirs));
    add(&total);
    other.join().expect("a thread of the model");
    assert_eq!(*total.lock(), 2);
}

#[test]
fn the_tiny_lock_keeps_others_out_and_hands_on_what_it_guards() {
    explore("tiny lock", None, lock_keeps_others_out);
}

#[test]
fn the_tiny_lock_must_acquire_and_release() {
    let what = "Causality violation";
    must_fail_without(Step::LockAcquire, what, None, lock_keeps_others_out);
    must_fail_without(Step::LockRelease, what, None, lock_keeps_others_out);
}
