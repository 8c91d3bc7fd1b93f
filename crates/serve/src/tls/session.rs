//! One end of a connection with TLS, without I/O.

use std::fmt;
use std::io::IoSlice;

use windlass::Buf;

use super::adapter::{READ_SIZE, Wire};
use super::certificate::CertificateInfo;
use super::client::{Destination, TlsClient};
use super::error::TlsError;
use super::provider::Version;
use super::records::{HEADER, Records};
use super::server::Tls;
use super::verifier;

/// What rustls says if there is no certificate for the name that a client asks for.
const NO_CERTIFICATE_FOUND: &str = "no server certificate chain resolved";

/// The kind of a record with text. TLS 1.3 gives it to all encrypted records.
const TEXT: u8 = 23;

/// One end of a connection with TLS: bytes in, bytes out, and no I/O.
///
/// - What the peer sends goes into [`feed`](Session::feed), in pieces of any size. Its plain text
///   takes the place of the input. [`feed_buf`](Session::feed_buf) does the same in a [`Buf`], and
///   [`feed_into`](Session::feed_into) appends it to a vector.
/// - What has to go to the peer comes from [`take_output`](Session::take_output): the handshake,
///   tickets, answers to changes of keys, and the alert that says why the session has failed. So
///   call it after each `feed`, also one that returns an error, and at the begin of a client.
/// - [`write`](Session::write) encrypts plain text, once the session is
///   [open](SessionState::Open).
/// - [`close`](Session::close) says `close_notify`: this end writes no more. At the end of the
///   input, [`end_of_input`](Session::end_of_input) says whether the peer has said so, too.
///
/// What a session says does not depend on how the bytes are cut into pieces, except that
/// `take_output` may have its bytes later.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (certificate, key) = tls_example::pair();
/// # mod tls_example { pub fn pair() -> (String, String) {
/// #     let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
/// #     (made.cert.pem(), made.signing_key.serialize_pem())
/// # } }
/// use windlass_serve::tls::{Pem, Session, Tls, TlsClient};
///
/// let tls = Tls::pem(Pem::bytes(&certificate), Pem::bytes(&key))?;
/// let trust = TlsClient::builder().roots(Pem::bytes(&certificate)).build()?;
///
/// let mut server = Session::server(&tls)?;
/// let mut client = Session::client(&trust, "localhost")?;
/// let (mut to_server, mut to_client, mut plain) = (Vec::new(), Vec::new(), Vec::new());
/// while !(client.is_open() && server.is_open()) {
///     client.take_output(&mut to_server);
///     server.feed_into(&to_server, &mut plain)?;
///     to_server.clear();
///     server.take_output(&mut to_client);
///     client.feed_into(&to_client, &mut plain)?;
///     to_client.clear();
/// }
/// client.write_all(b"hello", &mut to_server)?;
/// // The plain text takes the place of the records.
/// let fed = server.feed(&mut to_server);
/// fed.result?;
/// assert_eq!(&to_server[..fed.plain], b"hello");
/// # Ok(()) }
/// ```
///
/// What it costs stands in [`tls`](super#memory).
pub struct Session {
    wire: Wire,
    records: Records,
    /// How many bytes were taken before the handshake was done, and the limit of them.
    handshake: (u32, u32),
    failure: Option<Box<TlsError>>,
    is_closed: bool,
    /// Whether the library already has the first byte of the next input.
    is_ahead: bool,
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionState {
    /// The handshake is not done.
    Handshaking,
    /// The hello of the client has come, and waits for [`Session::answer`].
    Asked,
    /// Both ends can write.
    Open,
    /// The peer has said that it writes no more (`close_notify`). This end may still write.
    PeerClosed,
    /// The session has failed: [`Session::failure`] says why.
    Failed,
}

/// What [`Session::feed`] has made of its input.
#[derive(Clone, Debug)]
#[must_use = "it says how much plain text there is, and whether the session has failed"]
pub struct Fed {
    /// How many bytes of the input were taken. All of them, except behind `close_notify`, behind an
    /// error, and if more plain text waits than a session holds.
    pub consumed: usize,
    /// How many bytes of plain text are now at the front of the input.
    pub plain: usize,
    /// Whether the session has failed. The plain text in front of the error is whole.
    pub result: Result<(), TlsError>,
}

impl Session {
    /// The server's end of a new connection.
    ///
    /// # Errors
    /// [`TlsError::Other`] if rustls refuses the settings.
    pub fn server(tls: &Tls) -> Result<Session, TlsError> {
        let (config, limit) = tls.current();
        Ok(Session::new(Wire::server(config)?, limit))
    }

    /// The server's end of a new connection whose settings come later: when the hello of the client
    /// has come, the state is [`Asked`](SessionState::Asked), and the session takes no more input
    /// until [`answer`](Session::answer). So a program can look up a certificate elsewhere without
    /// a thread that waits, and can choose when, and on which thread, it does the costly part of a
    /// handshake. `limit` is how many bytes the hello may have.
    ///
    /// ```
    /// # let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    /// # let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    /// use windlass_serve::tls::{Pem, Session, SessionState, Tls, TlsClient};
    /// # let trust = TlsClient::builder().roots(Pem::bytes(&certificate)).alpn(["h2"]).build()?;
    /// # let mut client = Session::client(&trust, "localhost")?;
    /// # let mut hello = Vec::new();
    /// # client.take_output(&mut hello);
    ///
    /// let mut session = Session::server_later(16 << 10);
    /// session.feed_into(&hello, &mut Vec::new())?;
    /// assert_eq!(session.state(), SessionState::Asked);
    /// assert_eq!(session.server_name(), Some("localhost"));
    /// assert_eq!(session.offered_alpn(), [b"h2"]);
    /// // ... a look-up, perhaps on another thread ...
    /// let tls = Tls::pem(Pem::bytes(&certificate), Pem::bytes(&key))?;
    /// session.answer(&tls)?;
    /// assert!(session.has_output());
    /// # Ok::<(), windlass_serve::tls::Error>(())
    /// ```
    pub fn server_later(limit: usize) -> Session {
        Session::new(Wire::hello(), u32::try_from(limit).unwrap_or(u32::MAX))
    }

    /// Answers the hello of the client with these settings. In any other state than
    /// [`Asked`](SessionState::Asked) nothing happens.
    ///
    /// # Errors
    /// The reason why the session has failed. [`take_output`](Session::take_output) has the alert.
    pub fn answer(&mut self, tls: &Tls) -> Result<(), TlsError> {
        self.check()?;
        let (config, limit) = tls.current();
        // What the hello took is over.
        self.handshake.1 = limit.max(self.handshake.0);
        match self.wire.answer(config) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refused(error, false)),
        }
    }

    /// Refuses the hello of the client, because there are no settings for it. In any other state
    /// than [`Asked`](SessionState::Asked) nothing happens. Returns the reason why the session has
    /// failed: [`TlsError::UnknownName`]. [`take_output`](Session::take_output) has the alert.
    pub fn refuse(&mut self) -> Option<TlsError> {
        let is_refused = self.failure.is_none() && self.wire.refuse_hello();
        is_refused.then(|| {
            let name = self.server_name().map(str::to_owned);
            self.fail(TlsError::UnknownName(name))
        })
    }

    /// Whether the hello has not come, and waits for settings then. It is only read, which costs
    /// little.
    pub(crate) fn awaits_hello(&self) -> bool {
        self.wire.awaits_hello()
    }

    /// The protocols that the client speaks (ALPN), the best first, in the state
    /// [`Asked`](SessionState::Asked); none in every other one.
    pub fn offered_alpn(&self) -> Vec<&[u8]> {
        let asked = self.wire.asked();
        asked.and_then(|hello| hello.alpn().map(Iterator::collect)).unwrap_or_default()
    }

    /// The client's end of a new connection, to the server with this name or IP address. The
    /// server's certificate has to be for this name.
    ///
    /// # Errors
    /// [`TlsError::BadName`] if it is no name of a server, and [`TlsError::NoRandomness`] if the
    /// system has no random bytes.
    pub fn client(tls: &TlsClient, name: &str) -> Result<Session, TlsError> {
        Session::to(&tls.to(name)?)
    }

    /// The client's end of a new connection to this server.
    pub(crate) fn to(server: &Destination) -> Result<Session, TlsError> {
        let (config, name, limit) = server.current();
        Ok(Session::new(Wire::client(config, name)?, limit))
    }

    fn new(wire: Wire, limit: u32) -> Session {
        Session {
            wire,
            records: Records::default(),
            handshake: (0, limit),
            failure: None,
            is_closed: false,
            is_ahead: false,
        }
    }

    /// Takes bytes of the peer. The plain text in them takes their place, at the front of `input`.
    ///
    /// A record that began in an earlier input may have more plain text than this input has room.
    /// The rest of it waits: `take_plain` has it, and it comes behind what is in `input`. At most
    /// one record, 16 KiB, waits if the program takes it each time. If it does not, `feed` stops at
    /// 16 KiB, and `consumed` says where.
    ///
    /// A failure does not lose what came before it: [`Fed::plain`] and the plain text that waits
    /// are whole. After a failure, each `feed` returns the same error, and takes nothing.
    pub fn feed(&mut self, input: &mut [u8]) -> Fed {
        // Whether a step had no text: it may have been a change of keys.
        let (mut consumed, mut plain, mut is_silent) = (0, 0, false);
        let result = loop {
            plain += self.wire.read(&mut input[plain..consumed]);
            let before = self.wire.waiting();
            match self.step(&input[consumed..]) {
                Ok(0) => break Ok(()),
                Ok(count) => consumed += count,
                Err(error) => break Err(error),
            }
            is_silent |= self.wire.waiting() == before;
        };
        // The step that failed may have had plain text in front of the error.
        plain += self.wire.read(&mut input[plain..consumed]);
        self.settle(is_silent);
        Fed { consumed, plain, result }
    }

    /// Takes bytes of the peer, and appends the plain text in them to `plain`. Returns how many
    /// bytes it took: all of them, except behind `close_notify`.
    ///
    /// # Errors
    /// The reason why the session has failed. The plain text in front of it is in `plain`, and
    /// [`take_output`](Session::take_output) has the alert for the peer.
    pub fn feed_into(&mut self, input: &[u8], plain: &mut Vec<u8>) -> Result<usize, TlsError> {
        let mut consumed = 0;
        let result = loop {
            self.take_plain(plain);
            match self.step(&input[consumed..]) {
                Ok(0) => break Ok(consumed),
                Ok(count) => consumed += count,
                Err(error) => break Err(error),
            }
        };
        self.take_plain(plain);
        self.settle(true);
        result
    }

    /// Takes bytes of the peer, and returns the plain text in them: in the memory of the input, if
    /// nobody else has a part of it. So a lease of a read becomes plain text without an allocation.
    /// What has no room there, because a record began in an earlier input, comes as a second part
    /// in memory of its own ([`Buf::list`]). Bytes behind `close_notify` are lost: use
    /// [`feed`](Session::feed) where they matter.
    ///
    /// The plain text is whole also if the session has failed.
    pub fn feed_buf(&mut self, input: Buf) -> (Buf, Result<(), TlsError>) {
        let (plain, result) = self.feed_in_place(input);
        if self.plain_len() == 0 {
            return (plain, result);
        }
        let mut rest = Vec::new();
        self.take_plain(&mut rest);
        (Buf::list([plain, Buf::from(rest)]), result)
    }

    /// As `feed_buf`, without the second part: that waits.
    pub(crate) fn feed_in_place(&mut self, input: Buf) -> (Buf, Result<(), TlsError>) {
        match input.into_lease_mut() {
            Ok(mut lease) => {
                let fed = self.feed(&mut lease);
                (Buf::from(lease).slice(..fed.plain), fed.result)
            }
            Err(input) => {
                let mut bytes = input.into_vec();
                let fed = self.feed(&mut bytes);
                bytes.truncate(fed.plain);
                (Buf::from(bytes), fed.result)
            }
        }
    }

    /// Reads plain text that waits, as much as there is room for. Returns how much.
    pub(crate) fn read_plain(&mut self, into: &mut [u8]) -> usize {
        self.wire.read(into)
    }

    /// Takes bytes of the peer until the handshake is done. Returns how many it took. What is
    /// behind them is for [`feed`](Session::feed).
    pub(crate) fn feed_handshake(&mut self, input: &[u8]) -> Result<usize, TlsError> {
        let mut consumed = 0;
        while self.wire.is_handshaking() && consumed < input.len() {
            match self.step(&input[consumed..])? {
                0 => break,
                count => consumed += count,
            }
        }
        Ok(consumed)
    }

    /// Whether a record ends in this input. Until then the library only collects bytes, which costs
    /// little.
    pub(crate) fn completes_record(&self, input: &[u8]) -> bool {
        let mut then = self.records;
        then.pass(&input[..then.piece(input)]);
        then.is_between()
    }

    /// How many bytes it has taken before the handshake was done.
    pub(crate) fn handshake_taken(&self) -> usize {
        self.handshake.0 as usize
    }

    /// Takes the rest of one record, or what there is of it. Zero says that nothing can be taken.
    fn step(&mut self, input: &[u8]) -> Result<usize, TlsError> {
        self.check()?;
        if input.is_empty() || self.wire.has_peer_closed() || self.wire.is_asked() {
            return Ok(0);
        }
        if self.wire.is_handshaking() { self.handshake(input) } else { self.record(input) }
    }

    /// Takes the rest of one record of the handshake.
    fn handshake(&mut self, input: &[u8]) -> Result<usize, TlsError> {
        let (taken, limit) = self.handshake;
        let most = self.records.piece(input).min((limit - taken) as usize);
        if most == 0 {
            // An alert of its own would have to be encrypted, which the library does only for this
            // one.
            self.wire.close();
            return Err(self.fail(TlsError::HandshakeTooLong { limit: limit as usize }));
        }
        let is_first = self.records.is_first();
        let fed = self.give(&input[..most]);
        // What failed was taken, too: nobody else can use it.
        let count = *fed.as_ref().unwrap_or(&most);
        self.records.pass(&input[..count]);
        self.handshake.0 += count as u32; // a piece is at most a record
        fed.map_err(|error| self.refused(error, is_first))
    }

    /// Gives a piece to the library: at once, or with the whole header if it begins the first
    /// record. The library refuses other protocols at their first byte, and the error tells more.
    fn give(&mut self, piece: &[u8]) -> Result<usize, rustls::Error> {
        let missing = HEADER - self.records.header_len();
        match self.records.first_header(piece) {
            Some(_) if piece.len() < missing => Ok(piece.len()),
            Some(header) if missing < HEADER => {
                self.wire.feed(&header)?;
                Ok(missing + self.wire.feed(&piece[missing..])?)
            }
            _ => self.wire.feed(piece),
        }
    }

    /// Takes the rest of one record of an open session.
    ///
    /// From a long record on, the library also gets the first byte of the next record, if it is
    /// there. Then its buffer is not empty between two records: it would shrink to 4 KiB, and grow
    /// again in up to four steps. That byte counts as taken with its own record, because
    /// `close_notify` may be in front of it.
    fn record(&mut self, input: &[u8]) -> Result<usize, TlsError> {
        let most = self.records.piece(input);
        let mut then = self.records;
        then.pass(&input[..most]);
        let has_grown = then.longest() > READ_SIZE;
        // Not the begin of what is no record: its error must not come before this record's text.
        let is_record = input.get(most).is_some_and(|kind| (20..=23).contains(kind));
        let ahead = usize::from(has_grown && then.is_between() && is_record);
        let given = usize::from(self.is_ahead);
        match self.wire.feed(&input[given..most + ahead]) {
            Ok(count) => {
                let taken = given + count;
                self.is_ahead = taken > most;
                self.records.pass(&input[..taken.min(most)]);
                Ok(taken.min(most))
            }
            Err(error) => {
                self.records = then;
                Err(self.refused(error, false))
            }
        }
    }

    /// What an error of the library means here, and whether the first record is its reason.
    fn refused(&mut self, error: rustls::Error, is_first: bool) -> TlsError {
        let is_no_record = matches!(error, rustls::Error::InvalidMessage(_))
            && is_no_record(self.records.header());
        let mut error = TlsError::from(error);
        let refused = verifier::take_refused();
        if is_first && is_no_record {
            error = TlsError::NotTls { looks_like: looks_like(self.records.header()) };
        } else if let TlsError::Certificate { certificate, .. } = &mut error {
            *certificate = refused.map(Box::new);
        } else if matches!(&error, TlsError::Other(text) if text == NO_CERTIFICATE_FOUND) {
            error = TlsError::UnknownName(self.server_name().map(str::to_owned));
        }
        self.fail(error)
    }

    fn fail(&mut self, error: TlsError) -> TlsError {
        self.failure = Some(Box::new(error.clone()));
        error
    }

    fn check(&self) -> Result<(), TlsError> {
        self.failure.as_ref().map_or(Ok(()), |error| Err((**error).clone()))
    }

    /// What follows input: answers become output, if there may be any, and long records leave no
    /// memory behind.
    fn settle(&mut self, may_answer: bool) {
        // A peer that changes its keys all the time fills no memory: one answer waits.
        if may_answer && self.failure.is_none() && !self.wire.has_output() {
            self.wire.answer_update();
        }
        let is_idle = self.records.is_between() && !self.is_ahead;
        if is_idle && self.failure.is_none() && !self.wire.has_peer_closed() {
            self.wire.trim(self.records.longest(), self.records.was_split());
            self.records.forget();
        }
    }

    /// How many bytes of plain text wait.
    pub fn plain_len(&self) -> usize {
        self.wire.waiting()
    }

    /// Appends the plain text that waits to `plain`, and returns how much it was.
    pub fn take_plain(&mut self, plain: &mut Vec<u8>) -> usize {
        let (before, count) = (plain.len(), self.wire.waiting());
        if count > 0 {
            plain.resize(before + count, 0);
            let read = self.wire.read(&mut plain[before..]);
            plain.truncate(before + read);
        }
        plain.len() - before
    }

    /// Encrypts plain text, and appends the records to `out`, behind all output that waits. The
    /// parts are one text: a record begins only where the last one is full, with 16 KiB. Returns
    /// how many bytes it took: at most 64 KiB, so that `out` grows by some 64.1 KiB at most.
    ///
    /// # Errors
    /// [`TlsError::Handshaking`] until the session is open, and [`TlsError::Closed`] after
    /// [`close`](Session::close); both leave the session as it is. [`TlsError::KeysExhausted`] ends
    /// it. After a failure, its reason.
    pub fn write(&mut self, parts: &[IoSlice<'_>], out: &mut Vec<u8>) -> Result<usize, TlsError> {
        self.check()?;
        if self.is_closed {
            return Err(TlsError::Closed);
        }
        if self.wire.is_handshaking() {
            return Err(TlsError::Handshaking);
        }
        match self.wire.write(parts, out) {
            Some(taken) => Ok(taken),
            None => Err(self.fail(TlsError::KeysExhausted)),
        }
    }

    /// Encrypts plain text, which may lie in two places, into a space: as many whole records as it
    /// has room for, behind all output that waits. Returns how many bytes it took, and how many it
    /// has put into the space.
    ///
    /// # Errors
    /// As for [`write`](Session::write). With [`TlsError::KeysExhausted`] what waited is lost, too.
    pub(crate) fn seal(
        &mut self,
        text: [&[u8]; 2],
        space: &mut [u8],
    ) -> Result<(usize, usize), TlsError> {
        if text.iter().any(|part| !part.is_empty()) {
            self.check()?;
            if self.is_closed {
                return Err(TlsError::Closed);
            }
            if self.wire.is_handshaking() {
                return Err(TlsError::Handshaking);
            }
        }
        self.wire.seal(text, space).ok_or_else(|| self.fail(TlsError::KeysExhausted))
    }

    /// How many bytes of text are in the records of an output that ends behind byte `from`. Changes
    /// of keys and alerts, which look like text in TLS 1.3, count with their few bytes.
    pub(crate) fn text_behind(&self, output: &Buf, from: usize) -> usize {
        let overhead = match self.wire.suite() {
            _ if self.version() == Some(Version::Tls13) => 17,
            Some(suite) if format!("{suite:?}").contains("GCM") => 24,
            _ => 16,
        };
        let (mut records, mut at, mut text) = (Records::default(), 0, 0);
        for part in output.parts() {
            let mut left = &**part;
            while !left.is_empty() {
                let count = records.piece(left);
                records.pass(&left[..count]);
                (at, left) = (at + count, &left[count..]);
                if records.is_between() && at > from && records.header()[0] == TEXT {
                    let len = u16::from_be_bytes([records.header()[3], records.header()[4]]);
                    text += usize::from(len).saturating_sub(overhead);
                }
            }
        }
        text
    }

    /// Encrypts plain text of any length, and appends the records to `out`, behind all output that
    /// waits.
    ///
    /// # Errors
    /// As for [`write`](Session::write).
    pub fn write_all(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        let mut left = plain;
        while !left.is_empty() {
            let taken = self.write(&[IoSlice::new(left)], out)?;
            if taken == 0 {
                return Err(self.fail(TlsError::Other("rustls takes nothing".to_owned())));
            }
            left = &left[taken..];
        }
        Ok(())
    }

    /// Whether there is output for the peer.
    pub fn has_output(&self) -> bool {
        self.wire.has_output()
    }

    /// Appends all output for the peer to `out`, and returns how much it was.
    pub fn take_output(&mut self, out: &mut Vec<u8>) -> usize {
        let before = out.len();
        self.wire.answer_update();
        self.wire.output(out);
        out.len() - before
    }

    /// Says that this end writes no more: `close_notify` is the last output. Nothing happens if it
    /// was said before, or if the session has failed and has sent an alert.
    pub fn close(&mut self) {
        self.wire.close();
        self.is_closed = true;
    }

    /// Says that the input has ended: the peer has shut down its side of the connection below.
    ///
    /// # Errors
    /// [`TlsError::HandshakeCut`] if the handshake was not done, and [`TlsError::Truncated`] if the
    /// peer has not said `close_notify`: then an attacker may have cut the connection, and what
    /// has come may not be all. The session has failed. After another failure, its reason.
    pub fn end_of_input(&mut self) -> Result<(), TlsError> {
        self.check()?;
        match self.state() {
            SessionState::PeerClosed => Ok(()),
            SessionState::Handshaking | SessionState::Asked => {
                Err(self.fail(TlsError::HandshakeCut))
            }
            _ => Err(self.fail(TlsError::Truncated)),
        }
    }

    /// Changes the keys of both directions: the next output has a `KeyUpdate`, to which the peer
    /// answers. (A `Session` answers at once.) Returns false if it cannot: with TLS 1.2, and if the
    /// session is not open.
    ///
    /// No program needs this call to be safe. With TLS 1.3 a [`write`](Session::write) changes the
    /// keys before they are used up: those of AES-GCM after 2^24 records. With TLS 1.2 it ends the
    /// session then, with [`TlsError::KeysExhausted`].
    pub fn update_keys(&mut self) -> bool {
        !self.is_closed && self.failure.is_none() && self.wire.update_keys()
    }

    /// What the session is doing.
    pub fn state(&self) -> SessionState {
        if self.failure.is_some() {
            SessionState::Failed
        } else if self.wire.has_peer_closed() {
            SessionState::PeerClosed
        } else if self.wire.is_asked() {
            SessionState::Asked
        } else if self.wire.is_handshaking() {
            SessionState::Handshaking
        } else {
            SessionState::Open
        }
    }

    /// Whether the handshake is done, the peer has not said `close_notify`, and nothing has failed.
    pub fn is_open(&self) -> bool {
        self.state() == SessionState::Open
    }

    /// Whether this end has said `close_notify`.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Why the session has failed.
    pub fn failure(&self) -> Option<&TlsError> {
        self.failure.as_deref()
    }

    /// The protocol that both ends have agreed on (ALPN), such as `h2`.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.wire.alpn()
    }

    /// The name of a server that the client has asked for (SNI), in lower case, once the hello has
    /// come. A client's own session has none.
    pub fn server_name(&self) -> Option<&str> {
        self.wire.server_name()
    }

    /// The version of TLS, once it is agreed.
    pub fn version(&self) -> Option<Version> {
        self.wire.version().and_then(Version::of)
    }

    /// The suite of ciphers, once it is agreed, as IANA names it.
    pub fn suite(&self) -> Option<String> {
        self.wire.suite().map(super::provider::suite_name)
    }

    /// How the keys were exchanged, once that is done, as IANA names it. A resumed session of TLS
    /// 1.2 exchanges none.
    pub fn key_exchange(&self) -> Option<String> {
        self.wire.key_exchange().map(|group| format!("{group:?}"))
    }

    /// The certificates that the peer has shown, in DER: its own first, then those of its issuers.
    /// A resumed session has those of the first one.
    pub fn peer_certificates(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.wire.certificates().iter().map(AsRef::as_ref)
    }

    /// What the certificate of the peer says: its names and its number.
    pub fn peer_certificate_info(&self) -> Option<CertificateInfo> {
        self.wire.certificates().first().and_then(CertificateInfo::read)
    }

    /// Whether it has resumed an earlier session: then neither end has sent a certificate.
    pub fn is_resumed(&self) -> bool {
        self.wire.is_resumed()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("state", &self.state())
            .field("version", &self.version())
            .field("server_name", &self.server_name())
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// Whether a record of no version of TLS begins so: with its kind, and 3 for the version.
fn is_no_record(first: &[u8; HEADER]) -> bool {
    !(20..=24).contains(&first[0]) || first[1] != 3
}

/// What the first bytes of a peer that does not speak TLS look like.
fn looks_like(first: &[u8; HEADER]) -> Option<&'static str> {
    const METHODS: [&[u8]; 10] = [
        b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELET", b"OPTIO", b"PATCH", b"TRACE", b"CONNE",
        b"PRI *",
    ];
    if METHODS.iter().any(|method| first.starts_with(method)) {
        Some("HTTP")
    } else if first.starts_with(b"HTTP/") {
        Some("HTTP, as a server")
    } else if first.starts_with(b"SSH-") {
        Some("SSH")
    } else if first.starts_with(b"PROXY") || first.starts_with(b"\r\n\r\n\0") {
        Some("the PROXY protocol")
    } else if first.iter().all(|byte| matches!(byte, b'\r' | b'\n' | b' '..=b'~')) {
        Some("text")
    } else {
        None
    }
}
