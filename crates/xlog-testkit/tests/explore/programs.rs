//! Small programs over three streams.

use xlog_testkit::check::{Program, Stack, Step, Way, Work};

/// A program over three streams, the default one included.
pub(crate) fn program(stack: Stack, blocks: usize, threads: &[&[Step]]) -> Program {
    let threads = threads.iter().map(|steps| steps.to_vec()).collect();
    Program { stack, streams: 2, blocks, device_turns: 128, faults: false, threads }
}

pub(crate) const fn allocate(block: usize, stream: usize) -> Step {
    Step::Allocate { block, words: 16, stream, first_use: stream }
}

pub(crate) const fn launch(way: Way, work: Work, stream: usize) -> Step {
    Step::Launch { way, work, stream, salt: 7 + stream as u32 }
}

pub(crate) const fn built(work: Work, stream: usize) -> Step {
    launch(Way::Builder, work, stream)
}

pub(crate) const fn recorded(work: Work, stream: usize) -> Step {
    launch(Way::Strict, work, stream)
}

pub(crate) const fn read(input: usize) -> Work {
    Work::Read { input }
}

pub(crate) const fn increment(data: usize) -> Work {
    Work::Increment { data }
}

pub(crate) const fn mix(input: usize, data: usize) -> Work {
    Work::Mix { input, data }
}

/// One block goes from stream to stream, and back to the first.
pub(crate) fn hand_over_chain() -> Program {
    let chain = [allocate(0, 0), built(increment(0), 1), recorded(increment(0), 2)];
    let back = [allocate(1, 1), recorded(mix(0, 1), 0), built(mix(1, 0), 1)];
    program(Stack::Async, 2, &[&chain, &back])
}

/// One block is read on two streams, and what came of that is read on the third.
pub(crate) fn fan_out_and_in() -> Program {
    let begin = [allocate(0, 0), recorded(increment(0), 0)];
    let out = [allocate(1, 1), built(mix(0, 1), 1), allocate(2, 2), recorded(mix(0, 2), 2)];
    let back = [recorded(Work::Blend { a: 1, b: 2, data: 0, out: 3 }, 0)];
    program(Stack::Async, 4, &[&begin, &out, &[allocate(3, 0), back[0]]])
}

/// A block is freed while it is read elsewhere, and its memory is asked for again.
pub(crate) fn free_while_read() -> Program {
    let reader = [allocate(0, 0), recorded(read(0), 1), recorded(read(0), 2)];
    let owner = [Step::Free { block: 0 }, allocate(1, 2)];
    program(Stack::Async, 2, &[&reader, &owner])
}

/// Two threads with two recorders each, over the same blocks the other way round.
pub(crate) fn two_recorders() -> Program {
    let one = [allocate(0, 0), recorded(increment(0), 1), recorded(mix(0, 1), 2)];
    let other = [allocate(1, 1), recorded(increment(1), 2), recorded(mix(1, 0), 1)];
    program(Stack::Async, 2, &[&one, &other])
}

/// Recorders that are dropped before their work and before their commit, among others.
pub(crate) fn dropped_recorders() -> Program {
    let dropped = |enqueued| Way::Abandoned { enqueued };
    let one = [allocate(0, 0), launch(dropped(true), increment(0), 1), built(read(0), 0)];
    let other = [launch(dropped(false), read(0), 2), recorded(increment(0), 2)];
    program(Stack::Async, 1, &[&one, &other])
}

/// One stream frees to the pool, the next takes a part of it, and the third what is left.
pub(crate) fn pool_reuse() -> Program {
    let large = Step::Allocate { block: 0, words: 1000, stream: 0, first_use: 0 };
    let one = [large, recorded(read(0), 1), Step::Free { block: 0 }];
    let small = |block, stream| Step::Allocate { block, words: 250, stream, first_use: stream };
    program(Stack::Pool, 3, &[&one, &[small(1, 1), built(increment(1), 2)], &[small(2, 2)]])
}

/// All that a pool may have is one large block on the first stream. Once that is freed, the second
/// stream takes a part of it and the third what is left, both behind its last use; before, they are
/// refused.
pub(crate) fn pool_steal() -> Program {
    let large = Step::Allocate { block: 0, words: 900_000, stream: 0, first_use: 0 };
    let small = |block, stream| {
        let words = 400_000;
        Step::Allocate { block, words, stream, first_use: stream }
    };
    let one = [large, built(read(0), 1), Step::Free { block: 0 }];
    program(Stack::Cramped, 3, &[&one, &[small(1, 1)], &[small(2, 2)]])
}

/// Three threads write one block.
pub(crate) fn claim_conflict() -> Program {
    let one = [allocate(0, 0), recorded(increment(0), 0)];
    program(Stack::Async, 1, &[&one, &[recorded(increment(0), 1)], &[recorded(increment(0), 2)]])
}

/// The host asks and waits while streams run.
pub(crate) fn waits_and_reaps() -> Program {
    let one = [allocate(0, 0), built(increment(0), 1), Step::Free { block: 0 }, allocate(1, 1)];
    program(Stack::Async, 2, &[&one, &[Step::TryReap, Step::Synchronize { stream: 1 }]])
}
