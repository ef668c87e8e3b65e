//! How fast variants of a selection are, each result verified in the run.
//!
//! `bench_select [DEVICE] [LOG2_ROWS...]`: the device is `host`, `auto` or `cuda:N`; rows are 2^24
//! and 2^28 unless named. Half of the rows are selected, of random values that are new in each run.
//! It prints `variant rows kernel_ms kernel_Grows/s whole_ms whole_Grows/s`: the kernel alone, of
//! launches one behind the other over words that were prepared before; and all that an operator
//! does, from the call to the count that has arrived: memory, preparation, kernel, readback.
//!
//! Before that, every variant selects all, none, each second and some of the rows of lengths around
//! its tile. What it selects is compared, and so is poison behind it.

use std::{
    env,
    error::Error,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use xlog_core::ScalarType::{U32, U64};
use xlog_cuda::{
    CudaDevice, LaunchDims,
    device_runtime::{AllocTag, ResourceResult, StreamId},
    launch::LaunchBuilder,
    memory::TrackedCudaSlice,
};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};
use xlog_relational::{
    Engine,
    primitives::{Comparison, Condition, select_if},
};

static MODULE: KernelModule =
    KernelModule { name: "select_variants", ptx: include_str!("../kernels/select_variants.ptx") };

/// One kernel, and what it was built with.
struct Variant {
    kernel: KernelDefinition,
    threads: u32,
    tile_rows: usize,
    /// Blocks of a multiprocessor, where tiles are handed out to as many as run.
    resident: Option<u32>,
    /// Whether its words are CUB's, which a launch prepares.
    cub: bool,
}

const PARAMETERS: &[Parameter] = &[
    Parameter::input("values", U32).counted_by(4),
    Parameter::output("selected", U32).counted_by(4),
    Parameter::output("count", U64).elements(1),
    Parameter::in_out("tiles", U64),
    Parameter::value("rows", U64),
    Parameter::value("tile_count", U32),
    Parameter::value("magnitude", U32),
    Parameter::value("flip", U32),
    Parameter::value("least", U32),
    Parameter::value("span", U32),
    Parameter::value("outside", U32),
];

const fn kernel(name: &'static str) -> KernelDefinition {
    let host = HostKernel::of::<SelectTwin>();
    KernelDefinition { name, module: &MODULE, parameters: PARAMETERS, host }
}

macro_rules! variant {
    (@resident "handed", $blocks:literal) => { Some($blocks) };
    (@resident "byblock", $blocks:literal) => { None };
    ($order:tt, $write:literal, $threads:literal, $items:literal, $blocks:literal,
     $words:literal) => {
        Variant {
            kernel: kernel(concat!(
                "xlog_select_", $order, "_", $write, "_", $threads, "x", $items, "_b", $blocks,
                "_w", $words
            )),
            threads: $threads,
            tile_rows: ($threads - 32) * $items,
            resident: variant!(@resident $order, $blocks),
            cub: false,
        }
    };
}

static VARIANTS: &[Variant] = &[
    Variant {
        kernel: kernel("xlog_select_cub"),
        threads: 384,
        tile_rows: 384 * 17,
        resident: None,
        cub: true,
    },
    variant!("handed", "staged", 256, 16, 4, 4),
    variant!("handed", "staged", 256, 16, 5, 4),
    variant!("handed", "staged", 256, 20, 4, 4),
    variant!("handed", "staged", 256, 20, 5, 4),
    variant!("handed", "staged", 256, 24, 3, 4),
    variant!("handed", "staged", 256, 24, 4, 4),
    variant!("handed", "staged", 256, 32, 3, 4),
    variant!("handed", "staged", 256, 32, 4, 4),
    variant!("handed", "staged", 128, 32, 8, 4),
    variant!("handed", "staged", 384, 16, 3, 4),
    variant!("handed", "staged", 384, 20, 3, 4),
    variant!("handed", "staged", 384, 24, 2, 4),
    variant!("handed", "staged", 512, 12, 3, 4),
    variant!("handed", "staged", 512, 16, 2, 4),
    variant!("handed", "staged", 512, 20, 2, 4),
    variant!("handed", "staged", 512, 24, 2, 4),
    variant!("handed", "staged", 256, 24, 4, 1),
    variant!("handed", "staged", 256, 24, 4, 2),
    variant!("handed", "staged", 256, 24, 4, 8),
    variant!("handed", "staged", 256, 28, 4, 4),
    variant!("handed", "staged", 256, 32, 4, 2),
    variant!("handed", "staged", 256, 32, 4, 8),
    variant!("handed", "staged", 512, 24, 2, 8),
    variant!("handed", "direct", 256, 16, 4, 4),
    variant!("handed", "direct", 256, 24, 4, 4),
    variant!("byblock", "staged", 256, 16, 5, 4),
    variant!("byblock", "staged", 256, 24, 4, 4),
    variant!("byblock", "staged", 384, 16, 3, 4),
    variant!("byblock", "staged", 512, 12, 3, 4),
    variant!("byblock", "staged", 512, 16, 2, 4),
    variant!("byblock", "staged", 256, 24, 4, 1),
    variant!("byblock", "direct", 256, 16, 5, 4),
    variant!("byblock", "direct", 256, 24, 4, 4),
    variant!("byblock", "direct", 384, 16, 3, 4),
    variant!("byblock", "direct", 512, 12, 3, 4),
];

static CUB_INIT: KernelDefinition = KernelDefinition {
    name: "xlog_select_cub_init",
    module: &MODULE,
    parameters: &[
        Parameter::output("tiles", U64).counted_by(1),
        Parameter::value("words", U64),
        Parameter::value("tile_count", U32),
    ],
    host: HostKernel::of::<InitTwin>(),
};

/// On the host device all variants are this one: it is there to try the program without a GPU.
struct SelectTwin;

impl KernelBody for SelectTwin {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let rows = call.value::<u64>(4)? as usize;
        let (least, span) = (call.value::<u32>(8)?, call.value::<u32>(9)?);
        let outside = call.value::<u32>(10)? != 0;
        let (values, selected) = (call.input::<u32>(0, rows)?, call.output::<u32>(1, rows)?);
        let mut count = 0;
        for row in 0..rows {
            let value = values.get(row);
            if (value.wrapping_sub(least) <= span) != outside {
                selected.set(count, value);
                count += 1;
            }
        }
        call.output::<u64>(2, 1)?.set(0, count as u64);
        Ok(())
    }
}

struct InitTwin;

impl KernelBody for InitTwin {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        call.output::<u64>(0, call.value::<u64>(1)? as usize)?.fill(0);
        Ok(())
    }
}

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
        logs = vec![24, 28];
    }
    println!("# {}", device.info().name);
    let multiprocessors = device.info().multiprocessors.max(1);
    let engine = Engine::new(Arc::new(device))?;
    let stream = engine.runtime().stream_pool().acquire()?;
    let bench = Bench { engine, stream, multiprocessors };
    for variant in VARIANTS {
        bench.verify_around_the_tile(variant)?;
    }
    println!("# {} variants are right around their tiles", VARIANTS.len());
    println!("# variant rows kernel_ms kernel_Grows/s whole_ms whole_Grows/s");
    for log in logs {
        bench.measure(1 << log)?;
    }
    Ok(())
}

/// A condition as the kernels take it.
#[derive(Clone, Copy)]
struct Range {
    least: u32,
    span: u32,
    outside: bool,
}

const ALL: Range = Range { least: 0, span: u32::MAX, outside: false };
const NONE: Range = Range { outside: true, ..ALL };
const LOWER_HALF: Range = Range { least: 0, span: (1 << 31) - 1, outside: false };

impl Range {
    fn of(self, values: &[u32]) -> Vec<u32> {
        let holds = |value: &u32| (value.wrapping_sub(self.least) <= self.span) != self.outside;
        values.iter().copied().filter(holds).collect()
    }
}

const POISON: u8 = 0xa5;

struct Bench {
    engine: Engine,
    stream: StreamId,
    multiprocessors: u32,
}

impl Bench {
    fn verify_around_the_tile(&self, variant: &'static Variant) -> Result<(), Box<dyn Error>> {
        let tile = variant.tile_rows;
        let many = tile * self.multiprocessors as usize * 9;
        let lengths = [1, 33, tile - 1, tile, tile + 1, 2 * tile, 5 * tile + 13, many + 777];
        for len in lengths {
            let some = random(len);
            let alternating: Vec<u32> = (0..len as u32).map(|row| (row % 2) << 31).collect();
            let sorted: Vec<u32> = (0..len).map(|row| ((row * 3 / len) << 31) as u32).collect();
            for (words, range) in [
                (&some, LOWER_HALF),
                (&some, ALL),
                (&some, NONE),
                (&some, Range { least: 1 << 30, span: 1 << 22, outside: false }),
                (&some, Range { least: 1 << 30, span: 1 << 22, outside: true }),
                (&alternating, LOWER_HALF),
                (&sorted, LOWER_HALF),
            ] {
                let values = self.upload(words)?;
                self.verify(variant, &values, &range.of(words), range)?;
            }
        }
        Ok(())
    }

    /// One run into poisoned memory, and what it must have written there.
    fn verify(
        &self,
        variant: &'static Variant,
        values: &TrackedCudaSlice<u32>,
        expected: &[u32],
        range: Range,
    ) -> Result<(), Box<dyn Error>> {
        let mut selected = self.alloc::<u32>(values.len())?;
        let mut count = self.alloc::<u64>(1)?;
        selected.fill_bytes(POISON, self.stream)?;
        count.fill_bytes(POISON, self.stream)?;
        let words = self.words(variant, values.len())?;
        self.launch(variant, values, &selected, &count, &words, range)?;
        let found = count.start_download(self.stream)?.wait()?[0];
        let wrong = |what: &str| {
            let (name, rows) = (variant.kernel.name, values.len());
            Err::<(), Box<dyn Error>>(format!("{name}, {rows} rows: {what} wrong").into())
        };
        if found != expected.len() as u64 {
            wrong(&format!("count {found}, not {}: it is", expected.len()))?;
        }
        let behind = values.len().min(expected.len() + 4096);
        let got = selected.view(..behind)?.download()?;
        if got[..expected.len()] != *expected {
            wrong("what is selected is")?;
        }
        if got[expected.len()..].iter().any(|word| *word != u32::from_ne_bytes([POISON; 4])) {
            wrong("writing behind the last is")?;
        }
        Ok(())
    }

    fn measure(&self, rows: usize) -> Result<(), Box<dyn Error>> {
        let host_values = random(rows);
        let expected = LOWER_HALF.of(&host_values);
        let values = self.upload(&host_values)?;
        for variant in VARIANTS {
            self.verify(variant, &values, &expected, LOWER_HALF)?;
            let kernel = self.kernel_time(variant, &values)?;
            let whole = self.median(|| self.whole(variant, &values))?;
            print(variant.kernel.name, rows, Some(kernel), whole);
        }
        let condition = Condition::new(Comparison::Less, 1u32 << 31);
        let operator = || {
            let len = rows as u64;
            let pending = select_if(&self.engine, self.stream, &values, len, &condition)?;
            Ok(pending.wait()?.1)
        };
        if operator()? != expected.len() as u64 {
            return Err("the operator: the count is wrong".into());
        }
        print("operator", rows, None, self.median(operator)?);
        Ok(())
    }

    /// Milliseconds a launch, of several one behind the other; the best of a few such series.
    fn kernel_time(
        &self,
        variant: &'static Variant,
        values: &TrackedCudaSlice<u32>,
    ) -> ResourceResult<f64> {
        let launches = if values.len() < 1 << 26 { 20 } else { 8 };
        let (selected, count) = (self.alloc::<u32>(values.len())?, self.alloc::<u64>(1)?);
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let words = (0..launches)
                .map(|_| self.words(variant, values.len()))
                .collect::<ResourceResult<Vec<_>>>()?;
            self.engine.runtime().synchronize(self.stream)?;
            let start = Instant::now();
            for words in &words {
                self.launch(variant, values, &selected, &count, words, LOWER_HALF)?;
            }
            self.engine.runtime().synchronize(self.stream)?;
            best = best.min(start.elapsed().as_secs_f64() * 1e3 / f64::from(launches));
        }
        Ok(best)
    }

    /// All that an operator does; gives the count.
    fn whole(
        &self,
        variant: &'static Variant,
        values: &TrackedCudaSlice<u32>,
    ) -> ResourceResult<u64> {
        let words = self.words(variant, values.len())?;
        let (selected, count) = (self.alloc::<u32>(values.len())?, self.alloc::<u64>(1)?);
        self.launch(variant, values, &selected, &count, &words, LOWER_HALF)?;
        Ok(count.start_download(self.stream)?.wait()?[0])
    }

    /// The median of several runs, in milliseconds, after some that are not counted.
    fn median(&self, mut work: impl FnMut() -> ResourceResult<u64>) -> ResourceResult<f64> {
        let mut times = Vec::new();
        for run in 0..24 {
            let start = Instant::now();
            work()?;
            if run >= 3 {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// The words of a variant's tiles, prepared.
    fn words(
        &self,
        variant: &'static Variant,
        rows: usize,
    ) -> ResourceResult<TrackedCudaSlice<u64>> {
        let tiles = rows.div_ceil(variant.tile_rows);
        if !variant.cub {
            let mut words = self.alloc::<u64>(16 + tiles)?;
            words.fill_bytes(0, self.stream)?;
            return Ok(words);
        }
        let words = self.alloc::<u64>(32 + tiles)?;
        let kernel = self.engine.runtime().load_kernel(&CUB_INIT)?;
        LaunchBuilder::new(self.engine.runtime(), &kernel, self.stream)
            .output(&words)
            .value(words.len() as u64)
            .value(tiles as u32)
            .launch(LaunchDims::linear(tiles.div_ceil(128) as u32, 128))?;
        Ok(words)
    }

    fn launch(
        &self,
        variant: &'static Variant,
        values: &TrackedCudaSlice<u32>,
        selected: &TrackedCudaSlice<u32>,
        count: &TrackedCudaSlice<u64>,
        words: &TrackedCudaSlice<u64>,
        range: Range,
    ) -> ResourceResult<()> {
        let tiles = values.len().div_ceil(variant.tile_rows) as u32;
        let most = variant.resident.map_or(tiles, |blocks| blocks * self.multiprocessors);
        let kernel = self.engine.runtime().load_kernel(&variant.kernel)?;
        LaunchBuilder::new(self.engine.runtime(), &kernel, self.stream)
            .input(values)
            .output(selected)
            .output(count)
            .in_out(words)
            .value(values.len() as u64)
            .value(tiles)
            .value(0u32)
            .value(0u32)
            .value(range.least)
            .value(range.span)
            .value(u32::from(range.outside))
            .launch(LaunchDims::linear(tiles.min(most), variant.threads))
    }

    fn alloc<T: bytemuck::Pod>(&self, len: usize) -> ResourceResult<TrackedCudaSlice<T>> {
        self.engine.manager().alloc_on(len, self.stream, AllocTag("bench"))
    }

    fn upload(&self, values: &[u32]) -> ResourceResult<TrackedCudaSlice<u32>> {
        let mut slice = self.alloc(values.len())?;
        slice.upload_on(values, self.stream)?;
        Ok(slice)
    }
}

fn print(name: &str, rows: usize, kernel: Option<f64>, whole: f64) {
    let speed = |ms: f64| rows as f64 / ms / 1e6;
    let kernel = kernel.map_or("- -".to_owned(), |ms| format!("{ms:.4} {:.1}", speed(ms)));
    println!("{name} {rows} {kernel} {whole:.4} {:.1}", speed(whole));
}

/// Random words, new in each run of the program.
fn random(rows: usize) -> Vec<u32> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = now.as_nanos() as u64;
    (0..rows as u64).map(|row| scramble(seed ^ (row << 20)) as u32).collect()
}

/// One output of SplitMix64.
fn scramble(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
