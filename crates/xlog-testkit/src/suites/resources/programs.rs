//! Programs nobody wrote: calls in any order, against a model of what a resource holds. A program
//! that goes wrong is made as short as it can be before it is shown.

use std::collections::BTreeMap;

use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestRunner},
};
use xlog_cuda::device_runtime::{Access, AllocTag, BlockId, DeviceBlock, StreamId};

use super::conformance::{STACKS, Stage};
use crate::{DriverCall, TestCase, TestDevice, cases};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    every_stack_agrees_with_a_model_whatever_is_called,
    every_stack_agrees_with_a_model_while_driver_calls_fail,
];

/// One call of a program. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Call {
    Allocate {
        bytes: usize,
        stream: usize,
    },
    Free {
        which: usize,
    },
    Use {
        which: usize,
        stream: usize,
        writes: bool,
    },
    Reap,
    TryReap,
    /// The next driver call of this kind fails.
    Fail {
        kind: usize,
    },
}

const STREAMS: usize = 3;
const FAILING: [DriverCall; 7] = [
    DriverCall::AllocateOn,
    DriverCall::FreeOn,
    DriverCall::Allocate,
    DriverCall::Free,
    DriverCall::RecordEvent,
    DriverCall::WaitEvent,
    DriverCall::SynchronizeStream,
];

fn call(with_failures: bool) -> impl Strategy<Value = Call> {
    let allocate = (0u32..21, any::<u32>(), 0..STREAMS).prop_map(|(bits, within, stream)| {
        Call::Allocate { bytes: 1 + within as usize % (1 << bits), stream }
    });
    let uses = (any::<usize>(), 0..STREAMS, any::<bool>())
        .prop_map(|(which, stream, writes)| Call::Use { which, stream, writes });
    prop_oneof![
        5 => allocate,
        4 => any::<usize>().prop_map(|which| Call::Free { which }),
        4 => uses,
        1 => Just(Call::Reap),
        1 => Just(Call::TryReap),
        u32::from(with_failures) * 2 => (0..FAILING.len()).prop_map(|kind| Call::Fail { kind }),
    ]
}

/// What the program holds, as it sees it.
#[derive(Default)]
struct Model {
    /// Blocks, and the bytes they were asked for with.
    live: Vec<(usize, DeviceBlock)>,
    ranges: BTreeMap<u64, u64>,
    failures: bool,
}

impl Model {
    fn allocated(&mut self, block: DeviceBlock, bytes: usize) -> Result<(), TestCaseError> {
        let (start, end) = (block.ptr, block.ptr + block.bytes as u64);
        prop_assert!(block.bytes >= bytes && start.is_multiple_of(256));
        let before = self.ranges.range(..end).next_back();
        prop_assert!(before.is_none_or(|(_, end)| *end <= start), "two live blocks overlap");
        self.ranges.insert(start, end);
        self.live.push((bytes, block));
        Ok(())
    }

    fn take(&mut self, which: usize) -> Option<(usize, DeviceBlock)> {
        let count = self.live.len();
        let (bytes, block) = (count > 0).then(|| self.live.swap_remove(which % count))?;
        self.ranges.remove(&block.ptr);
        Some((bytes, block))
    }

    fn bytes(&self) -> usize {
        self.live.iter().map(|(_, block)| block.bytes).sum()
    }

    /// An answer may be an error only where a driver call was made to fail.
    fn check<T, E: std::fmt::Debug>(&self, answer: &Result<T, E>) -> Result<(), TestCaseError> {
        prop_assert!(answer.is_ok() || self.failures, "{:?}", answer.as_ref().err());
        Ok(())
    }
}

fn run(stage: &Stage, calls: &[Call]) -> Result<(), TestCaseError> {
    let rig = &stage.rig;
    let streams: [StreamId; STREAMS] = rig.streams();
    let runtime = &rig.runtime;
    let mut model = Model::default();
    for call in calls {
        match *call {
            Call::Allocate { bytes, stream } => {
                let answer = runtime.allocate(bytes, streams[stream], AllocTag("program"));
                model.check(&answer)?;
                if let Ok(block) = answer {
                    model.allocated(block, bytes)?;
                }
            }
            Call::Free { which } => {
                let Some((bytes, block)) = model.take(which) else { continue };
                let answer = runtime.try_deallocate(block);
                model.check(&answer.as_ref().map_err(|(_, error)| error))?;
                if let Err((block, _)) = answer {
                    model.allocated(block, bytes)?;
                }
            }
            Call::Use { which, stream, writes } => {
                let count = model.live.len();
                if count == 0 {
                    continue;
                }
                let id = BlockId::from_block(&model.live[which % count].1);
                let access = if writes { Access::ReadWrite } else { Access::Read };
                if !stage.stack.tracks {
                    stage.touch(&model.live[which % count].1, streams[stream], access);
                    continue;
                }
                let prepared = runtime.prepare_block_use(id, streams[stream], access);
                model.check(&prepared)?;
                if prepared.is_ok() {
                    model.check(&runtime.finish_block_use(id, streams[stream], access))?;
                }
            }
            Call::Reap => model.check(&runtime.reap_pending())?,
            Call::TryReap => model.check(&runtime.try_reap())?,
            Call::Fail { kind } => {
                model.failures = true;
                rig.driver.fail_after(FAILING[kind], 0, 1);
            }
        }
        prop_assert!(runtime.bytes_outstanding() >= model.bytes(), "held bytes are not counted");
    }
    rig.driver.heal();
    stage.settle();
    if let Some(taken) = stage.stack.taken {
        let held: usize = model.live.iter().map(|(asked, block)| taken(*asked, block)).sum();
        prop_assert_eq!(runtime.bytes_outstanding(), held, "exact once it is quiet");
    }
    for (_, block) in model.live.drain(..) {
        let freed = runtime.deallocate(block);
        // A use that could be neither recorded nor waited for leaks its block, and says so.
        prop_assert!(freed.is_ok() || rig.pool.stats().leaked_blocks > 0, "{:?}", freed);
    }
    stage.settle();
    if rig.pool.stats().leaked_blocks == 0 {
        prop_assert_eq!(runtime.bytes_outstanding(), 0, "everything comes back");
    }
    Ok(())
}

fn check_all(device: TestDevice, with_failures: bool) {
    let cases = if device == TestDevice::Cuda { 2 } else { 32 };
    for stack in STACKS {
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let programs = prop::collection::vec(call(with_failures), 1..80);
        let result =
            TestRunner::new(config).run(&programs, |calls| run(&stack.stage(device), &calls));
        assert!(
            result.is_ok(),
            "{}: {}",
            stack.name,
            result.err().map_or_else(String::new, |e| e.to_string())
        );
    }
}

fn every_stack_agrees_with_a_model_whatever_is_called(device: TestDevice) {
    check_all(device, false);
}

fn every_stack_agrees_with_a_model_while_driver_calls_fail(device: TestDevice) {
    check_all(device, true);
}
