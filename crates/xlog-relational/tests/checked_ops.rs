//! Every operator on the checked host device, where an access that was not declared, memory that
//! nobody wrote and a wait that is missing are found.

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{Engine, SortKey, Table, col, lit, ops, reference};
use xlog_testkit::CheckedDevice;

use self::suites::{
    one_table::support::{download_table, large_relation, upload_table},
    primitives::support::Random,
};

#[allow(dead_code, unreachable_pub)] // shared with the suites, which use the rest
mod suites {
    pub mod one_table {
        #[path = "../../suites/one_table/support.rs"]
        pub mod support;
    }
    pub mod primitives {
        #[path = "../../suites/primitives/support.rs"]
        pub mod support;
    }
}

/// Operators on several streams over what others made.
fn operators(engine: &Engine, streams: &[StreamId; 3], rows: usize, random: &mut Random) {
    let (a, b) = (large_relation(rows, random), large_relation(rows / 3 + 1, random));
    let left = upload_table(engine, &a, streams[0]);
    let right = upload_table(engine, &b, streams[1]);
    let several = [
        SortKey::new("text").descending(),
        SortKey::new("u64").nulls_first(),
        SortKey::new("bool"),
        SortKey::new("f64").descending(),
    ];
    let one = [SortKey::new("f32").descending()];
    let both = ops::concat(&[&left, &right, &left], streams[2]).expect("a table");
    let expected = reference::concat(&a, &b).and_then(|ab| reference::concat(&ab, &a));
    let expected = expected.expect("a relation");
    let same = |got: Table, expected: &reference::Relation| {
        assert!(download_table(&got, streams[0]).same_in_order(expected));
    };

    let sorted = ops::sort(&both, &several, streams[0]).expect("a sort");
    same(sorted, &reference::sort(&expected, &several).expect("a sort"));
    for names in [vec!["f32"], vec!["f32", "when"], vec!["f32", "bool", "text"]] {
        let columns = names.iter().map(|name| expected.column(name).expect("it").clone());
        let part = reference::Relation::new(columns.collect()).expect("a relation");
        let sorted = ops::sort(&both.select(&names).expect("columns"), &one, streams[1]);
        same(sorted.expect("a sort"), &reference::sort(&part, &one).expect("a sort"));
    }
    let first = ops::top_k(&both, &several, 9, streams[2]).expect("rows");
    same(first, &reference::top_k(&expected, &several, 9).expect("rows"));

    for predicate in [
        col("u32").lt(20u32),
        col("when").gt(lit(xlog_relational::Scalar::Timestamp(5))),
        col("u64").gt(3u64).and(col("name").not_eq("b")),
        col("bool").or((col("i32") + 3).lt(10)),
    ] {
        for by in [ops::FilterBy::Rows, ops::FilterBy::Mask] {
            let kept = ops::filter_tuned(&both, &predicate, by, streams[1]).expect("rows");
            same(kept, &reference::filter(&expected, &predicate).expect("rows"));
        }
    }
    let columns =
        [("sum", col("i32") + col("u32")), ("text", col("text")), ("is", col("name").lt("b"))];
    let projected = ops::project(&both, &columns, streams[2]).expect("columns");
    same(projected, &reference::project(&expected, &columns).expect("columns"));
    for (offset, count) in [(0, rows as u64 * 2), (7, 40), (33, 3)] {
        let window = ops::limit(&both, offset, count, streams[0]).expect("rows");
        same(window, &reference::limit(&expected, offset, count));
    }
}

#[test]
fn no_operator_touches_what_it_did_not_declare() {
    let mut random = Random::fresh();
    for seed in 0..6 {
        let checked = CheckedDevice::new(seed);
        let stack = checked.production_stack().expect("a stack");
        let engine = Engine::over(&stack);
        let acquire = || stack.streams().acquire().expect("a stream");
        let streams = [acquire(), acquire(), acquire()];
        for rows in if seed == 0 { [1, 1500] } else { [30, 65] } {
            operators(&engine, &streams, rows, &mut random);
        }
        drop((engine, stack));
        checked.assert_clean();
    }
}
