//! Every operator on the checked host device, where an access that was not declared, memory that
//! nobody wrote and a wait that is missing are found.

#[allow(unreachable_pub, dead_code, clippy::panic)] // shared with the programs that run every suite
#[path = "suites/operators/cases.rs"]
mod cases;
#[allow(unreachable_pub, dead_code, clippy::panic)]
#[path = "suites/operators/rounds.rs"]
mod rounds;

use cases::{assert_same_rows, cases, relation, upload};
use xlog_relational::Engine;
use xlog_testkit::CheckedDevice;

#[test]
fn no_operator_touches_what_it_did_not_declare() {
    for (seed, rows) in [(0, 70), (1, 33), (2, 1), (3, 0)] {
        let checked = CheckedDevice::new(seed);
        {
            let stack =
                if seed % 2 == 0 { checked.plain_stack() } else { checked.production_stack() };
            let stack = stack.expect("a stack");
            let engine = Engine::over(&stack);
            let acquire = || stack.streams().acquire().expect("a stream");
            let streams = [acquire(), acquire(), acquire()];
            for nulls in [false, true] {
                let relations =
                    [relation(rows, 2 * seed, nulls), relation(rows, 2 * seed + 1, nulls)];
                let left = upload(&engine, &relations[0], streams[0]);
                let right = upload(&engine, &relations[1], streams[1]);
                for case in cases() {
                    let got = (case.run)(&left, &right, streams[2]);
                    let expected = (case.expected)(&relations[0], &relations[1]);
                    let what = format!("{} of {rows} rows", case.name);
                    assert_same_rows(got, expected, streams[0], &what);
                }
            }
        }
        checked.assert_clean();
    }
}

#[test]
fn eight_threads_over_shared_inputs_are_clean() {
    let checked = CheckedDevice::new(11);
    {
        let stack = checked.production_stack().expect("a stack");
        rounds::rounds(&Engine::over(&stack), 16);
    }
    checked.assert_clean();
}
