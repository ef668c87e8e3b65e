//! Operators on two tables, or on groups of rows, against their bars: every result is verified,
//! then timed.
//!
//! Usage: `bench_tables [host|cuda] [SCALE] [CASE]`. SCALE divides the numbers of rows (1 is all of
//! them), CASE keeps the cases whose name contains it. Prints `case rows ms Grows/s bar ok|MISS`
//! and exits with 1 after a miss. The time is that of the median run: call to synchronised, memory
//! from a warm pool.

// A wrong result ends the program.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{sync::Arc, time::Instant};

use xlog_cuda::{CudaDevice, device_runtime::StreamId};
use xlog_relational::{
    Aggregate, Column, Engine, JoinKind, Native, RelationalResult, Table, Values,
    ops::{distinct, except, group_by, hash_join, intersect, union},
};

const STREAM: StreamId = StreamId::DEFAULT;

fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 29)
}

struct Bench {
    engine: Engine,
    runs: usize,
    scale: usize,
    case: Option<String>,
    missed: bool,
}

enum Bar {
    Ms(f64),
    GrowsPerSecond(f64),
    /// Shown, not judged.
    None,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.case.as_ref().is_none_or(|case| name.contains(case.as_str()))
    }

    fn column<T: Native>(&self, rows: usize, value: impl Fn(u64) -> T) -> Column {
        let values: Vec<T> = (0..rows as u64).map(value).collect();
        Column::from_slice(&self.engine, &values, STREAM).unwrap()
    }

    fn nullable(&self, rows: usize, value: impl Fn(u64) -> Option<u32>) -> Column {
        let values: Vec<Option<u32>> = (0..rows as u64).map(value).collect();
        Column::from_options(&self.engine, &values, STREAM).unwrap()
    }

    fn table<const N: usize>(&self, columns: [(&str, Column); N]) -> Table {
        Table::new(&self.engine, columns).unwrap()
    }

    /// The median time of a run in milliseconds, once its result was looked at.
    fn time(
        &mut self,
        case: &str,
        rows: usize,
        bar: Bar,
        run: impl Fn() -> RelationalResult<Table>,
        verify: impl Fn(&Table),
    ) -> f64 {
        verify(&run().unwrap());
        let once = || {
            let start = Instant::now();
            let result = run().unwrap();
            self.engine.runtime().synchronize(STREAM).unwrap();
            let ms = start.elapsed().as_secs_f64() * 1e3;
            drop(result);
            ms
        };
        once();
        let mut times: Vec<f64> = (0..self.runs).map(|_| once()).collect();
        times.sort_by(f64::total_cmp);
        let ms = times[times.len() / 2];
        let grows = rows as f64 / ms / 1e6;
        let (bar, ok) = match bar {
            Bar::Ms(most) => (format!("<= {most:.3} ms"), ms <= most),
            Bar::GrowsPerSecond(least) => (format!(">= {least} Grows/s"), grows >= least),
            Bar::None => ("-".to_owned(), true),
        };
        self.missed |= !ok;
        let word = if ok { "ok" } else { "MISS" };
        println!("{case:32} {rows:>11} {ms:>10.4} ms {grows:>9.2} Grows/s  {bar:>16}  {word}");
        ms
    }

    fn joins(&mut self) {
        let rows = 10_000_000 / self.scale;
        // The same keys on both sides, each once, in two orders without order.
        let key = |n: u64, turn: u64| (n * 7_368_787 + turn) % rows as u64;
        let words = |turn: u64| {
            self.table([
                ("key", self.column(rows, |n| key(n, turn) as i32)),
                ("value", self.column(rows, |n| (key(n, turn) as u32).wrapping_mul(7) ^ 5)),
            ])
        };
        let (left, right) = (words(0), words(4711));
        let single = |bench: &mut Self| {
            let run = || hash_join(&left, &right, &[("key", "key")], JoinKind::Inner, STREAM);
            let verify = |joined: &Table| {
                let column = |name| words_of(joined, name);
                let (keys, a, b) = (column("key"), column("value"), column("value_right"));
                assert_eq!(keys.len(), rows);
                assert_eq!(a, b);
                assert!(keys.iter().zip(&a).all(|(k, v)| k.wrapping_mul(7) ^ 5 == *v));
                assert_eq!(each_once(&keys), rows);
            };
            bench.time("join words", 2 * rows, Bar::Ms(2.0), run, verify)
        };
        if self.wants("join words") || self.wants("join nullable") {
            let ms = single(self);
            let nullable = |turn: u64| {
                let low =
                    |n| Some((key(n, turn) % 4096) as u32).filter(|_| key(n, turn) % 100 != 0);
                let high = |n| Some((key(n, turn) / 4096) as u32);
                let (low, high) = (self.nullable(rows, low), self.nullable(rows, high));
                let value = self.column(rows, |n| key(n, turn) as u32);
                self.table([("low", low), ("high", high), ("value", value)])
            };
            let (left, right) = (nullable(0), nullable(4711));
            let on = [("low", "low"), ("high", "high")];
            let run = || hash_join(&left, &right, &on, JoinKind::Inner, STREAM);
            let verify = |joined: &Table| {
                let values = words_of(joined, "value");
                assert_eq!(values, words_of(joined, "value_right"));
                assert_eq!(each_once(&values), rows - rows.div_ceil(100));
            };
            self.time("join nullable", 2 * rows, Bar::Ms(2.0 * ms), run, verify);
        }
    }

    fn groups(&mut self) {
        let rows = (1 << 28) / self.scale;
        for (name, groups, bar) in [("group 20", 20, 40.0), ("group 2^20", 1u64 << 20, 10.0)] {
            if !self.wants(name) {
                continue;
            }
            let key = self.column(rows, |n| (mix(n) % groups) as u32);
            let table = self.table([("key", key), ("value", self.column(rows, |n| n as u32 & 7))]);
            let run = || group_by(&table, &["key"], &[Aggregate::sum("value")], STREAM);
            let verify = |result: &Table| {
                let expected: u64 = (0..rows as u64).map(|n| n & 7).sum();
                assert_eq!(longs_of(result, "sum_value").iter().sum::<u64>(), expected);
                assert!(result.rows() <= groups);
            };
            self.time(name, rows, Bar::GrowsPerSecond(bar), run, verify);
        }
        if self.wants("group nullable") {
            let rows = 10_000_000 / self.scale;
            let (low, high) = (|n| (mix(n) % 512) as u32, |n| (mix(n) >> 32) as u32 % 512);
            let value = self.column(rows, |n| n as u32 & 7);
            let key = self.column(rows, |n| low(n) << 9 | high(n));
            let single = self.table([("key", key), ("value", value.clone())]);
            let figures = [Aggregate::sum("value")];
            let total: u64 = (0..rows as u64).map(|n| n & 7).sum();
            let verify = |result: &Table| {
                assert_eq!(longs_of(result, "sum_value").iter().sum::<u64>(), total);
            };
            let run = || group_by(&single, &["key"], &figures, STREAM);
            let ms = self.time("group single key", rows, Bar::None, run, verify);
            let low = self.nullable(rows, |n| Some(low(n)).filter(|low| *low != 3));
            let high = self.nullable(rows, |n| Some(high(n)).filter(|high| *high != 5));
            let double = self.table([("low", low), ("high", high), ("value", value)]);
            let run = || group_by(&double, &["low", "high"], &figures, STREAM);
            self.time("group nullable", rows, Bar::Ms(2.0 * ms), run, verify);
        }
    }

    fn distincts(&mut self) {
        let rows = (1 << 28) / self.scale;
        for (name, values) in [("distinct many", 1u64 << 32), ("distinct few", 1000)] {
            if !self.wants(name) {
                continue;
            }
            let numbers: Vec<u32> = (0..rows as u64).map(|n| (mix(n) % values) as u32).collect();
            let column = Column::from_slice(&self.engine, &numbers, STREAM).unwrap();
            let table = self.table([("value", column)]);
            let different = each_once(&numbers);
            let run = || distinct(&table, None, STREAM);
            let verify = |result: &Table| {
                let found = words_of(result, "value");
                assert_eq!((found.len(), each_once(&found)), (different, different));
            };
            self.time(name, rows, Bar::GrowsPerSecond(10.0), run, verify);
        }
    }

    /// Every operator on 1,000 rows.
    fn small(&mut self) {
        let rows = 1000;
        let table = |turn: u64| {
            self.table([
                ("key", self.column(rows, |n| ((n * 7 + turn) % 1000) as i32)),
                ("value", self.column(rows, |n| (n % 10) as u32)),
            ])
        };
        let wide = |turn: u64| {
            self.table([
                ("key", self.column(rows, |n| (n * 7 + turn) % 1000)),
                ("value", self.column(rows, |n| (n % 10) as i64)),
            ])
        };
        // Rows of the first and the second differ by value where they meet by key; the last has
        // the rows of the first in another order.
        let (a, b, c, d, same) = (table(0), table(11), wide(0), wide(11), table(10));
        let on = [("key", "key")];
        let figures = [Aggregate::sum("value")];
        type Run<'r> = &'r dyn Fn() -> RelationalResult<Table>;
        let cases: [(&str, u64, Run<'_>); 12] = [
            ("1000: join words", 1000, &|| hash_join(&a, &b, &on, JoinKind::Inner, STREAM)),
            ("1000: left join", 1000, &|| hash_join(&c, &d, &on, JoinKind::Left, STREAM)),
            ("1000: full join", 1000, &|| hash_join(&c, &d, &on, JoinKind::Full, STREAM)),
            ("1000: semi join", 1000, &|| hash_join(&a, &b, &on, JoinKind::Semi, STREAM)),
            ("1000: join of keys that repeat", 100_000, &|| {
                hash_join(&a, &b, &[("value", "value")], JoinKind::Inner, STREAM)
            }),
            ("1000: group by", 10, &|| group_by(&a, &["value"], &figures, STREAM)),
            ("1000: group by, wide sum", 1000, &|| group_by(&c, &["key"], &figures, STREAM)),
            ("1000: distinct of a column", 10, &|| distinct(&a, Some(&["value"]), STREAM)),
            ("1000: distinct", 1000, &|| distinct(&a, None, STREAM)),
            ("1000: union", 2000, &|| union(&a, &b, STREAM)),
            ("1000: intersect", 1000, &|| intersect(&a, &same, false, STREAM)),
            ("1000: except all", 1000, &|| except(&c, &d, true, STREAM)),
        ];
        for (name, expected, run) in cases {
            if self.wants(name) {
                let verify = |result: &Table| assert_eq!(result.rows(), expected, "{name}");
                self.time(name, rows, Bar::Ms(0.060), run, verify);
            }
        }
    }
}

fn words_of(table: &Table, name: &str) -> Vec<u32> {
    match table.column(name).unwrap().values() {
        Values::Words(words) => words.view(..table.rows() as usize).unwrap().download().unwrap(),
        _ => panic!("{name} has values of four bytes"),
    }
}

fn longs_of(table: &Table, name: &str) -> Vec<u64> {
    match table.column(name).unwrap().values() {
        Values::Longs(words) => words.view(..table.rows() as usize).unwrap().download().unwrap(),
        _ => panic!("{name} has values of eight bytes"),
    }
}

/// How many different values there are.
fn each_once(values: &[u32]) -> usize {
    let mut seen = vec![0u64; 1 << 26];
    values.iter().for_each(|value| seen[(value >> 6) as usize] |= 1 << (value & 63));
    seen.iter().map(|word| word.count_ones() as usize).sum()
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let device = match arguments.first().map(String::as_str) {
        Some("host") => CudaDevice::host(),
        Some("cuda") => CudaDevice::new(0).expect("a GPU"),
        None => CudaDevice::auto(),
        Some(other) => panic!("{other} is no device; say host or cuda"),
    };
    let scale = arguments.get(1).map_or(1, |scale| scale.parse().expect("a number as SCALE"));
    let engine = Engine::new(Arc::new(device)).expect("an engine");
    let case = arguments.get(2).cloned();
    let mut bench = Bench { engine, runs: 9, scale, case, missed: false };
    bench.small();
    bench.joins();
    bench.groups();
    bench.distincts();
    std::process::exit(i32::from(bench.missed));
}
