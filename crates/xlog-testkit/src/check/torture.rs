//! Real threads on a real device, for as long as one likes: every byte against a serial run.
//!
//! Each thread runs a random program over blocks of its own, on all streams, and knows what they
//! must hold. Threads meet in three ways that keep the result known: they read the same blocks,
//! they add to the same blocks (in whatever order), and they hand blocks over to each other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use xlog_cuda::{
    CudaDevice,
    device_runtime::{AsyncCudaResource, ResourceError, StreamPool},
    launch::LaunchRecorder,
};
use xlog_driver::Driver;

use super::{
    Stack,
    bench::{Bench, Held, Variables},
    model::first_difference,
    program::{Make, Step, Stream, Variable, Way, Work, Workload},
    random::Draw,
};

/// What to do to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torture {
    /// Threads.
    pub threads: usize,
    /// Streams besides the default one, shared by all threads.
    pub streams: usize,
    /// Launches and copies, of all threads together.
    pub launches: u64,
    /// The seed of every thread's program.
    pub seed: u64,
    /// The resources under it.
    pub stack: Stack,
}

impl Default for Torture {
    fn default() -> Self {
        Self { threads: 8, streams: 15, launches: 1_000_000, seed: 1, stack: Stack::Production }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct TortureReport {
    /// Launches and copies that were enqueued.
    pub launches: u64,
    /// Blocks that were allocated.
    pub blocks: u64,
    /// Words that were compared with the serial run.
    pub words_compared: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// The first thing that was wrong.
    pub failure: Option<String>,
}

/// Blocks that a thread has at a time.
const BLOCKS: usize = 12;

/// Blocks that all threads read, and as many that all add to.
const SHARED: usize = 4;

/// Words of the blocks all threads use.
const SHARED_WORDS: usize = 256;

/// How many times longer than in simulation blocks are: a launch over one takes longer than the
/// next launch takes to come.
const SCALE: usize = 4;

/// Steps between two looks at everything a thread has.
const STEPS_BETWEEN_LOOKS: u64 = 1024;

/// Tries of a recorder that another thread's claim stands against.
const TRIES: u32 = 1_000_000;

/// What the threads share.
struct Site {
    bench: Bench,
    /// Written once, before the threads start.
    read_only: Variables,
    added_to: Variables,
    totals: [AtomicU32; SHARED],
    /// Blocks on their way from one thread to another, with what they hold.
    handed_over: Mutex<Vec<(Held, Vec<u32>)>>,
    launches: AtomicU64,
    blocks: AtomicU64,
    words_compared: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
}

/// Runs the programs of all threads on the device of `driver`. `progress` is told the launches so
/// far, now and then.
#[must_use]
pub fn torture(
    driver: Arc<dyn Driver>,
    plan: &Torture,
    progress: &(dyn Fn(u64) + Sync),
) -> TortureReport {
    let start = Instant::now();
    let mut report = match Site::new(driver, plan) {
        Ok(site) => {
            std::thread::scope(|scope| {
                for thread in 0..plan.threads {
                    let (site, plan) = (&site, *plan);
                    scope.spawn(move || site.work(&plan, thread, progress));
                }
            });
            site.end()
        }
        Err(error) => TortureReport {
            failure: Some(format!("setting up: {error}")),
            ..TortureReport::default()
        },
    };
    report.elapsed = start.elapsed();
    report
}

impl Site {
    fn new(driver: Arc<dyn Driver>, plan: &Torture) -> Result<Self, ResourceError> {
        let device = Arc::new(CudaDevice::with_driver(driver));
        let pool = Arc::new(StreamPool::with_capacity(Arc::clone(&device), plan.streams + 1)?);
        let ordinal = device.driver().info().ordinal;
        let resource = Arc::new(AsyncCudaResource::new(device, ordinal, pool));
        let bench = Bench::new(&resource, plan.stack, plan.streams)?;
        let bench = bench.with_long_blocks(1000 * SCALE);
        let shared = |value: fn(usize) -> u32| -> Result<Variables, ResourceError> {
            let mut variables = Variables::new(&bench, SHARED)?;
            for variable in 0..SHARED {
                let slice = bench.allocate(SHARED_WORDS, variable % bench.streams.len())?;
                let cell = variables.contents.add(SHARED_WORDS);
                variables.blocks[variable] = Some(Held { slice, cell });
                let fill = Work::Fill { out: variable };
                variables.launch(&bench, fill, 0, value(variable))?;
                variables.was_enqueued(variables.bound(fill), 0, value(variable));
            }
            Ok(variables)
        };
        Ok(Self {
            read_only: shared(|variable| 0x5eed_0000 + variable as u32)?,
            added_to: shared(|_| 0)?,
            totals: [const { AtomicU32::new(0) }; SHARED],
            handed_over: Mutex::default(),
            launches: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            words_compared: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            failure: Mutex::default(),
            bench,
        })
    }

    fn work(&self, plan: &Torture, thread: usize, progress: &(dyn Fn(u64) + Sync)) {
        let draw = Draw::new(plan.seed.wrapping_mul(0x1_0000_0001) ^ thread as u64);
        let variables = match Variables::new(&self.bench, BLOCKS) {
            Ok(variables) => variables,
            Err(error) => return self.fail(format!("thread {thread}: {error}")),
        };
        let mut worker = Worker { site: self, thread, draw, variables };
        let mut steps = 0;
        while self.launches.load(Ordering::Relaxed) < plan.launches
            && !self.failed.load(Ordering::Relaxed)
        {
            let step = worker.step();
            steps += 1;
            let looked = if steps % STEPS_BETWEEN_LOOKS == 0 {
                if thread == 0 {
                    progress(self.launches.load(Ordering::Relaxed));
                }
                worker.look_at_everything()
            } else {
                Ok(())
            };
            if let Err(error) = step.and(looked) {
                self.fail(format!("thread {thread}, step {steps}: {error}"));
            }
        }
        if let Err(error) = worker.look_at_everything() {
            self.fail(format!("thread {thread}, at the end: {error}"));
        }
    }

    fn fail(&self, what: String) {
        self.failure.lock().get_or_insert(what);
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Looks at what the threads left, and gives everything back.
    fn end(mut self) -> TortureReport {
        if let Err(error) = self.compare_shared() {
            self.fail(error);
        }
        for (held, expected) in std::mem::take(self.handed_over.get_mut()) {
            if let Err(error) = self.compare(&held, &expected, "a block that was handed over") {
                self.fail(error);
            }
        }
        let Self { bench, read_only, added_to, launches, blocks, words_compared, failure, .. } =
            self;
        drop((read_only, added_to));
        let mut failure = failure.into_inner();
        let left = bench.runtime.reap_pending().map(|()| bench.runtime.bytes_outstanding());
        match left {
            Ok(0) => {}
            Ok(left) => {
                failure.get_or_insert(format!("{left} bytes are outstanding at the end"));
            }
            Err(error) => {
                failure.get_or_insert(format!("the last reap: {error}"));
            }
        }
        TortureReport {
            launches: launches.into_inner(),
            blocks: blocks.into_inner(),
            words_compared: words_compared.into_inner(),
            elapsed: Duration::ZERO,
            failure,
        }
    }

    fn compare_shared(&self) -> Result<(), String> {
        for (variable, held) in self.read_only.blocks.iter().enumerate() {
            let Some(held) = held else { continue };
            let expected = self.read_only.contents.get(held.cell);
            self.compare(held, expected, &format!("shared block {variable}"))?;
        }
        for (held, total) in self.added_to.blocks.iter().zip(&self.totals) {
            let Some(held) = held else { continue };
            let expected = vec![total.load(Ordering::SeqCst); SHARED_WORDS];
            self.compare(held, &expected, "a block that all threads add to")?;
        }
        Ok(())
    }

    fn compare(&self, held: &Held, expected: &[u32], what: &str) -> Result<(), String> {
        let found = held.slice.download().map_err(|error| format!("{what}: {error}"))?;
        self.words_compared.fetch_add(expected.len() as u64, Ordering::Relaxed);
        if found == expected {
            return Ok(());
        }
        let difference = first_difference(&found, expected);
        Err(format!("{what} is not what a serial run gives: {difference}"))
    }
}

/// One thread's program.
struct Worker<'s> {
    site: &'s Site,
    thread: usize,
    draw: Draw,
    variables: Variables,
}

impl Worker<'_> {
    fn step(&mut self) -> Result<(), String> {
        let streams = self.site.bench.streams.len();
        let workload = Workload::Random;
        let make = Make { workload, streams, blocks: BLOCKS, scale: SCALE, bare: false };
        let answer = match self.draw.below(16) {
            0 => self.add_to_shared(),
            1 => self.read_shared(),
            2 => {
                self.hand_over();
                Ok(())
            }
            _ => {
                let step = make.step(&mut self.draw);
                // Whoever waits for the device lets the streams run dry, and what nothing orders
                // comes out right by luck: most steps that wait are left out.
                let waits = matches!(
                    step,
                    Step::Synchronize { .. } | Step::Reap | Step::Trim | Step::Download { .. }
                );
                if waits && !self.draw.chance(16) { Ok(()) } else { self.take_step(step) }
            }
        };
        answer.map_err(|error| error.to_string())
    }

    fn take_step(&mut self, step: Step) -> Result<(), ResourceError> {
        let bench = &self.site.bench;
        if !self.variables.has(&step.uses()) {
            return Ok(());
        }
        match step {
            Step::Allocate { block, words, stream, first_use } => {
                self.variables.blocks[block] = None;
                let slice = bench.allocate(words, stream)?;
                self.site.blocks.fetch_add(1, Ordering::Relaxed);
                let cell = self.variables.contents.add(words);
                self.variables.blocks[block] = Some(Held { slice, cell });
                self.launch(Way::Builder, Work::Fill { out: block }, first_use, cell as u32)?;
            }
            Step::Free { block } => self.variables.blocks[block] = None,
            Step::Launch { way, work, stream, salt } => self.launch(way, work, stream, salt)?,
            Step::Upload { block, stream, salt } => {
                let words = self.variables.length(block) as u32;
                let values: Vec<u32> = (0..words).map(|index| index ^ salt).collect();
                if let Some(held) = &mut self.variables.blocks[block] {
                    held.slice.upload_on(&values, bench.streams[stream])?;
                    self.variables.contents.set(held.cell, values);
                    self.count();
                }
            }
            Step::Download { block, stream } => {
                if let Some(held) = &self.variables.blocks[block] {
                    let download = held.slice.start_download(bench.streams[stream])?;
                    let expected = self.variables.contents.get(held.cell);
                    if download.wait()? != expected {
                        return Err(ResourceError::StreamMisuse(
                            "a download is not what a serial run gives".into(),
                        ));
                    }
                    self.count();
                }
            }
            Step::CopyBlock { from, to, stream } => {
                if self.variables.length(from) == self.variables.length(to) {
                    let source = self.variables.blocks[from].take();
                    if let (Some(to), Some(from)) = (&mut self.variables.blocks[to], &source) {
                        to.slice.copy_from(&from.slice, bench.streams[stream])?;
                        self.variables.contents.copy(from.cell, to.cell, from.slice.len());
                    }
                    self.variables.blocks[from] = source;
                    self.count();
                }
            }
            Step::Memset { block, stream, value } => {
                if let Some(held) = &mut self.variables.blocks[block] {
                    held.slice.fill_bytes(value, bench.streams[stream])?;
                    let words = vec![u32::from_ne_bytes([value; 4]); held.slice.len()];
                    self.variables.contents.set(held.cell, words);
                    self.count();
                }
            }
            Step::Synchronize { stream } => bench.runtime.synchronize(bench.streams[stream])?,
            Step::Reap => bench.runtime.reap_pending()?,
            Step::TryReap => bench.runtime.try_reap()?,
            Step::Trim => bench.trim()?,
            // A stale handle of this thread's own would have to be kept for these.
            Step::FreeAgain { .. } | Step::UseAgain { .. } | Step::BareWrite { .. } => {}
        }
        Ok(())
    }

    fn count(&self) {
        self.site.launches.fetch_add(1, Ordering::Relaxed);
    }

    fn launch(
        &mut self,
        way: Way,
        work: Work,
        stream: Stream,
        salt: u32,
    ) -> Result<(), ResourceError> {
        let bench = &self.site.bench;
        let bound = self.variables.bound(work);
        let (enqueue, commit) = match way {
            Way::Builder => {
                self.variables.launch(bench, work, stream, salt)?;
                self.variables.was_enqueued(bound, stream, salt);
                self.count();
                return Ok(());
            }
            Way::Abandoned { enqueued } => (enqueued, false),
            Way::Strict | Way::Permissive => (true, true),
        };
        let mut recorder = LaunchRecorder::new_strict(bench.streams[stream]);
        self.variables.record(work, stream, &mut recorder);
        recorder.preflight(&bench.runtime)?;
        if enqueue {
            let launch = self.variables.kernel(bench, work, stream, salt);
            bench.enqueue(&launch, stream)?;
            self.variables.was_enqueued(bound, stream, salt);
            self.count();
        }
        if commit { recorder.commit(&bench.runtime) } else { Ok(()) }
    }

    /// Adds to a block that all threads add to, by the builder or by a recorder that tries until
    /// it is let through.
    fn add_to_shared(&mut self) -> Result<(), ResourceError> {
        let (site, bench) = (self.site, &self.site.bench);
        let data = self.draw.below(SHARED);
        let (stream, amount) = (self.draw.below(bench.streams.len()), self.draw.number() as u32);
        let work = Work::Increment { data };
        if self.draw.chance(128) {
            site.added_to.launch(bench, work, stream, amount)?;
        } else {
            let launch = site.added_to.kernel(bench, work, stream, amount);
            let mut recorder = LaunchRecorder::new_strict(bench.streams[stream]);
            site.added_to.record(work, stream, &mut recorder);
            let mut tries = 0;
            while let Err(error) = recorder.preflight(&bench.runtime) {
                tries += 1;
                if tries == TRIES || !error.to_string().contains("conflict") {
                    return Err(error);
                }
                std::thread::yield_now();
                recorder = LaunchRecorder::new_strict(bench.streams[stream]);
                site.added_to.record(work, stream, &mut recorder);
            }
            bench.enqueue(&launch, stream)?;
            recorder.commit(&bench.runtime)?;
        }
        site.totals[data].fetch_add(amount, Ordering::SeqCst);
        self.count();
        Ok(())
    }

    /// Mixes a block that all threads read into one of this thread's.
    fn read_shared(&mut self) -> Result<(), ResourceError> {
        let (site, bench) = (self.site, &self.site.bench);
        let (input, data) = (self.draw.below(SHARED), self.draw.below(BLOCKS));
        let (stream, salt) = (self.draw.below(bench.streams.len()), self.draw.number() as u32);
        let (Some(input), Some(held)) =
            (&site.read_only.blocks[input], &self.variables.blocks[data])
        else {
            return Ok(());
        };
        bench.mix(&input.slice, &held.slice, stream, salt)?;
        let shared = site.read_only.contents.get(input.cell).to_vec();
        self.variables.contents.mix(&shared, held.cell, salt);
        self.count();
        Ok(())
    }

    /// Leaves a block for another thread, and takes one that another thread left.
    fn hand_over(&mut self) {
        let block: Variable = self.draw.below(BLOCKS);
        let mut handed_over = self.site.handed_over.lock();
        let mut taken = if handed_over.is_empty() {
            None
        } else {
            let index = self.draw.below(handed_over.len());
            Some(handed_over.swap_remove(index))
        };
        if let Some((held, contents)) = &mut taken {
            held.cell = self.variables.contents.add(0);
            self.variables.contents.set(held.cell, std::mem::take(contents));
        }
        let given =
            std::mem::replace(&mut self.variables.blocks[block], taken.map(|(held, _)| held));
        if let Some(held) = given {
            let contents = self.variables.contents.get(held.cell).to_vec();
            handed_over.push((held, contents));
        }
    }

    /// Compares everything this thread has with the serial run.
    fn look_at_everything(&mut self) -> Result<(), String> {
        for (variable, held) in self.variables.blocks.iter().enumerate() {
            let Some(held) = held else { continue };
            let expected = self.variables.contents.get(held.cell);
            let what = format!("b{variable} of thread {}", self.thread);
            self.site.compare(held, expected, &what)?;
        }
        for (stream, sum) in self.variables.sums.iter().enumerate() {
            let found = sum.download().map_err(|error| error.to_string())?;
            if found != [self.variables.expected_sums[stream]] {
                return Err(format!("launches on stream {stream} read what no serial run gives"));
            }
        }
        // What is gone is never looked at again.
        let live: Vec<_> = self.variables.blocks.iter().flatten().map(|held| held.cell).collect();
        self.variables.contents.keep(&live);
        Ok(())
    }
}
