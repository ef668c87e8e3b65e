//! Eight threads, one runtime, the same blocks: what comes out is what one thread would have made.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    thread,
};

use parking_lot::Mutex;
use xlog_cuda::{
    LaunchDims, LoadedKernel,
    device_runtime::{Access, AllocTag, ResourceError, StreamId},
    kernels,
    launch::{LaunchBuilder, LaunchRecorder},
    memory::TrackedCudaSlice,
};

use super::support::{Random, fill_arguments};
use crate::{Rig, TestCase, TestDevice, cases, fail};

pub(super) const CASES: &[TestCase] = cases![
    chains_of_writes_and_reads_come_out_as_in_a_serial_run,
    chains_come_out_right_while_memory_comes_and_goes,
    launches_that_commute_lose_nothing_without_any_other_order,
    recorders_that_are_refused_and_try_again_lose_nothing,
    private_chains_over_recycled_memory_keep_their_values,
    claims_that_conflict_are_never_held_at_once,
];

const THREADS: usize = 8;
const STREAMS: usize = 6;
const BLOCKS: usize = 5;
/// Over all threads, more than 10,000.
const LAUNCHES_EACH: usize = 1300;
const LEN: usize = 96;

/// Runs `work` on eight threads, each with its number and numbers of its own.
fn on_all_threads(work: impl Fn(usize, &mut Random) + Sync) {
    let seed = Random::new().next();
    thread::scope(|scope| {
        for me in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(me, &mut Random::from_seed(seed ^ me as u64)));
        }
    });
}

/// One launch of a chain, as the serial run repeats it.
#[derive(Clone, Copy)]
struct Step {
    ticket: u64,
    source: usize,
    target: usize,
    salt: u32,
}

struct Chains<'r> {
    rig: &'r Rig,
    streams: [StreamId; STREAMS],
    kernel: LoadedKernel,
    blocks: Vec<TrackedCudaSlice<u32>>,
    /// A block's order of launches: held over each launch call that names the block, so that the
    /// tickets taken inside give one serial order. What the launches do on the device is not held
    /// by anything.
    order: Vec<Mutex<()>>,
    next: AtomicU64,
    steps: Mutex<Vec<Step>>,
}

impl<'r> Chains<'r> {
    fn new(rig: &'r Rig) -> Self {
        let streams = rig.streams();
        let mut blocks: Vec<_> = (0..BLOCKS).map(|_| rig.zeros(LEN, streams[0])).collect();
        for (index, block) in blocks.iter_mut().enumerate() {
            block.upload(&start_of(index)).unwrap_or_else(fail);
        }
        Self {
            rig,
            streams,
            kernel: rig.kernel(&kernels::MIX_U32),
            blocks,
            order: (0..BLOCKS).map(|_| Mutex::default()).collect(),
            next: AtomicU64::new(0),
            steps: Mutex::default(),
        }
    }

    /// `blocks[target] = mix(blocks[target], blocks[source])` on a stream of the thread's choice.
    fn launch(&self, random: &mut Random) {
        let source = random.below(BLOCKS);
        let target = (source + 1 + random.below(BLOCKS - 1)) % BLOCKS;
        let salt = random.next() as u32;
        let stream = self.streams[random.below(STREAMS)];
        let _first = self.order[source.min(target)].lock();
        let _second = self.order[source.max(target)].lock();
        let ticket = self.next.fetch_add(1, Ordering::SeqCst);
        LaunchBuilder::new(&self.rig.runtime, &self.kernel, stream)
            .input(&self.blocks[source])
            .in_out(&self.blocks[target])
            .value(salt)
            .value(LEN as u64)
            .launch(LaunchDims::for_elements(LEN))
            .unwrap_or_else(fail);
        self.steps.lock().push(Step { ticket, source, target, salt });
    }

    /// Compares every block with a serial run of the same steps.
    fn check(self) {
        let mut steps = self.steps.into_inner();
        steps.sort_unstable_by_key(|step| step.ticket);
        assert!(steps.len() >= 10_000, "{} launches", steps.len());
        let mut expected: Vec<_> = (0..BLOCKS).map(start_of).collect();
        for step in &steps {
            let inputs = expected[step.source].clone();
            for (data, input) in expected[step.target].iter_mut().zip(inputs) {
                *data = kernels::mix_u32(*data, input, step.salt);
            }
        }
        for (index, block) in self.blocks.iter().enumerate() {
            let found = block.download().unwrap_or_else(fail);
            assert_eq!(found, expected[index], "block {index} after {} launches", steps.len());
        }
    }
}

fn start_of(block: usize) -> Vec<u32> {
    (0..LEN as u32).map(|i| i * 77 + block as u32 * 1001).collect()
}

fn chains_of_writes_and_reads_come_out_as_in_a_serial_run(device: TestDevice) {
    let rig = Rig::new(device);
    let chains = Chains::new(&rig);
    on_all_threads(|_, random| (0..LAUNCHES_EACH).for_each(|_| chains.launch(random)));
    chains.check();
}

fn chains_come_out_right_while_memory_comes_and_goes(device: TestDevice) {
    let rig = Rig::new(device);
    let chains = Chains::new(&rig);
    let blocks = rig.pool.stats().blocks;
    on_all_threads(|me, random| {
        for round in 0..LAUNCHES_EACH {
            chains.launch(random);
            // A block of the size the chains use, written and given back while in use: were it
            // handed out under its writer, a chain would notice.
            let stream = chains.streams[random.below(STREAMS)];
            let passing = rig.manager.alloc_on::<u32>(LEN, stream, AllocTag("passing"));
            let passing = passing.unwrap_or_else(fail);
            let elsewhere = chains.streams[random.below(STREAMS)];
            rig.fill(&passing, round as u32, elsewhere).unwrap_or_else(fail);
            drop(passing);
            match (me, round % 64) {
                (0, 0) => rig.runtime.reap_pending().unwrap_or_else(fail),
                (1..4, 0) => rig.runtime.try_reap().unwrap_or_else(fail),
                _ => {}
            }
        }
    });
    chains.check();
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!(rig.runtime.bytes_outstanding(), 0, "the chains' blocks are gone as well");
    assert_eq!(rig.pool.stats().blocks, blocks - BLOCKS);
}

fn launches_that_commute_lose_nothing_without_any_other_order(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; STREAMS] = rig.streams();
    let blocks: [_; BLOCKS] = std::array::from_fn(|i| rig.zeros(LEN, streams[i]));
    let added: [AtomicU64; BLOCKS] = Default::default();
    on_all_threads(|_, random| {
        for round in 0..LAUNCHES_EACH {
            let index = random.below(BLOCKS);
            let (amount, stream) = (random.next() as u32, streams[random.below(STREAMS)]);
            rig.increment(&blocks[index], amount, stream).unwrap_or_else(fail);
            added[index].fetch_add(u64::from(amount), Ordering::Relaxed);
            if round % 16 == 0 {
                // Every launch adds to all elements: a read between two of them sees one value.
                let other = streams[random.below(STREAMS)];
                let reading = blocks[random.below(BLOCKS)].start_download(other);
                let seen = reading.and_then(|download| download.wait()).unwrap_or_else(fail);
                assert!(seen.iter().all(|value| *value == seen[0]), "half a launch: {seen:x?}");
            }
        }
    });
    for (block, added) in blocks.iter().zip(added) {
        let expected = added.into_inner() as u32;
        assert_eq!(block.download().unwrap_or_else(fail), [expected; LEN]);
    }
}

fn recorders_that_are_refused_and_try_again_lose_nothing(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; STREAMS] = rig.streams();
    let blocks: [_; 3] = std::array::from_fn(|i| rig.zeros(LEN, streams[i]));
    let added: [AtomicU64; 3] = Default::default();
    let _ = rig.kernel(&kernels::INCREMENT_U32);
    on_all_threads(|_, random| {
        for _ in 0..LAUNCHES_EACH / 2 {
            let (index, other) = (random.below(3), random.below(3));
            let (amount, stream) = (random.next() as u32, streams[random.below(STREAMS)]);
            let mut recorder = LaunchRecorder::new_strict(stream);
            recorder.read_write(&blocks[index]).read(&blocks[other]);
            while let Err(refused) = recorder.preflight(&rig.runtime) {
                assert!(refused.to_string().contains("has not committed yet"), "{refused}");
                thread::yield_now();
            }
            // The same three arguments in the same order: data, amount, n.
            let arguments = fill_arguments(&blocks[index], amount);
            let dims = LaunchDims::for_elements(LEN);
            rig.launch_raw(&kernels::INCREMENT_U32, &arguments, dims, stream);
            recorder.commit(&rig.runtime).unwrap_or_else(fail);
            added[index].fetch_add(u64::from(amount), Ordering::Relaxed);
        }
    });
    for (block, added) in blocks.iter().zip(added) {
        let expected = added.into_inner() as u32;
        assert_eq!(block.download().unwrap_or_else(fail), [expected; LEN]);
    }
    assert_eq!(rig.pool.stats().dropped_recorders, 0);
}

/// Ends the reaper even if a chain fails, so that the failure is seen.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn private_chains_over_recycled_memory_keep_their_values(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; STREAMS] = rig.streams();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _at_the_end = SetOnDrop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                rig.runtime.try_reap().unwrap_or_else(fail);
                rig.runtime.reap_pending().unwrap_or_else(fail);
                thread::yield_now();
            }
        });
        on_all_threads(|_, random| {
            let mut arriving = VecDeque::new();
            for _ in 0..LAUNCHES_EACH / 4 {
                // Written on one stream, changed on a second, copied on a third, each with memory
                // that another thread's chain has just let go of.
                let len = [64, 100, 1000, 5000][random.below(4)];
                let (value, [x, y, z]) =
                    (random.next() as u32, [0; 3].map(|_| streams[random.below(STREAMS)]));
                let allocate = |on| rig.manager.alloc_on::<u32>(len, on, AllocTag("chain"));
                let first = allocate(x).unwrap_or_else(fail);
                rig.fill(&first, value, x).unwrap_or_else(fail);
                rig.increment(&first, 1, y).unwrap_or_else(fail);
                let second = allocate(y).unwrap_or_else(fail);
                rig.copy(&first, &second, z).unwrap_or_else(fail);
                drop(first);
                let download = second.start_download(x).unwrap_or_else(fail);
                drop(second);
                arriving.push_back((download, vec![value.wrapping_add(1); len]));
                if arriving.len() > 8 {
                    let (download, expected) = arriving.pop_front().expect("nine");
                    assert!(download.wait().unwrap_or_else(fail) == expected, "{len} values");
                }
            }
            for (download, expected) in arriving {
                assert!(download.wait().unwrap_or_else(fail) == expected);
            }
        });
    });
    rig.runtime.reap_pending().unwrap_or_else(fail);
    assert_eq!((rig.runtime.bytes_outstanding(), rig.pool.stats().blocks), (0, 0));
    assert_eq!(rig.pool.stats().leaked_blocks, 0);
}

/// A second set of books on who holds what: -1 for a writer, else the number of readers. Nobody who
/// was granted a claim may ever find somebody there who conflicts.
struct Shadow(Vec<AtomicI64>);

impl Shadow {
    fn enter(&self, block: usize, access: Access) {
        let writer = -1;
        let before = if access.writes() {
            self.0[block].swap(writer, Ordering::SeqCst)
        } else {
            self.0[block].fetch_add(1, Ordering::SeqCst)
        };
        let alone = if access.writes() { before == 0 } else { before >= 0 };
        assert!(alone, "{access:?} of block {block} was granted beside {before}");
    }

    fn leave(&self, block: usize, access: Access) {
        if access.writes() {
            assert_eq!(self.0[block].swap(0, Ordering::SeqCst), -1, "a writer is alone");
        } else {
            assert!(self.0[block].fetch_sub(1, Ordering::SeqCst) > 0, "a reader leaves once");
        }
    }
}

/// Few blocks, many threads, every mixture of one to four reads and writes, recorders that nest on
/// one thread: claims are granted by every path there is, and the shadow never sees two at once.
fn claims_that_conflict_are_never_held_at_once(device: TestDevice) {
    let rig = Rig::new(device);
    let streams: [StreamId; 3] = rig.streams();
    let blocks: Vec<_> = (0..4).map(|index| rig.zeros(16, streams[index % 3])).collect();
    let shadow = Shadow(blocks.iter().map(|_| AtomicI64::new(0)).collect());
    let (granted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let rounds = if device == TestDevice::Host { 100_000 } else { 2_000 };
    on_all_threads(|_, random| {
        for _ in 0..rounds {
            let mut held: Vec<(LaunchRecorder, Vec<(usize, Access)>)> = Vec::new();
            for _ in 0..1 + random.below(2) {
                let mut recorder = LaunchRecorder::new_strict(streams[random.below(3)]);
                let first = random.below(4);
                let uses: Vec<_> = (0..1 + random.below(4))
                    .map(|step| {
                        let writes = random.below(3) == 0;
                        let access = if writes { Access::ReadWrite } else { Access::Read };
                        ((first + step) % 4, access)
                    })
                    .collect();
                for (block, access) in &uses {
                    match access.writes() {
                        true => recorder.read_write(&blocks[*block]),
                        false => recorder.read(&blocks[*block]),
                    };
                }
                match recorder.preflight(&rig.runtime) {
                    Ok(()) => {
                        uses.iter().for_each(|(block, access)| shadow.enter(*block, *access));
                        granted.fetch_add(1, Ordering::Relaxed);
                        held.push((recorder, uses));
                    }
                    Err(ResourceError::StreamMisuse(_)) => {
                        refused.fetch_add(1, Ordering::Relaxed);
                        drop(recorder);
                    }
                    Err(other) => fail(other),
                }
            }
            for (recorder, uses) in held {
                uses.iter().for_each(|(block, access)| shadow.leave(*block, *access));
                recorder.commit(&rig.runtime).unwrap_or_else(fail);
            }
        }
    });
    assert!(shadow.0.iter().all(|block| block.load(Ordering::SeqCst) == 0));
    let (granted, refused) = (granted.into_inner(), refused.into_inner());
    assert!(granted > 1_000 && refused > 100, "{granted} granted, {refused} refused");
    // Whoever was refused left nothing behind.
    for block in &blocks {
        rig.fill(block, 1, streams[0]).unwrap_or_else(fail);
    }
}
