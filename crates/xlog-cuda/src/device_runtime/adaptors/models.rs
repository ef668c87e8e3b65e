//! The ledger: sums are exact, and so is a peak, whoever counts at the same time.

use std::sync::Arc;

use super::ledger::Ledger;
use crate::sync::{
    Step,
    models::{explore, must_fail_without},
};

/// Two threads count, and one looks at a scope of its own meanwhile.
fn two_count() {
    let ledger = Arc::new(Ledger::default());
    let theirs = Arc::clone(&ledger);
    let other = loom::thread::spawn(move || {
        theirs.add(10);
        theirs.remove(10);
    });
    ledger.add(20);
    let seen = ledger.statistics().bytes;
    assert!(seen.current == 20 || seen.current == 30, "a level that was there: {seen:?}");
    assert!(seen.peak as i64 >= seen.current, "{seen:?}");
    other.join().expect("a thread of the model");
    let (bytes, blocks) = (ledger.statistics().bytes, ledger.statistics().blocks);
    assert_eq!((bytes.current, bytes.total), (20, 30));
    assert_eq!((blocks.current, blocks.total), (1, 2));
    assert!((20..=30).contains(&bytes.peak) && (1..=2).contains(&blocks.peak), "{bytes:?}");
}

/// A scope begins and ends while another thread counts.
fn a_scope_comes_and_goes() {
    let ledger = Arc::new(Ledger::default());
    let theirs = Arc::clone(&ledger);
    let other = loom::thread::spawn(move || theirs.add(10));
    ledger.push();
    let scope = ledger.pop().expect("a scope was begun").bytes;
    assert!(scope.current == 0 || scope.current == 10, "{scope:?}");
    assert_eq!(scope.peak as i64, scope.current, "{scope:?}");
    other.join().expect("a thread of the model");
    let whole = ledger.statistics().bytes;
    assert_eq!((whole.current, whole.peak, whole.total), (10, 10, 10));
}

#[test]
fn sums_and_peaks_are_exact() {
    explore("ledger, two threads count", Some(4), two_count);
    explore("ledger, a scope comes and goes", Some(4), a_scope_comes_and_goes);
}

#[test]
fn shards_must_be_locked() {
    must_fail_without(Step::LockRelease, "Causality violation", Some(3), two_count);
}
