//! The same over a device on which every access is looked at.

use xlog_relational::{Engine, primitives::Tuning};
use xlog_testkit::CheckedDevice;

use super::{Column, Random, group, join};

pub const CASES: &[(&str, fn())] = &[
    ("checked::joins_touch_what_they_declare", joins_touch_what_they_declare),
    ("checked::groups_touch_what_they_declare", groups_touch_what_they_declare),
];

fn on_checked_devices(test: impl Fn(&Engine, &mut Random)) {
    for seed in 0..4 {
        let checked = CheckedDevice::new(seed);
        {
            let stack =
                if seed % 2 == 0 { checked.plain_stack() } else { checked.production_stack() };
            test(&Engine::over(&stack.unwrap()), &mut Random::seeded(seed));
        }
        checked.assert_clean();
    }
}

fn column(random: &mut Random, rows: u64, keys: u64, nulls: bool) -> Column {
    let column = Column::words((0..rows).map(|_| random.below(keys) as u32).collect::<Vec<_>>());
    if nulls { column.with_nulls(random, 4) } else { column }
}

fn joins_touch_what_they_declare() {
    on_checked_devices(|engine, random| {
        for (rows, keys) in [(1, 1), (70, 1 << 30), (90, 20)] {
            for nulls in [false, true] {
                for width in [1, 2, 4] {
                    let [build, probe] = [0, 1].map(|_| {
                        (0..width).map(|_| column(random, rows, keys, nulls)).collect::<Vec<_>>()
                    });
                    join::check(engine, &build, &probe, &join::KINDS);
                }
            }
        }
    });
}

fn groups_touch_what_they_declare() {
    on_checked_devices(|engine, random| {
        for (rows, keys) in [(1, 1), (80, 1 << 30), (90, 7)] {
            for nulls in [false, true] {
                for width in [1, 2, 4] {
                    let columns: Vec<_> =
                        (0..width).map(|_| column(random, rows, keys, nulls)).collect();
                    let small = Tuning { first_slots: 64, one_block: false, ..Tuning::default() };
                    group::check(engine, random, &columns);
                    group::check_tuned(engine, random, &columns, small);
                }
            }
        }
    });
}
