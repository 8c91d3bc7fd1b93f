//! The adapter: everything that names the connection types of rustls.
//!
//! # Why
//!
//! rustls 0.24 changes these types: it decrypts in the caller's bytes and appends its output to the
//! caller's vector. So [`Wire`] has the calls of 0.24, on the types of 0.23, and for the sessions a
//! change of version is a change of this file and of `reasons`. The package `interop/tls024` has
//! both for 0.24. Two copies are the price on 0.23: the input goes into a buffer of rustls, and the
//! plain text comes out of another one.
//!
//! The memory that a connection keeps is rustls' own: a buffer of 4 KiB for the record that has
//! begun, from the first bytes of the peer on. [`Wire::trim`] brings it back to this size after
//! longer records.

use std::io::{self, IoSlice, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustls::client::ClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{Accepted, AcceptedAlert, Acceptor, ClientHello, ServerConnection};
use rustls::{
    ClientConfig, Connection, Error, HandshakeKind, IoState, ProtocolVersion, ServerConfig,
};

/// How much plain text rustls takes at most for one call of [`Wire::write`]: its own limit, and
/// four records of full size.
const PIECE: usize = 64 << 10;

/// The text of a full record.
const RECORD: usize = 16 << 10;

/// No suite adds more bytes to a record: a header, the nonce of TLS 1.2, the kind and the tag.
const OVERHEAD: usize = 5 + 8 + 1 + 16;

/// The buffer for records that rustls has between two records.
pub(super) const READ_SIZE: usize = 4096;

/// The kind of a record with an alert. TLS 1.3 hides it.
const ALERT: u8 = 21;

/// The alert `unexpected_message`, in plain text. rustls has none for a first message that is no
/// hello.
const UNEXPECTED_MESSAGE: [u8; 7] = [ALERT, 3, 3, 0, 2, 2, 10];

/// The alert `unrecognized_name`, in plain text: nobody has settings for the hello.
const UNRECOGNIZED_NAME: [u8; 7] = [ALERT, 3, 3, 0, 2, 2, 112];

/// One end of a connection.
pub(super) struct Wire {
    stage: WireStage,
    /// How much plain text waits to be read.
    waiting: usize,
    has_peer_closed: bool,
    /// Whether this end has sent `close_notify`.
    is_closed: bool,
}

enum WireStage {
    /// A server without settings: the hello has not come.
    Hello(Acceptor),
    /// The hello has come, with this name of a server.
    Asked(Box<Accepted>, Option<Box<str>>),
    Begun(Connection),
    /// It was refused before it had settings, with this output.
    Refused(Vec<u8>, Option<Box<str>>),
}

/// What a read gets that must only trim the buffer.
struct Never;

impl Read for Never {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        // Zero bytes would say that the input has ended.
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Looks at new input.
///
/// If the peer breaks a rule after this end has sent `close_notify`, rustls panics where it is
/// built with debug assertions: one of them wants no alert behind another one (rustls#959). A peer
/// must not choose that. The panic hook of the program still hears of it.
fn process(connection: &mut Connection, is_closed: bool) -> Result<IoState, Error> {
    if is_closed {
        let process = AssertUnwindSafe(|| connection.process_new_packets());
        // Which rule it was is lost, and what is left of the connection has failed.
        let unknown = || Error::General("the peer has broken a rule after the close".to_owned());
        return catch_unwind(process).unwrap_or_else(|_| Err(unknown()));
    }
    connection.process_new_packets()
}

/// Whether a write was sent: a connection of TLS 1.2 whose keys are used up says that it took all,
/// and drops it. It sends an alert in place of data, and nothing after that.
fn is_sent(taken: usize, first: Option<&u8>) -> bool {
    taken == 0 || first.is_some_and(|kind| *kind != ALERT)
}

/// How many of `len` bytes of text fit into `room` bytes of records, of which only the last one is
/// shorter than a full one.
fn fitting(len: usize, room: usize) -> usize {
    let whole = |bytes: usize| bytes + bytes.div_ceil(RECORD) * OVERHEAD;
    if whole(len) <= room { len } else { room / whole(RECORD) * RECORD }
}

impl Wire {
    /// A server whose settings come when the hello has come.
    pub(super) fn hello() -> Wire {
        Wire::new(WireStage::Hello(Acceptor::default()))
    }

    pub(super) fn server(config: Arc<ServerConfig>) -> Result<Wire, Error> {
        Ok(Wire::new(WireStage::Begun(ServerConnection::new(config)?.into())))
    }

    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Wire, Error> {
        Ok(Wire::new(WireStage::Begun(ClientConnection::new(config, name)?.into())))
    }

    fn new(stage: WireStage) -> Wire {
        Wire { stage, waiting: 0, has_peer_closed: false, is_closed: false }
    }

    fn connection(&self) -> Option<&Connection> {
        match &self.stage {
            WireStage::Begun(connection) => Some(connection),
            _ => None,
        }
    }

    /// Takes bytes of the peer, at most to the end of a record, and returns how many. It takes
    /// fewer only if too much plain text waits, or if the hello waits for settings.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<usize, Error> {
        let mut left = piece;
        while !left.is_empty() {
            let read = match &mut self.stage {
                WireStage::Begun(connection) => connection.read_tls(&mut left),
                WireStage::Hello(acceptor) => acceptor.read_tls(&mut left),
                WireStage::Asked(..) | WireStage::Refused(..) => break,
            };
            match read {
                Ok(0) => break,
                Ok(_) => self.process()?,
                // The other reason is a message of the handshake that does not fit.
                Err(_) if self.waiting > 0 => break,
                Err(_) => return Err(rustls::InvalidMessage::HandshakePayloadTooLarge.into()),
            }
        }
        Ok(piece.len() - left.len())
    }

    fn process(&mut self) -> Result<(), Error> {
        match &mut self.stage {
            WireStage::Begun(connection) => {
                // Its error comes after the plain text in front of it.
                let state = process(connection, self.is_closed)?;
                self.waiting = state.plaintext_bytes_to_read();
                self.has_peer_closed = state.peer_has_closed();
            }
            WireStage::Hello(acceptor) => match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().map(Box::from);
                    self.stage = WireStage::Asked(Box::new(accepted), name);
                }
                Err((error, alert)) => return Err(self.refuse(error, alert, None)),
            },
            WireStage::Asked(..) | WireStage::Refused(..) => {}
        }
        Ok(())
    }

    fn refuse(&mut self, error: Error, mut alert: AcceptedAlert, name: Option<Box<str>>) -> Error {
        let mut out = Vec::new();
        let written = alert.write_all(&mut out);
        debug_assert!(written.is_ok(), "a vector takes everything");
        let is_unexpected = matches!(
            error,
            Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. }
        );
        if out.is_empty() && is_unexpected {
            out.extend(UNEXPECTED_MESSAGE);
        }
        self.stage = WireStage::Refused(out, name);
        error
    }

    /// Refuses the hello that waits. Returns whether there is one.
    pub(super) fn refuse_hello(&mut self) -> bool {
        let WireStage::Asked(_, name) = &mut self.stage else { return false };
        self.stage = WireStage::Refused(UNRECOGNIZED_NAME.to_vec(), name.take());
        true
    }

    /// Whether the hello has not come, and waits for settings then.
    pub(super) fn awaits_hello(&self) -> bool {
        matches!(self.stage, WireStage::Hello(_))
    }

    pub(super) fn is_asked(&self) -> bool {
        matches!(self.stage, WireStage::Asked(..))
    }

    /// The hello that waits for settings.
    pub(super) fn asked(&self) -> Option<ClientHello<'_>> {
        match &self.stage {
            WireStage::Asked(accepted, _) => Some(accepted.client_hello()),
            _ => None,
        }
    }

    /// Answers the hello that waits. Returns whether there is one.
    pub(super) fn answer(&mut self, config: Arc<ServerConfig>) -> Result<bool, Error> {
        if !self.is_asked() {
            return Ok(false);
        }
        let nothing = WireStage::Refused(Vec::new(), None);
        if let WireStage::Asked(accepted, name) = std::mem::replace(&mut self.stage, nothing) {
            match accepted.into_connection(config) {
                Ok(connection) => self.stage = WireStage::Begun(connection.into()),
                Err((error, alert)) => return Err(self.refuse(error, alert, name)),
            }
        }
        Ok(true)
    }

    /// Gives up the memory of a long record, or of one that has come in pieces. Only for when no
    /// record has begun: then the next bytes would do the same.
    pub(super) fn trim(&mut self, longest: usize, was_split: bool) {
        let has_grown = was_split || longest > READ_SIZE;
        if let (true, WireStage::Begun(connection)) = (has_grown, &mut self.stage) {
            let result = connection.read_tls(&mut Never);
            debug_assert!(result.is_err());
        }
    }

    /// How much plain text waits to be read.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Reads plain text, as much as there is room for.
    pub(super) fn read(&mut self, into: &mut [u8]) -> usize {
        let WireStage::Begun(connection) = &mut self.stage else { return 0 };
        if self.waiting == 0 || into.is_empty() {
            return 0;
        }
        let count = connection.reader().read(into).unwrap_or(0);
        self.waiting -= count.min(self.waiting);
        count
    }

    /// Encrypts plain text, at most [`PIECE`] bytes, and appends the records to `out`, behind all
    /// output that waits. Returns how many bytes it took. `None` says that the keys are used up.
    pub(super) fn write(&mut self, parts: &[IoSlice<'_>], out: &mut Vec<u8>) -> Option<usize> {
        // What waits would count for rustls' limit.
        self.answer_update();
        self.output(out);
        let WireStage::Begun(connection) = &mut self.stage else { return Some(0) };
        let before = out.len();
        let taken = connection.writer().write_vectored(parts).unwrap_or(0);
        debug_assert!(taken <= PIECE);
        self.output(out);
        is_sent(taken, out.get(before)).then_some(taken)
    }

    /// As `write`, into the space at hand: as many whole records as it has room for, behind all
    /// output that waits. Returns how many bytes it took, and how many it has put there.
    pub(super) fn seal(&mut self, text: [&[u8]; 2], space: &mut [u8]) -> Option<(usize, usize)> {
        // Without output that waits, `Session::settle` has asked for the answer.
        if self.has_output() {
            self.answer_update();
        }
        let before = self.output_to(space);
        let WireStage::Begun(connection) = &mut self.stage else { return Some((0, before)) };
        let most = match connection.wants_write() {
            true => 0, // there is no room even for what waits
            false => {
                let len = text[0].len() + text[1].len();
                fitting(len.min(PIECE), space.len() - before)
            }
        };
        if most == 0 {
            return Some((0, before));
        }
        let first = &text[0][..most.min(text[0].len())];
        let taken = match &text[1][..most - first.len()] {
            [] => connection.writer().write(first),
            // rustls allocates for several parts.
            second => connection.writer().write_vectored(&[first, second].map(IoSlice::new)),
        };
        let taken = taken.unwrap_or(0);
        let len = before + self.output_to(&mut space[before..]);
        debug_assert!(!self.has_output());
        is_sent(taken, space[..len].get(before)).then_some((taken, len))
    }

    /// Makes output of the answer to a change of keys, which rustls keeps until a write.
    pub(super) fn answer_update(&mut self) {
        if let (WireStage::Begun(connection), false) = (&mut self.stage, self.is_closed) {
            // An error says that the connection has failed: then it answers nothing.
            let _ = connection.writer().write(&[]);
        }
    }

    pub(super) fn has_output(&self) -> bool {
        match &self.stage {
            WireStage::Begun(connection) => connection.wants_write(),
            WireStage::Refused(out, _) => !out.is_empty(),
            WireStage::Hello(_) | WireStage::Asked(..) => false,
        }
    }

    /// Appends all output that waits.
    pub(super) fn output(&mut self, out: &mut Vec<u8>) {
        match &mut self.stage {
            WireStage::Begun(connection) => {
                while connection.wants_write() {
                    if connection.write_tls(out).is_err() {
                        break; // a vector takes everything
                    }
                }
            }
            WireStage::Refused(waiting, _) => out.append(waiting),
            WireStage::Hello(_) | WireStage::Asked(..) => {}
        }
    }

    /// Moves output that waits into a space, as much as there is room for. Returns how much.
    fn output_to(&mut self, space: &mut [u8]) -> usize {
        let WireStage::Begun(connection) = &mut self.stage else { return 0 };
        let (room, mut left) = (space.len(), space);
        while !left.is_empty() && connection.wants_write() {
            if connection.write_tls(&mut left).is_err() {
                break; // a slice takes what it has room for
            }
        }
        room - left.len()
    }

    pub(super) fn close(&mut self) {
        if let WireStage::Begun(connection) = &mut self.stage {
            connection.send_close_notify();
            self.is_closed = true;
        }
    }

    pub(super) fn update_keys(&mut self) -> bool {
        match &mut self.stage {
            WireStage::Begun(connection) => connection.refresh_traffic_keys().is_ok(),
            _ => false,
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection().is_none_or(|connection| connection.is_handshaking())
    }

    pub(super) fn has_peer_closed(&self) -> bool {
        self.has_peer_closed
    }

    pub(super) fn alpn(&self) -> Option<&[u8]> {
        self.connection()?.alpn_protocol()
    }

    /// The name that the client has asked for; `None` at a client.
    pub(super) fn server_name(&self) -> Option<&str> {
        match &self.stage {
            WireStage::Begun(Connection::Server(server)) => server.server_name(),
            WireStage::Asked(_, name) | WireStage::Refused(_, name) => name.as_deref(),
            WireStage::Begun(Connection::Client(_)) | WireStage::Hello(_) => None,
        }
    }

    pub(super) fn version(&self) -> Option<ProtocolVersion> {
        self.connection()?.protocol_version()
    }

    pub(super) fn suite(&self) -> Option<rustls::CipherSuite> {
        self.connection()?.negotiated_cipher_suite().map(|suite| suite.suite())
    }

    pub(super) fn key_exchange(&self) -> Option<rustls::NamedGroup> {
        self.connection()?.negotiated_key_exchange_group().map(|group| group.name())
    }

    pub(super) fn certificates(&self) -> &[CertificateDer<'static>] {
        self.connection().and_then(|one| one.peer_certificates()).unwrap_or_default()
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.connection().and_then(|one| one.handshake_kind()) == Some(HandshakeKind::Resumed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::crypto::CryptoProvider;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{
        CipherSuite, CipherSuiteCommon, RootCertStore, SupportedCipherSuite, Tls12CipherSuite,
    };

    use windlass::net::ListenOptions;
    use windlass::sim::Sim;
    use windlass::{Completions, Done, Op, Watcher};

    use super::*;
    use crate::engine::Engine;
    use crate::tls::error::TlsError;
    use crate::tls::{Provider, Tls};
    use crate::words::cause::Cause;
    use crate::words::config::Config;
    use crate::words::event::Event;

    /// A provider with one suite of TLS 1.2, whose keys are used up after so many records.
    fn provider(records: u64) -> Arc<CryptoProvider> {
        const SUITE: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
        let all = Provider::default().with(&[SUITE.to_owned()], &[]).expect("a suite");
        let mut provider = CryptoProvider::clone(&all);
        let SupportedCipherSuite::Tls12(suite) = provider.cipher_suites[0] else {
            panic!("another version")
        };
        let limited: &Tls12CipherSuite = Box::leak(Box::new(Tls12CipherSuite {
            common: CipherSuiteCommon {
                suite: CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                hash_provider: suite.common.hash_provider,
                confidentiality_limit: records,
            },
            prf_provider: suite.prf_provider,
            kx: suite.kx,
            sign: suite.sign,
            aead_alg: suite.aead_alg,
        }));
        provider.cipher_suites = vec![SupportedCipherSuite::Tls12(limited)];
        Arc::new(provider)
    }

    /// The settings of two ends.
    fn configs(records: u64) -> (ServerConfig, ClientConfig) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("one");
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        let provider = provider(records);
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS12])
            .expect("a version")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a certificate");
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        (server, client)
    }

    /// Two ends after their handshake.
    fn pair(records: u64) -> (Wire, Wire) {
        let (server, client) = configs(records);
        let name = "localhost".try_into().expect("a name");
        let mut client = Wire::client(client.into(), name).expect("a client");
        let mut server = Wire::server(server.into()).expect("a server");
        let mut out = Vec::new();
        while client.is_handshaking() || server.is_handshaking() {
            client.output(&mut out);
            assert_eq!(server.feed(&out), Ok(out.len()));
            out.clear();
            server.output(&mut out);
            assert_eq!(client.feed(&out), Ok(out.len()));
            out.clear();
        }
        (client, server)
    }

    /// Gives an end all of an output, and returns how much plain text it had.
    fn take(end: &mut Wire, mut out: &[u8]) -> usize {
        let (mut plain, mut heard) = (vec![0; 20_000], 0);
        while !out.is_empty() {
            let count = end.feed(out).expect("records");
            heard += end.read(&mut plain);
            out = &out[count..];
        }
        heard
    }

    /// rustls says that it took what it drops then (0.23.46).
    #[test]
    fn keys_that_are_used_up_lose_nothing_silently() {
        for len in [1, 2, 3, 100, 16_384, 50_000] {
            let (mut client, mut server) = pair(20);
            let (text, mut out, mut sent, mut heard) = (vec![7; len], Vec::new(), 0, 0);
            while client.write(&[IoSlice::new(&text)], &mut out).is_some() {
                sent += len;
                heard += take(&mut server, &out);
                out.clear();
            }
            // 20 records, one of which was that of the handshake.
            assert_eq!(sent, len * (19 / len.div_ceil(16_384)), "{len} bytes at a time");
            assert_eq!(heard, sent);
            // The peer hears of it, and nothing is sent in part.
            assert_eq!(take(&mut server, &out), 0);
            assert!(server.has_peer_closed());
        }
    }

    /// An orderly end would make the peer take a part for the whole.
    #[test]
    fn a_connection_whose_keys_are_used_up_ends_with_a_name_and_a_reset() {
        let (server, client) = configs(20);
        let mut watcher = Watcher::simulated(&Sim::new(1));
        let mut engine = Engine::<()>::new(Config::new());
        let local = ([127, 0, 0, 1], 0);
        engine.listen(&mut watcher, local, ListenOptions::default()).expect("a listener");
        assert!(engine.encrypt_listener(0, Tls::of(server)));
        let address = watcher.local_address(engine.listeners()[0]).expect("its address");
        let (peer, _) = watcher.connect([address], Default::default()).expect("a source");
        let name = "localhost".try_into().expect("a name");
        let mut wire = Wire::client(client.into(), name).expect("a client");
        let (mut done, mut out, mut plain) = (Completions::new(), Vec::new(), vec![0; 20_000]);
        let (mut open, mut written, mut heard) = (None, 0, 0);
        let (mut end, mut reset) = (None, None);
        watcher.submit(Op::read(peer).multishot()).expect("a read");
        while end.is_none() || reset.is_none() {
            wire.output(&mut out);
            if !out.is_empty() {
                let _ = watcher.submit(Op::write(peer, std::mem::take(&mut out)).quiet());
            }
            if let Some(id) = open
                && engine.write(id, vec![7; 1000]).is_ok()
            {
                written += 1000;
            }
            engine.flush(&mut watcher);
            watcher.wait_timeout(&mut done, Duration::from_secs(60)).expect("a wait");
            for c in done.drain(..) {
                let Some(c) = engine.complete(&mut watcher, c) else { continue };
                match c.result {
                    Ok(Done::Read(data)) => {
                        assert_eq!(wire.feed(&data), Ok(data.len()));
                        heard += wire.read(&mut plain);
                        reset = data.is_eof().then_some(false);
                    }
                    Err(_) if c.source == peer => reset = Some(true),
                    _ => {}
                }
            }
            while let Some(event) = engine.next_event(&mut watcher) {
                match event {
                    Event::Opened { id, .. } => open = Some(id),
                    Event::Closed { cause, unsent, tls_error, .. } => {
                        end = Some((cause, unsent, tls_error));
                    }
                    _ => {}
                }
            }
        }
        let (cause, unsent, error) = end.expect("it has ended");
        assert_eq!(cause, Cause::Tls);
        assert!(matches!(error.as_deref(), Some(TlsError::KeysExhausted)), "{error:?}");
        assert!(unsent > 0 && written - unsent == 19_000, "{written}, {unsent}");
        assert!(heard <= 19_000 && !wire.has_peer_closed(), "{heard}");
        assert_eq!(reset, Some(true), "the peer gets no end of file");
    }
}
