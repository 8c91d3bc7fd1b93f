//! How connections with TLS end: who says `close_notify`, and who must not.

use crate::common::Harness;
use crate::common::turns::Turns;
use crate::two::{Plain, Two, quiet};
use windlass::driver::Deadline;
use windlass_serve::tls::Error;
use windlass_serve::{Cause, Config};

crate::every_kernel! {
    an_idle_end_says_close_notify
    a_peer_that_is_too_slow_gets_close_notify
    a_deadline_of_the_read_says_close_notify
    an_abort_does_not_say_close_notify
    a_half_close_ends_one_side
    output_that_is_given_up_is_a_reset
    output_that_tls_cannot_send_ends_with_an_alert
    two_closes_may_cross
    each_orderly_end_is_one_for_both
}

/// Both sides tell of ends, and answer them themselves.
fn told() -> Config {
    quiet().close_on_eof(false)
}

fn an_idle_end_says_close_notify<T: Harness>() {
    let mut two = Two::new::<T>(quiet().limits(quiet().limits.idle(T::span(1000.0))));
    let (id, at_server) = two.both();
    two.server.set_idle_timeout(at_server, T::span(20.0));
    let end = two.end(id);
    assert_eq!((end.cause, end.unsent), (Cause::Eof, 0), "{end:?}");
    let end = two.server_end();
    assert_eq!((end.cause, end.unsent), (Cause::Idle, 0));
    two.run_for(T::span(1.0));
    assert_eq!((two.client.budget().used(), two.server.budget().used()), (0, 0));
}

fn a_peer_that_is_too_slow_gets_close_notify<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let (id, at_server) = two.both();
    two.server.limit(at_server, T::span(20.0), 1);
    assert_eq!((two.end(id).cause, two.server_end().cause), (Cause::Eof, Cause::TooSlow));
}

fn a_deadline_of_the_read_says_close_notify<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let (id, at_server) = two.both();
    two.server.set_read_deadline(at_server, Deadline::After(T::span(20.0)));
    assert_eq!((two.end(id).cause, two.server_end().cause), (Cause::Eof, Cause::ReadTimeout));
}

/// Its peer must not take the end for an orderly one.
fn an_abort_does_not_say_close_notify<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let (id, at_server) = two.both();
    two.server.abort(at_server);
    let end = two.end(id);
    // Behind delays the server may not have read all that the client has said. Then the system
    // makes a reset of the abort: that is no orderly end either.
    if T::NAME != "faults" || !matches!(end.cause, Cause::Os(_)) {
        assert_eq!(end.cause, Cause::Truncated);
        assert!(matches!(end.tls_error, Some(Error::Truncated)), "{end:?}");
    }
    assert_eq!(two.server_end().cause, Cause::Aborted);
}

fn a_half_close_ends_one_side<T: Harness>() {
    let mut two = Two::new::<T>(told());
    two.echoes = false;
    let (id, at_server) = two.both();
    two.client.write(id, "the question").unwrap();
    assert!(two.client.shutdown(id));
    assert!(two.client.write(id, "too late").is_err());
    two.go("the server has the end", |two| two.server_eofs == [at_server]);
    assert_eq!(two.served, b"the question");
    // It answers in several turns.
    for round in 1..=20 {
        two.server.write(at_server, vec![7; 5000]).unwrap();
        two.go("it is heard", |two| two.heard(id).len() == round * 5000);
    }
    two.server.close(at_server);
    assert_eq!((two.end(id).cause, two.server_end().cause), (Cause::Eof, Cause::Closed));
}

fn output_that_is_given_up_is_a_reset<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let (id, at_server) = two.both();
    two.client.pause(id);
    two.flush();
    let bytes = 4 << 20;
    two.server.write(at_server, vec![7; bytes]).unwrap();
    two.flush();
    two.run_for(T::span(1.0));
    two.server.abort(at_server);
    let end = two.server_end();
    assert!(end.cause == Cause::Aborted && end.unsent > 0, "{end:?}");
    two.client.resume(id);
    let end = two.end(id);
    assert!(matches!(end.cause, Cause::Os(_)), "{end:?}");
    assert!(two.heard(id).len() < bytes);
}

/// A reset could overtake the alert, which says more.
fn output_that_tls_cannot_send_ends_with_an_alert<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    // A record that nobody can decrypt, with output of this end behind it.
    two.at_plain = Plain::Says(&[23, 3, 3, 0, 1, 0]);
    let id = two.connect_to([two.plain.clone()]);
    two.client.write(id, "never sent").unwrap();
    let end = two.end(id);
    assert_eq!((end.cause, end.unsent), (Cause::Tls, 10));
    let end = two.server_end();
    assert_eq!(end.cause, Cause::Eof, "no reset");
}

fn two_closes_may_cross<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let (id, at_server) = two.both();
    two.client.write(id, "one").unwrap();
    two.server.write(at_server, "two").unwrap();
    two.client.close(id);
    two.server.close(at_server);
    let ends = [two.end(id), two.server_end()];
    for end in ends {
        assert_eq!((end.cause, end.unsent), (Cause::Closed, 0));
        assert!(end.tls_error.is_none());
    }
}

/// A close of either side, a shutdown, and an end of the peer: none is taken for a cut.
fn each_orderly_end_is_one_for_both<T: Harness>() {
    for which in 0..4 {
        let mut two = Two::new::<T>(quiet());
        let (id, at_server) = two.both();
        let bytes = 100_000;
        two.server.write(at_server, vec![7; bytes]).unwrap();
        two.go("it is heard", |two| two.heard(id).len() == bytes);
        let (at_client, cause) = match which {
            0 => {
                two.client.close(id);
                (Cause::Closed, Cause::Eof)
            }
            1 => {
                two.server.close(at_server);
                (Cause::Eof, Cause::Closed)
            }
            2 => {
                two.client.shutdown(id);
                (Cause::Eof, Cause::Eof)
            }
            _ => {
                let remote = two.server.remote(&mut two.watcher);
                remote.shutdown();
                (Cause::Eof, Cause::Shutdown)
            }
        };
        let (end, other) = (two.end(id), two.server_end());
        assert_eq!((end.cause, other.cause), (at_client, cause), "{which}: {end:?} {other:?}");
        assert!(end.tls_error.is_none() && other.tls_error.is_none());
        assert_eq!((end.unsent, other.unsent), (0, 0));
        two.until("nothing waits", |two| two.client.is_empty() && two.server.is_empty());
        assert_eq!((two.client.budget().used(), two.server.budget().used()), (0, 0));
    }
}
