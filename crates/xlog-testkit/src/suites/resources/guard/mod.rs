//! The guard: what it finds, what it does not take for a mistake, and that it loses nothing.

mod failures;
mod findings;
mod quarantine;

use std::sync::Arc;

use failures::*;
use findings::*;
use quarantine::*;
use xlog_cuda::{
    LaunchDims,
    device_runtime::{
        AllocTag, DebugGuardResource, DeviceBlock, Finding, FindingKind, GuardOptions, StreamId,
    },
    kernels,
};
use xlog_driver::Arguments;

use crate::{Rig, TestCase, TestDevice, cases, fail};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    a_write_behind_the_end_is_named_when_the_block_is_freed,
    a_write_before_the_start_is_named_when_the_block_is_freed,
    a_check_finds_a_write_outside_of_a_block_in_use,
    a_block_with_a_broken_margin_can_be_given_back_to_its_owner,
    a_write_after_free_is_found_by_a_check,
    a_write_after_free_is_found_when_the_block_leaves_quarantine,
    a_large_block_is_looked_at_as_a_whole,
    a_double_free_says_who_freed_the_block_first,
    new_blocks_and_freed_ones_are_full_of_poison,
    a_clean_program_has_no_findings,
    a_free_waits_for_the_work_of_every_stream_before_it_poisons,
    a_free_between_preflight_and_commit_is_no_finding,
    wrong_handles_are_refused_and_are_no_findings,
    quarantine_keeps_an_address_from_being_used_again,
    quarantine_is_bounded_in_blocks_and_in_bytes,
    a_full_device_empties_the_quarantine,
    a_stream_can_be_released_though_its_blocks_are_in_quarantine,
    a_dropped_guard_gives_everything_back,
    a_guard_works_over_any_resource,
    a_pool_over_a_guard_keeps_both_books,
    the_stack_for_debugging_has_a_guard,
    each_failing_driver_call_is_an_error_and_loses_nothing,
    a_free_the_guard_cannot_look_at_is_looked_at_by_the_next_reap,
    a_failed_free_gives_the_block_back_usable,
    a_lost_device_is_an_error,
    threads_do_not_disturb_each_other,
];

/// A guard over the stream-ordered resource, and a rig over it.
fn guarded(device: TestDevice, options: GuardOptions) -> (Rig, Arc<DebugGuardResource>) {
    let mut guard = None;
    let rig = Rig::decorated(device, |resource| {
        let streams = Arc::clone(resource.stream_pool());
        let made = Arc::new(DebugGuardResource::new(Box::new(resource), streams, options));
        guard = Some(Arc::clone(&made));
        Box::new(made)
    });
    (rig, guard.expect("made above"))
}

fn block(rig: &Rig, bytes: usize, stream: StreamId, tag: &'static str) -> DeviceBlock {
    rig.runtime.allocate(bytes, stream, AllocTag(tag)).unwrap_or_else(fail)
}

/// Writes `len` words at `ptr`, past the recorder: what a wrong kernel does.
fn write_raw(rig: &Rig, ptr: u64, len: u64, stream: StreamId) {
    let mut arguments = Arguments::new();
    arguments.push_pointer(ptr);
    arguments.push_value(0x1234_5678_u32);
    arguments.push_value(len);
    rig.launch_raw(&kernels::FILL_U32, &arguments, LaunchDims::for_elements(len as usize), stream);
    rig.pool.synchronize(stream).unwrap_or_else(fail);
}

/// Kind, tag, offset, wrong bytes and allocation of each finding.
fn found(guard: &DebugGuardResource) -> Vec<(FindingKind, &'static str, i64, usize, u64)> {
    let short = |one: Finding| (one.kind, one.tag.0, one.offset, one.wrong, one.sequence);
    guard.findings().into_iter().map(short).collect()
}
