//! Pinned memory: one contract for the plain resource and for the pool, and what copies do to it.

mod copies;
mod drops;
mod failures;
mod memory;

use std::{collections::BTreeMap, sync::Arc};

use copies::*;
use drops::*;
use failures::*;
use memory::*;
use xlog_cuda::device_runtime::{
    PinnedBuffer, PinnedHostResource, PinnedPoolOptions, PinnedPoolResource, ResourceResult,
};

use crate::{DriverCall, Rig, TestCase, cases};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    pinned_memory_is_aligned_keeps_its_contents_and_is_counted,
    sizes_that_no_buffer_can_have_are_refused,
    pinned_memory_keeps_its_books_in_any_order_of_calls,
    threads_drop_each_others_buffers,
    a_pool_hands_out_the_same_buffer_again,
    a_pool_never_passes_its_maximum,
    a_full_pool_hands_out_a_larger_buffer_before_it_refuses,
    threads_together_never_pass_the_maximum,
    trim_gives_back_what_nobody_has,
    a_buffer_is_not_handed_out_before_its_last_copy_is_over,
    finding_a_buffer_takes_one_question_a_stream,
    a_dropped_copy_arrives_in_memory_that_nobody_else_has,
    copies_with_a_buffer_are_ordered_like_launches,
    a_refused_copy_gives_the_buffer_back_as_it_was,
    buffers_are_copied_with_untracked_memory_at_once,
    uploads_and_downloads_go_through_the_runtimes_pool,
    buffers_are_values,
    a_buffer_outlives_its_pool_its_runtime_and_its_streams,
    a_pool_dropped_with_copies_in_flight_waits_for_them,
    plain_pinned_memory_goes_back_when_it_is_dropped,
    each_failing_driver_call_loses_no_buffer,
    what_the_driver_does_not_take_back_is_tried_again,
    a_copy_that_nobody_can_follow_leaks_its_buffer,
    a_lost_device_hands_out_no_pinned_memory,
];

/// Either of the two that hand out buffers.
enum Pinned {
    Plain(PinnedHostResource),
    Pool(PinnedPoolResource),
}

impl Pinned {
    fn both(rig: &Rig) -> [Self; 2] {
        [Self::Plain(plain(rig)), Self::Pool(pool(rig))]
    }

    fn allocate(&self, bytes: usize) -> ResourceResult<PinnedBuffer> {
        match self {
            Self::Plain(plain) => plain.allocate(bytes),
            Self::Pool(pool) => pool.allocate(bytes),
        }
    }

    /// Bytes that somebody has.
    fn in_use(&self) -> usize {
        match self {
            Self::Plain(plain) => plain.bytes_outstanding(),
            Self::Pool(pool) => pool.report().in_use_bytes,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Plain(_) => "plain",
            Self::Pool(_) => "pool",
        }
    }
}

fn plain(rig: &Rig) -> PinnedHostResource {
    PinnedHostResource::new(Arc::clone(&rig.device))
}

fn pool(rig: &Rig) -> PinnedPoolResource {
    PinnedPoolResource::new(plain(rig), PinnedPoolOptions::default())
}

fn pool_of(rig: &Rig, maximum: usize) -> PinnedPoolResource {
    PinnedPoolResource::new(plain(rig), PinnedPoolOptions::default().with_maximum(maximum))
}

/// Buffers that the driver has handed out and not got back.
fn with_driver(rig: &Rig) -> u64 {
    rig.driver.count(DriverCall::AllocatePinned) - rig.driver.count(DriverCall::FreePinned)
}

/// The pool's books agree with themselves and with the resource below.
#[track_caller]
fn assert_consistent(pool: &PinnedPoolResource) {
    let report = pool.report();
    assert_eq!(report.held_bytes, pool.inner().bytes_outstanding());
    let accounted = report.in_use_bytes + report.copying_bytes + report.leaked_bytes;
    assert!(accounted <= report.held_bytes, "{report:?}");
    assert!(report.in_use_buffers <= report.held_buffers, "{report:?}");
    assert!(report.peak_in_use_bytes <= report.peak_held_bytes, "{report:?}");
    assert!(report.held_bytes <= report.peak_held_bytes, "{report:?}");
}

/// Ranges in use, and a check that no two of them meet.
#[derive(Default)]
struct Ranges(BTreeMap<usize, usize>);

impl Ranges {
    #[track_caller]
    fn add(&mut self, buffer: &PinnedBuffer) {
        let start = buffer.as_ptr().addr();
        let end = start + buffer.capacity();
        let before = self.0.range(..end).next_back();
        assert!(before.is_none_or(|(_, end)| *end <= start), "two buffers overlap");
        self.0.insert(start, end);
    }

    fn remove(&mut self, buffer: &PinnedBuffer) {
        self.0.remove(&buffer.as_ptr().addr());
    }
}
