//! Two sessions of TLS, whose bytes are cut, changed and mixed with others on their way: no panic,
//! nothing beyond the input, and each end reads what the other one wrote, in order. If nobody
//! changes the bytes, nothing fails.
#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use windlass_serve::tls::{Error, Pem, Session, SessionState, Tls, TlsClient, Version};

#[derive(Debug, Arbitrary)]
struct Program {
    /// TLS 1.2, or 1.3.
    is_old: bool,
    /// Whether the settings of the server come later, and how many bytes the hello may have.
    later: Option<u16>,
    /// Whether the handshake is done before the first step.
    is_open: bool,
    steps: Vec<Step>,
}

/// `client` says at which end, or to which one.
#[derive(Debug, Arbitrary)]
enum Step {
    Pass { client: bool, most: u16 },
    Write { client: bool, len: u16 },
    Change { client: bool, at: u16, bit: u8 },
    Insert { client: bool, at: u16, bytes: Vec<u8> },
    Record { client: bool, kind: u8, body: Vec<u8> },
    Cut { client: bool, at: u16 },
    UpdateKeys { client: bool },
    Close { client: bool },
    End { client: bool },
    Answer,
}

/// The settings of both ends for one version.
struct Settings {
    server: Tls,
    client: TlsClient,
}

static SETTINGS: LazyLock<[Settings; 2]> = LazyLock::new(|| {
    // An assertion of rustls that a peer can break after this end has closed. The session catches
    // it, and the hook of libFuzzer would end the process before.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_known = panic.location().is_some_and(|at| at.file().ends_with("common_state.rs"));
        if !is_known {
            hook(panic);
        }
    }));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let certificate = Pem::bytes(made.cert.pem());
    let key = Pem::bytes(made.signing_key.serialize_pem());
    [Version::Tls13, Version::Tls12].map(|version| {
        let server = Tls::builder().versions([version]).alpn(["a", "b"]);
        let client = TlsClient::builder().versions([version]).alpn(["b"]);
        Settings {
            server: server.certificate(certificate.clone(), key.clone()).build().expect("a server"),
            client: client.roots(certificate.clone()).build().expect("a client"),
        }
    })
});

/// One end: what it has written, what is on its way to it, what it has read.
struct End {
    session: Session,
    written: Vec<u8>,
    input: Vec<u8>,
    heard: Vec<u8>,
}

impl End {
    fn new(session: Session) -> End {
        End { session, written: Vec::new(), input: Vec::new(), heard: Vec::new() }
    }
}

/// Takes what waits at one end, and gives the other one at most so many bytes of it.
fn pass(from: &mut End, to: &mut End, most: usize, is_clean: bool) {
    from.session.take_output(&mut to.input);
    let most = most.min(to.input.len());
    let had_failed = to.session.state() == SessionState::Failed;
    let fed = to.session.feed(&mut to.input[..most]);
    assert!(fed.plain <= fed.consumed && fed.consumed <= most);
    to.heard.extend(&to.input[..fed.plain]);
    to.session.take_plain(&mut to.heard);
    assert!(!had_failed || fed.consumed == 0);
    assert_eq!(fed.result.is_err(), to.session.state() == SessionState::Failed);
    match fed.result {
        Ok(()) => drop(to.input.drain(..fed.consumed)),
        Err(error) => {
            let is_allowed = match error {
                // Keys that change without end.
                Error::HandshakeTooLong { .. } | Error::Misbehaved(_) => true,
                // A close within the handshake, and then the assertion above.
                Error::Alert(_) => true,
                Error::Other(_) => to.session.is_closed(),
                _ => false,
            };
            assert!(is_allowed || !is_clean, "{error}");
            to.input.clear();
        }
    }
    assert!(from.written.starts_with(&to.heard), "it reads what nobody wrote");
}

fuzz_target!(|program: Program| {
    let Settings { server, client } = &SETTINGS[usize::from(program.is_old)];
    let session = match program.later {
        Some(limit) => Session::server_later(limit.into()),
        None => Session::server(server).expect("a session"),
    };
    let mut ends =
        [End::new(session), End::new(Session::client(client, "localhost").expect("a session"))];
    let mut is_clean = true;
    if program.is_open {
        for _ in 0..4 {
            let [server_end, client_end] = &mut ends;
            pass(client_end, server_end, usize::MAX, true);
            let _ = server_end.session.answer(server);
            pass(server_end, client_end, usize::MAX, true);
        }
    }
    for step in program.steps {
        match step {
            Step::Pass { client, most } => {
                let [one, other] = &mut ends;
                let (from, to) = if client { (one, other) } else { (other, one) };
                pass(from, to, most.into(), is_clean);
            }
            Step::Write { client, len } => {
                let [one, other] = &mut ends;
                let (from, to) = if client { (other, one) } else { (one, other) };
                let text = vec![len as u8; len.into()];
                match from.session.write_all(&text, &mut to.input) {
                    Ok(()) => from.written.extend(&text),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
            Step::Change { client, at, bit } => {
                if let Some(byte) = ends[usize::from(client)].input.get_mut(usize::from(at)) {
                    *byte ^= 1 << (bit % 8);
                    is_clean = false;
                }
            }
            Step::Insert { client, at, bytes } => {
                let input = &mut ends[usize::from(client)].input;
                let at = usize::from(at).min(input.len());
                is_clean &= bytes.is_empty();
                input.splice(at..at, bytes);
            }
            Step::Record { client, kind, body } => {
                let kind = 20 + kind % 5;
                let len = body.len().min(0x4000);
                let header = [kind, 3, 3, (len >> 8) as u8, len as u8];
                let input = &mut ends[usize::from(client)].input;
                input.extend(header.iter().chain(&body[..len]));
                is_clean = false;
            }
            Step::Cut { client, at } => {
                ends[usize::from(client)].input.truncate(at.into());
                is_clean = false;
            }
            Step::UpdateKeys { client } => {
                ends[usize::from(client)].session.update_keys();
            }
            Step::Close { client } => ends[usize::from(client)].session.close(),
            Step::End { client } => {
                let _ = ends[usize::from(client)].session.end_of_input();
                is_clean = false;
            }
            Step::Answer => drop(ends[0].session.answer(server)),
        }
    }
});
