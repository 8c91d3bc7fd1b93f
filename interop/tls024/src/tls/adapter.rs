//! The adapter of windlass-serve, on the connections of rustls 0.24.
//!
//! # Why
//!
//! 0.24 decrypts in the caller's bytes, and appends its output to the caller's vector. The sessions
//! above are those for 0.23, which lend their input for reading only. So the record that has begun
//! is copied here, decrypted where it lies, and its text is copied out. A connection that is idle
//! has no buffer: the thread keeps one for the next record of any connection.
//!
//! An open connection is split into its two directions: only that form has a call that sends the
//! answer to a change of keys without data (0.24.0-dev.2).

use std::cell::Cell;
use std::io::IoSlice;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rustls_next::client::ClientSide;
use rustls_next::crypto::cipher::OutboundPlain;
use rustls_next::crypto::kx::NamedGroup;
use rustls_next::crypto::{CipherSuite, Identity};
use rustls_next::enums::ProtocolVersion;
use rustls_next::pki_types::{CertificateDer, ServerName};
use rustls_next::server::{Accepted, ClientHello, ServerHandshake, ServerSide};
use rustls_next::split::{ReceiveTraffic, ReceiveTrafficState, SendTraffic, SplitConnection};
use rustls_next::{
    ClientConfig, Connection, ConnectionOutputs, Error, HandshakeKind, NeedsInput, ServerConfig,
    SideData, Tcp, TlsInputBuffer,
};

/// How much plain text one call of [`Wire::write`] takes at most: as on 0.23.
const PIECE: usize = 64 << 10;

/// How much plain text waits at most before input is refused.
const WAITING: usize = 16 << 10;

/// No suite adds more bytes to a record: a header, the nonce of TLS 1.2, the kind and the tag.
const OVERHEAD: usize = 5 + 8 + 1 + 16;

/// A full record has at least so much text: 0.24.0-dev.2 takes what the suite adds from 16 KiB.
const RECORD: usize = (16 << 10) - OVERHEAD;

/// The sessions treat longer records in another way, which 0.24 does not need: there are none.
pub(super) const READ_SIZE: usize = 1 << 16;

/// The alert `unrecognized_name`, in plain text: nobody has settings for the hello.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The records that have begun.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// How many bytes of them are done.
    at: usize,
}

impl TlsInputBuffer for Input {
    fn slice_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.at..]
    }

    fn discard(&mut self, count: usize) {
        self.at += count;
    }

    fn received_close_notify(&mut self) {}

    fn has_seen_eof(&self) -> bool {
        false
    }
}

impl Input {
    fn add(&mut self, piece: &[u8]) {
        if self.bytes.capacity() == 0 {
            self.bytes = SPARE.take();
        }
        self.bytes.drain(..mem::take(&mut self.at));
        self.bytes.extend_from_slice(piece);
    }

    /// Where a part of the bytes is.
    fn range(&self, part: (usize, usize)) -> Range<usize> {
        let from = part.0 - self.bytes.as_ptr().addr();
        from..from + part.1
    }

    fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Gives its memory to the next record.
    fn release(&mut self) {
        let mut bytes = mem::take(&mut self.bytes);
        self.at = 0;
        if bytes.capacity() > 0 {
            bytes.clear();
            SPARE.set(bytes);
        }
    }
}

/// One end of a connection.
pub(super) struct Wire {
    stage: WireStage,
    input: Input,
    /// The plain text that waits: the older part here, the other one in the input.
    older: Vec<u8>,
    ready: Range<usize>,
    out: Vec<u8>,
    /// The name in the hello that has come, until the connection knows it.
    name: Option<Box<str>>,
    certificates: OnceLock<Box<[CertificateDer<'static>]>>,
    has_peer_closed: bool,
    is_closed: bool,
}

enum WireStage {
    /// A server without settings: the hello has not come.
    Hello(Box<NeedsInput<ServerSide>>),
    /// The hello has come.
    Asked(Box<Accepted<Tcp>>),
    /// It has settings, and the handshake goes on.
    Answered(Box<NeedsInput<ServerSide>>),
    Server(Box<Connection<ServerSide, Tcp>>),
    Client(Box<Connection<ClientSide, Tcp>>),
    OpenServer(Open<ServerSide>),
    OpenClient(Open<ClientSide>),
    /// It has failed before it was open.
    Failed,
}

/// A connection whose handshake is done.
struct Open<Side: SideData> {
    /// `None` once this end has closed.
    send: Option<SendTraffic>,
    /// `None` once the peer has closed, or has failed.
    receive: Option<ReceiveTraffic<Side>>,
    outputs: ConnectionOutputs,
    side: Side,
}

impl<Side: SideData> From<SplitConnection<Side>> for Open<Side> {
    fn from(parts: SplitConnection<Side>) -> Open<Side> {
        let SplitConnection { send, receive, outputs, side_outputs: side } = parts;
        Open { send: Some(send), receive: Some(receive), outputs, side }
    }
}

/// What an input has brought.
#[derive(Default)]
struct Heard {
    /// Where plain text is: its address and its length.
    text: Option<(usize, usize)>,
    has_peer_closed: bool,
}

/// Takes a record while the handshake is not done, or the last one of it.
fn process<Side: SideData>(
    connection: &mut Connection<Side, Tcp>,
    input: &mut Input,
    out: &mut Vec<u8>,
) -> Result<Heard, Error> {
    let mut heard = Heard::default();
    let mut handler = connection.read_tls(input, out);
    while let Some(text) = handler.next_payload() {
        let text = text?;
        debug_assert!(heard.text.is_none(), "an input has one record");
        heard.text = Some((text.bytes().as_ptr().addr(), text.bytes().len()));
    }
    heard.has_peer_closed = handler.state().peer_has_closed();
    Ok(heard)
}

impl<Side: SideData> Open<Side> {
    /// Takes a record, or a part of one.
    fn read(&mut self, input: &mut Input) -> Result<Heard, Error> {
        let mut heard = Heard::default();
        let Some(receive) = self.receive.take() else { return Ok(heard) };
        heard.has_peer_closed = match receive.read(input)? {
            ReceiveTrafficState::Available(mut text) => {
                heard.text = Some((text.data().as_ptr().addr(), text.data().len()));
                self.keep(text.into_next())
            }
            state => self.keep(state),
        };
        Ok(heard)
    }

    /// Keeps what reads the next record. Returns whether the peer has closed.
    fn keep(&mut self, state: ReceiveTrafficState<'_, Side>) -> bool {
        match state {
            ReceiveTrafficState::ReadMore(receive) => self.receive = Some(receive),
            // What waits in the sender is flushed with the answers.
            ReceiveTrafficState::FlushSender(flush) => return self.keep(flush.into_next()),
            _ => return true,
        }
        false
    }

    /// Sends what waits in the sender: the answer to a change of keys, and alerts.
    fn flush(&mut self, out: &mut Vec<u8>) {
        if let Some(send) = &mut self.send {
            // An error says that the connection has failed: what waits is sent all the same.
            let _ = send.write(OutboundPlain::new_empty(), out);
        }
    }
}

impl Wire {
    /// A server whose settings come when the hello has come.
    pub(super) fn hello() -> Wire {
        Wire::new(WireStage::Hello(Box::new(ServerHandshake::start())), Vec::new())
    }

    pub(super) fn server(config: Arc<ServerConfig>) -> Result<Wire, Error> {
        let connection = Connection::<ServerSide, Tcp>::new(config)?;
        Ok(Wire::new(WireStage::Server(Box::new(connection)), Vec::new()))
    }

    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Wire, Error> {
        let mut out = Vec::new();
        let connection = config.connect(name).build(&mut out)?;
        Ok(Wire::new(WireStage::Client(Box::new(connection)), out))
    }

    fn new(stage: WireStage, out: Vec<u8>) -> Wire {
        Wire {
            stage,
            input: Input::default(),
            older: Vec::new(),
            ready: 0..0,
            out,
            name: None,
            certificates: OnceLock::new(),
            has_peer_closed: false,
            is_closed: false,
        }
    }

    /// Takes bytes of the peer, at most to the end of a record, and returns how many: none if too
    /// much plain text waits, or if the hello waits for settings.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<usize, Error> {
        let is_over = matches!(self.stage, WireStage::Asked(_) | WireStage::Failed);
        if piece.is_empty() || is_over || self.waiting() >= WAITING {
            return Ok(0);
        }
        self.older.extend_from_slice(&self.input.bytes[mem::replace(&mut self.ready, 0..0)]);
        self.input.add(piece);
        let result = self.process();
        if result.is_err() {
            self.answer_update();
        }
        result.map(|()| piece.len())
    }

    fn process(&mut self) -> Result<(), Error> {
        let Wire { input, out, .. } = self;
        let heard = match &mut self.stage {
            WireStage::Server(connection) => process(connection, input, out)?,
            WireStage::Client(connection) => process(connection, input, out)?,
            WireStage::OpenServer(open) => open.read(input)?,
            WireStage::OpenClient(open) => open.read(input)?,
            _ => return self.go_on(),
        };
        if let Some(text) = heard.text {
            self.ready = self.input.range(text);
        }
        self.has_peer_closed |= heard.has_peer_closed;
        self.open()
    }

    /// Takes a record of a handshake whose settings come later.
    fn go_on(&mut self) -> Result<(), Error> {
        let (handshake, is_answered) = match mem::replace(&mut self.stage, WireStage::Failed) {
            WireStage::Hello(handshake) => (handshake, false),
            WireStage::Answered(handshake) => (handshake, true),
            other => {
                self.stage = other;
                return Ok(());
            }
        };
        let mut next = handshake.process(&mut self.input, &mut self.out)?;
        if let ServerHandshake::VerifyClientIdentity(client) = next {
            next = client.with_config(&mut self.out)?;
        }
        self.stage = match next {
            ServerHandshake::NeedsInput(next) if is_answered => WireStage::Answered(Box::new(next)),
            ServerHandshake::NeedsInput(next) => WireStage::Hello(Box::new(next)),
            ServerHandshake::Accepted(accepted) => {
                let name = accepted.client_hello().server_name().map(|name| name.as_ref().into());
                self.name = name;
                WireStage::Asked(Box::new(accepted))
            }
            ServerHandshake::Complete(parts) => WireStage::OpenServer(parts.into()),
            _ => return Err(Error::General("an unknown state of a handshake".to_owned())),
        };
        Ok(())
    }

    /// Splits a connection whose handshake is done.
    fn open(&mut self) -> Result<(), Error> {
        let is_done = match &self.stage {
            WireStage::Server(connection) => !connection.is_handshaking(),
            WireStage::Client(connection) => !connection.is_handshaking(),
            _ => false,
        };
        if !is_done {
            return Ok(());
        }
        self.stage = match mem::replace(&mut self.stage, WireStage::Failed) {
            WireStage::Server(connection) => WireStage::OpenServer(Open::from(connection.split()?)),
            WireStage::Client(connection) => WireStage::OpenClient(Open::from(connection.split()?)),
            other => other,
        };
        if self.is_closed
            && let Some((send, _)) = self.directions()
        {
            *send = None;
        }
        Ok(())
    }

    /// The sender of an open connection, and where output goes.
    fn directions(&mut self) -> Option<(&mut Option<SendTraffic>, &mut Vec<u8>)> {
        match &mut self.stage {
            WireStage::OpenServer(open) => Some((&mut open.send, &mut self.out)),
            WireStage::OpenClient(open) => Some((&mut open.send, &mut self.out)),
            _ => None,
        }
    }

    /// Refuses the hello that waits. Returns whether there is one.
    pub(super) fn refuse_hello(&mut self) -> bool {
        let is_asked = self.is_asked();
        if is_asked {
            self.stage = WireStage::Failed;
            self.out.extend(UNRECOGNIZED_NAME);
        }
        is_asked
    }

    /// Whether the hello has not come, and waits for settings then.
    pub(super) fn awaits_hello(&self) -> bool {
        matches!(self.stage, WireStage::Hello(_))
    }

    pub(super) fn is_asked(&self) -> bool {
        matches!(self.stage, WireStage::Asked(_))
    }

    /// The hello that waits for settings.
    pub(super) fn asked(&self) -> Option<ClientHello<'_>> {
        match &self.stage {
            WireStage::Asked(accepted) => Some(accepted.client_hello()),
            _ => None,
        }
    }

    /// Answers the hello that waits. Returns whether there is one.
    pub(super) fn answer(&mut self, config: Arc<ServerConfig>) -> Result<bool, Error> {
        self.stage = match mem::replace(&mut self.stage, WireStage::Failed) {
            WireStage::Asked(accepted) => match accepted.choose_config(config, &mut self.out)? {
                ServerHandshake::NeedsInput(next) => WireStage::Answered(Box::new(next)),
                _ => return Err(Error::General("an unknown state of a handshake".to_owned())),
            },
            other => {
                self.stage = other;
                return Ok(false);
            }
        };
        Ok(true)
    }

    /// Gives up the buffer. Only for when no record has begun.
    pub(super) fn trim(&mut self, _longest: usize, _was_split: bool) {
        if self.ready.is_empty() && self.input.is_done() {
            self.ready = 0..0;
            self.input.release();
        }
    }

    /// How much plain text waits to be read.
    pub(super) fn waiting(&self) -> usize {
        self.older.len() + self.ready.len()
    }

    /// Reads plain text, as much as there is room for.
    pub(super) fn read(&mut self, into: &mut [u8]) -> usize {
        let first = self.older.len().min(into.len());
        let (older, into) = into.split_at_mut(first);
        if first > 0 {
            older.copy_from_slice(&self.older[..first]);
            self.older.drain(..first);
            if self.older.is_empty() {
                self.older = Vec::new();
            }
        }
        let second = self.ready.len().min(into.len());
        let text = self.ready.start..self.ready.start + second;
        into[..second].copy_from_slice(&self.input.bytes[text]);
        self.ready.start += second;
        first + second
    }

    /// Encrypts plain text, at most [`PIECE`] bytes, and appends the records to `out`, behind all
    /// output that waits. Returns how many bytes it took. `None` says that the keys are used up.
    pub(super) fn write(&mut self, parts: &[IoSlice<'_>], out: &mut Vec<u8>) -> Option<usize> {
        const FEW: usize = 8;
        self.output(out);
        let Some((Some(send), _)) = self.directions() else { return Some(0) };
        let mut left = PIECE;
        let mut cut = |part: &'_ IoSlice<'_>| {
            let len = part.len().min(left);
            left -= len;
            len
        };
        let result = if parts.len() <= FEW {
            let mut few: [&[u8]; FEW] = [&[]; FEW];
            for (i, part) in parts.iter().enumerate() {
                few[i] = &part[..cut(part)];
            }
            send.write(OutboundPlain::new(&few[..parts.len()]), out)
        } else {
            let many: Vec<&[u8]> = parts.iter().map(|part| &part[..cut(part)]).collect();
            send.write(OutboundPlain::new(&many), out)
        };
        match result {
            Ok(()) => Some(PIECE - left),
            Err(Error::EncryptError) => None,
            Err(_) => Some(0),
        }
    }

    /// As `write`, into the space at hand: as many whole records as it has room for, behind all
    /// output that waits. Returns how many bytes it took, and how many it has put there.
    pub(super) fn seal(&mut self, text: [&[u8]; 2], space: &mut [u8]) -> Option<(usize, usize)> {
        self.answer_update();
        let room = space.len().saturating_sub(self.out.len());
        let most = (text[0].len() + text[1].len()).min(PIECE);
        let whole = |bytes: usize| bytes + bytes.div_ceil(RECORD) * OVERHEAD;
        let most = if whole(most) <= room { most } else { room / whole(RECORD) * RECORD };
        let mut taken = 0;
        if most > 0 {
            let mut out = mem::take(&mut self.out);
            let first = &text[0][..most.min(text[0].len())];
            let second = &text[1][..most - first.len()];
            taken = self.write(&[first, second].map(IoSlice::new), &mut out)?;
            self.out = out;
        }
        let len = self.out.len().min(space.len());
        space[..len].copy_from_slice(&self.out[..len]);
        self.out.drain(..len);
        Some((taken, len))
    }

    /// Makes output of what waits in the sender.
    pub(super) fn answer_update(&mut self) {
        match &mut self.stage {
            WireStage::OpenServer(open) => open.flush(&mut self.out),
            WireStage::OpenClient(open) => open.flush(&mut self.out),
            _ => {}
        }
    }

    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Appends all output that waits.
    pub(super) fn output(&mut self, out: &mut Vec<u8>) {
        if !self.out.is_empty() {
            out.extend(mem::take(&mut self.out));
        }
    }

    pub(super) fn close(&mut self) {
        match &mut self.stage {
            WireStage::Server(connection) => {
                self.is_closed = connection.send_close_notify(&mut self.out).is_ok();
            }
            WireStage::Client(connection) => {
                self.is_closed = connection.send_close_notify(&mut self.out).is_ok();
            }
            // What the handshake is made of before it is done has no such call.
            _ => {
                if let Some((send, out)) = self.directions()
                    && let Some(send) = send.take()
                {
                    self.is_closed = send.close(out).is_ok();
                }
            }
        }
    }

    pub(super) fn update_keys(&mut self) -> bool {
        match self.directions() {
            Some((Some(send), out)) => send.refresh_traffic_keys(out).is_ok(),
            _ => false,
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        !matches!(self.stage, WireStage::OpenServer(_) | WireStage::OpenClient(_))
    }

    pub(super) fn has_peer_closed(&self) -> bool {
        self.has_peer_closed
    }

    fn outputs(&self) -> Option<&ConnectionOutputs> {
        match &self.stage {
            WireStage::Server(connection) => Some(connection),
            WireStage::Client(connection) => Some(connection),
            WireStage::OpenServer(open) => Some(&open.outputs),
            WireStage::OpenClient(open) => Some(&open.outputs),
            _ => None,
        }
    }

    pub(super) fn alpn(&self) -> Option<&[u8]> {
        self.outputs()?.alpn_protocol().map(AsRef::as_ref)
    }

    /// The name that the client has asked for; `None` at a client.
    pub(super) fn server_name(&self) -> Option<&str> {
        let known = match &self.stage {
            WireStage::Server(connection) => connection.side().server_name(),
            WireStage::OpenServer(open) => open.side.server_name(),
            _ => None,
        };
        known.map(AsRef::as_ref).or(self.name.as_deref())
    }

    pub(super) fn version(&self) -> Option<ProtocolVersion> {
        self.outputs()?.protocol_version()
    }

    pub(super) fn suite(&self) -> Option<CipherSuite> {
        self.outputs()?.negotiated_cipher_suite().map(|suite| suite.suite())
    }

    pub(super) fn key_exchange(&self) -> Option<NamedGroup> {
        self.outputs()?.negotiated_key_exchange_group().map(|group| group.name())
    }

    /// 0.24 keeps the first certificate and the others apart, so a list of them is made here.
    pub(super) fn certificates(&self) -> &[CertificateDer<'static>] {
        let identity = self.outputs().and_then(|outputs| outputs.peer_identity());
        let Some(Identity::X509(peer)) = identity.map(|identity| identity.identity()) else {
            return &[];
        };
        self.certificates.get_or_init(|| {
            [&peer.end_entity].into_iter().chain(&peer.intermediates).cloned().collect()
        })
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.outputs().and_then(|outputs| outputs.handshake_kind()) == Some(HandshakeKind::Resumed)
    }
}

#[cfg(test)]
mod tests {
    use crate::tls::{Pem, Session, Tls, TlsClient};

    #[test]
    fn records_in_a_space_are_whole() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("one");
        let certificate = Pem::bytes(made.cert.pem());
        let tls = Tls::pem(certificate.clone(), Pem::bytes(made.signing_key.serialize_pem()));
        let trust = TlsClient::builder().roots(certificate).build().expect("a client");
        let mut server = Session::server(&tls.expect("a server")).expect("a session");
        let mut client = Session::client(&trust, "localhost").expect("a session");
        let (mut to_server, mut to_client, mut heard) = (Vec::new(), Vec::new(), Vec::new());
        while !(client.is_open() && server.is_open()) {
            client.take_output(&mut to_server);
            server.feed_into(&to_server, &mut heard).expect("a flight");
            to_server.clear();
            server.take_output(&mut to_client);
            client.feed_into(&to_client, &mut heard).expect("a flight");
            to_client.clear();
        }
        let text: Vec<u8> = (0..200_000_u32).map(|i| i as u8).collect();
        for room in [0, 10, 100, 16_384, 20_000, 40_000, 70_000, 300_000] {
            // What waits comes first, also if there is no room for all of it.
            assert!(client.update_keys());
            let (mut said, mut space) = (0, vec![0; room.max(20_000)]);
            heard.clear();
            for len in [room, 20_000] {
                let (taken, count) =
                    client.seal([&text[said..], &[]], &mut space[..len]).expect("open");
                said += taken;
                server.feed_into(&space[..count], &mut heard).expect("records");
            }
            assert!(said > 0 && heard == text[..said], "{room}");
            server.take_output(&mut to_client);
            client.feed_into(&to_client, &mut heard).expect("the answer");
            to_client.clear();
        }
    }
}
