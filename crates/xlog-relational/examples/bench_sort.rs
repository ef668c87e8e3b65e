//! How fast the primitives are, each result verified in the run.
//!
//! `bench_sort [DEVICE] [LOG2_ROWS...]`: the device is `host`, `auto` or `cuda:N`. A time is the
//! median of several runs by the host's clock, from the call to the end of the work on the stream,
//! with memory that the pool already holds. For each case it prints
//! `case rows ms Grows/s bar ok|MISS`; bars are for one H200, and `-` where there is none.

use std::{
    env,
    error::Error,
    sync::Arc,
    thread,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use bytemuck::Pod;
use xlog_cuda::{
    CudaDevice,
    device_runtime::{AllocTag, ResourceResult, StreamId},
    memory::TrackedCudaSlice,
};
use xlog_relational::{
    Engine,
    primitives::{
        Comparison, Condition, SortBy, SortKey, exclusive_sum, gather, iota, select_by_mask,
        select_if, select_rows_if, sort_keys, sort_pairs, unique,
    },
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let device = match arguments.next().as_deref() {
        None | Some("auto") => CudaDevice::auto(),
        Some("host") => CudaDevice::host(),
        Some(name) => match name.strip_prefix("cuda:").and_then(|number| number.parse().ok()) {
            Some(ordinal) => CudaDevice::new(ordinal)?,
            None => return Err(format!("{name}: name host, auto or cuda:N").into()),
        },
    };
    let mut logs = arguments.map(|log| log.parse()).collect::<Result<Vec<u32>, _>>()?;
    if logs.is_empty() {
        logs = vec![10, 20, 24, 28];
    }
    println!("# {}", device.info().name);
    println!("# case rows ms Grows/s bar verdict");
    let engine = Engine::new(Arc::new(device))?;
    let stream = engine.runtime().stream_pool().acquire()?;
    let mut bench = Bench { engine, stream, missed: 0 };
    for log in logs {
        // The short case is the issue's: 1,000 rows.
        let rows = if log == 10 { 1000 } else { 1 << log };
        bench.rows(rows)?;
    }
    if bench.missed > 0 {
        return Err(format!("{} bars were missed", bench.missed).into());
    }
    Ok(())
}

/// The bars of a case in Grows/s, at 2^28 and at 2^24 rows.
type Bars = (f64, f64);
const NONE: Bars = (0.0, 0.0);
/// What any case may take for 1,000 rows, in milliseconds.
const SHORT: f64 = 0.060;

struct Bench {
    engine: Engine,
    stream: StreamId,
    missed: usize,
}

impl Bench {
    fn rows(&mut self, rows: usize) -> Result<(), Box<dyn Error>> {
        self.sorts(rows)?;
        self.selections(rows)
    }

    fn sorts(&mut self, rows: usize) -> Result<(), Box<dyn Error>> {
        let (stream, n) = (self.stream, rows as u64);
        let words = random(rows, |bits| bits as u32);
        let keys = self.upload(&words)?;
        self.copy(&keys)?;
        self.sort_keys("sort_u32", &words, &keys, (45.0, 35.0))?;
        let numbers = iota::<u32>(&self.engine, stream, 0, n)?;
        let by = SortBy::ascending::<u32>();
        let pairs = self.time("sort_pairs_u32_u32", rows, (28.0, 24.0), |engine| {
            sort_pairs(engine, stream, &keys, &numbers, n, &by)
        })?;
        verify_pairs(&words, &self.download(&pairs.0)?, &self.download(&pairs.1)?)?;
        drop((pairs, numbers, keys));

        let floats: Vec<f32> = words.iter().map(|bits| f32::from_bits(*bits)).collect();
        let keys = self.upload(&floats)?;
        self.sort_keys("sort_f32", &floats, &keys, NONE)?;
        drop((keys, floats));

        let longs = random(rows, |bits| bits);
        let keys = self.upload(&longs)?;
        self.sort_keys("sort_u64", &longs, &keys, (15.0, 13.0))?;
        let numbers = iota::<u32>(&self.engine, stream, 0, n)?;
        let by = SortBy::ascending::<u64>();
        let pairs = self.time("sort_pairs_u64_u32", rows, NONE, |engine| {
            sort_pairs(engine, stream, &keys, &numbers, n, &by)
        })?;
        verify_pairs(&longs, &self.download(&pairs.0)?, &self.download(&pairs.1)?)
    }

    fn sort_keys<K: SortKey>(
        &mut self,
        case: &str,
        values: &[K],
        keys: &TrackedCudaSlice<K>,
        bars: Bars,
    ) -> Result<(), Box<dyn Error>> {
        let (stream, n, by) = (self.stream, values.len() as u64, SortBy::ascending::<K>());
        let sorted =
            self.time(case, values.len(), bars, |engine| sort_keys(engine, stream, keys, n, &by))?;
        verify_sorted(values, &self.download(&sorted)?)
    }

    fn selections(&mut self, rows: usize) -> Result<(), Box<dyn Error>> {
        let (stream, n) = (self.stream, rows as u64);
        let words = random(rows, |bits| bits as u32);
        let values = self.upload(&words)?;
        let condition = Condition::new(Comparison::Less, 1u32 << 31);
        let holds = |value: &u32| *value < 1 << 31;

        let (got, count) = self.time("select_if_u32_half", rows, (400.0, 250.0), |engine| {
            select_if(engine, stream, &values, n, &condition)?.wait()
        })?;
        let expected: Vec<u32> = words.iter().copied().filter(holds).collect();
        check(self.download(&got)?[..count as usize] == expected, "select_if_u32_half")?;
        drop(got);

        let (got, count) = self.time("select_rows_if_u32_half", rows, NONE, |engine| {
            select_rows_if(engine, stream, &values, n, &condition)?.wait()
        })?;
        let places: Vec<u32> =
            (0..rows as u32).filter(|row| holds(&words[*row as usize])).collect();
        check(self.download(&got)?[..count as usize] == places, "select_rows_if_u32_half")?;
        drop((got, places));

        let mask: Vec<u32> = words
            .chunks(32)
            .map(|chunk| {
                let bit = |(bit, value)| u32::from(holds(value)) << bit;
                chunk.iter().enumerate().map(bit).fold(0, |word, bit| word | bit)
            })
            .collect();
        let mask = self.upload(&mask)?;
        let (got, count) = self.time("select_by_mask_u32_half", rows, NONE, |engine| {
            select_by_mask(engine, stream, &values, &mask, n)?.wait()
        })?;
        check(self.download(&got)?[..count as usize] == expected, "select_by_mask_u32_half")?;
        drop((got, expected, mask));

        let sums = self.time("exclusive_sum_u32_u64", rows, NONE, |engine| {
            exclusive_sum(engine, stream, &values, n)
        })?;
        let sums = self.download(&sums)?;
        let step = |i: usize| sums[i + 1] == sums[i] + u64::from(words[i]);
        check(sums[0] == 0 && (0..rows).all(step), "exclusive_sum_u32_u64")?;
        drop(sums);

        let numbers: Vec<u32> = words.iter().map(|word| word % rows as u32).collect();
        let by = self.upload(&numbers)?;
        let got = self.time("gather_u32_by_u32", rows, NONE, |engine| {
            gather(engine, stream, &values, n, &by, n)
        })?;
        let got = self.download(&got)?;
        let same = |i: usize| got[i] == words[numbers[i] as usize];
        check((0..rows).all(same), "gather_u32_by_u32")?;
        drop((got, by, values));

        // Runs of four, on average.
        let mut value = 0u32;
        let runs = random(rows, |bits| bits as u32);
        let runs: Vec<u32> = runs
            .iter()
            .map(|bits| {
                value += u32::from(bits % 4 == 0);
                value
            })
            .collect();
        let input = self.upload(&runs)?;
        let (got, count) = self.time("unique_u32", rows, (340.0, 240.0), |engine| {
            unique(engine, stream, &input, n)?.wait()
        })?;
        let mut expected = runs;
        expected.dedup();
        check(self.download(&got)?[..count as usize] == expected, "unique_u32")
    }

    /// The roof: the same bytes, copied on the device.
    fn copy(&mut self, keys: &TrackedCudaSlice<u32>) -> ResourceResult<()> {
        let stream = self.stream;
        let mut to = self.engine.manager().alloc_on(keys.len(), stream, AllocTag("copy"))?;
        self.time("copy_u32", keys.len(), NONE, |_| to.copy_from(keys, stream))
    }

    /// Times `work`, prints the line, and gives what the last run made.
    fn time<T>(
        &mut self,
        case: &str,
        rows: usize,
        bars: Bars,
        mut work: impl FnMut(&Engine) -> ResourceResult<T>,
    ) -> ResourceResult<T> {
        let runs = if rows <= 1 << 20 { 101 } else { 11 };
        let mut once = || -> ResourceResult<(f64, T)> {
            let start = Instant::now();
            let made = work(&self.engine)?;
            self.engine.runtime().synchronize(self.stream)?;
            Ok((start.elapsed().as_secs_f64() * 1e3, made))
        };
        for _ in 0..3 {
            once()?;
        }
        let mut times = Vec::with_capacity(runs);
        for _ in 1..runs {
            times.push(once()?.0);
        }
        let (last, made) = once()?;
        times.push(last);
        times.sort_by(f64::total_cmp);
        let ms = times[runs / 2];
        let speed = rows as f64 / ms / 1e6;
        let (bar, met) = match rows {
            1000 => (format!("{SHORT}ms"), Some(ms <= SHORT)),
            0x1000_0000 if bars.0 > 0.0 => (bars.0.to_string(), Some(speed >= bars.0)),
            0x100_0000 if bars.1 > 0.0 => (bars.1.to_string(), Some(speed >= bars.1)),
            _ => ("-".to_owned(), None),
        };
        self.missed += usize::from(met == Some(false));
        let verdict = met.map_or("-", |met| if met { "ok" } else { "MISS" });
        println!("{case} {rows} {ms:.4} {speed:.2} {bar} {verdict}");
        Ok(made)
    }

    fn upload<T: Pod>(&self, values: &[T]) -> ResourceResult<TrackedCudaSlice<T>> {
        let tag = AllocTag("bench");
        let mut slice = self.engine.manager().alloc_on(values.len(), self.stream, tag)?;
        slice.upload_on(values, self.stream)?;
        Ok(slice)
    }

    fn download<T: Pod>(&self, slice: &TrackedCudaSlice<T>) -> ResourceResult<Vec<T>> {
        slice.start_download(self.stream)?.wait()
    }
}

/// Random values, new in each run of the program.
fn random<T: Pod>(rows: usize, value: fn(u64) -> T) -> Vec<T> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = now.as_nanos() as u64;
    (0..rows as u64).map(|row| value(scramble(seed ^ (row << 20)))).collect()
}

/// One output of SplitMix64.
fn scramble(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn check(holds: bool, case: &str) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(format!("{case}: the result is wrong").into()) }
}

/// Ascending, and the same values: their scrambled bits have the same sum.
fn verify_sorted<K: SortKey>(before: &[K], after: &[K]) -> Result<(), Box<dyn Error>> {
    let sum = |keys: &[K]| {
        keys.iter().fold(0u64, |sum, key| {
            let mut bits = [0u8; 8];
            bits[..size_of::<K>()].copy_from_slice(bytemuck::bytes_of(key));
            sum.wrapping_add(scramble(u64::from_le_bytes(bits)))
        })
    };
    let ascending = after.windows(2).all(|pair| pair[0].to_ordered() <= pair[1].to_ordered());
    check(ascending && sum(before) == sum(after), "sort")
}

/// Each row is where it was, keys ascend, and rows do where keys are equal: a permutation, stable.
fn verify_pairs<K: Pod + Ord + Sync>(
    before: &[K],
    keys: &[K],
    rows: &[u32],
) -> Result<(), Box<dyn Error>> {
    let right = |i: usize| {
        let next = i + 1 == keys.len() || (keys[i], rows[i]) < (keys[i + 1], rows[i + 1]);
        next && before[rows[i] as usize] == keys[i]
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = keys.len().div_ceil(threads).max(1);
    let all = thread::scope(|scope| {
        let parts: Vec<_> = (0..keys.len())
            .step_by(part)
            .map(|start| {
                let end = keys.len().min(start + part);
                let right = &right;
                scope.spawn(move || (start..end).all(right))
            })
            .collect();
        parts.into_iter().all(|part| part.join().unwrap_or(false))
    });
    check(all && keys.len() == before.len(), "sort of pairs")
}
