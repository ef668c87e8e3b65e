//! How fast operators on tables are, each result verified in the run.
//!
//! `bench_operators [DEVICE] [ROWS...]`: the device is `host`, `auto` or `cuda:N`; rows are a number
//! or `2^N`. A time is the median of several runs by the host's clock, from the call to the end of
//! the work on the stream, with memory that the pool already holds. For each case it prints
//! `case rows ms Grows/s bar ok|MISS`; bars are for one H200, and `-` where there is none.

use std::{
    env,
    error::Error,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use xlog_cuda::{CudaDevice, device_runtime::StreamId};
use xlog_relational::{
    Column, Engine, Native, RelationalResult, SortKey, Table, Values, col, ops, ops::FilterBy,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let device = match arguments.next().as_deref() {
        None | Some("auto") => CudaDevice::auto(),
        Some("host") => CudaDevice::host(),
        Some(name) => match name.strip_prefix("cuda:").and_then(|number| number.parse().ok()) {
            Some(ordinal) => CudaDevice::new(ordinal)?,
            None => return Err(format!("{name}: name host, auto or cuda:N").into()),
        },
    };
    let is_gpu = !device.info().name.contains("host");
    let number = |text: String| -> Outcome<usize> {
        Ok(match text.strip_prefix("2^") {
            Some(log) => 1 << log.parse::<u32>()?,
            None => text.parse()?,
        })
    };
    let mut sizes = arguments.map(number).collect::<Outcome<Vec<usize>>>()?;
    if sizes.is_empty() {
        sizes = vec![1000, 1 << 20, 1 << 24];
    }
    println!("# {}", device.info().name);
    println!("# case rows ms Grows/s bar verdict");
    let engine = Engine::new(Arc::new(device))?;
    let stream = engine.runtime().stream_pool().acquire()?;
    let mut bench = Bench { engine, stream, is_gpu, missed: 0 };
    for rows in sizes {
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
    is_gpu: bool,
    missed: usize,
}

impl Bench {
    fn rows(&mut self, rows: usize) -> Outcome<()> {
        let keys = random(rows, |bits| bits as u32);
        let longs = random(rows, |bits| bits >> 20);
        let reals = random(rows, |bits| bits as f64 / 1e9 - 5e9);
        let small = random(rows, |bits| (bits % 1000) as i32);
        let some: Vec<Option<i32>> =
            small.iter().map(|value| (value % 10 != 0).then_some(*value)).collect();
        let stream = self.stream;
        let columns = [
            ("key", self.column(&keys)?),
            ("long", self.column(&longs)?),
            ("real", self.column(&reals)?),
            ("some", Column::from_options(&self.engine, &some, stream)?),
        ];
        let all = Table::new(&self.engine, columns)?;
        let part = |names: &[&str]| all.select(names);
        let order = |key: &dyn Fn(usize) -> (i64, u64)| {
            let mut order: Vec<usize> = (0..rows).collect();
            order.sort_by_cached_key(|row| key(*row));
            order
        };

        // Sorts.
        let by = [SortKey::new("key")];
        let input = part(&["key"])?;
        let sorted = self.time("sort_u32", rows, (45.0, 35.0), |s| ops::sort(&input, &by, s))?;
        let mut expected = keys.clone();
        expected.sort_unstable();
        check(self.values::<u32>(&sorted, "key")? == expected, "sort_u32")?;
        drop((expected, sorted));
        let by_key = order(&|row| (0, u64::from(keys[row])));
        for (case, names) in [
            ("sort_u32_carrying_f64", vec!["key", "real"]),
            ("sort_u32_of_4", vec!["key", "long", "real", "some"]),
        ] {
            let input = part(&names)?;
            let sorted = self.time(case, rows, NONE, |s| ops::sort(&input, &by, s))?;
            let got = self.values::<f64>(&sorted, "real")?;
            check(by_key.iter().zip(&got).all(|(row, got)| reals[*row] == *got), case)?;
        }
        let first = self.time("top_100_of_4", rows, NONE, |s| ops::top_k(&all, &by, 100, s))?;
        let got = self.values::<u64>(&first, "long")?;
        check(by_key.iter().zip(&got).all(|(row, got)| longs[*row] == *got), "top_100")?;
        drop((by_key, first));
        let two = [SortKey::new("some").nulls_first(), SortKey::new("key").descending()];
        let sorted = self.time("sort_by_two_of_4", rows, NONE, |s| ops::sort(&all, &two, s))?;
        let got = self.values::<f64>(&sorted, "real")?;
        let by_two =
            order(&|row| (some[row].map_or(-1, i64::from), u64::from(u32::MAX - keys[row])));
        check(by_two.iter().zip(&got).all(|(row, got)| reals[*row] == *got), "sort_by_two")?;
        drop((by_two, got, sorted));

        // Filters.
        let half = col("key").lt(1u32 << 31);
        let input = part(&["key"])?;
        let kept =
            self.time("filter_u32_half", rows, (400.0, 250.0), |s| ops::filter(&input, &half, s))?;
        let expected: Vec<u32> = keys.iter().copied().filter(|key| *key < 1 << 31).collect();
        check(self.values::<u32>(&kept, "key")? == expected, "filter_u32_half")?;
        drop((kept, expected));
        let expected: Vec<f64> =
            (0..rows).filter(|row| keys[*row] < 1 << 31).map(|row| reals[row]).collect();
        for (case, by) in
            [("filter_half_of_4_rows", FilterBy::Rows), ("filter_half_of_4_mask", FilterBy::Mask)]
        {
            let kept = self.time(case, rows, NONE, |s| ops::filter_tuned(&all, &half, by, s))?;
            check(self.values::<f64>(&kept, "real")? == expected, case)?;
        }
        drop(expected);
        let both = col("some").gt(500).and(col("real").gt(0.0));
        let kept = self.time("filter_by_two_of_4", rows, NONE, |s| ops::filter(&all, &both, s))?;
        let holds = |row: &usize| some[*row].is_some_and(|v| v > 500) && reals[*row] > 0.0;
        let expected: Vec<u32> = (0..rows).filter(holds).map(|row| keys[row]).collect();
        check(self.values::<u32>(&kept, "key")? == expected, "filter_by_two_of_4")?;
        drop((kept, expected));

        // The others.
        let sum = [("sum", (col("real") * 2.0 + col("key")).into()), ("key", col("key"))];
        let made = self.time("project_real_2_key", rows, NONE, |s| ops::project(&all, &sum, s))?;
        let got = self.values::<f64>(&made, "sum")?;
        let same = |row: usize| got[row] == reals[row] * 2.0 + f64::from(keys[row]);
        check((0..rows).all(same), "project")?;
        drop((made, got));
        let window = self.time("limit_third_of_4", rows, NONE, |s| {
            ops::limit(&all, rows as u64 / 3, rows as u64 / 3, s)
        })?;
        let third = rows / 3..2 * (rows / 3);
        check(self.values::<u64>(&window, "long")? == longs[third.clone()], "limit")?;
        let joined = self.time("concat_4", rows, NONE, |s| ops::concat(&[&all, &window], s))?;
        let expected: Vec<u64> = longs.iter().chain(&longs[third]).copied().collect();
        check(self.values::<u64>(&joined, "long")? == expected, "concat")
    }

    /// Times `work`, prints the line, and gives what the last run made.
    fn time(
        &mut self,
        case: &str,
        rows: usize,
        bars: Bars,
        work: impl Fn(StreamId) -> RelationalResult<Table>,
    ) -> Outcome<Table> {
        let runs = if rows <= 1 << 20 { 101 } else { 7 };
        let once = || -> Outcome<(f64, Table)> {
            let start = Instant::now();
            let made = work(self.stream)?;
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
            _ if !self.is_gpu => ("-".to_owned(), None),
            1000 => (format!("{SHORT}ms"), Some(ms <= SHORT)),
            0x1000_0000 if bars.0 > 0.0 => (bars.0.to_string(), Some(speed >= bars.0)),
            0x100_0000 if bars.1 > 0.0 => (bars.1.to_string(), Some(speed >= bars.1)),
            _ => ("-".to_owned(), None),
        };
        self.missed += usize::from(met == Some(false));
        let verdict = met.map_or("-", |met| if met { "ok" } else { "MISS" });
        println!("{case} {rows} {ms:.4} {speed:.3} {bar} {verdict}");
        Ok(made)
    }

    fn column<T: Native>(&self, values: &[T]) -> RelationalResult<Column> {
        Column::from_slice(&self.engine, values, self.stream)
    }

    /// The values of a column on the host.
    fn values<T: Native>(&self, table: &Table, name: &str) -> Outcome<Vec<T>> {
        let column = table.column(name)?;
        let len = column.len();
        Ok(match column.values() {
            Values::Words(slice) => {
                bytemuck::cast_slice(&slice.view(..len)?.start_download(self.stream)?.wait()?)
                    .to_vec()
            }
            Values::Longs(slice) => {
                bytemuck::cast_slice(&slice.view(..len)?.start_download(self.stream)?.wait()?)
                    .to_vec()
            }
            Values::Bytes(_) => return Err("no bytes here".into()),
        })
    }
}

/// Random values, new in each run of the program.
fn random<T>(rows: usize, value: fn(u64) -> T) -> Vec<T> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = now.as_nanos() as u64;
    let scramble = |state: u64| {
        let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..rows as u64).map(|row| value(scramble(seed ^ (row << 20)))).collect()
}

fn check(holds: bool, case: &str) -> Outcome<()> {
    if holds { Ok(()) } else { Err(format!("{case}: the result is wrong").into()) }
}
