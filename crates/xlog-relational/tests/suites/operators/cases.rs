//! Every operator over two tables, with what the reference makes of the same rows: for tests that
//! go through all of them.

use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Aggregate, AggregateFunction, DataType, Engine, Field, JoinKind, RelationalResult, Scalar,
    Table,
    ops::{
        JoinBuild, Partitioned, concat, distinct, except, except_tuned, group_by, hash_join,
        hash_join_tuned, intersect, intersect_tuned, partition, union,
    },
    primitives::Tuning,
    reference::{self, HostColumn, Relation},
};

/// One way to call an operator.
pub struct Case {
    /// What to call it in messages.
    pub name: &'static str,
    /// The operator.
    pub run: fn(&Table, &Table, StreamId) -> RelationalResult<Table>,
    /// The oracle.
    pub expected: fn(&Relation, &Relation) -> RelationalResult<Relation>,
}

macro_rules! joins {
    ($($name:literal, $kind:ident, $on:expr;)*) => {
        [$(Case {
            name: $name,
            run: |left, right, stream| hash_join(left, right, $on, JoinKind::$kind, stream),
            expected: |left, right| reference::join(left, right, $on, JoinKind::$kind),
        }),*]
    };
}

/// Keys of four bytes alone; of a float, a text and a truth value; of eight bytes.
const ID: &[(&str, &str)] = &[("id", "id")];
const MANY: &[(&str, &str)] = &[("real", "real"), ("name", "name"), ("flag", "flag")];
const WIDE: &[(&str, &str)] = &[("wide", "wide")];

const JOINS: [Case; 8] = joins! {
    "inner join", Inner, ID;
    "left join", Left, MANY;
    "right join", Right, WIDE;
    "full join", Full, MANY;
    "semi join", Semi, ID;
    "anti join", Anti, MANY;
    "inner join of wide keys", Inner, WIDE;
    "full join of single keys", Full, ID;
};

/// The figures that all numbers have, of every column that has them.
fn figures() -> Vec<Aggregate> {
    use AggregateFunction::{Count, CountDistinct, Max, Mean, Min, Sum};
    let mut all = vec![Aggregate::count_rows()];
    for column in ["id", "real", "name", "flag", "wide"] {
        all.extend(
            [Count, CountDistinct, Min, Max].map(|function| Aggregate::of(function, column)),
        );
        if !["name", "flag"].contains(&column) {
            all.extend([Sum, Mean].map(|function| Aggregate::of(function, column)));
        }
    }
    all
}

/// One column of four bytes, which joins and distinct treat apart.
fn single(table: &Table) -> RelationalResult<Table> {
    table.select(&["id"])
}

fn single_of(relation: &Relation) -> RelationalResult<Relation> {
    Relation::new(vec![relation.column("id")?.clone()])
}

/// What is done with tables that are too large for one block.
const LARGE: Tuning = Tuning { one_block: false, ..Tuning::DEFAULT };

const LARGE_CASES: [Case; 8] = [
    Case {
        name: "inner join as of large tables",
        run: |left, right, stream| {
            hash_join_tuned(&single(left)?, &single(right)?, ID, JoinKind::Inner, LARGE, stream)
        },
        expected: |left, right| {
            reference::join(&single_of(left)?, &single_of(right)?, ID, JoinKind::Inner)
        },
    },
    Case {
        name: "left join as of large tables",
        run: |left, right, stream| {
            hash_join_tuned(left, right, MANY, JoinKind::Left, LARGE, stream)
        },
        expected: |left, right| reference::join(left, right, MANY, JoinKind::Left),
    },
    Case {
        name: "full join as of large tables",
        run: |left, right, stream| hash_join_tuned(left, right, ID, JoinKind::Full, LARGE, stream),
        expected: |left, right| reference::join(left, right, ID, JoinKind::Full),
    },
    Case {
        name: "semi join as of large tables",
        run: |left, right, stream| {
            hash_join_tuned(left, right, WIDE, JoinKind::Semi, LARGE, stream)
        },
        expected: |left, right| reference::join(left, right, WIDE, JoinKind::Semi),
    },
    Case {
        name: "anti join as of large tables",
        run: |left, right, stream| {
            hash_join_tuned(left, right, MANY, JoinKind::Anti, LARGE, stream)
        },
        expected: |left, right| reference::join(left, right, MANY, JoinKind::Anti),
    },
    Case {
        name: "intersect all as of large tables",
        run: |left, right, stream| intersect_tuned(left, right, true, LARGE, stream),
        expected: |left, right| reference::intersect(left, right, true),
    },
    Case {
        name: "except as of large tables",
        run: |left, right, stream| except_tuned(left, right, false, LARGE, stream),
        expected: |left, right| reference::except(left, right, false),
    },
    Case {
        name: "except of one column as of large tables",
        run: |left, right, stream| {
            except_tuned(&single(left)?, &single(right)?, false, LARGE, stream)
        },
        expected: |left, right| reference::except(&single_of(left)?, &single_of(right)?, false),
    },
];

/// A join with a side that was made before; `hash_join` where there is none.
fn join_with_built(
    left: &Table,
    right: &Table,
    key: &str,
    kind: JoinKind,
    stream: StreamId,
) -> RelationalResult<Table> {
    match JoinBuild::new(right, &[key], kind, false, stream)? {
        Some(build) => build.join(left, &[key], stream),
        None => hash_join(left, right, &[(key, key)], kind, stream),
    }
}

const PREPARED: [Case; 3] = [
    Case {
        name: "inner join with a side that is ready",
        run: |left, right, stream| {
            let once = distinct(right, Some(&["id"]), stream)?;
            join_with_built(left, &once, "id", JoinKind::Inner, stream)
        },
        expected: |left, right| {
            reference::join(left, &reference::distinct(&single_of(right)?), ID, JoinKind::Inner)
        },
    },
    Case {
        name: "semi join with a side that is ready",
        run: |left, right, stream| join_with_built(left, right, "wide", JoinKind::Semi, stream),
        expected: |left, right| reference::join(left, right, WIDE, JoinKind::Semi),
    },
    Case {
        name: "union, part by part",
        run: |left, right, stream| {
            let keys = ["name", "id", "flag"];
            let split = [partition(left, &keys, 4, stream)?, partition(right, &keys, 4, stream)?];
            let parts = (0..4).map(|part| {
                let both = Partitioned::part(&[&split[0], &split[1]], part, stream)?;
                distinct(&both, None, stream)
            });
            let parts: Vec<Table> = parts.collect::<RelationalResult<_>>()?;
            concat(&parts.iter().collect::<Vec<_>>(), stream)
        },
        expected: |left, right| reference::union(left, right),
    },
];

const OTHERS: [Case; 14] = [
    Case {
        name: "inner join of words",
        run: |left, right, stream| {
            hash_join(&single(left)?, &single(right)?, ID, JoinKind::Inner, stream)
        },
        expected: |left, right| {
            reference::join(&single_of(left)?, &single_of(right)?, ID, JoinKind::Inner)
        },
    },
    Case {
        name: "group by a key",
        run: |left, _, stream| group_by(left, &["id"], &figures(), stream),
        expected: |left, _| reference::group_by(left, &["id"], &figures()),
    },
    Case {
        name: "group by several keys",
        run: |left, _, stream| group_by(left, &["name", "real", "flag"], &figures(), stream),
        expected: |left, _| reference::group_by(left, &["name", "real", "flag"], &figures()),
    },
    Case {
        name: "group by nothing",
        run: |left, _, stream| group_by(left, &[], &figures(), stream),
        expected: |left, _| reference::group_by(left, &[], &figures()),
    },
    Case {
        name: "keys without figures",
        run: |left, _, stream| group_by(left, &["wide"], &[], stream),
        expected: |left, _| reference::group_by(left, &["wide"], &[]),
    },
    Case {
        name: "distinct",
        run: |left, _, stream| distinct(left, None, stream),
        expected: |left, _| Ok(reference::distinct(left)),
    },
    Case {
        name: "distinct of one column",
        run: |left, _, stream| distinct(left, Some(&["id"]), stream),
        expected: |left, _| Ok(reference::distinct(&single_of(left)?)),
    },
    Case {
        name: "union",
        run: |left, right, stream| union(left, right, stream),
        expected: |left, right| reference::union(left, right),
    },
    Case {
        name: "union of one column",
        run: |left, right, stream| union(&single(left)?, &single(right)?, stream),
        expected: |left, right| reference::union(&single_of(left)?, &single_of(right)?),
    },
    Case {
        name: "intersect",
        run: |left, right, stream| intersect(left, right, false, stream),
        expected: |left, right| reference::intersect(left, right, false),
    },
    Case {
        name: "intersect all",
        run: |left, right, stream| intersect(left, right, true, stream),
        expected: |left, right| reference::intersect(left, right, true),
    },
    Case {
        name: "except",
        run: |left, right, stream| except(left, right, false, stream),
        expected: |left, right| reference::except(left, right, false),
    },
    Case {
        name: "intersect of wide words",
        run: |left, right, stream| {
            intersect(&left.select(&["wide"])?, &right.select(&["wide"])?, false, stream)
        },
        expected: |left, right| {
            let wide = |all: &Relation| Relation::new(vec![all.column("wide")?.clone()]);
            reference::intersect(&wide(left)?, &wide(right)?, false)
        },
    },
    Case {
        name: "except all of one column",
        run: |left, right, stream| except(&single(left)?, &single(right)?, true, stream),
        expected: |left, right| reference::except(&single_of(left)?, &single_of(right)?, true),
    },
];

/// All of them.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    JOINS.iter().chain(&OTHERS).chain(&LARGE_CASES).chain(&PREPARED)
}

/// A table with a column of each width and nature, whose values repeat. Values are missing if
/// `nulls` says so.
pub fn relation(rows: usize, seed: u64, nulls: bool) -> Relation {
    let mut state = seed;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % end
    };
    let reals = [0.0, -0.0, f64::NAN, -f64::NAN, 1.5, -2.0];
    let names = ["", "ada", "bea", "cid"];
    type Value<'v> = &'v dyn Fn(u64) -> Scalar;
    let columns: [(&str, DataType, Value<'_>); 5] = [
        ("id", DataType::I32, &|n| Scalar::I32(n as i32 - 3)),
        ("real", DataType::F64, &|n| Scalar::F64(reals[n as usize % 6])),
        ("name", DataType::Utf8, &|n| Scalar::from(names[n as usize % 4])),
        ("flag", DataType::Bool, &|n| Scalar::Bool(n % 2 == 0)),
        ("wide", DataType::U64, &|n| Scalar::U64(n << 40 | n)),
    ];
    let columns = columns.map(|(name, data_type, value)| {
        let values = (0..rows).map(|_| {
            let missing = nulls && below(5) == 0;
            let value = value(below(9));
            (!missing).then_some(value)
        });
        HostColumn::new(Field::new(name, data_type), values.collect())
    });
    Relation::new(columns.into()).expect("values of their types")
}

/// The rows of a relation on a device.
pub fn upload(engine: &Engine, relation: &Relation, stream: StreamId) -> Table {
    let batch = relation.to_batch().expect("a batch");
    Table::from_batch(engine, &batch, stream).expect("an upload")
}

/// The rows of a table on the host.
pub fn download(table: &Table, stream: StreamId) -> Relation {
    let batch = table.download(stream).expect("a download");
    Relation::from_batch(&batch).expect("a relation")
}

/// Ends the test unless both answers are the same: the same rows in any order, or the same error.
pub fn assert_same_rows(
    got: RelationalResult<Table>,
    expected: RelationalResult<Relation>,
    stream: StreamId,
    what: &str,
) {
    match (got.map(|table| download(&table, stream)), expected) {
        (Ok(got), Ok(expected)) => {
            assert!(got.same_rows(&expected), "{what}\ngot {got:?}\nexpected {expected:?}");
        }
        (Err(got), Err(expected)) => assert_eq!(got, expected, "{what}"),
        (got, expected) => panic!("{what}\ngot {got:?}\nexpected {expected:?}"),
    }
}
