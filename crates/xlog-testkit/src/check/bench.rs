//! What a program works with: a runtime, its streams and kernels, and variables that hold blocks.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use xlog_core::MemoryBudget;
use xlog_cuda::{
    GpuMemoryManager, LaunchDims, LoadedKernel,
    device_runtime::{
        Access, AllocTag, AsyncCudaResource, BlockId, DeviceBlock, Generation, PoolResource,
        ResourceResult, StreamId, XlogDeviceRuntime,
    },
    kernels,
    launch::{LaunchBuilder, LaunchRecorder},
    memory::TrackedCudaSlice,
};
use xlog_driver::Arguments;

use super::{
    model::{Cell, Contents},
    program::{Stream, Variable, Work},
    stack::{Built, Stack},
};

/// One warp: the kernels go round, and a launch over a long block takes its time.
const DIMS: LaunchDims = LaunchDims::linear(1, 32);

/// Words of a block that launches touch and the serial run knows; what is beyond is only declared.
pub(super) const MODELLED: usize = 1000;

/// The kernels programs are made of.
struct Kernels {
    fill: LoadedKernel,
    copy: LoadedKernel,
    increment: LoadedKernel,
    mix: LoadedKernel,
    blend: LoadedKernel,
    checksum: LoadedKernel,
}

/// A runtime with streams and kernels.
pub(super) struct Bench {
    pub(super) runtime: Arc<XlogDeviceRuntime>,
    pub(super) streams: Vec<StreamId>,
    /// Words of a block that launches touch at most.
    modelled: usize,
    pool: Option<Arc<PoolResource>>,
    manager: GpuMemoryManager,
    kernels: Kernels,
}

impl Bench {
    /// A runtime over `stack`, with `streams` streams besides the default one.
    pub(super) fn new(
        resource: &Arc<AsyncCudaResource>,
        stack: Stack,
        streams: usize,
    ) -> ResourceResult<Self> {
        let (device, streams_of) = (resource.device(), resource.stream_pool());
        let Built { resource, pool } = stack.over(resource)?;
        let runtime = Arc::new(XlogDeviceRuntime::try_with_resource(
            Arc::clone(device),
            device.driver().info().ordinal,
            Arc::clone(streams_of),
            resource,
        )?);
        let budget = MemoryBudget::unlimited();
        let manager =
            GpuMemoryManager::with_runtime(Arc::clone(device), budget, Arc::clone(&runtime));
        let acquired = (0..streams).map(|_| streams_of.acquire());
        let streams =
            std::iter::once(Ok(StreamId::DEFAULT)).chain(acquired).collect::<Result<_, _>>()?;
        let load = |definition| runtime.load_kernel(definition);
        let kernels = Kernels {
            fill: load(&kernels::FILL_U32)?,
            copy: load(&kernels::COPY_U32)?,
            increment: load(&kernels::INCREMENT_U32)?,
            mix: load(&kernels::MIX_U32)?,
            blend: load(&kernels::BLEND_U32)?,
            checksum: load(&kernels::CHECKSUM_U32)?,
        };
        Ok(Self { runtime, streams, modelled: MODELLED, pool, manager, kernels })
    }

    pub(super) fn allocate(
        &self,
        words: usize,
        stream: Stream,
    ) -> ResourceResult<TrackedCudaSlice<u32>> {
        self.manager.alloc_on(words, self.streams[stream], AllocTag("check"))
    }

    /// The same, with launches over blocks of up to `words`.
    pub(super) fn with_long_blocks(mut self, words: usize) -> Self {
        self.modelled = words;
        self
    }

    /// Gives back what is kept for later, the pool's slabs too.
    pub(super) fn trim(&self) -> ResourceResult<()> {
        self.runtime.trim()?;
        self.pool.as_ref().map_or(Ok(()), |pool| pool.trim())
    }

    /// Mixes one block into another.
    pub(super) fn mix(
        &self,
        input: &TrackedCudaSlice<u32>,
        data: &TrackedCudaSlice<u32>,
        stream: Stream,
        salt: u32,
    ) -> ResourceResult<()> {
        let n = input.len().min(data.len()).min(self.modelled) as u64;
        let mut launch = LaunchBuilder::new(&self.runtime, &self.kernels.mix, self.streams[stream]);
        launch.input(input).in_out(data).value(salt).value(n).launch(DIMS)
    }

    /// Enqueues what a recorder has prepared.
    pub(super) fn enqueue(
        &self,
        (kernel, arguments): &(LoadedKernel, Arguments),
        stream: Stream,
    ) -> ResourceResult<()> {
        // SAFETY: the arguments were made for this kernel, and the recorder whose preflight came
        // before this names their blocks.
        unsafe { self.runtime.enqueue(kernel, DIMS, arguments, self.streams[stream]) }
    }
}

/// A block a launch claims, and how.
pub(super) type Claim = (Generation, Access);

/// What is left of a block that was freed: a handle nobody may use any more.
pub(super) struct Stale {
    pub(super) block: DeviceBlock,
    pub(super) id: BlockId,
}

/// A block in a variable.
pub(super) struct Held {
    pub(super) slice: TrackedCudaSlice<u32>,
    pub(super) cell: Cell,
}

/// Variables that hold blocks, and what the blocks must hold.
pub(super) struct Variables {
    pub(super) blocks: Vec<Option<Held>>,
    pub(super) contents: Contents,
    /// For each block, by number, the streams that have read it since its last write, as bits.
    readers: FxHashMap<Cell, u64>,
    /// Where launches that only read leave what they saw: one word for each stream.
    pub(super) sums: Vec<TrackedCudaSlice<u64>>,
    pub(super) expected_sums: Vec<u64>,
}

impl Held {
    /// A second handle, for after the block is gone.
    pub(super) fn stale(&self) -> Option<Stale> {
        let block = self.slice.runtime_block()?;
        let copy = DeviceBlock {
            ptr: block.ptr,
            device_ordinal: block.device_ordinal,
            alloc_stream: block.alloc_stream,
            bytes: block.bytes,
            align: block.align,
            tag: block.tag,
            generation: block.generation,
            state: block.state,
        };
        Some(Stale { id: BlockId::from_block(block), block: copy })
    }
}

impl Variables {
    pub(super) fn new(bench: &Bench, count: usize) -> ResourceResult<Self> {
        let mut sums = Vec::new();
        for stream in &bench.streams {
            let mut sum = bench.manager.alloc_on::<u64>(1, *stream, AllocTag("sum"))?;
            sum.fill_bytes(0, *stream)?;
            sums.push(sum);
        }
        Ok(Self {
            blocks: (0..count).map(|_| None).collect(),
            contents: Contents::default(),
            readers: FxHashMap::default(),
            expected_sums: vec![0; sums.len()],
            sums,
        })
    }

    /// Whether every variable of `uses` holds a block.
    pub(super) fn has(&self, uses: &[(Variable, Access)]) -> bool {
        uses.iter().all(|(variable, _)| self.blocks[*variable].is_some())
    }

    /// What a step with these uses claims.
    pub(super) fn claims(&self, uses: &[(Variable, Access)]) -> Vec<Claim> {
        let of = |(variable, access): &(Variable, Access)| {
            let block = self.blocks[*variable].as_ref()?.slice.runtime_block()?;
            Some((block.generation, *access))
        };
        uses.iter().filter_map(of).collect()
    }

    /// What a launch of `work` claims: reading leaves a sum behind.
    pub(super) fn claims_of(&self, work: Work, stream: Stream) -> Vec<Claim> {
        let mut claims = self.claims(&work.uses());
        if matches!(work, Work::Read { .. })
            && let Some(sum) = self.sums[stream].runtime_block()
        {
            claims.push((sum.generation, Access::ReadWrite));
        }
        claims
    }

    /// The work over the blocks that its variables hold now; they hold some.
    pub(super) fn bound(&self, work: Work) -> Work {
        work.map(|variable| self.cell(variable))
    }

    /// The block that a variable holds.
    pub(super) fn cell(&self, variable: Variable) -> Cell {
        self.blocks[variable].as_ref().map_or(0, |held| held.cell)
    }

    /// Whether a variable holds the block with this generation, or a stream's sum is it.
    pub(super) fn holds(&self, generation: Generation) -> bool {
        let slices = self.blocks.iter().flatten().map(|held| held.slice.runtime_block());
        let sums = self.sums.iter().map(TrackedCudaSlice::runtime_block);
        slices.chain(sums).flatten().any(|block| block.generation == generation)
    }

    /// The bytes of claimed blocks.
    pub(super) fn lengths(&self, claims: &[Claim]) -> Vec<(Generation, usize)> {
        let slices = self.blocks.iter().flatten().filter_map(|held| held.slice.runtime_block());
        let claimed = |generation| claims.iter().any(|(other, _)| *other == generation);
        slices
            .filter(|block| claimed(block.generation))
            .map(|block| (block.generation, block.bytes))
            .collect()
    }

    /// How long the block is that a variable holds.
    pub(super) fn length(&self, variable: Variable) -> usize {
        self.blocks[variable].as_ref().map_or(0, |held| held.slice.len())
    }

    /// Notes uses of blocks that are recorded now, or will be.
    pub(super) fn was_used(&mut self, uses: &[(Cell, Access)], stream: Stream) {
        for (cell, access) in uses {
            let readers = self.readers.entry(*cell).or_default();
            *readers = if access.writes() { 0 } else { *readers | 1 << stream };
        }
    }

    /// How many uses the runtime must remember: of each block its last write, and one read for
    /// each stream. And of how many blocks.
    pub(super) fn uses_to_remember(&self) -> (usize, usize) {
        let readers =
            |held: &Held| self.readers.get(&held.cell).map_or(0, |bits| bits.count_ones());
        let blocks = self.blocks.iter().flatten().map(|held| 1 + readers(held) as usize);
        let uses = blocks.clone().sum::<usize>() + self.sums.len();
        (uses, blocks.count() + self.sums.len())
    }

    /// Notes that a launch over these blocks was enqueued.
    pub(super) fn was_enqueued(&mut self, bound: Work, stream: Stream, salt: u32) {
        self.was_used(&bound.uses(), stream);
        if let Work::Read { input } = bound {
            let seen = kernels::checksum_u32(self.contents.get(input));
            self.expected_sums[stream] = self.expected_sums[stream].wrapping_add(seen);
        } else {
            self.contents.apply(bound, salt);
        }
    }

    /// Launches with the builder.
    pub(super) fn launch(
        &self,
        bench: &Bench,
        work: Work,
        stream: Stream,
        salt: u32,
    ) -> ResourceResult<()> {
        let new = |kernel| LaunchBuilder::new(&bench.runtime, kernel, bench.streams[stream]);
        let Some(blocks) = self.blocks_of(work) else { return Ok(()) };
        let (n, kernels) = (self.words(bench, work), &bench.kernels);
        match (work, blocks.as_slice()) {
            (Work::Fill { .. }, [out]) => {
                new(&kernels.fill).output(*out).value(salt).value(n).launch(DIMS)
            }
            (Work::Copy { .. }, [from, to]) => {
                new(&kernels.copy).input(*from).output(*to).value(n).launch(DIMS)
            }
            (Work::Increment { .. }, [data]) => {
                new(&kernels.increment).in_out(*data).value(salt).value(n).launch(DIMS)
            }
            (Work::Mix { .. }, [input, data]) => bench.mix(input, data, stream, salt),
            (Work::Blend { .. }, [a, b, data, out]) => {
                let mut launch = new(&kernels.blend);
                launch.input(*a).input(*b).in_out(*data).output(*out).value(salt).value(n);
                launch.launch(DIMS)
            }
            (Work::Read { .. }, [input]) => {
                let mut launch = new(&kernels.checksum);
                launch.input(*input).in_out(&self.sums[stream]).value(n).launch(DIMS)
            }
            _ => Ok(()),
        }
    }

    /// Records what a launch touches.
    pub(super) fn record(&self, work: Work, stream: Stream, recorder: &mut LaunchRecorder) {
        for (variable, access) in work.uses() {
            let Some(Held { slice, .. }) = &self.blocks[variable] else { continue };
            match access {
                Access::Read => recorder.read(slice),
                Access::Write => recorder.write(slice),
                // Said in two parts, which the recorder has to put together.
                Access::ReadWrite => recorder.read(slice).write(slice),
            };
        }
        if matches!(work, Work::Read { .. }) {
            recorder.read_write(&self.sums[stream]);
        }
    }

    /// The kernel of a launch, and its arguments.
    pub(super) fn kernel(
        &self,
        bench: &Bench,
        work: Work,
        stream: Stream,
        salt: u32,
    ) -> (LoadedKernel, Arguments) {
        let mut arguments = Arguments::new();
        for block in self.blocks_of(work).unwrap_or_default() {
            arguments.push_pointer(block.ptr());
        }
        let kernels = &bench.kernels;
        let (kernel, salted) = match work {
            Work::Fill { .. } => (kernels.fill, true),
            Work::Copy { .. } => (kernels.copy, false),
            Work::Increment { .. } => (kernels.increment, true),
            Work::Mix { .. } => (kernels.mix, true),
            Work::Blend { .. } => (kernels.blend, true),
            Work::Read { .. } => {
                arguments.push_pointer(self.sums[stream].ptr());
                (kernels.checksum, false)
            }
        };
        if salted {
            arguments.push_value(salt);
        }
        arguments.push_value(self.words(bench, work));
        (kernel, arguments)
    }

    /// The words a launch is over: those that all its blocks have.
    fn words(&self, bench: &Bench, work: Work) -> u64 {
        let lengths = work.uses().into_iter().map(|(variable, _)| self.length(variable));
        lengths.min().unwrap_or(0).min(bench.modelled) as u64
    }

    fn blocks_of(&self, work: Work) -> Option<Vec<&TrackedCudaSlice<u32>>> {
        let slice = |(variable, _): (Variable, Access)| {
            self.blocks[variable].as_ref().map(|held| &held.slice)
        };
        work.uses().into_iter().map(slice).collect()
    }
}
