//! Typed memory: managers and their budgets, slices, views, columns, copies, and what the kernels
//! make of it.

mod kernels;
mod manager;
mod transfers;
mod views;

use kernels::*;
use manager::*;
use transfers::*;
use views::*;

use crate::{TestCase, cases};

pub(super) const CASES: &[TestCase] = cases![
    a_device_that_is_not_there_is_an_error_that_says_so,
    the_device_that_is_there_is_found,
    slices_without_a_runtime_have_no_block,
    slices_with_a_runtime_have_a_block,
    dropping_a_runtime_less_slice_waits_for_the_device,
    dropping_a_slice_frees_through_the_runtime_without_waiting,
    a_budget_refuses_with_exact_numbers_and_recovers,
    a_budget_without_a_runtime_refuses_the_same_way,
    a_budget_holds_for_many_threads,
    a_failed_allocation_gives_its_budget_back,
    zero_values_and_too_many_values_are_refused,
    a_manager_over_two_devices_is_refused,
    slices_are_shared_between_threads,
    what_every_thread_holds_is_counted_without_a_limit_too,
    views_name_a_range_of_a_slice,
    views_that_leave_the_slice_are_out_of_bounds,
    copies_of_views_touch_only_the_view,
    kernels_over_views_touch_only_the_view,
    columns_of_all_three_kinds_say_what_they_are,
    every_type_comes_back_as_it_was_uploaded,
    a_large_upload_goes_in_pieces,
    uploaded_values_are_copied_before_the_call_returns,
    copies_and_fills_run_on_the_chosen_stream,
    a_download_does_not_block_until_it_is_waited_for,
    a_dropped_download_keeps_its_memory_until_the_copy_is_done,
    a_download_on_another_stream_waits_for_the_writer,
    an_upload_waits_for_the_readers_before_it,
    lengths_that_differ_are_refused_with_nothing_enqueued,
    copies_between_devices_are_refused,
    untracked_memory_is_copied_with_the_device_at_rest,
    elementwise_kernels_give_what_plain_code_gives,
    the_checksum_gives_what_plain_code_gives,
    touching_kernels_add_to_the_first_element_of_each_block,
    empty_kernels_change_nothing,
    a_gate_holds_until_its_signal_or_its_time,
];
