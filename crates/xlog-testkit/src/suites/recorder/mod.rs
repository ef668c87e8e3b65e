//! The launch recorder: its steps, what it does when they fail, and the claims in between.

mod claims;
mod failures;
mod steps;

use claims::*;
use failures::*;
use steps::*;

use crate::{TestCase, cases};

pub(super) const CASES: &[TestCase] = cases![
    recorders_say_their_stream_and_mode,
    counts_come_before_deduplication_and_without_the_skipped,
    strict_refuses_a_runtime_less_slice_in_preflight_and_in_commit,
    strict_refuses_external_columns_and_says_what_to_do,
    refusals_of_external_and_runtime_less_memory_differ,
    permissive_skips_what_it_cannot_track_and_launches,
    a_resource_without_tracking_is_refused_before_anything_is_enqueued,
    commit_without_preflight_is_refused_and_still_protects,
    a_use_recorded_after_preflight_is_refused_in_both_modes,
    a_late_use_of_an_empty_recorder_is_refused_too,
    an_empty_recorder_is_a_no_op_in_every_step,
    several_registrations_of_a_block_are_one_use_of_the_strongest_access,
    blocks_are_told_apart_by_generation_not_by_address,
    one_launch_records_one_event_however_many_blocks,
    recording_lets_go_of_the_borrow,
    views_and_columns_are_recorded_like_slices,
    preflight_queues_the_waits_and_commit_publishes,
    a_failed_preflight_publishes_nothing,
    a_stale_block_is_refused_by_preflight_as_misuse,
    a_recorder_of_an_unknown_stream_is_refused,
    a_recorder_committed_on_another_runtime_is_refused_and_protects,
    a_failed_record_is_made_good_by_synchronising,
    a_failed_record_of_a_copy_is_made_good_by_synchronising,
    a_use_neither_recorded_nor_waited_for_leaks_its_block,
    a_leaked_block_takes_no_more_uses,
    a_dropped_recorder_is_reported_and_safe,
    a_recorder_dropped_before_preflight_is_reported,
    a_late_use_of_a_dropped_recorder_is_safe,
    a_refused_commit_publishes_what_can_be_published,
    a_layer_that_fails_to_record_leaves_nothing_unprotected,
    a_copy_whose_stream_check_fails_holds_no_claim,
    a_conflicting_preflight_is_refused_at_once_with_both_places,
    readers_do_not_conflict,
    a_refused_preflight_leaves_no_claims_behind,
    the_builder_waits_for_another_threads_claim,
    the_builder_refuses_to_wait_for_its_own_thread,
    a_writer_waits_for_every_reader,
    a_circle_of_two_threads_is_refused_rather_than_a_deadlock,
    a_free_of_a_claimed_block_takes_effect_after_commit,
    a_free_of_a_claimed_block_waits_for_commit_under_adaptors_too,
    several_recorders_of_one_thread_never_deadlock,
    bare_prepare_and_finish_hold_no_claim,
    a_full_queue_blocks_nobody_else_at_a_launch,
    a_full_queue_blocks_nobody_else_at_a_wait,
];
