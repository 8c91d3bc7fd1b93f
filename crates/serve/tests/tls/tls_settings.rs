//! Certificates, keys, names and authorities of TLS: what is served, what is refused, and what the
//! errors say.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::tls::{Authority, Made, Pair, failures, noon, parameters, settings};
use rcgen::{ExtendedKeyUsagePurpose, SerialNumber, date_time_ymd};
use windlass_serve::tls::{
    Alert, CertificateProblem, Error, Pem, PemProblem, Provider, Session, SessionState, Tls,
    TlsBuilder, TlsClient, TlsClientBuilder, Version,
};

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("windlass-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("a file");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes the settings of a server with these files, which have to be wrong.
fn refused(certificate: &Path, key: &Path) -> Error {
    Tls::pem(certificate, key).expect_err("settings")
}

#[test]
fn each_way_in_which_a_file_is_wrong_has_a_name() {
    let directory = Directory::new("files");
    let authority = Authority::new("the root of a test");
    let made = authority.server(&["localhost"]);
    let certificate = directory.write("good.pem", &made.certificate);
    let key = directory.write("good.key", &made.key);
    Tls::pem(&certificate, &key).unwrap();

    let missing = directory.0.join("missing.pem");
    for error in [refused(&missing, &key), refused(&certificate, &missing)] {
        assert!(matches!(&error, Error::File { path, .. } if *path == missing), "{error:?}");
        assert!(error.to_string().contains("missing.pem: "), "{error}");
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
    }
    let error = refused(&directory.0, &key);
    assert!(matches!(error, Error::File { .. }), "a directory: {error:?}");

    let der: Vec<u8> = [&[0x30, 0x82, 1, 200][..], &[0xff; 400]].concat();
    let cut = &made.certificate[..made.certificate.len() / 2];
    let damaged = made.certificate.replacen("MII", "M!I", 1);
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n\
                     -----END ENCRYPTED PRIVATE KEY-----\n";
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: A,0\n\n\
               AAAA\n-----END RSA PRIVATE KEY-----\n";
    let empty_key = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
    let no_certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let second_is_bad = made.certificate.clone() + no_certificate;
    type Check = fn(&PemProblem) -> bool;
    let cases: [(&str, &[u8], Check, Check); 12] = [
        ("empty", b"", |p| *p == PemProblem::Empty, |p| *p == PemProblem::Empty),
        ("blank", b" \n\n", |p| *p == PemProblem::Empty, |p| *p == PemProblem::Empty),
        ("der", &der, |p| *p == PemProblem::Binary, |p| *p == PemProblem::Binary),
        ("text", b"hello\n", |p| *p == PemProblem::NotPem, |p| *p == PemProblem::NotPem),
        ("binary", &[0, 1, 2, 255], |p| *p == PemProblem::NotPem, |p| *p == PemProblem::NotPem),
        (
            "cut",
            cut.as_bytes(),
            |p| matches!(p, PemProblem::Damaged(_)),
            |p| matches!(p, PemProblem::Damaged(_)),
        ),
        (
            "damaged",
            damaged.as_bytes(),
            |p| matches!(p, PemProblem::Damaged(_)),
            |p| matches!(p, PemProblem::Damaged(_)),
        ),
        (
            "other",
            made.key.as_bytes(),
            |p| *p == PemProblem::NoCertificate,
            |_| unreachable!("it is a key"),
        ),
        (
            "password",
            encrypted.as_bytes(),
            |p| *p == PemProblem::NoCertificate,
            |p| *p == PemProblem::EncryptedKey,
        ),
        (
            "old-password",
            old.as_bytes(),
            |p| matches!(p, PemProblem::Damaged(_)),
            |p| *p == PemProblem::EncryptedKey,
        ),
        (
            "no-key",
            empty_key.as_bytes(),
            |p| *p == PemProblem::NoCertificate,
            |p| matches!(p, PemProblem::BadKey(_)),
        ),
        (
            "second",
            second_is_bad.as_bytes(),
            |p| matches!(p, PemProblem::BadCertificate { number: 2, .. }),
            |p| *p == PemProblem::NoKey,
        ),
    ];
    for (name, content, of_certificate, of_key) in cases {
        let file = directory.write(name, content);
        let mut errors = vec![(refused(&file, &key), of_certificate)];
        if name != "other" {
            errors.push((refused(&certificate, &file), of_key));
        }
        for (error, is_right) in errors {
            let Error::Pem { from, problem } = &error else { panic!("{name}: {error:?}") };
            assert_eq!(*from, file.display().to_string());
            assert!(is_right(problem), "{name}: {problem:?}");
            assert!(error.to_string().starts_with(&*file.display().to_string()), "{error}");
        }
    }
    let other = directory.write("other.key", authority.server(&["localhost"]).key);
    let error = refused(&certificate, &other);
    assert!(matches!(error, Error::KeyMismatch { .. }), "{error:?}");
    let expected = format!(
        "{}: this is not the key of the certificate in {}",
        other.display(),
        certificate.display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    let (authority, server, client) = settings(Provider::default());
    let setting = |result: Result<Tls, Error>, part: &str| {
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::Setting(text) if text.contains(part)), "{error:?}");
    };
    assert!(matches!(Tls::builder().build(), Err(Error::NoCertificate)));
    setting(server.clone().suites(["NO_SUCH_SUITE"]).build(), "NO_SUCH_SUITE");
    setting(server.clone().key_exchanges(["NONE"]).build(), "X25519");
    setting(server.clone().versions([]).build(), "");
    let only_new = server.clone().suites(["TLS_AES_128_GCM_SHA256"]);
    only_new.clone().build().unwrap();
    setting(only_new.versions([Version::Tls12]).build(), "");
    setting(server.clone().alpn([""]).build(), "0 bytes");
    setting(server.clone().alpn(["a".repeat(256)]).build(), "256 bytes");
    setting(server.crls(authority.revoke(&[], 2027)).build(), "certificates of clients");
    let nobody = TlsClient::builder().build();
    assert!(matches!(nobody, Err(Error::NoRoots)), "{nobody:?}");
    let roots = client.clone().roots(Pem::bytes("hello")).build();
    assert!(matches!(roots, Err(Error::Pem { problem: PemProblem::NotPem, .. })), "{roots:?}");
    let lists = client.crls(authority.root()).build();
    assert!(matches!(lists, Err(Error::Pem { problem: PemProblem::NoList, .. })), "{lists:?}");
}

/// The serial number of the certificate that a client gets if it asks for a name.
fn served(server: &Tls, client: &TlsClient, name: &str) -> Result<String, Box<(Error, Error)>> {
    let mut pair = Pair::to(server, client, name);
    match failures(&mut pair) {
        (None, None) => Ok(pair.client.peer_certificate_info().unwrap().serial),
        (at_client, at_server) => Err(Box::new((at_client.unwrap(), at_server.unwrap()))),
    }
}

/// A certificate with this number.
fn numbered(authority: &Authority, names: &[&str], number: u64) -> (Pem, Pem) {
    let mut parameters = parameters(names);
    parameters.serial_number = Some(SerialNumber::from(number));
    authority.issue(&parameters).pems()
}

#[test]
fn clients_get_the_certificate_of_the_name_that_they_ask_for() {
    let authority = Authority::new("the root of a test");
    let mut server = Tls::builder().clock(noon);
    for (names, number) in [
        (&["a.example"][..], 1),
        (&["b.example", "*.b.example"], 2),
        (&["left.b.example"], 3),
        (&["UPPER.example"], 4),
    ] {
        let (certificate, key) = numbered(&authority, names, number);
        server = server.certificate(certificate, key);
    }
    let (certificate, key) = numbered(&authority, &["c.example", "d.example"], 5);
    let server = server.certificate_for(["D.example."], certificate, key);
    let client = TlsClient::builder().clock(noon).roots(authority.root()).build().unwrap();
    let tls = server.clone().build().unwrap();
    for (name, number) in [
        ("a.example", "01"),
        ("A.EXAMPLE", "01"),
        ("b.example", "02"),
        ("right.b.example", "02"),
        ("left.b.example", "03"),
        ("upper.example", "04"),
        ("d.example", "05"),
    ] {
        assert_eq!(served(&tls, &client, name).unwrap(), number, "{name}");
    }
    // A wildcard stands for one label, and names that were given take the place of others. So the
    // first certificate is left, which is not for these.
    for name in ["x.y.b.example", "c.example", "other.example"] {
        let (at_client, at_server) = *served(&tls, &client, name).unwrap_err();
        let Error::Certificate {
            problem: CertificateProblem::WrongName { expected, names }, ..
        } = &at_client
        else {
            panic!("{name}: {at_client:?}")
        };
        assert_eq!((&**expected, &names[..]), (name, &["a.example".to_owned()][..]));
        assert!(at_client.to_string().contains(&format!("not for {name:?}, but for a.example")));
        assert!(matches!(at_server, Error::Alert(_)));
    }
    let strict = server.refuse_unknown_names().build().unwrap();
    assert_eq!(served(&strict, &client, "a.example").unwrap(), "01");
    let (at_client, at_server) = *served(&strict, &client, "other.example").unwrap_err();
    assert!(matches!(&at_server, Error::UnknownName(Some(name)) if name == "other.example"));
    assert_eq!(at_server.to_string(), "no certificate for \"other.example\"");
    assert!(matches!(at_client, Error::Alert(_)), "{at_client:?}");
    let mut pair = Pair::to(&strict, &client, "other.example");
    pair.server = Session::server_later(16 << 10);
    pair.run().unwrap();
    let error = pair.server.answer(&strict).unwrap_err();
    assert!(matches!(&error, Error::UnknownName(Some(name)) if name == "other.example"));
    assert!(pair.server.has_output());
    let (_, at_server) = *served(&strict, &client, "127.0.0.1").unwrap_err();
    assert!(matches!(at_server, Error::UnknownName(None)), "{at_server:?}");
}

#[test]
fn a_certificate_without_names_is_only_the_first_one() {
    let authority = Authority::new("the root of a test");
    let (nameless, nameless_key) = authority.client("somebody", 1).pems();
    let (certificate, key) = authority.server(&["a.example"]).pems();
    let first = Tls::builder().certificate(nameless.clone(), nameless_key.clone());
    first.clone().certificate(certificate.clone(), key.clone()).build().unwrap();
    let error = first.clone().refuse_unknown_names().build().unwrap_err();
    assert!(matches!(error, Error::NoName { .. }), "{error:?}");
    let second = Tls::builder().certificate(certificate, key).certificate(nameless, nameless_key);
    let error = second.build().unwrap_err();
    assert!(matches!(error, Error::NoName { .. }), "{error:?}");
}

/// Why a client refuses a server with this certificate.
fn refused_by_client(
    provider: Provider,
    made: &Made,
    client: TlsClientBuilder,
) -> (CertificateProblem, String, Error) {
    let (certificate, key) = made.pems();
    let server = Tls::builder().provider(provider).clock(noon).certificate(certificate, key);
    let server = server.build().unwrap();
    let mut pair = Pair::new(&server, &client.provider(provider).build().unwrap());
    let (at_client, at_server) = failures(&mut pair);
    let error = at_client.expect("it is refused");
    let text = error.to_string();
    let Error::Certificate { problem, certificate: Some(which) } = error else {
        panic!("{error:?}")
    };
    assert_eq!(which.common_name.as_deref(), Some("made for a test"));
    assert!(text.contains("made for a test"), "{text}");
    (problem, text, at_server.expect("it gets an alert"))
}

#[test]
fn each_way_in_which_a_certificate_of_a_server_is_wrong_has_a_name() {
    let authority = Authority::new("the root of a test");
    let stranger = Authority::new("another root");
    let client = || TlsClient::builder().clock(noon).roots(authority.root());
    for provider in Provider::ALL {
        let check = |made: &Made, client| refused_by_client(*provider, made, client);
        let mut expired = parameters(&["localhost"]);
        expired.not_after = date_time_ymd(2026, 3, 1);
        let (problem, text, alert) = check(&authority.issue(&expired), client());
        let CertificateProblem::Expired { now, not_after } = problem else { panic!("{problem:?}") };
        assert_eq!(now, Some(noon()));
        assert!(not_after < now);
        assert!(
            text.contains("expired at 2026-03-01 00:00:00 UTC, and it is 2026-05-28"),
            "{text}"
        );
        assert!(matches!(alert, Error::Alert(Alert(45))), "{alert:?}");

        let mut future = parameters(&["localhost"]);
        future.not_before = date_time_ymd(2026, 12, 24);
        let (problem, text, alert) = check(&authority.issue(&future), client());
        assert!(matches!(problem, CertificateProblem::NotYetValid { .. }), "{problem:?}");
        assert!(text.contains("valid from 2026-12-24 00:00:00 UTC on, and it is 2026-05-28"));
        assert!(matches!(alert, Error::Alert(Alert(45))), "{alert:?}");

        let (problem, text, alert) = check(&stranger.server(&["localhost"]), client());
        assert_eq!(problem, CertificateProblem::UnknownIssuer);
        assert!(text.contains("by another root"), "{text}");
        assert!(matches!(alert, Error::Alert(Alert(48))), "{alert:?}");

        let (problem, text, _) = check(&authority.server(&["other.example"]), client());
        assert!(matches!(problem, CertificateProblem::WrongName { .. }), "{problem:?}");
        assert!(text.contains("not for \"localhost\", but for"), "{text}");
        assert!(text.contains("other.example"), "{text}");

        let mut usage = parameters(&["localhost"]);
        usage.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (problem, _, alert) = check(&authority.issue(&usage), client());
        assert_eq!(problem, CertificateProblem::WrongUsage);
        assert!(matches!(alert, Error::Alert(Alert(43))), "{alert:?}");

        // Its signature is changed in its last byte.
        let mut forged = authority.server(&["localhost"]);
        forged.certificate = changed(&forged.certificate);
        let (problem, _, alert) = check(&forged, client());
        assert_eq!(problem, CertificateProblem::BadSignature);
        assert!(matches!(alert, Error::Alert(Alert(51))), "{alert:?}");

        let mut numbered = parameters(&["localhost"]);
        numbered.serial_number = Some(SerialNumber::from(7));
        let made = authority.issue(&numbered);
        let (problem, text, alert) = check(&made, client().crls(authority.revoke(&[7], 2027)));
        assert_eq!(problem, CertificateProblem::Revoked);
        assert!(text.contains("serial number 07"), "{text}");
        assert!(matches!(alert, Error::Alert(Alert(44))), "{alert:?}");

        let old = authority.revoke(&[8], 2026);
        let (problem, text, _) = check(&made, client().crls(old));
        assert!(matches!(problem, CertificateProblem::RevocationListExpired { .. }), "{problem:?}");
        assert!(text.contains("until 2026-02-01 00:00:00 UTC"), "{text}");

        let (problem, ..) = check(&made, client().crls(stranger.revoke(&[], 2027)));
        assert_eq!(problem, CertificateProblem::RevocationUnknown);
        // One that is not on the list passes.
        let (certificate, key) = made.pems();
        let server = Tls::builder().clock(noon).certificate(certificate, key).build().unwrap();
        let client = client().crls(authority.revoke(&[8], 2027)).build().unwrap();
        Pair::open(&server, &client);
    }
}

/// A PEM whose DER is changed in its last byte.
fn changed(pem: &str) -> String {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let mut der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
    *der.last_mut().unwrap() ^= 1;
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for three in der.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= three.len() { digit as char } else { '=' });
        }
    }
    text + "\n-----END CERTIFICATE-----\n"
}

/// How a client with this certificate fares at a server: the failures at both ends.
fn served_client(
    server: &Tls,
    client: TlsClientBuilder,
    identity: Option<&Made>,
) -> (Pair, Option<Error>, Option<Error>) {
    let client = match identity.map(Made::pems) {
        Some((certificate, key)) => client.certificate(certificate, key),
        None => client,
    };
    let mut pair = Pair::new(server, &client.build().unwrap());
    let (at_client, at_server) = failures(&mut pair);
    (pair, at_client, at_server)
}

#[test]
fn certificates_of_clients_are_optional_or_required() {
    let clients = Authority::new("the root of clients");
    let one = clients.client("somebody", 21);
    for version in Version::ALL {
        let (authority, server, client) = settings(Provider::default());
        let (server, client) = (server.versions([*version]), client.versions([*version]));
        let with = |tls: &TlsBuilder, identity: Option<&Made>| {
            served_client(&tls.clone().build().unwrap(), client.clone(), identity)
        };
        let none = &server;
        let optional = &server.clone().request_client_certificates(clients.root());
        let required = &server.clone().require_client_certificates(clients.root());

        // Nobody asks.
        let (pair, at_client, at_server) = with(none, Some(&one));
        assert!(at_client.is_none() && at_server.is_none());
        assert_eq!(pair.server.peer_certificates().len(), 0);
        let (pair, ..) = with(optional, None);
        assert!(pair.server.is_open());
        assert!(pair.server.peer_certificate_info().is_none());
        for asks in [optional, required] {
            let (pair, at_client, at_server) = with(asks, Some(&one));
            assert!(at_client.is_none() && at_server.is_none(), "{at_server:?}");
            let info = pair.server.peer_certificate_info().unwrap();
            assert_eq!(info.common_name.as_deref(), Some("somebody"));
            assert_eq!(
                (&*info.serial, info.issuer.as_deref()),
                ("15", Some("the root of clients"))
            );
            let der = pair.server.peer_certificates().next().unwrap();
            assert_eq!(der[0], 0x30);
        }
        let (_, at_client, at_server) = with(required, None);
        assert!(matches!(at_server, Some(Error::NoPeerCertificate)), "{at_server:?}");
        assert!(matches!(at_client, Some(Error::Alert(_))), "{at_client:?}");

        // A bad one is refused in both modes, and the error says which.
        let bad = [
            (authority.client("stranger", 1), "no trusted authority"),
            (clients.issue(&parameters(&["server.example"])), "for another use"),
        ];
        for (identity, why) in &bad {
            for asks in [optional, required] {
                let (_, at_client, at_server) = with(asks, Some(identity));
                let text = at_server.unwrap().to_string();
                assert!(text.contains(why) && text.contains("serial number"), "{text}");
                assert!(matches!(at_client, Some(Error::Alert(_))), "{at_client:?}");
            }
        }
        let lists = clients.revoke(&[21], 2027);
        let (_, at_client, at_server) = with(&required.clone().crls(lists), Some(&one));
        let text = at_server.unwrap().to_string();
        assert!(text.contains("somebody") && text.contains("it is revoked"), "{text}");
        assert!(matches!(at_client, Some(Error::Alert(Alert(44)))), "{at_client:?}");
        let (pair, ..) = with(&required.clone().crls(clients.revoke(&[22], 2027)), Some(&one));
        assert!(pair.server.is_open());
    }
}

#[test]
fn a_resumed_session_knows_the_client() {
    let clients = Authority::new("the root of clients");
    for version in Version::ALL {
        let (_, server, client) = settings(Provider::default());
        let server = server.versions([*version]).require_client_certificates(clients.root());
        let server = server.build().unwrap();
        let (certificate, key) = clients.client("somebody", 21).pems();
        let client = client.certificate(certificate, key).build().unwrap();
        for round in 0..2 {
            let mut pair = Pair::open(&server, &client);
            pair.server.write_all(b"x", &mut pair.to_client).unwrap();
            pair.run().unwrap();
            assert_eq!(pair.server.is_resumed(), round == 1);
            let info = pair.server.peer_certificate_info().unwrap();
            assert_eq!(info.common_name.as_deref(), Some("somebody"));
        }
        // After a reload its certificate is checked anew.
        server.reload().unwrap();
        assert!(!Pair::open(&server, &client).server.is_resumed());
    }
}

#[test]
fn certificates_are_replaced_while_sessions_exist() {
    let (authority, server, client) = settings(Provider::default());
    let client = client.build().unwrap();
    let tls = server.build().unwrap();
    let clone = tls.clone();
    let mut old = Pair::open(&tls, &client);
    let mut begun = Pair::new(&tls, &client);
    let (certificate, key) = numbered(&authority, &["localhost"], 99);
    tls.replace(Tls::builder().clock(noon).certificate(certificate, key)).unwrap();
    // A session that has begun, and one that is open, keep what they have.
    begun.run().unwrap();
    assert_ne!(begun.client.peer_certificate_info().unwrap().serial, "63");
    old.client.write_all(b"on", &mut old.to_server).unwrap();
    old.run().unwrap();
    assert_eq!(old.server_plain, b"on");
    let fresh = TlsClient::builder().clock(noon).roots(authority.root()).build().unwrap();
    for tls in [&tls, &clone] {
        assert_eq!(served(tls, &fresh, "localhost").unwrap(), "63");
    }
    // The old client goes on with its session.
    assert!(Pair::open(&tls, &client).server.is_resumed());
    // What cannot be used changes nothing.
    assert!(matches!(tls.replace(Tls::builder()), Err(Error::NoCertificate)));
    assert_eq!(served(&tls, &fresh, "localhost").unwrap(), "63");
    tls.reload().unwrap();
    assert_eq!(served(&tls, &fresh, "localhost").unwrap(), "63");
}

#[test]
fn a_reload_with_a_bad_file_keeps_the_old_certificate() {
    let directory = Directory::new("reload");
    let authority = Authority::new("the root of a test");
    let first = authority.server(&["localhost"]);
    let certificate = directory.write("certificate.pem", &first.certificate);
    let key = directory.write("certificate.key", &first.key);
    let tls = Tls::builder().clock(noon).certificate(&certificate, &key).build().unwrap();
    let client = TlsClient::builder().clock(noon).roots(authority.root());
    let client = client.session_cache(0).build().unwrap();
    let serial = served(&tls, &client, "localhost").unwrap();

    let second = authority.server(&["localhost"]);
    // In the order in which a program may write them.
    directory.write("certificate.pem", "");
    let error = tls.reload().unwrap_err();
    assert!(matches!(error, Error::Pem { problem: PemProblem::Empty, .. }), "{error:?}");
    directory.write("certificate.pem", &second.certificate[..300]);
    let error = tls.reload().unwrap_err();
    assert!(matches!(error, Error::Pem { problem: PemProblem::Damaged(_), .. }), "{error:?}");
    directory.write("certificate.pem", &second.certificate);
    let error = tls.reload().unwrap_err();
    assert!(matches!(error, Error::KeyMismatch { .. }), "{error:?}");
    std::fs::remove_file(&key).unwrap();
    let error = tls.reload().unwrap_err();
    assert!(matches!(&error, Error::File { path, .. } if *path == key), "{error:?}");
    assert_eq!(served(&tls, &client, "localhost").unwrap(), serial);
    directory.write("certificate.key", &second.key);
    tls.clone().reload().unwrap();
    assert_ne!(served(&tls, &client, "localhost").unwrap(), serial);
}

#[test]
fn threads_replace_certificates_while_others_begin_sessions() {
    let (_, server, client) = settings(Provider::default());
    let tls = server.build().unwrap();
    let client = client.build().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..20).for_each(|_| tls.reload().unwrap()));
            scope.spawn(|| (0..20).for_each(|_| drop(Pair::open(&tls, &client))));
        }
    });
}

#[test]
fn the_clock_is_the_one_that_is_given() {
    let (authority, server, _) = settings(Provider::default());
    let server = server.build().unwrap();
    let at = |now: SystemTime| {
        let client = TlsClient::builder().clock(move || now).roots(authority.root());
        let mut pair = Pair::new(&server, &client.build().unwrap());
        failures(&mut pair).0
    };
    assert!(at(noon()).is_none());
    let year = Duration::from_secs(366 * 86_400);
    for (now, expected) in [(noon() + 20 * year, "expired"), (noon() - year, "is valid from")] {
        let text = at(now).unwrap().to_string();
        assert!(text.contains(expected), "{text}");
    }
    let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    assert!(at(before).is_some(), "there is no certificate for that time");
}

#[test]
fn keys_are_logged_only_if_the_program_asks() {
    // The variable is read where the settings are made, so a child has it.
    const FILE: &str = "SSLKEYLOGFILE";
    if std::env::var_os("WINDLASS_TLS_CHILD").is_some() {
        let (_, server, client) = settings(Provider::default());
        let client = client.build().unwrap();
        Pair::open(&server.clone().build().unwrap(), &client);
        assert!(!Path::new(&std::env::var_os(FILE).unwrap()).exists());
        Pair::open(&server.log_keys().build().unwrap(), &client);
        return;
    }
    let directory = Directory::new("keys");
    let file = directory.0.join("keys.log");
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tls_settings::keys_are_logged_only_if_the_program_asks"])
        .env(FILE, &file)
        .env("WINDLASS_TLS_CHILD", "1")
        .status()
        .unwrap();
    assert!(status.success());
    let log = std::fs::read_to_string(file).unwrap();
    assert!(log.contains("CLIENT_TRAFFIC_SECRET_0 "), "{log}");
}

/// A layer that speaks one protocol sets it, and the program may have others.
#[test]
fn a_default_protocol_is_of_all_settings_without_one() {
    let (_, server, client) = settings(Provider::default());
    let agreed = |tls: &Tls| {
        let pair = Pair::open(tls, &client.clone().alpn(["h2", "http/1.1"]).build().unwrap());
        pair.server.alpn().map(<[u8]>::to_vec)
    };
    let tls = server.clone().build().unwrap();
    let clone = tls.clone();
    assert_eq!(agreed(&tls), None);
    tls.default_alpn(["http/1.1"]);
    assert_eq!(agreed(&clone).as_deref(), Some(&b"http/1.1"[..]));
    clone.reload().unwrap();
    assert_eq!(agreed(&tls).as_deref(), Some(&b"http/1.1"[..]));
    clone.replace(server.clone()).unwrap();
    assert_eq!(agreed(&tls).as_deref(), Some(&b"http/1.1"[..]));
    clone.replace(server.alpn(["h2"])).unwrap();
    assert_eq!(agreed(&tls).as_deref(), Some(&b"h2"[..]));
    tls.default_alpn(["http/1.1"]);
    assert_eq!(agreed(&tls).as_deref(), Some(&b"h2"[..]));
}

#[test]
fn secrets_are_not_in_the_debug_form() {
    let (authority, server, client) = settings(Provider::default());
    let made = authority.server(&["localhost"]);
    let (certificate, key) = made.pems();
    let client = client.certificate(certificate, key).build().unwrap();
    let tls = server.build().unwrap();
    let mut session = Session::server(&tls).unwrap();
    let _ = session.feed_into(b"GET / HTTP/1.1\r\n", &mut Vec::new());
    for text in [format!("{tls:?}"), format!("{client:?}"), format!("{session:?}")] {
        assert!(!text.contains("PRIVATE KEY"), "{text}");
        assert!(text.len() < 2000, "{text}");
    }
    assert_eq!(session.state(), SessionState::Failed);
}

#[cfg(feature = "webpki-roots")]
#[test]
fn mozillas_authorities_do_not_know_the_root_of_a_test() {
    let (_, server, _) = settings(Provider::default());
    let client = TlsClient::builder().clock(noon).webpki_roots().build().unwrap();
    let (at_client, _) = failures(&mut Pair::new(&server.build().unwrap(), &client));
    let problem = |error| match error {
        Some(Error::Certificate { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(at_client), CertificateProblem::UnknownIssuer);
}

#[cfg(feature = "platform-verifier")]
#[test]
fn the_authorities_of_the_system_are_used_with_others() {
    let (authority, server, _) = settings(Provider::default());
    let server = server.build().unwrap();
    let client = TlsClient::builder().clock(noon).system_roots().roots(authority.root());
    if cfg!(target_os = "linux") {
        Pair::open(&server, &client.clone().build().unwrap());
    }
    let both = client.crls(authority.revoke(&[], 2027)).build();
    assert!(matches!(both, Err(Error::Setting(_))), "{both:?}");
    match TlsClient::builder().clock(noon).system_roots().build() {
        Ok(client) => {
            let (at_client, _) = failures(&mut Pair::new(&server, &client));
            assert!(matches!(at_client, Some(Error::Certificate { .. })), "{at_client:?}");
        }
        // A system may have none.
        Err(error) => assert!(matches!(error, Error::SystemRoots(_)), "{error:?}"),
    }
}
