//! A plan, run and timed.

use std::time::Instant;

use xlog_cuda::device_runtime::{
    AllocTag, BlockId, DeviceBlock, ResourceError, ResourceResult, StreamId, XlogDeviceRuntime,
};

use super::plan::{Call, Plan, Step};

/// Done frees are accounted for after so many calls, if the log does not do it itself.
const CALLS_BETWEEN_REAPS: usize = 256;

/// What running a plan came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Nanoseconds each call took, by what it was.
    pub(super) allocations: Vec<u64>,
    pub(super) frees: Vec<u64>,
    pub(super) others: Vec<u64>,
    pub(super) failures: usize,
    /// The line of the log and the error.
    pub(super) first_failure: Option<(usize, ResourceError)>,
    /// Calls about a block whose allocation failed, and uses the stack does not track.
    pub(super) skipped: usize,
    pub(super) peak_live_bytes: usize,
    pub(super) peak_outstanding_bytes: usize,
}

/// The runtime, and what is live on it.
struct Stage<'a> {
    runtime: &'a XlogDeviceRuntime,
    streams: Vec<StreamId>,
    blocks: Vec<Option<DeviceBlock>>,
    live_bytes: usize,
    tracks_uses: bool,
}

/// Runs every step once, then frees what is left.
pub(super) fn run(plan: &Plan, runtime: &XlogDeviceRuntime) -> ResourceResult<Outcome> {
    let mut streams = vec![StreamId::DEFAULT];
    for _ in 0..plan.streams {
        streams.push(runtime.stream_pool().acquire()?);
    }
    let mut stage = Stage {
        runtime,
        streams,
        blocks: (0..plan.blocks).map(|_| None).collect(),
        live_bytes: 0,
        tracks_uses: runtime.supports_block_use_tracking(),
    };
    let reaps = !plan.has_reaps();
    let mut outcome = Outcome::default();
    for (index, step) in plan.steps.iter().enumerate() {
        stage.step(step, &mut outcome);
        if reaps && (index + 1) % CALLS_BETWEEN_REAPS == 0 {
            runtime.try_reap()?;
        }
    }
    for block in stage.blocks.into_iter().flatten() {
        runtime.deallocate(block)?;
    }
    runtime.reap_pending()?;
    Ok(outcome)
}

impl Stage<'_> {
    /// Runs one step; only the call itself is timed.
    fn step(&mut self, step: &Step, outcome: &mut Outcome) {
        let runtime = self.runtime;
        let (took, answer) = match step.call {
            Call::Allocate { block, bytes, stream } => {
                let stream = self.streams[stream];
                let (took, answer) = timed(|| runtime.allocate(bytes, stream, AllocTag("replay")));
                let answer = answer.map(|granted| {
                    self.live_bytes += granted.bytes;
                    self.blocks[block] = Some(granted);
                });
                outcome.peak_live_bytes = outcome.peak_live_bytes.max(self.live_bytes);
                let outstanding = runtime.bytes_outstanding();
                outcome.peak_outstanding_bytes = outcome.peak_outstanding_bytes.max(outstanding);
                outcome.allocations.push(took);
                (None, answer)
            }
            Call::Free { block } => match self.blocks[block].take() {
                Some(block) => {
                    self.live_bytes -= block.bytes;
                    let (took, answer) = timed(|| runtime.deallocate(block));
                    outcome.frees.push(took);
                    (None, answer)
                }
                None => return outcome.skipped += 1,
            },
            Call::Reap => some(timed(|| runtime.reap_pending())),
            Call::TryReap => some(timed(|| runtime.try_reap())),
            Call::Prepare { block, stream, access } => match self.used(block, stream) {
                Some((id, stream)) => some(timed(|| runtime.prepare_block_use(id, stream, access))),
                None => return outcome.skipped += 1,
            },
            Call::Finish { block, stream, access } => match self.used(block, stream) {
                Some((id, stream)) => some(timed(|| runtime.finish_block_use(id, stream, access))),
                None => return outcome.skipped += 1,
            },
        };
        outcome.others.extend(took);
        if let Err(error) = answer {
            outcome.failures += 1;
            outcome.first_failure.get_or_insert((step.line, error));
        }
    }

    /// A block that is there, on a stack that tracks its uses.
    fn used(&self, block: usize, stream: usize) -> Option<(BlockId, StreamId)> {
        let block = self.blocks[block].as_ref().filter(|_| self.tracks_uses)?;
        Some((BlockId::from_block(block), self.streams[stream]))
    }
}

fn some<T>((took, answer): (u64, T)) -> (Option<u64>, T) {
    (Some(took), answer)
}

fn timed<T>(call: impl FnOnce() -> T) -> (u64, T) {
    let start = Instant::now();
    let answer = call();
    (u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), answer)
}
