//! The conformance suite: one body per behaviour of the contract (`windlass::driver`), stamped for
//! every driver.
//!
//! A body that is not in a list below does not run: `every_body_is_stamped` looks.
#![allow(missing_docs, unreachable_pub)] // a test binary has no users
#![cfg_attr(windows, allow(unused_imports, dead_code))] // what it has not is left out
#![allow(unsafe_code)] // fork, limits and raw descriptors need libc

mod common;

mod conformance {
    pub mod accept_connect;
    pub mod arrived;
    #[cfg(unix)]
    pub mod attempts;
    pub mod back_pressure;
    #[cfg(unix)]
    pub mod bad_input;
    pub mod basics;
    pub mod batched_datagrams;
    pub mod bound_datagrams;
    pub mod budgets;
    pub mod buffers;
    #[cfg(unix)]
    pub mod calls;
    pub mod cancel;
    pub mod close_abort_drop;
    pub mod connecting;
    pub mod datagrams;
    pub mod deadlines;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub mod denied;
    #[cfg(unix)]
    pub mod descriptors;
    #[cfg(target_os = "linux")]
    pub mod direct_io;
    pub mod drops;
    #[cfg(unix)]
    pub mod embedding;
    #[cfg(unix)]
    pub mod ends;
    #[cfg(target_os = "linux")]
    pub mod errnos;
    pub mod explain;
    pub mod fairness;
    pub mod file_errors;
    pub mod half_close;
    pub mod idle;
    pub mod jobs;
    #[cfg(unix)]
    pub mod kinds;
    pub mod leases;
    #[cfg(unix)]
    pub mod lingering;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub mod linux;
    pub mod memory;
    pub mod mixture;
    #[cfg(unix)]
    pub mod names;
    pub mod order;
    #[cfg(unix)]
    pub mod pipes;
    pub mod poll;
    pub mod positions;
    #[cfg(unix)]
    pub mod process;
    #[cfg(unix)]
    pub mod progress;
    pub mod prompt;
    pub mod quiet;
    pub mod readiness;
    #[cfg(unix)]
    pub mod ready_descriptors;
    pub mod remote;
    pub mod selected;
    pub mod send_file;
    pub mod shares;
    pub mod sockets;
    pub mod streams;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub mod terminals;
    pub mod threads;
    pub mod timers;
    #[cfg(windows)]
    pub mod windows;
    #[cfg(target_os = "linux")]
    pub mod work;
}

/// Stamps lists of bodies for one driver.
macro_rules! stamp {
    ($driver:ident $harness:ident: $($group:ident { $($body:ident)* })*) => {
        mod $driver {
            $(mod $group {
                $(#[test]
                fn $body() {
                    crate::conformance::$group::$body::<crate::common::$harness>();
                })*
            })*
        }
    };
}

/// What every driver must do, also on a network that misbehaves.
macro_rules! portable {
    ($driver:ident $harness:ident $($more:tt)*) => {
        stamp! { $driver $harness:
            accept_connect {
                a_connection_waits_for_its_accept
                accepts_are_served_in_order_one_connection_each
                handles_know_their_peer
                a_multishot_accept_takes_hundreds_at_once
                a_refused_connect_fails_once
                accepts_wait_while_the_source_table_is_full
                accepted_connections_that_wait_for_delivery_have_places
                accept_and_read_know_what_they_can_be_used_on
                short_connections_again_and_again
                aborting_a_listener_ends_its_accepts
            }
            batched_datagrams {
                receives_in_flight_together_keep_their_order
                a_multishot_receive_gets_every_datagram
                each_datagram_of_a_batch_says_whether_it_was_cut
                a_receive_that_ends_takes_no_datagram
                deferred_sends_go_out_at_the_wait_in_order
                a_deferred_send_that_fails_fails_alone
                a_deferred_send_that_ends_is_not_sent
            }
            bound_datagrams {
                bound_sockets_answer_their_senders
                an_address_is_bound_once_unless_it_is_shared
                an_address_that_cannot_be_bound_is_an_error
                a_socket_with_a_peer_hears_only_that_one
                a_receive_finds_the_last_free_buffer
                of_sockets_that_share_a_port_one_can_have_a_peer
                what_is_no_peer_changes_nothing
                the_kind_of_a_source_is_known
                a_closed_port_is_an_error_of_the_next_operation
            }
            back_pressure {
                queued_bytes_count_what_is_not_out
                queued_bytes_fall_however_a_write_ends
                a_drain_tells_when_few_bytes_are_left
                drains_end_like_other_operations
                a_full_queue_of_writes_refuses
                an_overflow_of_writes_closes_the_source
                an_overflow_may_come_from_another_thread
            }
            basics {
                nop_completes_once_with_its_token
                nothing_is_delivered_inside_submit
                a_wait_appends_to_what_the_batch_holds
                try_wait_does_not_block
                a_wait_returns_with_the_first_completion
                a_wait_with_a_timeout_is_never_early
                tokens_come_back_untouched
                a_refusal_hands_everything_back
                the_source_that_is_none_is_stale
                completions_name_their_source
                completions_say_which_operation_they_were
                addresses_of_both_ends_agree
                a_stale_name_has_one_error_everywhere
                questions_need_no_exclusive_watcher
                a_source_has_a_token_for_its_operations
                the_token_of_a_source_is_not_this_threads_alone
            }
            buffers {
                the_same_memory_comes_back_when_done
                the_same_memory_comes_back_from_every_end
                the_same_memory_comes_back_from_a_refusal
                the_same_memory_comes_back_from_a_reset
                every_kind_of_buffer_can_be_written
                a_shared_buffer_in_many_writes
                empty_buffers_are_refused
                buffers_that_are_too_long_are_refused
                a_short_read_shows_only_what_was_read
                lists_in_lists_are_one_list
                buffers_of_a_pool_come_back_from_every_end
            }
            cancel {
                every_kind_of_read_can_be_cancelled
                what_waits_behind_a_write_can_be_cancelled
                accepts_and_timers_can_be_cancelled
                a_multishot_accept_ends_with_its_cancel
                a_cancelled_read_exact_keeps_its_bytes
                a_cancelled_write_says_how_much_is_out
                a_stale_ticket_never_reaches_another_operation
                an_operation_that_has_ended_cannot_be_cancelled
                a_cancel_before_the_delivery_is_answered_once
                cancel_all_ends_every_operation_of_a_source
                a_connect_can_be_cancelled
            }
            close_abort_drop {
                abort_ends_what_is_pending
                abort_closes_the_descriptor
                completions_that_are_there_survive_abort
                leases_survive_abort
                close_ends_everything_and_delivers_it
                a_closed_watcher_refuses_everything
                a_wait_after_close_says_closed
                a_close_operation_flushes_first
                a_close_operation_on_an_idle_source
                abort_ends_a_pending_close
                drop_releases_every_buffer
                a_forgotten_watcher_frees_nothing
                sources_that_are_aborted_and_made_again_in_traffic
                sources_aborted_by_each_others_completions
                detach_and_attach_again
            }
            connecting {
                a_source_is_there_before_its_connection
                every_operation_waits_for_the_connection
                a_refused_connect_ends_what_waits_for_it
                a_refused_close_ends_no_timer
                a_close_that_has_room_is_accepted_with_its_timers
                an_empty_list_of_addresses_is_refused
                a_source_that_connects_has_no_descriptor_yet
                a_connect_to_what_never_answers_ends_in_every_way
                a_full_unix_listener_makes_a_source_wait
                a_source_that_connects_can_be_idle
                the_first_address_that_answers_wins
                a_connect_fails_when_every_address_has
                the_deadline_of_a_connect_moves
                attempts_take_no_room_of_the_programs
                other_threads_use_a_source_that_connects
                connects_in_traffic
            }
            deadlines {
                reads_of_every_kind_expire_and_the_source_lives
                a_write_to_a_silent_peer_expires_with_its_count
                read_exact_expires_with_what_it_has
                a_deadline_of_a_multishot_is_for_its_whole_life
                a_passed_deadline_without_data_expires
                a_passed_deadline_behind_another_read_expires
                never_early
                a_deadline_that_is_not_needed_never_fires
                a_huge_timeout_does_not_fire
                a_thousand_deadlines
                eight_thousand_deadlines
                what_waits_behind_a_write_expires
                an_accept_expires_and_the_listener_lives
            }
            drops {
                loud_buffers_come_back
                loud_buffers_of_quiet_writes_end_in_the_driver
                a_watcher_drops_all_that_is_loud
            }
            explain {
                the_driver_names_itself
                rows_count_what_ran
                counters_add_up
                what_needs_no_system_call_makes_none
            }
            fairness {
                a_flood_does_not_starve_pings
                a_writer_does_not_starve_pings
                a_full_table_of_operations_refuses
                a_write_that_finds_no_place_is_refused_whole_or_sent
                a_full_table_of_sources_refuses
                completions_that_wait_are_bounded
                completions_of_other_threads_are_bounded
            }
            half_close {
                the_other_direction_goes_on
                everything_sent_before_arrives
                data_and_end_together
                the_end_of_the_file_stays
                read_exact_ends_at_the_end_with_what_it_has
                writes_after_a_shutdown_fail
                a_second_shutdown_is_harmless
                both_ends_at_once
                writes_to_a_peer_that_is_gone_fail
                reads_and_writes_both_learn_of_a_reset
                the_error_of_a_reset_is_taken_out_once
                a_shutdown_after_abort_is_stale
            }
            leases {
                leases_are_not_overwritten_while_held
                memory_is_used_again
                a_read_finds_the_last_free_buffer
                a_multishot_read_finds_the_last_free_buffer
                reads_go_on_while_a_buffer_is_free
                pending_reads_hold_no_buffer
                reads_wait_at_the_limit
                reads_that_wait_for_a_lease_end_like_others
                a_lease_dropped_on_another_thread_lets_reads_go_on
                leases_outlive_their_watcher
                a_lease_is_broadcast
                parts_of_a_lease
                stalled_readers_do_not_stop_a_ping
            }
            memory {
                reads_can_be_changed_in_place
                leases_are_split_and_joined
                a_split_beyond_the_end_panics
                a_small_lease_is_compacted
                a_lease_is_written_in_place
                an_empty_write_completes_in_its_place
                an_empty_write_needs_no_peer
                a_part_of_every_buffer_can_be_written
                parts_of_owners_that_panic
                reads_append_to_a_vector
                reads_append_to_a_lease
                a_request_that_arrives_whole_is_not_copied
                a_request_cut_in_two_costs_a_copy_of_its_tail
                appends_wait_for_no_lease
            }
            mixture {
                random_programs_end_everything_once
            }
            order {
                a_hundred_reads_take_bytes_in_order
                a_hundred_writes_go_out_in_order
                reads_and_writes_do_not_wait_for_each_other
                a_write_cancelled_in_the_middle_tears_those_behind
                a_write_expired_in_the_middle_tears_those_behind
                a_close_behind_a_torn_write_is_torn
                a_write_cancelled_before_its_first_byte_tears_nothing
                a_read_that_ends_early_leaves_the_others_in_order
                a_queue_of_writes_fails_in_order
            }
            readiness {
                bytes_cross_by_readiness
                nothing_between_a_vain_call_and_the_wait_is_lost
                nothing_behind_a_short_call_is_lost
                the_end_is_readable
                a_broken_connection_is_ready
                a_multishot_operation_tells_of_each_arrival
                a_call_overtakes_no_operation
                calls_take_lists
                calls_and_operations_take_turns
                what_no_call_can_do_is_refused
                readiness_waits_for_the_connection
                another_thread_waits_for_readiness
                the_bytes_of_calls_count_for_the_idle_timeout
            }
            remote {
                messages_arrive_in_the_order_of_the_queue
                names_are_known_whatever_waits
                a_burst_costs_one_wake
                another_thread_drives_a_connection
                a_source_can_be_used_here_as_soon_as_its_name_is_known
                a_source_can_be_asked_after_as_soon_as_its_name_is_known
                a_remote_refusal_is_a_completion
                a_full_queue_names_its_bound
                an_abort_passes_a_full_queue
                an_empty_reserve_names_its_bound
                a_broadcast_to_hundreds_loses_no_write
                a_wait_for_room_is_bounded
                the_reserve_stays_within_the_tables
                the_reserve_leaves_room
                an_id_in_reserve_names_no_source
                made_up_names_find_nothing
                a_name_is_known_behind_a_long_queue
                guards_dropped_on_other_threads_abort_their_sources
                requests_that_meet_a_close_end_as_closed
                a_submitter_outlives_its_watcher
            }
            shares {
                a_peer_that_never_reads_takes_its_share_only
                a_multishot_read_takes_its_share_only
                eight_peers_that_never_read_leave_some
                eight_multishot_reads_leave_some
                a_peer_that_never_reads_stops_nobody_by_default
                a_relay_to_a_peer_that_never_reads_leaves_some
                answers_that_nobody_reads_leave_some
                a_read_waits_for_no_lease_behind_it
                reads_that_wait_for_writes_end_like_others
                more_leases_than_buffers_hold_a_read_only_while_others_hold_the_pool
                many_writes_hold_a_read_only_while_others_hold_the_pool
                a_multishot_read_in_flight_waits_for_its_share
                a_wait_for_a_read_that_is_held_does_not_hang
                a_read_waits_for_what_its_writes_hold_now
                a_flood_stands_still_in_a_pool_of_any_size
                reads_that_wait_for_whole_buffers_let_the_loop_sleep
                one_lease_lets_one_read_go_on
            }
            quiet {
                a_quiet_write_that_succeeds_makes_no_completion
                quiet_writes_keep_their_place
                a_quiet_write_that_waits_is_counted
                every_other_end_of_a_quiet_write_is_told
                a_quiet_write_that_fails_at_once_is_told
                a_quiet_write_that_is_out_cannot_be_cancelled
                an_accepted_cancel_of_a_quiet_write_is_answered
                nothing_but_a_write_can_be_quiet
                a_refused_quiet_write_comes_back
                other_threads_write_quietly
                a_wait_with_only_quiet_writes_blocks
                quiet_writes_add_up
                every_operation_is_in_flight_until_it_ends
            }
            selected {
                a_wait_for_one_leaves_the_others
                a_wait_for_a_stale_ticket_says_so
                a_wait_for_a_multishot_is_for_its_end
                a_wait_for_a_quiet_write_ends_when_it_is_out
                a_wait_for_one_is_bounded
                a_wait_for_a_number_is_one_wait
                many_reads_are_one_wait
                a_wait_does_not_wait_for_what_it_holds_itself
                a_lease_in_a_write_ends_no_wait_for_many
                a_wait_for_an_accept_needs_a_place
                a_wait_for_another_threads_operation
                a_visit_takes_what_it_needs
            }
            streams {
                echo_with_buffers_of_one_byte
                echo_huge
                read_exact_beside_writes_in_both_directions
                a_read_and_a_write_pending_on_one_source
                a_read_takes_what_is_there
                vectored_reads_fill_their_vectors_in_order
                vectored_writes_with_very_many_parts_arrive_whole
                vectored_reads_with_very_many_parts
                a_multishot_read_goes_on_until_the_end
                echo_1k_connections
                echo_2k_connections
                echo_8k_connections
                echo_tiny_on_4k_connections
                echo_with_a_starved_pool
                echo_with_the_smallest_budgets
                a_random_mix_of_reads_and_writes
                read_exact_into_a_list_takes_no_byte_more
            }
            idle {
                an_idle_source_ends_its_reads
                bytes_that_are_read_count
                bytes_that_are_written_count
                bytes_in_both_directions_count
                an_idle_read_keeps_its_bytes
                the_time_without_a_read_does_not_count
                reads_that_stop_and_start_can_be_idle
                the_wait_for_a_lease_does_not_count
                the_time_after_the_end_of_a_file_does_not_count
                timeouts_of_zero_and_of_a_century
                bad_idle_timeouts_are_refused
                different_idle_timeouts_are_bounded
                an_idle_timeout_ends_with_its_source
                thousands_of_idle_sources
            }
            timers {
                equal_deadlines_fire_in_order
                timers_fire_in_the_order_of_their_deadlines
                cancelled_timers_do_not_fire
                a_timer_of_zero_fires_at_the_next_wait
                a_huge_timer_does_not_fire
                a_chain_of_zero_timers_does_not_starve_io
                a_flood_does_not_starve_timers
                timers_started_by_timers
                the_earlier_of_a_timer_and_its_deadline_wins
                a_timer_whose_deadline_has_passed
                every_operation_in_flight_can_be_rescheduled
                a_rescheduled_read_stays_what_it_was
                a_full_table_refuses_no_deadline
                a_deadline_can_be_moved_to_an_instant_that_has_passed
                deadlines_can_be_moved_from_elsewhere
                a_timer_names_its_owner
                a_timer_ends_with_its_owner
                a_timer_from_elsewhere_has_an_owner
                timers_and_deadlines_can_be_moved
                a_moved_timer_keeps_its_deadline
                equal_deadlines_end_in_order_whatever_has_them
                the_time_stands_still_between_waits
            }
            $($more)*
        }
    };
}

/// And what holds where the network answers at once.
macro_rules! prompt {
    ($driver:ident $harness:ident $($more:tt)*) => {
        portable! { $driver $harness
            prompt {
                deferred_sends_need_no_more_room_than_others
                data_that_is_there_wins_over_a_passed_deadline
                a_storm_of_connections_does_not_starve_pings
                reads_take_whole_buffers_while_they_are_short
                a_source_is_ready_when_it_is_and_not_before
                a_full_source_is_writable_when_it_has_room
                several_wait_for_one_event
                a_listener_is_readable
                readiness_ends_like_other_operations
            }
            $($more)*
        }
    };
}

/// And signals and children, which Windows does not have.
#[cfg(unix)]
macro_rules! with_processes {
    ($stamp:ident $driver:ident $harness:ident $($more:tt)*) => {
        $stamp! { $driver $harness
            process {
                a_signal_completes_its_operation
                signals_wait_for_their_operation
                a_multishot_signal_goes_on
                every_source_gets_each_signal
                signals_end_as_other_operations
                an_abort_ends_them
                they_do_nothing_else
                what_is_no_signal_is_refused
                what_is_no_child_is_refused
                a_child_says_how_it_ends
                an_exit_is_told_again_and_again
                children_end_in_any_order
                an_exit_before_the_source_is_told
                the_table_of_sources_bounds_them
            }
            $($more)*
        }
    };
}
#[cfg(windows)]
macro_rules! with_processes {
    ($stamp:ident $driver:ident $harness:ident $($more:tt)*) => {
        $stamp! { $driver $harness $($more)* }
    };
}

/// And what needs descriptors of the system: pipes, UDP, Unix sockets, SCM_RIGHTS, poll(2),
/// embedding, std's sockets, threads that run while the loop waits, system calls that are
/// counted. A simulated kernel has none of these.
#[cfg(unix)]
macro_rules! system {
    ($driver:ident $harness:ident $($more:tt)*) => {
        with_processes! { prompt $driver $harness
            arrived {
                reads_that_have_bytes_do_not_expire
                reads_behind_others_do_not_expire
                a_last_try_begins_no_pause
                what_waits_for_readiness_does_not_expire
                a_cancel_takes_no_bytes
                sources_that_have_bytes_are_not_idle
                an_embedding_loop_takes_everything
            }
            bad_input {
                files_and_directories_are_unsupported
                settings_without_measure_are_bounded
                a_closed_descriptor_is_an_error
                a_foreign_handle_is_refused_and_comes_back
                parts_that_do_not_fit_are_refused_or_end
                addresses_that_cannot_be_had_are_errors
                devices_that_never_block
                an_explicit_choice_says_so
                an_unknown_choice_of_the_environment_is_an_error
                a_socket_shut_both_ways_is_at_its_end
            }
            calls {
                an_echo_costs_one_read_and_one_write
                attach_makes_no_call_and_short_connections_no_registration
                an_echo_by_readiness_costs_one_read_and_one_write
                readiness_is_vain_only_after_reads_of_the_kernel
                an_idle_watcher_does_not_spin
            }
            datagrams {
                datagrams_keep_their_boundaries_and_senders
                receives_go_on_while_a_buffer_is_free
                datagrams_count_for_the_idle_timeout
                an_empty_datagram_does_not_end_a_multishot_read
                empty_datagrams_have_their_share
                a_batch_arrives_in_order
                what_is_longer_than_the_memory_is_cut_and_says_so
                a_datagram_that_is_too_big_fails
                an_unreachable_peer_is_an_error_of_a_connected_socket
                a_connected_socket_reads_and_writes
                datagram_operations_end_like_others
                unix_datagrams_wait_for_a_full_receiver
                seqpacket_keeps_boundaries
                datagrams_that_are_out_are_not_queued
                large_datagrams_are_whole_behind_small_ones_that_are_held
                large_messages_are_whole_behind_small_ones_that_are_held
                a_message_of_very_many_parts_stays_one
                descriptors_show_themselves_and_no_address
            }
            descriptors {
                descriptors_arrive_with_their_bytes
                a_message_without_bytes_keeps_its_descriptors
                too_many_descriptors_fail
                plain_reads_get_every_byte_around_descriptors
                a_busy_loop_gets_the_bytes_behind_descriptors
                bytes_behind_descriptors_come_at_once
                bytes_behind_descriptors_are_found_by_a_loop_that_is_behind
                bytes_and_descriptors_keep_their_order
                sending_descriptors_waits_and_can_be_cancelled
                receiving_descriptors_ends_like_others
                a_passed_deadline_finds_the_bytes_behind_descriptors
                lost_descriptors_are_told
                a_message_with_descriptors_says_whether_it_was_cut
            }
            ends {
                a_record_that_is_empty_is_no_end
                an_empty_record_of_a_shared_socket_is_no_end
                an_end_of_records_ends_what_waits
                records_of_a_multishot_end_once
                a_read_exact_of_records_ends_with_what_it_has
                accepted_connections_of_records_end_alike
            }
            progress {
                an_error_queue_without_a_reader_lets_the_loop_rest
                what_arrives_in_a_pause_does_not_expire
                a_half_closed_peer_that_reads_nothing_lets_the_loop_rest
                a_datagram_socket_that_is_shut_lets_the_loop_rest
                readiness_that_proves_vain_lets_the_loop_rest
                room_that_proves_vain_lets_the_loop_rest
                conditions_that_nobody_waits_for_let_the_loop_rest
                connects_that_find_no_room_try_less_and_less_often
                polls_with_a_passed_deadline_have_their_try
            }
            embedding {
                data_and_timers_come_through_poll
                what_is_done_already_needs_no_sleep
                the_clock_goes_on_when_all_is_closed
                submitters_wake_the_foreign_loop
                bursts_from_a_thread_arrive_whole
                a_lease_from_another_thread_wakes_the_foreign_loop
                a_buffer_of_the_kernel_wakes_the_foreign_loop
                a_share_that_grows_wakes_the_foreign_loop
                room_in_the_table_wakes_the_foreign_loop
                a_dropped_connection_wakes_the_foreign_loop
            }
            lingering {
                an_abort_does_not_linger
                an_abort_does_not_linger_as_the_listener_does
                a_watcher_that_goes_does_not_linger
                an_abort_keeps_a_linger_time_of_zero
                a_close_operation_lingers_beside_the_loop
                a_close_that_lingers_ends_late
                closes_that_linger_hold_up_no_other_work
                a_shared_socket_keeps_its_linger_time
            }
            pipes {
                a_megabyte_through_a_pipe
                flags_come_back_with_detach
                a_shared_pipe_is_not_changed
                a_pipe_without_reader_fails
                pipe_data_over_a_socket
                what_a_pipe_cannot_do_is_refused
                short_reads_of_a_pipe_lose_nothing
            }
            poll {
                several_polls_on_one_source
                hang_up_and_error_are_always_reported
                urgent_data_is_a_priority_condition
                polls_end_like_other_operations
                regular_files_cannot_be_polled
                another_watcher_can_be_polled
                two_sources_of_one_socket
                a_listener_becomes_readable
            }
            ready_descriptors {
                pipes_and_unix_sockets_by_readiness
                bytes_behind_descriptors_are_readable
                a_call_moves_one_message
                calls_that_may_block_are_refused
                a_thread_that_sends_at_any_moment_is_heard
            }
            sockets {
                the_names_of_another_watcher_are_stale
                a_reset_is_reported_to_a_pending_read
                a_reset_ends_queued_writes
                urgent_data_loses_and_reorders_nothing
                unix_streams
                abstract_unix_streams
                a_connect_that_hangs_expires_and_is_cancelled
                a_connect_with_a_passed_deadline_ends
                a_connect_in_flight_has_no_name
                connect_with_a_socket_of_ones_own
                a_unix_connect_waits_for_room
                listeners_share_a_port
                options_survive_and_are_inherited
                options_are_set_and_inherited
                stds_sockets_can_be_attached
                a_datagram_socket_of_std_can_have_a_peer
                a_shared_blocking_listener_is_refused
                a_refused_listen_leaves_no_path
                stale_events_of_a_reused_number_are_harmless
                a_passed_deadline_has_its_try_in_a_busy_turn
                a_passed_deadline_has_its_try_when_the_buffers_of_the_turn_are_used
                a_passed_deadline_of_a_write_has_its_try
                a_storm_of_connections_starves_no_reader
                timers_and_plain_reads_starve_no_other_read
                a_datagram_socket_of_ones_own_can_be_connected
                a_unix_source_connects_when_the_backlog_has_room
                a_cancelled_connect_leaves_no_registration
            }
            threads {
                no_wake_is_lost
                many_threads_post_in_their_order
                threads_submit_beside_the_loop
                an_abort_overtakes_nothing
                a_broadcast_to_thousands_waits_for_room
                threads_that_wait_get_room
                threads_wait_for_places_in_a_full_table
                a_spawned_loop_serves
                a_guard_aborts_while_the_loop_sleeps
                busy_polling_changes_nothing
                busy_polling_delays_no_deadline
                binding_the_loop_takes_no_place
            }
            $($more)*
        }
    };
}

/// Of that, what Windows has; and what is otherwise there.
#[cfg(windows)]
macro_rules! everything {
    ($driver:ident $harness:ident) => {
        prompt! { $driver $harness
            arrived {
                reads_that_have_bytes_do_not_expire
                reads_behind_others_do_not_expire
                what_waits_for_readiness_does_not_expire
                a_cancel_takes_no_bytes
                sources_that_have_bytes_are_not_idle
            }
            datagrams {
                datagrams_keep_their_boundaries_and_senders
                receives_go_on_while_a_buffer_is_free
                datagrams_count_for_the_idle_timeout
                an_empty_datagram_does_not_end_a_multishot_read
                empty_datagrams_have_their_share
                a_batch_arrives_in_order
                what_is_longer_than_the_memory_is_cut_and_says_so
                a_datagram_that_is_too_big_fails
                a_connected_socket_reads_and_writes
                datagram_operations_end_like_others
                datagrams_that_are_out_are_not_queued
                large_datagrams_are_whole_behind_small_ones_that_are_held
            }
            poll {
                several_polls_on_one_source
                urgent_data_is_a_priority_condition
                regular_files_cannot_be_polled
                a_listener_becomes_readable
            }
            sockets {
                the_names_of_another_watcher_are_stale
                a_reset_is_reported_to_a_pending_read
                a_reset_ends_queued_writes
                urgent_data_loses_and_reorders_nothing
                connect_with_a_socket_of_ones_own
                options_survive_and_are_inherited
                stds_sockets_can_be_attached
                a_datagram_socket_of_std_can_have_a_peer
                a_passed_deadline_has_its_try_in_a_busy_turn
                a_passed_deadline_has_its_try_when_the_buffers_of_the_turn_are_used
                a_storm_of_connections_starves_no_reader
                timers_and_plain_reads_starve_no_other_read
                a_datagram_socket_of_ones_own_can_be_connected
            }
            threads {
                no_wake_is_lost
                many_threads_post_in_their_order
                threads_submit_beside_the_loop
                an_abort_overtakes_nothing
                a_broadcast_to_thousands_waits_for_room
                threads_that_wait_get_room
                threads_wait_for_places_in_a_full_table
                a_spawned_loop_serves
                a_guard_aborts_while_the_loop_sleeps
                busy_polling_changes_nothing
                busy_polling_delays_no_deadline
            }
            windows {
                what_there_is_not_is_refused
                shared_sockets_are_refused
                descriptors_go_in_and_out
                the_only_driver_is_chosen
            }
        }
    };
}

/// What the threads do with files on Windows.
#[cfg(windows)]
macro_rules! all_files {
    ($driver:ident $harness:ident) => {
        stamp! { $driver $harness:
            drops {
                loud_closures_lose_no_completion
                loud_closures_that_the_loop_refuses_lose_no_completion
                loud_buffers_of_files_come_back
                a_job_whose_own_drop_panics_is_its_error
                loud_results_go_with_the_watcher
            }
            file_errors {
                what_moves_no_bytes_is_refused
                a_file_is_used_as_it_was_opened
                a_file_is_no_socket
                work_on_a_file_needs_one
            }
            jobs {
                a_job_returns_its_value
                a_panic_of_a_job_is_its_error
                urgent_jobs_go_first
                jobs_leave_threads_to_files
                a_thread_closes_a_file
                what_was_not_begun_is_cancelled_at_once
                what_was_not_begun_expires_in_time
                what_was_begun_ends_late
                a_full_pool_names_its_bound
                a_full_pool_refuses_other_threads
                other_threads_submit_and_cancel
                ends_that_race_are_one
            }
            positions {
                bytes_go_where_they_are_told
                a_file_ends_where_it_ends
                holes_are_zeroes
                lists_are_filled_and_written_in_order
                what_is_appended_comes_at_the_end
                a_sync_of_every_kind
                space_is_made_and_taken
                many_files_at_once
                sockets_files_and_timers_in_one_wait
                bytes_that_are_there_win_over_a_passed_deadline
            }
            send_file {
                ranges_of_a_file_are_sent
                the_bytes_of_a_file_count_for_the_idle_timeout
                a_socket_that_goes_meanwhile_is_stale
                a_slow_reader_gets_everything
                a_file_has_its_place_among_the_writes
                a_file_that_is_cut_tears_what_is_behind
                a_file_that_waits_can_be_cancelled
                the_end_of_a_file_needs_no_room
            }
            windows {
                names_come_and_go_here
                attributes_are_what_windows_has
                copies_and_temporary_names
                names_of_hosts
            }
        }
    };
}

/// And what only Linux has.
#[cfg(any(target_os = "linux", target_os = "android"))]
macro_rules! everything {
    ($driver:ident $harness:ident $($more:tt)*) => {
        system! { $driver $harness
            denied {
                an_accept_that_always_fails_ends
                aborted_connections_end_no_accept
                an_interrupted_connect_is_no_connection
                several_datagrams_take_one_call_unless_a_filter_denies_it
                sends_that_a_firewall_denies_fail
            }
            errnos {
                of_streams_and_listeners
                of_counters
                of_connects
                of_addresses
                of_datagrams
            }
            terminals {
                a_terminal_that_nobody_reads_stops_no_other
                a_shared_terminal_is_read_without_waiting
                two_loops_share_a_terminal
                the_master_of_a_shared_terminal_is_refused
                a_full_shared_eventfd_stops_no_other
                a_shared_pipe_takes_what_it_has_room_for
                shared_blocking_sockets_stop_no_other
            }
            linux {
                an_eventfd_becomes_readable
                a_senders_pidfd_is_closed
                other_descriptors_can_be_polled
                a_processor_that_does_not_exist_is_an_error
                a_bound_loop_leaves_its_threads_all_processors
                streams_of_other_protocols
            }
            $($more)*
        }
    };
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
macro_rules! everything {
    ($driver:ident $harness:ident $($more:tt)*) => {
        system! { $driver $harness $($more)* }
    };
}

/// Attempts without an event from the kernel: not on a ring.
#[cfg(unix)]
macro_rules! selecting {
    ($driver:ident $harness:ident) => {
        everything! { $driver $harness
            budgets {
                shares_of_bytes_are_served_in_turn
            }
            attempts {
                a_unix_echo_costs_one_read_and_one_write
                a_unix_echo_is_read_after_its_event
                a_first_read_that_finds_bytes_registers_nothing
                writes_are_explained_by_when_they_went_out
                drains_with_a_passed_deadline_have_their_try
            }
        }
    };
}
#[cfg(windows)]
macro_rules! selecting {
    ($driver:ident $harness:ident) => {
        everything! { $driver $harness }
    };
}

/// What every backend for files must do.
#[cfg(unix)]
macro_rules! files {
    ($driver:ident $harness:ident $($more:tt)*) => {
        stamp! { $driver $harness:
            drops {
                loud_closures_lose_no_completion
                loud_closures_that_the_loop_refuses_lose_no_completion
                loud_buffers_of_files_come_back
                a_job_whose_own_drop_panics_is_its_error
                loud_results_go_with_the_watcher
            }
            file_errors {
                what_moves_no_bytes_is_refused
                a_file_is_used_as_it_was_opened
                a_file_is_no_socket
                work_on_a_file_needs_one
            }
            jobs {
                a_job_returns_its_value
                a_panic_of_a_job_is_its_error
                urgent_jobs_go_first
                jobs_leave_threads_to_files
                a_thread_closes_a_file
                what_was_not_begun_is_cancelled_at_once
                what_was_not_begun_expires_in_time
                what_was_begun_ends_late
                a_full_pool_names_its_bound
                a_full_pool_refuses_other_threads
                other_threads_submit_and_cancel
                ends_that_race_are_one
                work_ends_the_sleep_of_a_foreign_loop
            }
            kinds {
                only_regular_files_are_copied
                a_fifo_is_opened_as_its_flags_say
                a_directory_is_no_file
            }
            names {
                a_path_does_not_lead_out_of_its_directory
                files_are_opened_as_std_opens_them
                a_stat_says_what_std_says
                names_come_and_go
                a_directory_says_what_is_in_it
                a_directory_is_read_in_bounded_parts
                copies_are_whole
                temporary_names_are_fresh
                attributes_are_set
                hosts_have_addresses_and_names
            }
            positions {
                bytes_go_where_they_are_told
                a_file_ends_where_it_ends
                holes_are_zeroes
                lists_are_filled_and_written_in_order
                what_is_appended_comes_at_the_end
                the_position_of_a_file_is_left_alone
                a_sync_of_every_kind
                space_is_made_and_taken
                many_files_at_once
                sockets_files_and_timers_in_one_wait
                bytes_that_are_there_win_over_a_passed_deadline
            }
            send_file {
                ranges_of_a_file_are_sent
                a_part_of_a_file_takes_few_calls
                the_bytes_of_a_file_count_for_the_idle_timeout
                a_socket_that_goes_meanwhile_is_stale
                a_slow_reader_gets_everything
                a_file_has_its_place_among_the_writes
                a_file_that_is_cut_tears_what_is_behind
                a_file_that_waits_can_be_cancelled
                blocking_sockets_are_given_back_as_they_were
                a_disconnected_peer_raises_no_signal
                the_end_of_a_file_needs_no_room
            }
            $($more)*
        }
    };
}

/// And what can be looked at on Linux only.
#[cfg(target_os = "linux")]
macro_rules! all_files {
    ($driver:ident $harness:ident) => {
        files! { $driver $harness
            denied {
                a_close_that_fails_says_so
                a_copy_whose_close_fails_is_removed
            }
            errnos {
                of_files
                of_paths
            }
            direct_io {
                an_error_of_the_device_comes_with_what_was_read
                a_file_without_a_sync_says_so
                a_large_cached_read_is_a_threads
                writes_into_the_page_cache_go_one_by_one
                direct_reads_and_writes
                direct_lists_are_their_bytes
                direct_lists_that_are_not_aligned
                unaligned_requests_go_to_threads
                direct_lists_are_appended_once
                direct_work_is_cancelled_or_done
                work_that_comes_back_to_a_full_pool_waits
                who_does_what_is_told
                a_loop_that_spins_finds_what_has_ended
            }
            work {
                a_leased_file_is_copied_when_the_lease_is_given_back
                begun_work_is_late_and_keeps_its_buffer
                a_deadline_of_begun_work_is_late
                an_aborted_file_closes_when_its_work_has_ended
                a_close_waits_for_the_work_before_it
                the_last_byte_of_a_range_is_looked_at
                what_is_sent_is_fetched_first
                an_aborted_file_with_work_is_sent_no_more
                a_watcher_that_closes_tells_of_all_work
                a_watcher_that_goes_leaves_nothing_of_its_work
                a_watcher_does_not_wait_for_ever
            }
        }
    };
}

#[cfg(all(unix, not(target_os = "linux")))]
macro_rules! all_files {
    ($driver:ident $harness:ident) => {
        files! { $driver $harness }
    };
}

#[cfg(all(any(target_os = "linux", target_os = "android"), not(windlass_kqueue)))]
selecting!(epoll Epoll);
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
everything!(uring Uring);
#[cfg(any(windlass_kqueue, not(any(target_os = "linux", target_os = "android", windows))))]
selecting!(kqueue Kqueue);
selecting!(poll Poll);
with_processes!(prompt sim Simulated budgets { shares_of_bytes_are_served_in_turn });
with_processes!(portable faults Faulty);
with_processes!(portable completing Completing jobs {
    a_panic_of_a_job_is_its_error
});
with_processes!(portable completing_faults FaultyCompleting);
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
all_files!(epoll_aio EpollAio);
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
all_files!(epoll_uring EpollUring);
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
all_files!(epoll_pool EpollPool);
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
all_files!(uring_files UringFiles);
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
all_files!(uring_pool UringPool);
all_files!(poll_pool PollPool);

/// The lists above are written by hand: every public body of every file must be in one.
#[test]
fn every_body_is_stamped() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let lists = std::fs::read_to_string(root.join("conformance.rs")).expect("this file");
    let words: Vec<&str> = lists.split_whitespace().collect();
    for file in std::fs::read_dir(root.join("conformance")).expect("the bodies") {
        let path = file.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("it can be read");
        for line in text.lines() {
            let name = line.strip_prefix("pub fn ").and_then(|rest| rest.split('<').next());
            if let Some(name) = name.filter(|_| line.contains("H: Harness")) {
                assert!(words.contains(&name), "{name} of {path:?} is in no list");
            }
        }
    }
}
