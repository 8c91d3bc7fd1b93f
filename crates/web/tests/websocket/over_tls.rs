//! The programs of the suite over TLS.

use crate::bench::over_tls;

/// Stamps tests of other modules for a driver, over TLS.
macro_rules! stamp_over_tls {
    (#[$cfg:meta] $driver:ident $harness:ident:
        $($(#[$of:meta])? $module:ident: $($body:ident)*;)*) => {
        #[$cfg]
        mod $driver {
            $($(#[$of])?
            mod $module {
                $(#[test]
                fn $body() {
                    super::super::over_tls(crate::$module::$body::<crate::common::$harness>);
                })*
            })*
        }
    };
}

macro_rules! every_kernel_over_tls {
    ($($all:tt)*) => {
        stamp_over_tls! { #[cfg(target_os = "linux")] epoll Epoll: $($all)* }
        stamp_over_tls! { #[cfg(target_os = "linux")] uring Uring: $($all)* }
        stamp_over_tls! { #[cfg(windlass_kqueue)] kqueue Kqueue: $($all)* }
        stamp_over_tls! { #[cfg(unix)] poll Poll: $($all)* }
        stamp_over_tls! { #[cfg(all())] sim Simulated: $($all)* }
        stamp_over_tls! { #[cfg(all())] faults Faulty: $($all)* }
        stamp_over_tls! { #[cfg(all())] completes Completing: $($all)* }
    };
}

every_kernel_over_tls! {
    messages:
        frames_in_the_segment_of_the_request
        messages_of_all_lengths
        a_message_beyond_the_limit
        many_fragments
        control_frames_between_fragments
        small_messages_in_one_segment
        a_burst_comes_before_the_close;
    ends:
        close_codes_of_the_client
        close_codes_of_the_server
        a_silent_client_gets_a_ping
        a_shutdown_closes_with_1001;
    flow:
        a_pause_holds_back_all_that_follows
        a_pause_at_the_beginning_holds_back_early_frames
        a_pause_within_a_message
        a_ping_is_answered_behind_a_large_message;
    parts:
        parts_come_as_they_are_read
        a_pause_in_the_middle_loses_nothing;
    sent_parts:
        parts_become_one_message
        a_part_may_be_of_any_size
        whole_messages_wait_for_the_last_part
        what_other_threads_send_waits
        a_refused_part_comes_back_and_can_be_sent_again;
    threads:
        messages_of_a_thread_come_in_their_order
        a_thread_closes_a_connection;
    topics:
        a_callback_publishes
        threads_publish_text_and_bytes
        a_stalled_subscriber_is_ended_alone
        a_stalled_subscriber_can_lose_messages;
    #[cfg(feature = "deflate")]
    compressed:
        an_offer_gets_its_answer
        what_does_not_compress_goes_as_it_is
        a_loop_has_few_deflaters_for_parts
        a_part_that_is_refused_changes_no_context;
}
