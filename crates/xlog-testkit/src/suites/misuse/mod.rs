//! Every wrong call gets its error, and changes nothing.

mod handles;
mod lost;
mod parts;

use handles::*;
use lost::*;
use parts::*;

use crate::{TestCase, cases};

pub(super) const CASES: &[TestCase] = cases![
    a_stale_handle_is_refused_by_every_call,
    a_stale_handle_does_not_reach_the_block_at_its_address,
    a_double_free_is_refused,
    a_block_of_another_device_is_refused_by_every_call,
    a_block_of_another_runtime_is_refused,
    an_unknown_stream_is_refused_by_every_call,
    device_then_stream_then_block_is_the_order_of_refusals,
    zero_bytes_are_refused,
    more_than_the_device_has_is_refused,
    recording_after_preflight_changes_nothing,
    a_commit_without_preflight_changes_nothing,
    a_conflicting_use_of_another_thread_changes_nothing,
    untracked_buffers_change_nothing_in_either_mode,
    plain_memory_refuses_misuse_and_tracking,
    a_pool_refuses_what_it_cannot_do,
    a_pool_too_large_is_refused,
    a_full_pool_is_an_error_and_recovers,
    a_stream_in_use_is_not_released,
    default_streams_of_the_driver_are_not_adopted,
    a_captured_stream_is_refused_with_nothing_enqueued,
    parts_that_do_not_belong_together_are_refused_by_every_call,
    a_kernel_that_does_not_load_is_an_error,
    a_lost_device_answers_so_everywhere_and_its_counters_freeze,
    whatever_call_loses_the_device_everything_after_it_says_so,
    launches_between_preflight_and_commit_survive_the_loss,
    a_kernel_that_faults_loses_the_device,
];
