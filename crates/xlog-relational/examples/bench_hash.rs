//! Joins and group-bys against their bars: every result is verified, then timed.
//!
//! Usage: `bench_hash [host|cuda] [SCALE] [CASE]`. SCALE divides the numbers of rows (1 is all of
//! them), CASE keeps the cases whose name begins like it. Prints `case rows ms Grows/s bar ok|MISS`
//! and exits with 1 after a miss. The time is that of the median run: enqueue to synchronised,
//! memory from a warm pool.

// A wrong result ends the program.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{sync::Arc, thread, time::Instant};

use xlog_cuda::{
    CudaDevice,
    device_runtime::{AllocTag, StreamId},
    memory::TrackedCudaSlice,
};
use xlog_relational::{
    Engine,
    primitives::{
        Aggregate, JoinKind, KeyColumn, KeyWords, Keys, Tuning, Values, group_by,
        inner_join_payloads, inner_join_payloads_tuned, join,
    },
};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    fn shuffle(&mut self, values: &mut [u32]) {
        for at in (1..values.len()).rev() {
            values.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Numbers from 0 become keys without order.
fn key_of(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b1)
}

/// Keys drawn by Zipf's law with exponent 1 over `keys` numbers.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: usize) -> Self {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        sums.iter_mut().for_each(|s| *s /= sum);
        Self(sums)
    }

    fn draw(&self, random: &mut Random) -> u32 {
        let unit = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        self.0.partition_point(|&s| s < unit).min(self.0.len() - 1) as u32
    }
}

struct Bench {
    engine: Engine,
    runs: usize,
    case: Option<String>,
    missed: bool,
}

/// What a case is held against.
enum Bar {
    Ms(f64),
    GrowsPerSecond(f64),
    /// Milliseconds that another case allows.
    Allowed(f64, &'static str),
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.case.as_ref().is_none_or(|case| name.contains(case.as_str()) || case.contains(name))
    }

    /// The median time of a run, in milliseconds.
    fn time(&self, mut run: impl FnMut()) -> f64 {
        for _ in 0..2 {
            run();
        }
        let mut times: Vec<_> = (0..self.runs)
            .map(|_| {
                let start = Instant::now();
                run();
                start.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    fn report(&mut self, case: &str, rows: u64, ms: f64, bar: Bar) {
        let grows = rows as f64 / ms / 1e6;
        let (bar, ok) = match bar {
            Bar::Ms(most) => (format!("<= {most:.3} ms"), ms <= most),
            Bar::GrowsPerSecond(least) => (format!(">= {least} Grows/s"), grows >= least),
            Bar::Allowed(most, why) => (format!("<= {most:.3} ms ({why})"), ms <= most),
        };
        self.missed |= !ok;
        let verdict = if ok { "ok" } else { "MISS" };
        println!("{case:<28} {rows:>11} {ms:>10.4} ms {grows:>9.3} Grows/s  {bar:<42} {verdict}");
    }

    fn upload<T: bytemuck::Pod>(&self, values: &[T]) -> TrackedCudaSlice<T> {
        let stream = StreamId::DEFAULT;
        let tag = AllocTag("bench");
        let mut slice = self.engine.manager().alloc_on(values.len(), stream, tag).unwrap();
        slice.upload_on(values, stream).unwrap();
        slice
    }

    fn finish(&self, stream: StreamId) {
        self.engine.runtime().synchronize(stream).unwrap();
    }
}

fn download(slice: &TrackedCudaSlice<u32>, count: u64) -> Vec<u32> {
    slice.view(..count as usize).unwrap().download().unwrap()
}

fn pair_sum(build: u32, probe: u32) -> u64 {
    mix(u64::from(build) << 32 | u64::from(probe))
}

/// How many pairs two lists of numbers below `end` have, and the sum over all of them: the host's
/// own join, by counting.
fn reference(build: &[u32], probe: &[u32], end: usize) -> (u64, u64) {
    let mut starts = vec![0u32; end + 1];
    build.iter().for_each(|&number| starts[number as usize + 1] += 1);
    for at in 0..end {
        starts[at + 1] += starts[at];
    }
    let mut rows = vec![0u32; build.len()];
    let mut next = starts.clone();
    for (row, &number) in build.iter().enumerate() {
        rows[next[number as usize] as usize] = row as u32;
        next[number as usize] += 1;
    }
    let (mut pairs, mut sum) = (0, 0u64);
    for (row, &number) in probe.iter().enumerate() {
        let range = starts[number as usize] as usize..starts[number as usize + 1] as usize;
        pairs += range.len() as u64;
        for &partner in &rows[range] {
            sum = sum.wrapping_add(pair_sum(partner, row as u32));
        }
    }
    (pairs, sum)
}

/// A join of numbers with a payload each: verified, then timed. Pairs and milliseconds.
fn join_case(
    bench: &Bench,
    build: &[u32],
    probe: &[u32],
    end: usize,
    tuning: Tuning,
) -> (u64, f64) {
    let columns = [build, probe].map(|side| {
        let keys: Vec<_> = side.iter().map(|&number| key_of(number)).collect();
        let rows: Vec<_> = (0..side.len() as u32).collect();
        [bench.upload(&keys), bench.upload(&rows)]
    });
    let views = columns.each_ref().map(|side| side.each_ref().map(|column| column.as_view()));
    let (engine, stream) = (&bench.engine, StreamId::DEFAULT);
    let run = || inner_join_payloads_tuned(engine, stream, views[0], views[1], tuning).unwrap();
    let got = run();
    let (pairs, sum) = reference(build, probe, end);
    assert_eq!(got.count, pairs, "pairs");
    let [keys, build_rows, probe_rows] =
        [&got.keys, &got.build, &got.probe].map(|column| download(column, got.count));
    let mut got_sum = 0u64;
    for at in 0..keys.len() {
        assert_eq!(key_of(build[build_rows[at] as usize]), keys[at], "the build row's key");
        assert_eq!(key_of(probe[probe_rows[at] as usize]), keys[at], "the probe row's key");
        got_sum = got_sum.wrapping_add(pair_sum(build_rows[at], probe_rows[at]));
    }
    assert_eq!(got_sum, sum, "the sum over all pairs");
    drop(got);
    let ms = bench.time(|| {
        drop(run());
        bench.finish(stream);
    });
    (pairs, ms)
}

fn joins(bench: &mut Bench, random: &mut Random, rows: usize) {
    let mut unique: Vec<_> = (0..rows as u32).collect();
    let mut other = unique.clone();
    random.shuffle(&mut unique);
    random.shuffle(&mut other);
    let plain = Tuning::default();
    let (pairs, uniform) = join_case(bench, &unique, &other, rows, plain);
    bench.report("join_unique", pairs, uniform, Bar::Ms(2.0));
    let allowed = |pairs: u64| {
        let most = 3.0 * uniform * pairs as f64 / rows as f64;
        Bar::Allowed(most, "3 x unique, per output row")
    };
    if bench.wants("join_split") {
        let split = Tuning { split_from: Some(0), ..plain };
        let (pairs, ms) = join_case(bench, &unique, &other, rows, split);
        bench.report("join_split (for comparison)", pairs, ms, Bar::Ms(f64::INFINITY));
    }
    if bench.wants("join_zipf") {
        let zipf = Zipf::new(rows);
        let mut ranks: Vec<_> = (0..rows as u32).collect();
        random.shuffle(&mut ranks);
        let probe: Vec<_> = (0..rows).map(|_| ranks[zipf.draw(random) as usize]).collect();
        let (pairs, ms) = join_case(bench, &unique, &probe, rows, plain);
        bench.report("join_zipf_probe", pairs, ms, allowed(pairs));
    }
    if bench.wants("join_heavy") {
        let mut heavy = unique.clone();
        heavy[..rows / 10].fill(unique[0]);
        random.shuffle(&mut heavy);
        let (pairs, ms) = join_case(bench, &heavy, &other, rows, plain);
        bench.report("join_heavy_build", pairs, ms, allowed(pairs));
        let (pairs, ms) = join_case(bench, &other, &heavy, rows, plain);
        bench.report("join_heavy_probe", pairs, ms, allowed(pairs));
    }
    if bench.wants("join_many") {
        let mut draw =
            || (0..rows).map(|_| random.below(rows as u64 / 2) as u32).collect::<Vec<_>>();
        let (build, probe) = (draw(), draw());
        let (pairs, ms) = join_case(bench, &build, &probe, rows, plain);
        bench.report("join_many_to_many", pairs, ms, allowed(pairs));
    }
}

fn bits(random: &mut Random, rows: usize) -> Vec<u32> {
    // One null in sixteen.
    (0..rows.div_ceil(32))
        .map(|_| (0..32).fold(0, |word, bit| word | u32::from(random.below(16) != 0) << bit))
        .collect()
}

fn is_set(bits: &[u32], at: usize) -> bool {
    bits[at / 32] >> (at % 32) & 1 == 1
}

fn nullable_joins(bench: &mut Bench, random: &mut Random, rows: usize) {
    let mut numbers: Vec<_> = (0..rows as u32).collect();
    let mut others = numbers.clone();
    random.shuffle(&mut numbers);
    random.shuffle(&mut others);
    let (engine, stream) = (bench.engine.clone(), StreamId::DEFAULT);
    let first = [&numbers, &others]
        .map(|side| bench.upload(&side.iter().map(|&n| key_of(n)).collect::<Vec<_>>()));
    let second = [&numbers, &others]
        .map(|side| bench.upload(&side.iter().map(|&n| n % 1000).collect::<Vec<_>>()));
    let valid = [0, 1, 2, 3].map(|_| bits(random, rows));
    let stored = valid.each_ref().map(|bits| bench.upload(bits));
    let single = [0, 1]
        .map(|side| [KeyColumn { words: KeyWords::U32(first[side].as_view()), validity: None }]);
    let double = [0, 1].map(|side| {
        [(&first[side], &stored[side]), (&second[side], &stored[2 + side])].map(|(words, bits)| {
            KeyColumn { words: KeyWords::U32(words.as_view()), validity: Some(bits.as_view()) }
        })
    });
    let run = |columns: [&[KeyColumn<'_>]; 2]| {
        let [build, probe] = columns.map(|columns| Keys { columns, rows: rows as u64 });
        join(&engine, stream, JoinKind::Inner, &build, &probe).unwrap()
    };
    let got = run([&single[0], &single[1]]);
    assert_eq!(got.count, rows as u64);
    let got = run([&double[0], &double[1]]);
    let mut at = vec![0usize; rows];
    numbers.iter().enumerate().for_each(|(row, &number)| at[number as usize] = row);
    let (mut pairs, mut sum) = (0, 0u64);
    for (row, &number) in others.iter().enumerate() {
        let partner = at[number as usize];
        let known = is_set(&valid[0], partner)
            && is_set(&valid[2], partner)
            && is_set(&valid[1], row)
            && is_set(&valid[3], row);
        if known {
            pairs += 1;
            sum = sum.wrapping_add(pair_sum(partner as u32, row as u32));
        }
    }
    assert_eq!(got.count, pairs, "pairs of two nullable keys");
    let build_rows = download(got.build.as_ref().unwrap(), got.count);
    let probe_rows = download(&got.probe, got.count);
    let got_sum = build_rows
        .iter()
        .zip(&probe_rows)
        .fold(0u64, |sum, (&build, &probe)| sum.wrapping_add(pair_sum(build, probe)));
    assert_eq!(got_sum, sum, "the sum over all pairs of two nullable keys");
    drop(got);
    let ms = bench.time(|| {
        drop(run([&single[0], &single[1]]));
        bench.finish(stream);
    });
    bench.report("join_rows_single", rows as u64, ms, Bar::Ms(f64::INFINITY));
    let two = bench.time(|| {
        drop(run([&double[0], &double[1]]));
        bench.finish(stream);
    });
    bench.report("join_rows_two_nullable", pairs, two, Bar::Allowed(2.0 * ms, "2 x single"));
}

fn groups(bench: &mut Bench, random: &mut Random, rows: usize, keys: usize, least: f64) {
    let numbers: Vec<u32> = (0..rows).map(|_| random.below(keys as u64) as u32).collect();
    let values: Vec<u32> = (0..rows).map(|_| random.next() as u32).collect();
    let mut expected = vec![(0u64, 0u64); keys];
    for (&number, &value) in numbers.iter().zip(&values) {
        let (count, sum) = &mut expected[number as usize];
        *count += 1;
        *sum += u64::from(value);
    }
    let key_words: Vec<_> = numbers.iter().map(|&n| key_of(n)).collect();
    let (keys_stored, values_stored) = (bench.upload(&key_words), bench.upload(&values));
    let (engine, stream) = (bench.engine.clone(), StreamId::DEFAULT);
    let columns = [KeyColumn { words: KeyWords::U32(keys_stored.as_view()), validity: None }];
    let table = Keys { columns: &columns, rows: rows as u64 };
    let sum = Aggregate::Sum { values: Values::U32(values_stored.as_view()), validity: None };
    let got =
        group_by(&engine, stream, &table, &[sum, Aggregate::Count { validity: None }]).unwrap();
    assert_eq!(got.count, expected.iter().filter(|(count, _)| *count > 0).count() as u64);
    let first = download(&got.rows, got.count);
    let words = |index: usize| {
        got.aggregates[index].words.view(..got.count as usize).unwrap().download().unwrap()
    };
    let (sums, counts) = (words(0), words(1));
    let mut seen = vec![false; keys];
    for group in 0..first.len() {
        let number = numbers[first[group] as usize] as usize;
        assert!(!std::mem::replace(&mut seen[number], true), "a group came twice");
        assert_eq!((counts[group], sums[group]), expected[number], "group {number}");
    }
    drop(got);
    let ms = bench.time(|| {
        drop(group_by(&engine, stream, &table, &[sum]).unwrap());
        bench.finish(stream);
    });
    let name = format!("group_sum_{keys}");
    bench.report(&name, rows as u64, ms, Bar::GrowsPerSecond(least));
}

fn nullable_groups(bench: &mut Bench, random: &mut Random, rows: usize) {
    let mut draw = |end| (0..rows).map(|_| random.below(end) as u32).collect::<Vec<_>>();
    let (first, second, values) = (draw(1000), draw(1000), draw(1 << 30));
    let valid = [0, 1].map(|_| bits(random, rows));
    let [a, b, v] = [&first, &second, &values].map(|words| bench.upload(words));
    let stored = valid.each_ref().map(|bits| bench.upload(bits));
    let (engine, stream) = (bench.engine.clone(), StreamId::DEFAULT);
    let packed: Vec<_> = first.iter().zip(&second).map(|(a, b)| a * 1000 + b).collect();
    let packed = bench.upload(&packed);
    let single = [KeyColumn { words: KeyWords::U32(packed.as_view()), validity: None }];
    let double = [(&a, &stored[0]), (&b, &stored[1])].map(|(words, bits)| KeyColumn {
        words: KeyWords::U32(words.as_view()),
        validity: Some(bits.as_view()),
    });
    let sum = [Aggregate::Sum { values: Values::U32(v.as_view()), validity: None }];
    let run = |columns: &[KeyColumn<'_>]| {
        group_by(&engine, stream, &Keys { columns, rows: rows as u64 }, &sum).unwrap()
    };
    let mut expected = std::collections::HashMap::<_, u64>::new();
    let key = |row: usize| {
        let part = |side: usize, words: &[u32]| is_set(&valid[side], row).then(|| words[row]);
        (part(0, &first), part(1, &second))
    };
    (0..rows).for_each(|row| *expected.entry(key(row)).or_default() += u64::from(values[row]));
    let got = run(&double);
    assert_eq!(got.count, expected.len() as u64, "groups of two nullable keys");
    let rows_of = download(&got.rows, got.count);
    let sums = got.aggregates[0].words.view(..got.count as usize).unwrap().download().unwrap();
    for (row, sum) in rows_of.iter().zip(sums) {
        assert_eq!(expected.remove(&key(*row as usize)), Some(sum), "a group of two nullable keys");
    }
    drop(got);
    let ms = bench.time(|| {
        drop(run(&single));
        bench.finish(stream);
    });
    bench.report("group_single", rows as u64, ms, Bar::Ms(f64::INFINITY));
    let two = bench.time(|| {
        drop(run(&double));
        bench.finish(stream);
    });
    bench.report("group_two_nullable", rows as u64, two, Bar::Allowed(2.0 * ms, "2 x single"));
}

fn small(bench: &mut Bench, random: &mut Random) {
    bench.runs = 201;
    let mut numbers: Vec<_> = (0..1000u32).collect();
    let mut others = numbers.clone();
    random.shuffle(&mut numbers);
    random.shuffle(&mut others);
    let (pairs, ms) = join_case(bench, &numbers, &others, 1000, Tuning::default());
    bench.report("join_1000", pairs, ms, Bar::Ms(0.060));
    groups(bench, random, 1000, 20, 1000.0 / 60e-6 / 1e9);
}

fn concurrent(bench: &mut Bench, random: &mut Random) {
    const JOINS: usize = 8;
    const ROWS: usize = 100_000;
    let mut numbers: Vec<_> = (0..ROWS as u32).collect();
    let sides: Vec<_> = (0..JOINS)
        .map(|_| {
            [0, 1].map(|_| {
                random.shuffle(&mut numbers);
                let keys: Vec<_> = numbers.iter().map(|&n| key_of(n)).collect();
                [bench.upload(&keys), bench.upload(&numbers)]
            })
        })
        .collect();
    let pool = Arc::clone(bench.engine.runtime().stream_pool());
    let streams: Vec<_> = (0..JOINS).map(|_| pool.acquire().unwrap()).collect();
    let engine = bench.engine.clone();
    let run = |index: usize, stream: StreamId| {
        let views =
            sides[index].each_ref().map(|side| side.each_ref().map(|column| column.as_view()));
        inner_join_payloads(&engine, stream, views[0], views[1]).unwrap()
    };
    for (index, &stream) in streams.iter().enumerate() {
        let got = run(index, stream);
        assert_eq!(got.count, ROWS as u64);
        let columns = [&got.keys, &got.build, &got.probe].map(|c| download(c, got.count));
        let mut seen = vec![false; ROWS];
        for at in 0..ROWS {
            assert!(columns[1][at] == columns[2][at] && key_of(columns[1][at]) == columns[0][at]);
            assert!(!std::mem::replace(&mut seen[columns[1][at] as usize], true), "twice");
        }
    }
    const ROUNDS: usize = 20;
    let in_a_row = bench.time(|| {
        for _ in 0..ROUNDS {
            (0..JOINS).for_each(|index| drop(run(index, streams[0])));
        }
        bench.finish(streams[0]);
    });
    let together = bench.time(|| {
        thread::scope(|scope| {
            for (index, &stream) in streams.iter().enumerate() {
                let run = &run;
                scope.spawn(move || (0..ROUNDS).for_each(|_| drop(run(index, stream))));
            }
        });
        streams.iter().for_each(|&stream| bench.finish(stream));
    });
    let rows = (JOINS * ROUNDS * ROWS) as u64;
    bench.report("joins_in_a_row", rows, in_a_row, Bar::Ms(f64::INFINITY));
    let bar = Bar::Allowed(in_a_row / 2.0, "half of in a row");
    bench.report("joins_on_8_streams", rows, together, bar);
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let device = match arguments.first().map(String::as_str) {
        Some("host") => CudaDevice::host(),
        Some("cuda") => CudaDevice::new(0).expect("a GPU"),
        None => CudaDevice::auto(),
        Some(other) => panic!("{other} is no device; say host or cuda"),
    };
    let scale: usize = arguments.get(1).map_or(1, |text| text.parse().expect("a whole number"));
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let random = &mut Random(seed.as_nanos() as u64);
    let engine = Engine::new(Arc::new(device)).expect("an engine");
    println!("{:?}, seed {}", engine.runtime().device().info().name, random.0);
    let mut bench = Bench { engine, runs: 11, case: arguments.get(2).cloned(), missed: false };
    let rows = 10_000_000 / scale;
    if bench.wants("join_") {
        joins(&mut bench, random, rows);
    }
    if bench.wants("nullable_joins") {
        nullable_joins(&mut bench, random, rows);
    }
    if bench.wants("nullable_groups") {
        nullable_groups(&mut bench, random, rows);
    }
    if bench.wants("group_sum") {
        for (keys, least) in [(20, 40.0), (1 << 20, 10.0)] {
            groups(&mut bench, random, (1 << 28) / scale, keys, least);
        }
    }
    if bench.wants("streams") {
        concurrent(&mut bench, random);
    }
    if bench.wants("small") {
        small(&mut bench, random);
    }
    if bench.missed {
        std::process::exit(1);
    }
}
