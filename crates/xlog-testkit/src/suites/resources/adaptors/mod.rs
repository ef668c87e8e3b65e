//! The adaptors: what each does, what it passes on, and that none loses memory or accounting.

mod failure_callback;
mod fault_injection;
mod stacks;
mod statistics;
mod tracking;

use std::sync::Arc;

use failure_callback::*;
use fault_injection::*;
use stacks::*;
use statistics::*;
use tracking::*;
use xlog_cuda::device_runtime::DeviceMemoryResource;

use crate::{Rig, TestCase, TestDevice, cases};

pub(in crate::suites) const CASES: &[TestCase] = cases![
    adaptors_pass_on_every_method,
    adaptors_pass_refusals_on_unchanged,
    adaptors_keep_a_block_whose_free_failed_until_a_reap,
    adaptors_give_a_block_back_whose_free_failed,
    adaptors_that_do_not_look_at_uses_hand_on_the_tracker,
    launches_keep_their_order_through_adaptors,
    a_lost_device_freezes_the_books_of_adaptors,
    statistics_count_what_was_granted_step_by_step,
    statistics_scopes_nest,
    statistics_count_a_failed_free_until_it_is_reaped,
    statistics_settle_each_failed_free_by_itself,
    statistics_over_a_resource_without_a_tracker_wait_for_a_whole_reap,
    statistics_ignore_refused_handles,
    statistics_are_exact_under_threads,
    tracking_knows_who_holds_what,
    tracking_tells_blocks_at_one_address_apart,
    tracking_holds_a_block_whose_free_failed_until_it_is_reaped,
    tracking_sees_slices_and_captures_where_they_were_allocated,
    a_callback_that_frees_memory_makes_the_request_succeed,
    a_callback_that_frees_nothing_leaves_the_error_as_it_was,
    a_full_device_calls_the_callback,
    other_errors_call_no_callback,
    a_callback_may_use_its_own_resource_but_is_not_called_inside_itself,
    threads_in_a_callback_do_not_keep_each_other_out,
    a_callback_that_panics_is_called_again_next_time,
    faults_come_as_planned_and_never_reach_the_resource_below,
    a_free_that_was_failed_is_kept_and_handed_on_by_the_next_reap,
    a_free_that_was_failed_and_then_fails_below_is_not_lost,
    a_resource_that_fails_frees_hands_them_on_when_dropped,
    faults_in_uses_are_seen_by_launches_and_leave_nothing_unprotected,
    faults_in_single_uses_come_as_planned,
    a_seed_gives_the_same_faults_again_and_loses_nothing,
    statistics_and_tracking_stay_exact_over_faults,
];

type Inner = Box<dyn DeviceMemoryResource + Send + Sync>;

/// A rig over an adaptor, and a handle to ask it about itself.
fn over<A: DeviceMemoryResource + 'static>(
    device: TestDevice,
    make: impl FnOnce(Inner) -> A,
) -> (Rig, Arc<A>) {
    let mut made = None;
    let rig = Rig::decorated(device, |resource| {
        let adaptor = Arc::new(make(Box::new(resource)));
        made = Some(Arc::clone(&adaptor));
        Box::new(adaptor)
    });
    (rig, made.expect("the rig decorates its resource"))
}
