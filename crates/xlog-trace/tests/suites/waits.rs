//! What a trace says of waits: which there were, from what work to what work, and why.

use std::sync::Arc;

use xlog_cuda::{
    CudaDevice,
    device_runtime::{AllocTag, PoolOptions, ResourceStack, StreamId},
};
use xlog_testkit::{TestCase, TestDevice, cases};
use xlog_trace::{Dependency, Reason, Recording, Trace, Wait, WaitCause};

use super::support::{Held, LENGTH, buffer, fill, streams, traced, traced_without_pool};

pub(crate) const CASES: &[TestCase] = cases![
    a_buffer_that_goes_from_stream_to_stream_is_one_arrow_with_its_reason,
    a_write_waits_for_the_readers_of_other_streams_and_for_nothing_else,
    memory_that_is_used_again_names_the_block_that_had_it,
    memory_that_is_handed_to_another_stream_names_the_use_it_follows,
    a_block_allocated_elsewhere_is_waited_for_by_its_first_use,
    a_free_behind_uses_of_two_streams_says_so,
    a_fence_is_called_one,
    a_wait_that_nobody_declared_is_not_explained,
    every_wait_of_a_program_with_a_pool_has_its_reason,
];

/// The waits of a recording as (from, to, reasons in words).
fn arrows(recording: &Recording) -> Vec<(String, String, Vec<String>)> {
    let named = |index: Option<u32>| {
        let operation = index.map(|index| &recording.operations[index as usize]);
        operation.map_or("nothing".to_owned(), |operation| {
            format!("{} on {}", operation.name, recording.stream_name(operation.stream))
        })
    };
    let reasons = |cause: &WaitCause| match cause {
        WaitCause::Blocks(reasons) => reasons.iter().map(|r| recording.reason_text(r)).collect(),
        other => vec![format!("{other:?}")],
    };
    let arrow = |wait: &Wait| (named(wait.from), named(wait.to), reasons(&wait.cause));
    recording.waits.iter().map(arrow).collect()
}

/// The one reason of a wait that has exactly one.
fn only_reason(wait: &Wait) -> Reason {
    let only = match &wait.cause {
        WaitCause::Blocks(reasons) if reasons.len() == 1 => Some(reasons[0]),
        _ => None,
    };
    only.ok_or(&wait.cause).expect("one reason")
}

fn dependencies(recording: &Recording) -> Vec<Dependency> {
    recording.waits.iter().map(|wait| only_reason(wait).dependency).collect()
}

fn a_buffer_that_goes_from_stream_to_stream_is_one_arrow_with_its_reason(device: TestDevice) {
    let (trace, stack) = traced(device);
    let [writer, reader] = streams(&stack);
    let data = buffer(&stack, writer, "handed over");
    fill(&stack.runtime, &data, 7, writer);
    let back = data.start_download(reader).expect("a copy").wait().expect("its end");
    assert_eq!(back, [7; LENGTH]);
    let generation = data.runtime_block().expect("a block").generation.0;
    drop(data);

    let recording = trace.finish();
    let (from, to) = ("xlog_fill_u32 on stream 1", "copy to host on stream 2");
    let why =
        format!("read after write of block handed over (generation {generation}): follows {from}");
    assert_eq!(arrows(&recording), [(from.to_owned(), to.to_owned(), vec![why])]);
    assert_eq!((recording.operations.len(), recording.launches()), (2, 1));
    let used: Vec<_> = recording.operations.iter().flat_map(|one| &one.uses).collect();
    assert_eq!(used.len(), 2);
    assert_eq!(used[0].block, used[1].block);
    let place = recording.operations[0].place.expect("a launch that declared something");
    assert!(place.file().ends_with("support.rs"), "{place}");
}

fn a_write_waits_for_the_readers_of_other_streams_and_for_nothing_else(device: TestDevice) {
    let (trace, stack) = traced(device);
    let [writer, readers @ ..] = streams::<3>(&stack);
    // Held, or what the writer waits for may be known to be over.
    let held = Held::new(&stack.runtime, &readers);
    let data = buffer(&stack, writer, "shared");
    fill(&stack.runtime, &data, 1, writer);
    let downloads = readers.map(|stream| data.start_download(stream).expect("a copy"));
    fill(&stack.runtime, &data, 2, writer);
    drop(held);
    for download in downloads {
        assert_eq!(download.wait().expect("its end"), [1; LENGTH]);
    }
    let recording = trace.finish();
    let (read, write) = (Dependency::ReadAfterWrite, Dependency::WriteAfterRead);
    assert_eq!(dependencies(&recording), [read, read, write, write]);
}

fn memory_that_is_used_again_names_the_block_that_had_it(device: TestDevice) {
    let (trace, stack) = traced(device);
    let [one, two] = streams(&stack);
    let first = buffer(&stack, one, "first tenant");
    let address = first.ptr();
    let held = Held::new(&stack.runtime, &[one]);
    fill(&stack.runtime, &first, 1, one);
    drop(first);
    let second = buffer(&stack, one, "second tenant");
    assert_eq!(second.ptr(), address, "the pool gives the memory to the stream that had it");
    fill(&stack.runtime, &second, 2, two);
    drop(held);

    let recording = trace.finish();
    let reason = only_reason(recording.waits.last().expect("a wait of the second stream"));
    let tag = |block: Option<u32>| recording.blocks[block.expect("a block") as usize].tag;
    assert_eq!(reason.dependency, Dependency::WriteAfterWrite);
    assert_eq!(tag(reason.block), "second tenant");
    assert_eq!(tag(reason.earlier_block), "first tenant");
}

fn memory_that_is_handed_to_another_stream_names_the_use_it_follows(device: TestDevice) {
    // A pool of one slab, and blocks that take all of it: the next one has to have the same memory.
    const SLAB: usize = 2 << 20;
    let trace = Trace::new(device.driver());
    let device = Arc::new(CudaDevice::with_driver(trace.driver()));
    let options = PoolOptions::default().with_first_slab(SLAB).with_maximum(SLAB);
    let stack = ResourceStack::over_driver(device).with_pool(options).build().expect("a stack");
    let [home, elsewhere] = streams(&stack);
    let buffer = |tag| {
        let buffer = stack.manager().alloc_on::<u32>(SLAB / 4, home, AllocTag(tag));
        buffer.expect("memory")
    };
    let data = buffer("lent");
    let held = Held::new(&stack.runtime, &[elsewhere]);
    fill(&stack.runtime, &data, 1, elsewhere);
    drop(data);
    let again = buffer("handed out again");
    fill(&stack.runtime, &again, 2, home);
    drop(held);

    let recording = trace.finish();
    let last = recording.waits.last().expect("a wait for the other stream");
    let reason = only_reason(last);
    assert_eq!(reason.dependency, Dependency::ReuseAfterUse);
    let earlier = reason.earlier.expect("the work that used it");
    let earlier = &recording.operations[earlier as usize];
    assert_eq!(recording.stream_name(earlier.stream), "stream 2");
    assert_eq!(recording.stream_name(last.stream), "stream 1");
}

fn a_block_allocated_elsewhere_is_waited_for_by_its_first_use(device: TestDevice) {
    let (trace, stack) = traced_without_pool(device);
    let [one, two] = streams(&stack);
    let held = Held::new(&stack.runtime, &[one]);
    let data = buffer(&stack, one, "fresh");
    fill(&stack.runtime, &data, 1, two);
    drop(held);
    // The free goes to the stream that follows everything: no second wait.
    drop(data);
    let recording = trace.finish();
    assert_eq!(dependencies(&recording), [Dependency::UseAfterAllocation]);
}

fn a_free_behind_uses_of_two_streams_says_so(device: TestDevice) {
    let (trace, stack) = traced_without_pool(device);
    let [writer, readers @ ..] = streams::<3>(&stack);
    let held = Held::new(&stack.runtime, &readers);
    let data = buffer(&stack, writer, "read twice");
    fill(&stack.runtime, &data, 1, writer);
    let downloads = readers.map(|stream| data.start_download(stream).expect("a copy"));
    drop(data);
    drop(held);
    drop(downloads);
    let recording = trace.finish();
    let (read, free) = (Dependency::ReadAfterWrite, Dependency::FreeAfterUse);
    assert_eq!(dependencies(&recording), [read, read, free, free]);
}

fn a_fence_is_called_one(device: TestDevice) {
    let (trace, stack) = traced(device);
    let [one, two] = streams(&stack);
    let (first, second) = (buffer(&stack, one, "first"), buffer(&stack, two, "second"));
    fill(&stack.runtime, &first, 1, one);
    fill(&stack.runtime, &second, 2, two);
    stack.runtime.fence().expect("a fence");
    let recording = trace.finish();
    assert!(!recording.waits.is_empty());
    assert!(recording.waits.iter().all(|wait| wait.cause == WaitCause::Fence));
}

fn a_wait_that_nobody_declared_is_not_explained(device: TestDevice) {
    let (trace, stack) = traced(device);
    let data = buffer(&stack, StreamId::DEFAULT, "unsaid");
    // Past the runtime, as another library would.
    let driver = stack.runtime.device().driver();
    let [first, second] = [(); 2].map(|()| driver.create_stream().expect("a stream"));
    let event = driver.create_event().expect("an event");
    // SAFETY: streams, event and memory are this driver's, and nobody else uses them.
    unsafe {
        driver.fill_bytes(data.ptr(), 0, 64, first).expect("a fill");
        driver.record_event(event, first).expect("a record");
        driver.wait_event(second, event).expect("a wait");
        driver.fill_bytes(data.ptr(), 1, 64, second).expect("a fill");
        driver.synchronize_device().expect("the end");
        driver.destroy_event(event).expect("no event");
        driver.destroy_stream(first).expect("no stream");
        driver.destroy_stream(second).expect("no stream");
    }
    let recording = trace.finish();
    assert_eq!(recording.waits.len(), 1);
    let wait = &recording.waits[0];
    assert_eq!(wait.cause, WaitCause::Undeclared);
    assert_eq!((wait.from, wait.to), (Some(0), Some(1)));
}

fn every_wait_of_a_program_with_a_pool_has_its_reason(device: TestDevice) {
    let (trace, stack) = traced(device);
    let streams = streams::<4>(&stack);
    std::thread::scope(|scope| {
        let shared = Arc::new(buffer(&stack, streams[0], "shared"));
        for (number, stream) in streams.into_iter().enumerate() {
            let (stack, shared) = (&stack, Arc::clone(&shared));
            scope.spawn(move || {
                let mut kept = Vec::new();
                for round in 0..200 {
                    let own = buffer(stack, stream, ["a", "b", "c", "d"][number]);
                    fill(&stack.runtime, &own, round, stream);
                    // Used elsewhere, so that its memory comes back with uses of two streams.
                    fill(&stack.runtime, &own, round, streams[(number + 1) % 4]);
                    if round % 3 == 0 {
                        fill(&stack.runtime, &shared, round, stream);
                    }
                    kept.push(own);
                    if kept.len() > 5 {
                        kept.remove(round as usize % 5);
                    }
                }
            });
        }
    });
    let recording = trace.finish();
    assert!(recording.waits.len() > 500, "{}", recording.waits.len());
    let unexplained: Vec<_> =
        recording.waits.iter().filter(|wait| !matches!(wait.cause, WaitCause::Blocks(_))).collect();
    assert!(
        unexplained.is_empty(),
        "{} of {}: {:?}",
        unexplained.len(),
        recording.waits.len(),
        unexplained.first()
    );
}
