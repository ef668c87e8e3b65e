//! What a run is judged by once every thread is done.

use super::{
    Stack,
    bench::Held,
    failure::Failure,
    model::first_difference,
    random::Draw,
    run::{Outcome, Run, Scrutiny},
    world::World,
};
use xlog_cuda::device_runtime::ResourceError;

use crate::oracle::{Edit, Step, Trace};

/// Judges a run whose threads are done, and takes everything down.
pub(super) fn judge(run: Run<'_>, mut draw: Draw, scrutiny: Scrutiny) -> Outcome {
    let Run { program, mut world, mut failures, mut counts, .. } = run;
    if failures.is_empty() {
        if !program.has_bare_uses() && world.driver.injected() == 0 && program.streams > 0 {
            check_memory_of_uses(&world, program.stack, &mut failures);
        }
        check_contents(&world, &mut failures);
        give_everything_back(&mut world, program.stack, &mut failures);
    }
    failures.extend(world.simulation.deadlock().map(Failure::Deadlock));
    failures.extend(world.oracle.findings().into_iter().map(Failure::Hazard));
    let trace = world.oracle.trace();
    counts.faults = world.driver.injected();
    counts.waits = trace.waits().count() as u64;
    // A call that failed may have left a wait for work that never came.
    if failures.is_empty() && counts.faults == 0 && !program.has_bare_uses() {
        counts.waits_checked = check_waits(&trace, &mut draw, scrutiny, &mut failures);
    }
    Outcome { failures, counts }
}

/// What the runtime remembers of the blocks: no use too many, and none too few. Blocks from a pool
/// remember what was there before them too, and a stack that sees every use by itself has them
/// without claims: there it is held against the most there can be.
fn check_memory_of_uses(world: &World, stack: Stack, failures: &mut Vec<Failure>) {
    let (expected, blocks) = world.variables.uses_to_remember();
    let most = blocks * (1 + 3 * world.bench.streams.len());
    let remembered = world.resource.stream_pool().stats().remembered_uses;
    let exact = matches!(stack, Stack::Async | Stack::Tight | Stack::Tracked);
    if remembered != expected && (exact || remembered > most) {
        failures.push(Failure::Accounting(format!(
            "{remembered} uses of blocks are remembered, and {expected} are to be followed"
        )));
    }
}

/// Every block that is left, and every sum, against the serial run.
fn check_contents(world: &World, failures: &mut Vec<Failure>) {
    for (variable, held) in world.variables.blocks.iter().enumerate() {
        let Some(Held { slice, cell }) = held else { continue };
        let expected = world.variables.contents.get(*cell);
        let found = slice.view(..expected.len()).and_then(|modelled| modelled.download());
        match found {
            Ok(found) if found == expected => {}
            Ok(found) => failures.push(Failure::WrongBytes(format!(
                "b{variable} is not what a serial run gives: {}",
                first_difference(&found, expected)
            ))),
            Err(error) if is_given_up(&error) => {}
            Err(error) => failures.push(Failure::UnexpectedError(format!("a download: {error}"))),
        }
    }
    for (stream, (sum, expected)) in
        world.variables.sums.iter().zip(&world.variables.expected_sums).enumerate()
    {
        match sum.download() {
            Ok(found) if found == [*expected] => {}
            Ok(found) => failures.push(Failure::WrongBytes(format!(
                "launches that read on stream {stream} saw what no serial run gives: their sum is \
                 {found:x?}, and should be {expected:x}"
            ))),
            Err(error) if is_given_up(&error) => {}
            Err(error) => failures.push(Failure::UnexpectedError(format!("a download: {error}"))),
        }
    }
}

/// Whether a block is refused because a fault left it with a use that nothing can wait for.
pub(super) fn is_given_up(error: &ResourceError) -> bool {
    error.to_string().contains("neither recorded nor waited for")
}

/// Frees everything, and sees that nothing is left.
fn give_everything_back(world: &mut World, stack: Stack, failures: &mut Vec<Failure>) {
    world.variables.blocks.iter_mut().for_each(|block| *block = None);
    world.variables.sums.clear();
    for _ in 0..2 {
        if let Err(error) = world.bench.runtime.reap_pending() {
            failures.push(Failure::UnexpectedError(format!("the last reap: {error}")));
        }
    }
    let left = world.bench.runtime.bytes_outstanding();
    let stats = world.resource.stream_pool().stats();
    // What was leaked on purpose, and counted, stays outstanding.
    if left != 0 && stats.leaked_blocks == 0 {
        failures.push(Failure::Accounting(format!("{left} bytes are outstanding at the end")));
    }
    // What lies free in a pool keeps its identity.
    if stats.blocks != 0 && stats.leaked_blocks == 0 && !stack.is_pooled() {
        failures
            .push(Failure::Leak(format!("{} blocks have an identity at the end", stats.blocks)));
    }
    let (pending, by_stream) =
        (world.resource.pending_free_bytes(), world.resource.pending_per_stream_total());
    if pending != by_stream {
        failures.push(Failure::Accounting(format!(
            "{pending} bytes are pending in all, and {by_stream} counted by stream"
        )));
    }
}

/// Takes out one wait after the other: each must let two operations race. Then makes each cover one
/// operation less: that must be too little too.
fn check_waits(
    trace: &Trace,
    draw: &mut Draw,
    scrutiny: Scrutiny,
    failures: &mut Vec<Failure>,
) -> u64 {
    let mut waits: Vec<usize> = trace.waits().collect();
    while waits.len() > scrutiny.waits {
        waits.swap_remove(draw.below(waits.len()));
    }
    let analysis = trace.analysis();
    if let Some(race) = analysis.races(None).first() {
        let steps = [race.earlier, race.later].map(|step| name(&trace.steps[step]));
        failures.push(Failure::Unordered(format!("{} and {}: {}", steps[0], steps[1], race.kind)));
        return 0;
    }
    for wait in &waits {
        if !analysis.is_needed(Edit::Remove(*wait)) {
            failures.push(Failure::SuperfluousWait(describe(trace, *wait)));
        } else if !analysis.is_needed(Edit::EndEarlier(*wait)) {
            failures.push(Failure::LateEdge(describe(trace, *wait)));
        }
    }
    waits.len() as u64
}

/// What a wait stands between: the last operation it waits for, and the first it holds back.
fn describe(trace: &Trace, wait: usize) -> String {
    let Step::Wait { stream, record } = &trace.steps[wait] else { return String::new() };
    let work = |step: &&Step| {
        matches!(step, Step::Operation { .. } | Step::Allocate { .. } | Step::Free { .. })
    };
    let on = |step: &&Step, stream: u32| work(step) && step.stream() == Some(stream);
    let source = record.and_then(|record| trace.steps[record].stream());
    let waited_for = record.zip(source).and_then(|(record, source)| {
        trace.steps[..record].iter().rev().find(|step| on(step, source)).map(name)
    });
    let held_back = trace.steps[wait..].iter().find(|step| on(step, *stream)).map(name);
    format!(
        "stream {stream} waits for {} on stream {} before {}, and nothing there needs it",
        waited_for.unwrap_or_else(|| "nothing".into()),
        source.map_or_else(|| "?".into(), |source| source.to_string()),
        held_back.unwrap_or_else(|| "nothing".into()),
    )
}

fn name(step: &Step) -> String {
    match step {
        Step::Operation { stream, name, place: Some(place), .. } => {
            format!("{name} on stream {stream} ({place})")
        }
        Step::Operation { stream, name, .. } => format!("{name} on stream {stream}"),
        Step::Allocate { .. } => "an allocation".into(),
        Step::Free { .. } => "a free".into(),
        _ => "nothing".into(),
    }
}
