//! A log, checked and made ready to run.
//!
//! Addresses of the log become numbers of blocks and its streams numbers of streams, so that
//! running it looks nothing up.

use std::{collections::HashMap, fmt};

use xlog_cuda::device_runtime::{Access, LogAction, LoggedCall};

/// The most streams a pool has room for beside the default one.
const MOST_STREAMS: usize = 62;

/// One call to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The line of the log it comes from.
    pub(crate) line: usize,
    pub(crate) call: Call,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Allocate { block: usize, bytes: usize, stream: usize },
    Free { block: usize },
    Reap,
    TryReap,
    Prepare { block: usize, stream: usize, access: Access },
    Finish { block: usize, stream: usize, access: Access },
}

/// What a log asks for, and what of it is not run.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// How many blocks there are.
    pub(crate) blocks: usize,
    /// How many streams there are beside the default one. Stream 0 of a step is the default.
    pub(crate) streams: usize,
    /// Blocks that the log never frees.
    pub(crate) never_freed: usize,
    /// Frees of addresses that the log did not allocate, and the line of the first.
    pub(crate) unknown_frees: usize,
    pub(crate) first_unknown_free: Option<usize>,
    /// Calls that failed when the log was made, allocations of nothing, uses of unknown blocks.
    pub(crate) left_out: usize,
}

/// Why a log cannot be run, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlanError {
    AllocatedTwice { line: usize, earlier: usize, pointer: u64 },
    TooManyStreams { found: usize },
    TooLarge { line: usize, bytes: u64 },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllocatedTwice { line, earlier, pointer } => write!(
                f,
                "line {line}: {pointer:#x} is allocated while the block of line {earlier}, at the \
                 same address, is not freed; frees are missing, or these are the logs of two \
                 devices or programs: record one device of one program, and compare the sink's \
                 dropped() with 0"
            ),
            Self::TooManyStreams { found } => write!(
                f,
                "the log uses {found} streams beside the default one, and a pool has room for \
                 {MOST_STREAMS}; pass --streams {MOST_STREAMS} to let them share"
            ),
            Self::TooLarge { line, bytes } => write!(
                f,
                "line {line}: {bytes} bytes are more than this machine can address; mend the size"
            ),
        }
    }
}

/// What is known of an address of the log.
struct Live {
    /// `None` for an allocation of nothing, which is not run.
    block: Option<usize>,
    line: usize,
}

impl Plan {
    /// Checks `calls`, and makes them ready; their streams share `at_most` if that is given.
    pub(crate) fn new(calls: &[LoggedCall], at_most: Option<u32>) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        let mut live: HashMap<u64, Live> = HashMap::new();
        let mut streams: HashMap<u64, usize> = HashMap::new();
        let mut stream_of = |stream: u64| {
            if stream == 0 {
                return 0;
            }
            let next = streams.len();
            let number = *streams.entry(stream).or_insert(next);
            1 + at_most.map_or(number, |limit| number % (limit as usize).max(1))
        };
        for call in calls {
            let step = match call.action {
                _ if !call.ok => None,
                LogAction::Allocate => {
                    let line = call.line;
                    let block = (call.bytes > 0).then_some(plan.blocks);
                    if (block.is_some() || call.pointer != 0)
                        && let Some(earlier) = live.insert(call.pointer, Live { block, line })
                    {
                        let (earlier, pointer) = (earlier.line, call.pointer);
                        return Err(PlanError::AllocatedTwice { line, earlier, pointer });
                    }
                    let bytes = usize::try_from(call.bytes)
                        .ok()
                        .filter(|bytes| isize::try_from(*bytes).is_ok())
                        .ok_or(PlanError::TooLarge { line, bytes: call.bytes })?;
                    block.map(|block| {
                        plan.blocks += 1;
                        Call::Allocate { block, bytes, stream: stream_of(call.stream) }
                    })
                }
                LogAction::Free => match live.remove(&call.pointer) {
                    Some(Live { block, .. }) => block.map(|block| Call::Free { block }),
                    // Freeing nothing is no mistake.
                    None if call.pointer == 0 => None,
                    None => {
                        plan.unknown_frees += 1;
                        plan.first_unknown_free.get_or_insert(call.line);
                        continue;
                    }
                },
                LogAction::Reap => Some(Call::Reap),
                LogAction::TryReap => Some(Call::TryReap),
                LogAction::Prepare | LogAction::Finish => {
                    let block = live.get(&call.pointer).and_then(|live| live.block);
                    block.zip(call.access).map(|(block, access)| {
                        let stream = stream_of(call.stream);
                        if call.action == LogAction::Prepare {
                            Call::Prepare { block, stream, access }
                        } else {
                            Call::Finish { block, stream, access }
                        }
                    })
                }
                _ => None,
            };
            match step {
                Some(step) => plan.steps.push(Step { line: call.line, call: step }),
                None => plan.left_out += 1,
            }
        }
        plan.never_freed = live.values().filter(|live| live.block.is_some()).count();
        let limit = at_most.map_or(usize::MAX, |limit| limit as usize);
        plan.streams = streams.len().min(limit);
        if plan.streams > MOST_STREAMS {
            return Err(PlanError::TooManyStreams { found: plan.streams });
        }
        Ok(plan)
    }

    /// Whether the log accounts for its frees itself.
    pub(crate) fn has_reaps(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.call, Call::Reap | Call::TryReap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

    fn plan(lines: &str, at_most: Option<u32>) -> Result<Plan, PlanError> {
        let log = format!("{HEADER}{lines}");
        Plan::new(&xlog_cuda::device_runtime::read_log(log.as_bytes()).unwrap(), at_most)
    }

    #[test]
    fn addresses_become_blocks_and_streams_become_numbers() {
        let log = "1,,allocate,0x10,64,0\n1,,allocate,0x20,32,0xff\n1,,free,0x10,64,0xff\n\
                   1,,allocate,0x10,16,0x7\n1,,free,0x30,1,0\n1,,free,0x20,32,0\n";
        let plan = plan(log, None).unwrap();
        let calls: Vec<_> = plan.steps.iter().map(|step| step.call).collect();
        assert_eq!(
            calls,
            [
                Call::Allocate { block: 0, bytes: 64, stream: 0 },
                Call::Allocate { block: 1, bytes: 32, stream: 1 },
                Call::Free { block: 0 },
                Call::Allocate { block: 2, bytes: 16, stream: 2 },
                Call::Free { block: 1 },
            ]
        );
        assert_eq!((plan.blocks, plan.streams, plan.never_freed), (3, 2, 1));
        assert_eq!((plan.unknown_frees, plan.first_unknown_free), (1, Some(6)));
    }

    #[test]
    fn nothing_and_what_failed_is_left_out() {
        let log = "1,,allocate,(nil),0,0\n1,,allocate,(nil),0,0\n1,,free,(nil),0,0\n\
                   1,,allocate failure,0x0,99,0\n1,,allocate,0x40,0,0\n1,,free,0x40,0,0\n";
        let plan = plan(log, None).unwrap();
        assert!(plan.steps.is_empty());
        assert_eq!((plan.left_out, plan.unknown_frees, plan.never_freed), (6, 0, 0));
    }

    #[test]
    fn logs_that_contradict_themselves_are_refused_with_both_lines() {
        let error = plan("1,,allocate,0x10,64,0\n1,,allocate,0x10,8,0\n", None).unwrap_err();
        assert_eq!(error, PlanError::AllocatedTwice { line: 3, earlier: 2, pointer: 0x10 });
        let error = plan("1,,allocate,0x10,18446744073709551615,0\n", None).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn more_streams_than_a_pool_has_room_for_can_share() {
        let log: String =
            (1..=63).map(|n| format!("1,,allocate,{:#x},8,{n:#x}\n", n * 256)).collect();
        let error = plan(&log, None).unwrap_err();
        assert!(error.to_string().contains("--streams 62"), "{error}");
        assert_eq!(plan(&log, Some(62)).unwrap().streams, 62);
        assert_eq!(plan(&log, Some(1)).unwrap().streams, 1);
    }
}
