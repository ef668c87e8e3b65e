//! Small programs in every order their turns can be taken.

use std::collections::BTreeSet;

use xlog_testkit::{
    check::{
        Explored, Limits, Program, Scrutiny, Stack, Step, Way, Work, explore, explore_with, follow,
    },
    oracle::{Step as TraceStep, Trace},
};

/// A program over three streams, the default one included.
fn program(stack: Stack, blocks: usize, threads: &[&[Step]]) -> Program {
    let threads = threads.iter().map(|steps| steps.to_vec()).collect();
    Program { stack, streams: 2, blocks, device_turns: 128, faults: false, threads }
}

const fn allocate(block: usize, stream: usize) -> Step {
    Step::Allocate { block, words: 16, stream, first_use: stream }
}

const fn launch(way: Way, work: Work, stream: usize) -> Step {
    Step::Launch { way, work, stream, salt: 7 + stream as u32 }
}

const fn built(work: Work, stream: usize) -> Step {
    launch(Way::Builder, work, stream)
}

const fn recorded(work: Work, stream: usize) -> Step {
    launch(Way::Strict, work, stream)
}

const fn read(input: usize) -> Work {
    Work::Read { input }
}

const fn increment(data: usize) -> Work {
    Work::Increment { data }
}

const fn mix(input: usize, data: usize) -> Work {
    Work::Mix { input, data }
}

fn show(name: &str, explored: &Explored) {
    println!(
        "{name}: {} interleavings run, {} cut short, of {} in all{}, {:.2} s",
        explored.interleavings,
        explored.cut_short,
        explored.total,
        if explored.careful { " (nothing taken for granted)" } else { "" },
        explored.elapsed.as_secs_f64()
    );
    if let Some(culprit) = &explored.culprit {
        println!("{:?}\n{}", culprit.turns, culprit.outcome.failures[0]);
    }
}

/// Explores all of a program, which is to be clean, in at least so many interleavings.
fn all_clean(name: &str, program: &Program, floor: u64, total: u128) -> Explored {
    let explored = explore(program, Limits::default());
    show(name, &explored);
    assert!(explored.culprit.is_none(), "{name}");
    assert!(explored.complete && !explored.careful, "{name}");
    assert!(explored.interleavings >= floor && explored.total >= total, "{name}: {explored:?}");
    explored
}

/// One block goes from stream to stream, and back to the first.
fn hand_over_chain() -> Program {
    let chain = [allocate(0, 0), built(increment(0), 1), recorded(increment(0), 2)];
    let back = [allocate(1, 1), recorded(mix(0, 1), 0), built(mix(1, 0), 1)];
    program(Stack::Async, 2, &[&chain, &back])
}

/// One block is read on two streams, and what came of that is read on the third.
fn fan_out_and_in() -> Program {
    let begin = [allocate(0, 0), recorded(increment(0), 0)];
    let out = [allocate(1, 1), built(mix(0, 1), 1), allocate(2, 2), recorded(mix(0, 2), 2)];
    let back = [recorded(Work::Blend { a: 1, b: 2, data: 0, out: 3 }, 0)];
    program(Stack::Async, 4, &[&begin, &out, &[allocate(3, 0), back[0]]])
}

/// A block is freed while it is read elsewhere, and its memory is asked for again.
fn free_while_read() -> Program {
    let reader = [allocate(0, 0), recorded(read(0), 1), recorded(read(0), 2)];
    let owner = [Step::Free { block: 0 }, allocate(1, 2)];
    program(Stack::Async, 2, &[&reader, &owner])
}

/// Two threads with two recorders each, over the same blocks the other way round.
fn two_recorders() -> Program {
    let one = [allocate(0, 0), recorded(increment(0), 1), recorded(mix(0, 1), 2)];
    let other = [allocate(1, 1), recorded(increment(1), 2), recorded(mix(1, 0), 1)];
    program(Stack::Async, 2, &[&one, &other])
}

/// Recorders that are dropped before their work and before their commit, among others.
fn dropped_recorders() -> Program {
    let dropped = |enqueued| Way::Abandoned { enqueued };
    let one = [allocate(0, 0), launch(dropped(true), increment(0), 1), built(read(0), 0)];
    let other = [launch(dropped(false), read(0), 2), recorded(increment(0), 2)];
    program(Stack::Async, 1, &[&one, &other])
}

/// One stream frees to the pool, the next takes a part of it, and the third what is left.
fn pool_reuse() -> Program {
    let large = Step::Allocate { block: 0, words: 1000, stream: 0, first_use: 0 };
    let one = [large, recorded(read(0), 1), Step::Free { block: 0 }];
    let small =
        |block, stream| Step::Allocate { block, words: 250, stream, first_use: stream };
    program(Stack::Pool, 3, &[&one, &[small(1, 1), built(increment(1), 2)], &[small(2, 2)]])
}

/// Three threads write one block.
fn claim_conflict() -> Program {
    let one = [allocate(0, 0), recorded(increment(0), 0)];
    program(Stack::Async, 1, &[&one, &[recorded(increment(0), 1)], &[recorded(increment(0), 2)]])
}

/// The host asks and waits while streams run.
fn waits_and_reaps() -> Program {
    let one = [allocate(0, 0), built(increment(0), 1), Step::Free { block: 0 }, allocate(1, 1)];
    program(Stack::Async, 2, &[&one, &[Step::TryReap, Step::Synchronize { stream: 1 }]])
}

/// What a run did, whatever its order was: the steps of each stream, and what the host learnt.
/// Places in the trace become places in their stream.
fn canonical(trace: &Trace) -> String {
    let mut streams = vec![Vec::new(); trace.streams as usize];
    let mut host = Vec::new();
    let mut places = Vec::new();
    for step in &trace.steps {
        let stream = step.stream().map(|stream| stream as usize);
        places.push(stream.map_or((usize::MAX, 0), |stream| (stream, streams[stream].len())));
        let text = match step {
            TraceStep::Operation { name, uses, place, .. } => {
                format!("{name} {uses:?} {:?}", place.map(|place| (place.file(), place.line())))
            }
            TraceStep::Declare { .. } => "declare".into(),
            TraceStep::Record { .. } => "record".into(),
            TraceStep::Wait { record, .. } => {
                format!("wait {:?}", record.map(|record| places[record]))
            }
            TraceStep::HostKnows { stream, until } => {
                let on = |place: &&(usize, usize)| place.0 == *stream as usize;
                format!("knows {stream} {}", places[..*until].iter().filter(on).count())
            }
            other => format!("{other:?}"),
        };
        match stream {
            Some(stream) => streams[stream].push(text),
            None => host.push(text),
        }
    }
    format!("{streams:?} {host:?}")
}

/// Explores a program with and without the reduction: both see the same, and those left out are
/// counted to the last one.
fn reduction_loses_nothing(name: &str, program: &Program) {
    let [full, reduced] = [false, true].map(|reduced| {
        let mut traces = BTreeSet::new();
        let limits = Limits { reduced, runs: 2_000_000, ..Limits::default() };
        let explored = explore_with(program, limits, &mut |trace| {
            traces.insert(canonical(trace));
        });
        show(name, &explored);
        assert!(explored.complete && explored.culprit.is_none() && !explored.careful, "{name}");
        (explored, traces)
    });
    assert_eq!(full.0.total, reduced.0.total, "{name}");
    assert!(full.1 == reduced.1, "{name}: {} and {} traces", full.1.len(), reduced.1.len());
    assert!(reduced.0.interleavings < full.0.interleavings, "{name}");
}

#[test]
fn the_reduction_loses_nothing() {
    let small = |stack, threads: &[&[Step]]| program(stack, 3, threads);
    let (write, look) = (recorded(increment(0), 1), recorded(read(0), 2));
    let cases = [
        ("write and read", small(Stack::Async, &[&[allocate(0, 0), write], &[look]])),
        ("two blocks", small(Stack::Async, &[&[allocate(0, 0)], &[allocate(1, 1), write]])),
        ("a free", small(Stack::Async, &[&[allocate(0, 0), Step::Free { block: 0 }], &[look]])),
        (
            "an address again",
            small(Stack::Async, &[&[allocate(0, 0), Step::Free { block: 0 }], &[allocate(1, 1)]]),
        ),
        (
            "the pool again",
            small(Stack::Pool, &[&[allocate(0, 0), Step::Free { block: 0 }], &[allocate(1, 1)]]),
        ),
        (
            "asking",
            small(Stack::Async, &[&[allocate(0, 0)], &[Step::Synchronize { stream: 0 }, look]]),
        ),
        (
            "reaping",
            small(Stack::Async, &[&[allocate(0, 0), Step::Free { block: 0 }], &[Step::TryReap]]),
        ),
        (
            "a download",
            small(Stack::Async, &[&[allocate(0, 0), Step::Download { block: 0, stream: 1 }], &[write]]),
        ),
    ];
    for (name, program) in cases {
        reduction_loses_nothing(name, &program);
    }
}

#[test]
fn one_block_handed_over_from_stream_to_stream() {
    all_clean("hand-over chain", &hand_over_chain(), 2, 2);
}

#[test]
fn fan_out_and_fan_in() {
    all_clean("fan-out, fan-in", &fan_out_and_in(), 2, 2);
}

#[test]
fn a_free_while_others_read() {
    all_clean("free while read", &free_while_read(), 2, 2);
}

#[test]
fn two_recorders_of_two_threads() {
    all_clean("two recorders", &two_recorders(), 2, 2);
}

#[test]
fn recorders_that_are_dropped() {
    all_clean("dropped recorders", &dropped_recorders(), 2, 2);
}

#[test]
fn a_pool_across_three_streams() {
    all_clean("pool reuse", &pool_reuse(), 2, 2);
}

#[test]
fn claims_that_conflict() {
    all_clean("claim conflict", &claim_conflict(), 2, 2);
}

#[test]
fn a_host_that_asks_and_waits() {
    all_clean("waits and reaps", &waits_and_reaps(), 2, 2);
}
