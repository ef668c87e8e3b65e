//! Memory of a trace: every block, and sums that add up.

use xlog_testkit::{TestCase, TestDevice, cases};

use super::support::{LENGTH, buffer, fill, streams, traced};

pub(crate) const CASES: &[TestCase] = cases![
    blocks_have_their_tag_size_stream_and_times,
    memory_adds_up_at_every_moment,
    a_trace_that_ends_knows_what_was_never_freed,
];

fn blocks_have_their_tag_size_stream_and_times(device: TestDevice) {
    let (trace, stack) = traced(device);
    let [stream] = streams(&stack);
    let first = buffer(&stack, stream, "first");
    let second = buffer(&stack, stream, "second");
    fill(&stack.runtime, &second, 1, stream);
    let generation = first.runtime_block().expect("a block").generation.0;
    drop(first);
    drop(second);
    let recording = trace.finish();
    assert_eq!(recording.blocks.len(), 2);
    let (first, second) = (recording.blocks[0], recording.blocks[1]);
    assert_eq!((first.tag, second.tag), ("first", "second"));
    assert_eq!(first.generation, generation);
    assert!(first.bytes >= 4 * LENGTH as u64);
    let named = |stream: Option<u32>| stream.map(|stream| recording.stream_name(stream));
    assert_eq!(named(first.stream).as_deref(), Some("stream 1"));
    let (gone, later) = (first.gone.expect("dropped"), second.gone.expect("dropped"));
    assert!(first.born <= second.born && second.born <= gone && gone <= later);
}

fn memory_adds_up_at_every_moment(device: TestDevice) {
    let (trace, stack) = traced(device);
    let [one, two] = streams(&stack);
    let mut held = Vec::new();
    for round in 0..40 {
        let (stream, tag) = if round % 2 == 0 { (one, "even") } else { (two, "odd") };
        held.push(buffer(&stack, stream, tag));
        fill(&stack.runtime, &held[held.len() - 1], round, stream);
        if round % 3 == 0 {
            drop(held.swap_remove(held.len() / 2));
        }
    }
    let statistics = stack.statistics.as_ref().expect("the default stack has them").statistics();
    let recording = trace.finish();
    let at_most =
        |sample: &xlog_trace::MemorySample| sample.in_use + sample.largest_free <= sample.reserved;
    assert!(recording.memory.iter().all(at_most));
    assert!(recording.memory.is_sorted_by_key(|sample| sample.at));
    let last = recording.memory.last().expect("samples");
    assert_eq!(last.in_use, statistics.bytes.current as u64);
    assert_eq!(recording.peak_bytes(), statistics.bytes.peak);
    let sum: i64 = recording.tags.iter().map(|change| change.change).sum();
    assert_eq!(sum as u64, last.in_use);
    let pool = stack.pool.as_ref().expect("the default stack has one").report();
    assert_eq!(last.reserved, pool.slab_bytes as u64);
}

fn a_trace_that_ends_knows_what_was_never_freed(device: TestDevice) {
    let (trace, stack) = traced(device);
    let [stream] = streams(&stack);
    let kept = buffer(&stack, stream, "kept");
    drop(buffer(&stack, stream, "dropped"));
    let recording = trace.finish();
    let still: Vec<_> = recording.blocks.iter().filter(|block| block.gone.is_none()).collect();
    assert_eq!(still.iter().map(|block| block.tag).collect::<Vec<_>>(), ["kept"]);
    drop(kept);
}
