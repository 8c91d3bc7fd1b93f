//! The adapter: everything that names the connection types of rustls.
//!
//! # Why
//!
//! rustls 0.24 changes these types: it decrypts in the caller's bytes and appends its output to the
//! caller's vector. So [`Wire`] has the calls of 0.24, on the types of 0.23, and a change of
//! version is a change of this file. Two copies are the price on 0.23: the input goes into a buffer
//! of rustls, and the plain text comes out of another one.
//!
//! The memory that a connection keeps is rustls' own: a buffer of 4 KiB for the record that has
//! begun, from the first bytes of the peer on. [`Wire::trim`] brings it back to this size after
//! longer records.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::client::ClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ServerConnection;
use rustls::{ClientConfig, Connection, HandshakeKind, ProtocolVersion, ServerConfig};

/// How many bytes of records rustls holds at most for one call of [`Wire::write`]. Its own limit is
/// for plain text, and this is also what it has by default.
pub(super) const PIECE: usize = 64 << 10;

/// The buffer for records that rustls has between two records.
const READ_SIZE: usize = 4096;

/// One end of a connection.
pub(super) struct Wire {
    connection: Connection,
    /// How much plain text waits to be read.
    waiting: usize,
    has_peer_closed: bool,
}

/// What a read gets that must only trim the buffer.
struct Never;

impl Read for Never {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        // Zero bytes would say that the input has ended.
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Wire {
    pub(super) fn server(config: Arc<ServerConfig>) -> Result<Wire, rustls::Error> {
        Ok(Wire::new(ServerConnection::new(config)?.into()))
    }

    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Wire, rustls::Error> {
        Ok(Wire::new(ClientConnection::new(config, name)?.into()))
    }

    fn new(connection: Connection) -> Wire {
        Wire { connection, waiting: 0, has_peer_closed: false }
    }

    /// Takes bytes of the peer, at most to the end of a record, and returns how many. It takes none
    /// only if too much plain text waits.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<usize, rustls::Error> {
        let mut left = piece;
        while !left.is_empty() {
            match self.connection.read_tls(&mut left) {
                Ok(0) => break,
                Ok(_) => {}
                // The other reason is a message of the handshake that does not fit.
                Err(_) if self.waiting > 0 => break,
                Err(_) => return Err(rustls::InvalidMessage::HandshakePayloadTooLarge.into()),
            }
            // Its error comes after the plain text in front of it.
            let state = self.connection.process_new_packets()?;
            self.waiting = state.plaintext_bytes_to_read();
            self.has_peer_closed = state.peer_has_closed();
        }
        Ok(piece.len() - left.len())
    }

    /// Gives up the memory of a long record. Only for when no record has begun: then the next bytes
    /// would do the same.
    pub(super) fn trim(&mut self, last_record: usize) {
        if last_record > READ_SIZE {
            let result = self.connection.read_tls(&mut Never);
            debug_assert!(result.is_err());
        }
    }

    /// How much plain text waits to be read.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Reads plain text, as much as there is room for.
    pub(super) fn read(&mut self, into: &mut [u8]) -> usize {
        if self.waiting == 0 || into.is_empty() {
            return 0;
        }
        let count = self.connection.reader().read(into).unwrap_or(0);
        self.waiting -= count.min(self.waiting);
        count
    }

    /// Encrypts plain text, at most [`PIECE`] bytes, and appends the records to `out`, behind all
    /// output that waits. Returns how many bytes it took. `None` says that the keys are used up.
    pub(super) fn write(&mut self, parts: &[IoSlice<'_>], out: &mut Vec<u8>) -> Option<usize> {
        // What waits would count for rustls' limit.
        self.output(out);
        let before = out.len();
        let taken = self.connection.writer().write_vectored(parts).unwrap_or(0);
        self.output(out);
        // A connection of TLS 1.2 whose keys are used up says that it took all, and drops it.
        (out.len() - before >= taken).then_some(taken)
    }

    pub(super) fn has_output(&self) -> bool {
        self.connection.wants_write()
    }

    /// Appends all output that waits.
    pub(super) fn output(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            if self.connection.write_tls(out).is_err() {
                break; // a vector takes everything
            }
        }
    }

    pub(super) fn close(&mut self) {
        self.connection.send_close_notify();
    }

    pub(super) fn update_keys(&mut self) -> bool {
        self.connection.refresh_traffic_keys().is_ok()
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(super) fn has_peer_closed(&self) -> bool {
        self.has_peer_closed
    }

    pub(super) fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// The name that the client has asked for; `None` at a client.
    pub(super) fn server_name(&self) -> Option<&str> {
        match &self.connection {
            Connection::Server(server) => server.server_name(),
            Connection::Client(_) => None,
        }
    }

    pub(super) fn version(&self) -> Option<ProtocolVersion> {
        self.connection.protocol_version()
    }

    pub(super) fn suite(&self) -> Option<rustls::CipherSuite> {
        self.connection.negotiated_cipher_suite().map(|suite| suite.suite())
    }

    pub(super) fn key_exchange(&self) -> Option<rustls::NamedGroup> {
        self.connection.negotiated_key_exchange_group().map(|group| group.name())
    }

    pub(super) fn certificates(&self) -> &[CertificateDer<'static>] {
        self.connection.peer_certificates().unwrap_or_default()
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}
