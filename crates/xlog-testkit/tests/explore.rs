//! Small programs in every order their turns can be taken.

#[path = "explore/programs.rs"]
mod programs;

use std::collections::BTreeSet;

use xlog_testkit::{
    check::{Draw, Explored, Limits, Program, Stack, Step, Way, explore, explore_with, follow},
    oracle::{Step as TraceStep, Trace},
};

use self::programs::*;

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

/// Explores all of a program, which is to be clean: in at least so many interleavings, of at least
/// so many, since one that explores nothing is clean too.
fn all_clean(name: &str, program: &Program, floor: u64, total: u128) -> Explored {
    let explored = explore(program, Limits::default());
    show(name, &explored);
    assert!(explored.culprit.is_none(), "{name}");
    assert!(explored.complete && !explored.careful, "{name}");
    assert!(explored.interleavings >= floor && explored.total >= total, "{name}: {explored:?}");
    explored
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
            small(
                Stack::Async,
                &[&[allocate(0, 0), Step::Download { block: 0, stream: 1 }], &[write]],
            ),
        ),
    ];
    for (name, program) in cases {
        reduction_loses_nothing(name, &program);
    }
    reduction_loses_nothing("waits and reaps", &waits_and_reaps());
    reduction_loses_nothing("dropped recorders", &dropped_recorders());
    reduction_loses_nothing("pool steal", &pool_steal());
}

#[test]
fn one_block_handed_over_from_stream_to_stream() {
    all_clean("hand-over chain", &hand_over_chain(), 24, 670_683);
}

#[test]
fn fan_out_and_fan_in() {
    all_clean("fan-out, fan-in", &fan_out_and_in(), 1500, 477_546_664_090);
}

#[test]
fn a_free_while_others_read() {
    all_clean("free while read", &free_while_read(), 44, 59_572);
}

#[test]
fn two_recorders_of_two_threads() {
    all_clean("two recorders", &two_recorders(), 72, 173_089_144);
}

#[test]
fn recorders_that_are_dropped() {
    all_clean("dropped recorders", &dropped_recorders(), 23, 7532);
}

#[test]
fn a_pool_across_three_streams() {
    all_clean("pool reuse", &pool_reuse(), 84, 247_704);
}

#[test]
fn a_pool_that_has_to_take_from_other_streams() {
    all_clean("pool steal", &pool_steal(), 16, 168);
}

#[test]
fn claims_that_conflict() {
    all_clean("claim conflict", &claim_conflict(), 49, 10_188);
}

#[test]
fn a_host_that_asks_and_waits() {
    all_clean("waits and reaps", &waits_and_reaps(), 81, 1282);
}

/// Three threads with six operations each on a stream and a block of their own; at the end, each
/// reads the next one's block.
fn six_on_each_stream() -> Program {
    let thread = |own: usize, next: usize| {
        let work = [increment(own), read(own), increment(own), read(own)];
        let ways = [Way::Builder, Way::Strict, Way::Builder, Way::Builder];
        let launches = ways.into_iter().zip(work).map(|(way, work)| launch(way, work, own));
        let handed_over = [built(mix(next, own), own)];
        let steps = std::iter::once(allocate(own, own)).chain(launches).chain(handed_over);
        steps.collect::<Vec<_>>()
    };
    let threads = [thread(0, 1), thread(1, 2), thread(2, 0)];
    program(Stack::Async, 3, &[&threads[0], &threads[1], &threads[2]])
}

#[test]
fn six_operations_on_each_of_three_streams() {
    all_clean("six on each stream", &six_on_each_stream(), 1000, 10_u128.pow(27));
}

/// A step of one of two threads over two blocks and three streams.
fn any_step(draw: &mut Draw) -> Step {
    let (block, other) = draw.one_of(&[(0, 1), (1, 0)]);
    let stream = draw.below(3);
    match draw.below(12) {
        0..2 => allocate(block, stream),
        2..4 => Step::Free { block },
        4 => built(increment(block), stream),
        5 => recorded(read(block), stream),
        6 => recorded(mix(block, other), stream),
        7 => launch(Way::Abandoned { enqueued: draw.chance(128) }, increment(block), stream),
        8 => Step::Download { block, stream },
        9 => Step::Synchronize { stream },
        10 => draw.one_of(&[Step::Reap, Step::TryReap, Step::Trim]),
        _ => Step::Upload { block, stream, salt: 3 },
    }
}

/// Programs nobody chose, so that nobody chose them well.
#[test]
fn the_reduction_loses_nothing_of_programs_that_nobody_wrote() {
    let limits = Limits { runs: 500, ..Limits::default() };
    let (mut compared, mut seed) = (0, 0);
    while compared < 30 {
        seed += 1;
        let mut draw = Draw::new(seed);
        let stack = draw.one_of(&[Stack::Async, Stack::Pool, Stack::Tracked, Stack::Tight]);
        let mut threads = [vec![allocate(0, draw.below(3))], vec![allocate(1, draw.below(3))]];
        for _ in 0..3 {
            threads[draw.below(2)].push(any_step(&mut draw));
        }
        let program = program(stack, 2, &[&threads[0], &threads[1]]);
        let explored = explore(&program, limits);
        assert!(explored.culprit.is_none(), "seed {seed}\n{program}");
        if explored.complete && (2..500).contains(&explored.total) {
            compared += 1;
            reduction_loses_nothing(&format!("seed {seed}"), &program);
        }
    }
}

#[test]
fn an_interleaving_can_be_followed_again() {
    let program = hand_over_chain();
    let limits = Limits { runs: 1, ..Limits::default() };
    let explored = explore(&program, limits);
    assert_eq!((explored.interleavings, explored.complete), (1, false));
    let outcome = follow(&program, &[], limits.scrutiny);
    assert_eq!(outcome.failures[0].kind(), "deadlock", "nobody had a turn");
}
