//! Clients with TLS, on every driver and in the simulation.

use crate::common::Harness;
use crate::common::turns::Turns;
use crate::tls;
use crate::tls::{Authority, Made, noon, parameters};
use crate::two::{Plain, Two, quiet};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, SerialNumber, date_time_ymd};
use windlass::Completions;
use windlass::driver::Driver;
use windlass::net::{ConnectOptions, DatagramOptions};
use windlass_serve::tls::{
    Alert, CertificateProblem, Error, Provider, Tls, TlsBuilder, TlsClient, TlsClientBuilder,
    Version,
};
use windlass_serve::{Cause, Phase};

crate::every_kernel! {
    an_echo_passes_and_both_sides_say_that_they_end
    what_is_written_before_the_connect_arrives
    a_close_during_the_handshake_sends_the_output_first
    each_way_a_certificate_fails_has_a_name
    a_handshake_has_a_time_of_its_own
    each_way_a_peer_fails_has_a_cause
    a_client_that_is_aborted_ends_once
    a_shutdown_ends_clients_in_their_handshake
    a_second_connection_resumes
    both_ends_tell_what_was_agreed_on
    the_server_reads_the_certificates_of_its_client
    a_client_that_the_server_refuses_learns_why
    the_first_address_that_answers_is_used
    other_threads_connect_with_tls
    a_socket_that_the_program_has_becomes_a_client
    a_detach_is_refused
}

mod files {
    use super::a_client_sends_a_file_before_it_is_open;

    crate::systems_drivers! {
        a_client_sends_a_file_before_it_is_open
    }
}

fn an_echo_passes_and_both_sides_say_that_they_end<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let id = two.open();
    let all: Vec<u8> = (0..300_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    two.client.write(id, all.clone()).unwrap();
    two.go("it is echoed", |two| two.heard(id).len() == all.len());
    assert!(two.heard(id) == all && two.served == all);
    two.client.close(id);
    let end = two.end(id);
    assert_eq!((end.cause, end.unsent, end.phase), (Cause::Closed, 0, Phase::Closing));
    assert!(end.tls_error.is_none());
    assert_eq!(two.server_end().cause, Cause::Eof);
    assert_eq!((two.client.budget().used(), two.server.budget().used()), (0, 0));
}

fn what_is_written_before_the_connect_arrives<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let id = two.connect();
    two.client.write(id, "written at once, ").unwrap();
    two.flush();
    two.client.write(id, "then once more").unwrap();
    two.go("it is echoed", |two| two.heard(id).len() == 31);
    assert_eq!(two.heard(id), b"written at once, then once more");
    assert_eq!(two.served, b"written at once, then once more");
}

fn a_close_during_the_handshake_sends_the_output_first<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let id = two.connect();
    two.client.write(id, "the last words").unwrap();
    two.client.close(id);
    let end = two.end(id);
    assert_eq!((end.cause, end.unsent), (Cause::Closed, 0));
    assert_eq!(two.server_end().cause, Cause::Eof);
    assert_eq!(two.served, b"the last words");
    assert!(two.opened.is_empty());
}

/// The certificate of a server, after these changes.
fn changed(authority: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Made {
    let mut parameters = parameters(&["localhost"]);
    change(&mut parameters);
    authority.issue(&parameters)
}

fn client(authority: &Authority) -> TlsClientBuilder {
    TlsClient::builder().provider(Provider::Ring).clock(noon).roots(authority.root())
}

fn server(made: &Made) -> TlsBuilder {
    let (certificate, key) = made.pems();
    Tls::builder().provider(Provider::Ring).clock(noon).certificate(certificate, key)
}

/// A way to fail: the certificate of the server, the client, which problem it is, and what its text
/// has.
type Case = (Made, TlsClientBuilder, fn(&CertificateProblem) -> bool, &'static [&'static str]);

fn cases(a: &Authority) -> Vec<Case> {
    use CertificateProblem as P;
    let good = changed(a, |_| {});
    let number_7 = changed(a, |made| made.serial_number = Some(SerialNumber::from(7)));
    let old = changed(a, |made| made.not_after = date_time_ymd(2026, 2, 3));
    let future = changed(a, |made| made.not_before = date_time_ymd(2026, 9, 8));
    let other =
        changed(a, |made| made.subject_alt_names = parameters(&["x.example"]).subject_alt_names);
    let usage = changed(a, |made| {
        made.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let stranger = Authority::new("a root that nobody knows");
    vec![
        (
            good.clone(),
            client(&stranger),
            |p| *p == P::UnknownIssuer,
            &["made for a test, for localhost", "no trusted authority"],
        ),
        (
            old,
            client(a),
            |p| matches!(p, P::Expired { not_after: Some(_), .. }),
            &["made for a test", "expired at 2026-02-03 00:00:00 UTC", "and it is 2026-05-28"],
        ),
        (
            future,
            client(a),
            |p| matches!(p, P::NotYetValid { not_before: Some(_), .. }),
            &["made for a test", "valid from 2026-09-08 00:00:00 UTC", "and it is 2026-05-28"],
        ),
        (
            other,
            client(a),
            |p| matches!(p, P::WrongName { expected, .. } if expected == "localhost"),
            &["made for a test", "not for \"localhost\"", "x.example"],
        ),
        (
            number_7,
            client(a).crls(a.revoke(&[7], 2027)),
            |p| *p == P::Revoked,
            &["serial number 07", "it is revoked"],
        ),
        (
            good.clone(),
            client(a).crls(stranger.revoke(&[7], 2027)),
            |p| *p == P::RevocationUnknown,
            &["no list of revoked certificates covers it"],
        ),
        (
            good,
            client(a).crls(a.revoke(&[7], 2026)),
            |p| matches!(p, P::RevocationListExpired { .. }),
            &["was valid until 2026-02-01"],
        ),
        (usage, client(a), |p| *p == P::WrongUsage, &["made for a test", "for another use"]),
    ]
}

fn each_way_a_certificate_fails_has_a_name<T: Harness>() {
    let authority = Authority::new("the root of a test");
    for (made, client, is_right, texts) in cases(&authority) {
        let (tls, trust) = (server(&made).build().unwrap(), client.build().unwrap());
        let mut two = Two::with::<T>(quiet(), tls, &trust);
        let id = two.connect();
        two.client.write(id, "never sent").unwrap();
        let end = two.end(id);
        assert_eq!((end.cause, end.phase, end.unsent), (Cause::Tls, Phase::Connecting, 10));
        let error = end.tls_error.expect("a reason");
        let Error::Certificate { problem, certificate: Some(_) } = &error else {
            panic!("{error:?}")
        };
        assert!(is_right(problem), "{problem:?}");
        let text = error.to_string();
        assert!(texts.iter().all(|part| text.contains(part)), "{text}");
        // The log has the same text, and the server learns by an alert.
        two.until("the server is told", |two| two.server.counters().refused == 1);
        let lines = two.log.all();
        let at_client = format!("TLS failed id={} peer=", id.number());
        let has = |begin: &str, part: &str| {
            lines.iter().any(|line| line.starts_with(begin) && line.contains(part))
        };
        assert!(has(&at_client, &format!("{text:?}")), "{text}: {lines:#?}");
        assert!(has("TLS failed peer=", "the peer has sent the alert"), "{lines:#?}");
        assert!(two.opened.is_empty() && two.server_opened.is_empty() && two.served.is_empty());
        assert_eq!((two.client.len(), two.server.len()), (0, 0));
        assert_eq!((two.client.budget().used(), two.server.budget().used()), (0, 0));
    }
}

fn a_handshake_has_a_time_of_its_own<T: Harness>() {
    let limits = quiet().limits.connect(T::span(1000.0)).handshake(T::span(20.0));
    let mut two = Two::new::<T>(quiet().limits(limits));
    let start = two.now();
    let id = two.connect_to([two.plain.clone()]);
    two.client.write(id, "hello").unwrap();
    let end = two.end(id);
    assert!(two.now() - start >= T::span(20.0));
    assert_eq!((end.cause, end.phase, end.unsent), (Cause::ReadTimeout, Phase::Connecting, 5));
    assert!(end.tls_error.is_none() && two.opened.is_empty());
    assert_eq!(two.client.budget().used(), 0);
    assert!(matches!(two.server_end().cause, Cause::Os(_)), "a reset");
    // Also without output that is lost.
    let id = two.connect_to([two.plain.clone()]);
    assert_eq!(two.end(id).cause, Cause::ReadTimeout);
    assert!(matches!(two.server_end().cause, Cause::Os(_)), "a reset");
}

fn each_way_a_peer_fails_has_a_cause<T: Harness>() {
    for (at_plain, cause) in [
        (Plain::Closes, Cause::Tls),
        (Plain::Says(b"SSH-2.0-windlass\r\n"), Cause::Tls),
        (Plain::Says(&[21, 3, 3, 0, 2, 2, 40]), Cause::Tls),
        (Plain::Resets, Cause::Os(0)),
    ] {
        let mut two = Two::new::<T>(quiet());
        two.at_plain = at_plain;
        let id = two.connect_to([two.plain.clone()]);
        let end = two.end(id);
        assert_eq!(end.phase, Phase::Connecting, "{at_plain:?}");
        let is_right = match (at_plain, &end.tls_error) {
            (Plain::Closes, Some(Error::HandshakeCut)) => true,
            (Plain::Says([b'S', ..]), Some(Error::NotTls { looks_like: Some("SSH") })) => true,
            (Plain::Says([21, ..]), Some(Error::Alert(Alert(40)))) => true,
            (Plain::Resets, None) => matches!(end.cause, Cause::Os(errno) if errno != 0),
            _ => false,
        };
        assert!(is_right && (end.cause == cause || at_plain == Plain::Resets), "{end:?}");
        assert!(two.opened.is_empty());
        assert_eq!((two.client.len(), two.client.budget().used()), (0, 0));
    }
}

fn a_client_that_is_aborted_ends_once<T: Harness>() {
    // In each turn of a handshake.
    for turns in 0..12 {
        let mut two = Two::new::<T>(quiet());
        let id = two.connect();
        two.flush();
        for _ in 0..turns {
            two.turn(T::span(0.1));
        }
        let is_over = !two.client.abort(id);
        let end = two.end(id);
        assert!(is_over || end.cause == Cause::Aborted, "{turns}: {end:?}");
        two.until("the server knows it", |two| two.server.is_empty());
        assert_eq!((two.client.budget().used(), two.server.budget().used()), (0, 0));
    }
}

fn a_shutdown_ends_clients_in_their_handshake<T: Harness>() {
    let limits = quiet().limits.close(T::span(20.0));
    let mut two = Two::new::<T>(quiet().limits(limits));
    let remote = two.client.remote(&mut two.watcher);
    let (silent, unsent) =
        (two.connect_to([two.plain.clone()]), two.connect_to([two.plain.clone()]));
    two.client.write(unsent, "hello").unwrap();
    two.flush();
    two.run_for(T::span(1.0));
    remote.shutdown();
    let end = two.end(silent);
    assert_eq!((end.cause, end.unsent), (Cause::Shutdown, 0));
    // It waits for its output, as long as a close may take.
    let end = two.end(unsent);
    assert_eq!((end.cause, end.unsent, end.phase), (Cause::Shutdown, 5, Phase::Connecting));
    two.client.end(&mut two.watcher);
    assert_eq!(two.client.budget().used(), 0);
}

fn a_second_connection_resumes<T: Harness>() {
    for version in [Version::Tls12, Version::Tls13] {
        let (_, tls, client) = tls::settings(Provider::Ring);
        let trust = client.versions([version]).build().unwrap();
        let mut two = Two::with::<T>(quiet(), tls.build().unwrap(), &trust);
        for round in 0..3 {
            let id = two.open();
            // The tickets of TLS 1.3 come behind the handshake.
            two.client.write(id, "hello").unwrap();
            two.go("it is echoed", |two| two.heard(id) == b"hello");
            let session = two.client.tls(id).unwrap();
            assert_eq!(session.version(), Some(version));
            assert_eq!(session.is_resumed(), round > 0, "{version:?}, {round}");
            assert_eq!(session.peer_certificates().len(), 1);
            let at_server = two.server_opened[round];
            assert_eq!(two.server.tls(at_server).unwrap().is_resumed(), round > 0);
            two.client.close(id);
            two.end(id);
            two.server_end();
        }
    }
}

fn both_ends_tell_what_was_agreed_on<T: Harness>() {
    for (version, suite) in [
        (Version::Tls12, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        (Version::Tls13, "TLS_AES_128_GCM_SHA256"),
    ] {
        let (_, tls, client) = tls::settings(Provider::Ring);
        let trust = client.versions([version]).suites([suite]).alpn(["a", "b"]).build().unwrap();
        let mut two = Two::with::<T>(quiet(), tls.alpn(["b", "c"]).build().unwrap(), &trust);
        let id = two.connect();
        assert!(two.client.tls(id).is_none(), "it is not open");
        two.go("it is open", |two| two.opened.contains(&id) && !two.server_opened.is_empty());
        let client = two.client.tls(id).unwrap();
        let server = two.server.tls(two.server_opened[0]).unwrap();
        for session in [client, server] {
            assert_eq!(session.alpn(), Some(&b"b"[..]));
            assert_eq!((session.version(), session.suite()), (Some(version), Some(suite.into())));
            assert!(session.key_exchange().is_some() && !session.is_resumed());
        }
        assert_eq!((client.server_name(), server.server_name()), (None, Some("localhost")));
        let info = client.peer_certificate_info().unwrap();
        assert_eq!(
            (&*info.names, client.peer_certificates().len()),
            (&["localhost".into()][..], 1)
        );
        assert_eq!(server.peer_certificates().len(), 0);
        two.client.close(id);
        two.end(id);
        assert!(two.client.tls(id).is_none(), "the id is stale");
        // A plain connection has none.
        let plain = two.client.connect([two.plain.clone()], ConnectOptions::default(), 7).unwrap();
        two.go("it is open", |two| two.opened.contains(&plain));
        assert!(two.client.tls(plain).is_none());
    }
}

fn the_server_reads_the_certificates_of_its_client<T: Harness>() {
    let (authority, tls, client) = tls::settings(Provider::Ring);
    let (certificate, key) = authority.client("a client of the test", 77).pems();
    let tls = tls.require_client_certificates(authority.root());
    let trust = client.certificate(certificate, key).build().unwrap();
    let mut two = Two::with::<T>(quiet(), tls.build().unwrap(), &trust);
    let id = two.open();
    two.go("the server has it, too", |two| !two.server_opened.is_empty());
    let session = two.server.tls(two.server_opened[0]).unwrap();
    let info = session.peer_certificate_info().unwrap();
    assert_eq!(info.common_name.as_deref(), Some("a client of the test"));
    assert_eq!((&*info.serial, session.peer_certificates().len()), ("4d", 1));
    assert!(two.client.close(id));
    assert_eq!(two.end(id).cause, Cause::Closed);
}

/// With TLS 1.3 the client has agreed before the server looks at its certificate.
fn a_client_that_the_server_refuses_learns_why<T: Harness>() {
    for (version, opens) in [(Version::Tls12, false), (Version::Tls13, true)] {
        let (authority, tls, client) = tls::settings(Provider::Ring);
        let tls = tls.require_client_certificates(authority.root());
        let trust = client.versions([version]).build().unwrap();
        let mut two = Two::with::<T>(quiet(), tls.build().unwrap(), &trust);
        let id = two.connect();
        two.client.write(id, "hello").unwrap();
        let end = two.end(id);
        assert_eq!((end.cause, two.opened.contains(&id)), (Cause::Tls, opens), "{end:?}");
        let error = end.tls_error.unwrap();
        assert!(matches!(&error, Error::Alert(Alert(40 | 42 | 116))), "{error:?}");
        two.until("the server is done", |two| two.server.counters().refused == 1);
        assert!(two.served.is_empty() && two.server_opened.is_empty());
        let lines = two.log.all();
        assert!(lines.iter().any(|line| line.contains("sent no certificate")), "{lines:?}");
    }
}

fn the_first_address_that_answers_is_used<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let gone = two.watcher.listen(([127, 0, 0, 1], 0)).unwrap();
    let nowhere = two.watcher.local_address(gone).unwrap();
    two.watcher.abort(gone);
    let id = two.connect_to([nowhere.clone(), two.address.clone()]);
    two.client.write(id, "hello").unwrap();
    two.go("it is echoed", |two| two.heard(id) == b"hello");
    assert_eq!(two.client.counters().connected, 1);
    let id = two.connect_to([nowhere]);
    let end = two.end(id);
    assert!(matches!(end.cause, Cause::Os(_)) && end.tls_error.is_none(), "{end:?}");
}

fn other_threads_connect_with_tls<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let remote = two.client.remote(&mut two.watcher);
    let options = ConnectOptions::default();
    let dial = remote.connect_tls([two.address.clone()], options, &two.to, 7_u32).unwrap();
    two.go("it is open", |two| two.opened.len() == 1);
    let id = dial.id().unwrap();
    remote.write(id, "hello").unwrap();
    two.go("it is echoed", |two| two.heard(id) == b"hello");
    assert_eq!(two.served, b"hello");
    // One that is called off in its handshake.
    let dial = remote.connect_tls([two.plain.clone()], options, &two.to, 7_u32).unwrap();
    two.flush();
    two.run_for(T::span(1.0));
    let id = dial.id().unwrap();
    dial.cancel();
    let end = two.end(id);
    assert_eq!((end.cause, end.phase), (Cause::Aborted, Phase::Connecting));
    assert_eq!(two.client.budget().used(), 0);
}

/// A socket that is connected, as another engine has it.
fn detached<D: Driver>(two: &mut Two<D>) -> windlass::Handle {
    let (source, _) =
        two.watcher.connect([two.address.clone()], ConnectOptions::default()).unwrap();
    let (mut done, mut is_connected) = (Completions::new(), false);
    while !is_connected {
        two.watcher.wait(&mut done).unwrap();
        for completion in done.drain(..) {
            if completion.source == source {
                is_connected = true;
            } else {
                assert!(two.server.complete(&mut two.watcher, completion).is_none());
            }
        }
    }
    two.watcher.detach(source).unwrap()
}

fn a_socket_that_the_program_has_becomes_a_client<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let handle = detached(&mut two);
    let id = two.client.attach_tls(handle, &two.to, 7).unwrap();
    two.client.write(id, "hello").unwrap();
    two.go("it is echoed", |two| two.heard(id) == b"hello");
    assert_eq!((two.client.counters().attached, &*two.served), (1, &b"hello"[..]));
    let handle = detached(&mut two);
    let remote = two.client.remote(&mut two.watcher);
    remote.attach_tls(handle, &two.to, 7_u32).unwrap();
    two.go("it is open, too", |two| two.opened.len() == 2);
    // No connection is not a client.
    let local = ([127, 0, 0, 1], 0);
    let socket = two.watcher.bind_datagram(local, DatagramOptions::default()).unwrap();
    let socket = two.watcher.detach(socket).unwrap();
    let id = two.client.attach_tls(socket, &two.to, 7).unwrap();
    let end = two.end(id);
    assert!(matches!(end.cause, Cause::Rejected | Cause::Os(_)), "{end:?}");
}

fn a_detach_is_refused<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let id = two.connect();
    assert_eq!(two.client.detach(id), Err(windlass_serve::Refusal::Tls));
    two.go("it is open", |two| two.opened.contains(&id));
    assert_eq!(two.client.detach(id), Err(windlass_serve::Refusal::Tls));
}

/// What is written before the session is open waits for it, with the files among it.
fn a_client_sends_a_file_before_it_is_open<T: Harness>() {
    let mut two = Two::new::<T>(quiet());
    let id = two.connect();
    let own = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&own).unwrap();
    two.client.write(id, "before").unwrap();
    let file = std::fs::File::open(&own).unwrap();
    two.client.send_file(id, file, 5..1_000_000).unwrap();
    two.client.write(id, vec![7; 200_000]).unwrap();
    let expected = [b"before", &bytes[5..1_000_000], &[7; 200_000]].concat();
    two.go("all has come", |two| two.served.len() == expected.len());
    assert!(two.served == expected);
}
