//! Clients whose bytes pass a session of TLS, for tests that run with it and without.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use windlass::driver::{Driver, OpCode};
use windlass::{Buf, Completion, Done, ErrorKind, Op, Source, Watcher};
use windlass_serve::tls::{Pem, Provider, Session, SessionState, Tls, TlsClient};

use super::{CLIENT, Client};

/// A server's settings with a certificate of its own, and those of a client that trusts it.
pub fn settings() -> (Tls, TlsClient) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("one");
    let certificate = Pem::bytes(made.cert.pem());
    let key = Pem::bytes(made.signing_key.serialize_pem());
    let server = Tls::builder().provider(Provider::Ring).certificate(certificate.clone(), key);
    let client = TlsClient::builder().provider(Provider::Ring).roots(certificate);
    (server.build().expect("a server"), client.build().expect("a client"))
}

/// The sessions of the clients of a scene.
pub struct Secured {
    pub tls: TlsClient,
    all: HashMap<Source, Secure>,
}

struct Secure {
    session: Session,
    /// What it says when its session is open.
    unsaid: Vec<u8>,
    /// Whether it says `close_notify` behind that.
    ends: bool,
}

fn send<D: Driver>(watcher: &mut Watcher<D>, source: Source, secure: &mut Secure) {
    let mut out = Vec::new();
    secure.session.take_output(&mut out);
    if secure.session.is_open() && !secure.unsaid.is_empty() {
        secure.session.write_all(&secure.unsaid, &mut out).expect("it is open");
        secure.unsaid.clear();
        if secure.ends {
            secure.session.close();
            secure.session.take_output(&mut out);
        }
    }
    if !out.is_empty() {
        // Refused if it has closed.
        let _ = watcher.submit(Op::write(source, out).token(CLIENT));
    }
}

impl Secured {
    pub fn new(tls: TlsClient) -> Secured {
        Secured { tls, all: HashMap::new() }
    }

    pub fn begin(&mut self, source: Source) {
        let session = Session::client(&self.tls, "localhost").expect("a session");
        self.all.insert(source, Secure { session, unsaid: Vec::new(), ends: false });
    }

    pub fn session(&mut self, source: Source) -> &mut Session {
        &mut self.all.get_mut(&source).expect("a client").session
    }

    /// A client says something, as soon as its session is open.
    pub fn say<D: Driver>(&mut self, watcher: &mut Watcher<D>, source: Source, what: Buf) {
        let secure = self.all.get_mut(&source).expect("a client");
        secure.unsaid.extend(what.into_vec());
        send(watcher, source, secure);
    }

    /// A client says `close_notify`, behind what it has said.
    pub fn finish<D: Driver>(&mut self, watcher: &mut Watcher<D>, source: Source) {
        let secure = self.all.get_mut(&source).expect("a client");
        match secure.unsaid.is_empty() {
            true => secure.session.close(),
            false => secure.ends = true,
        }
        send(watcher, source, secure);
    }

    /// Puts the plain text in place of what a client has read. `None` if there is none.
    pub fn take<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        client: &mut Client,
        mut c: Completion,
    ) -> Option<Completion> {
        let source = c.source;
        let secure = self.all.get_mut(&source)?;
        match (c.code(), &c.result) {
            (OpCode::Connect, Ok(_)) => {
                send(watcher, source, secure);
                if client.is_deaf {
                    // Until its session is open.
                    watcher.submit(Op::read(source).token(CLIENT)).expect("a read");
                }
            }
            (OpCode::Read, Ok(Done::Read(data))) if data.is_eof() => {
                if secure.session.state() != SessionState::PeerClosed {
                    client.error = Some(ErrorKind::Eof);
                    return None;
                }
                if !client.stays {
                    // It closes, too, behind what it still says.
                    client.stays = true;
                    secure.session.close();
                    send(watcher, source, secure);
                    let _ = watcher.submit(Op::close(source).token(CLIENT));
                }
            }
            (OpCode::Read, Ok(Done::Read(data))) => {
                let mut plain = Vec::new();
                if let Err(error) = secure.session.feed_into(data, &mut plain) {
                    panic!("the client's session has failed: {error}");
                }
                send(watcher, source, secure);
                if !c.has_more() && !secure.session.is_open() {
                    watcher.submit(Op::read(source).token(CLIENT)).expect("a read");
                }
                if plain.is_empty() {
                    return None;
                }
                c.result = Ok(Done::Read(plain.into()));
            }
            _ => {}
        }
        Some(c)
    }
}

/// A client with a session, for threads that may block.
pub struct Blocking {
    stream: TcpStream,
    session: Session,
    plain: Vec<u8>,
    at: usize,
}

impl Blocking {
    pub fn connect(address: SocketAddr, tls: &TlsClient) -> Blocking {
        Blocking::over(TcpStream::connect(address).expect("a server"), tls)
    }

    /// Over a socket that is connected.
    pub fn over(stream: TcpStream, tls: &TlsClient) -> Blocking {
        let session = Session::client(tls, "localhost").expect("a session");
        let mut client = Blocking { stream, session, plain: Vec::new(), at: 0 };
        while client.session.state() == SessionState::Handshaking {
            client.flush().expect("a write");
            client.fill().expect("a handshake");
        }
        client.flush().expect("a write");
        client
    }

    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Takes more of the input; 0 at its end, which has to be one of the session.
    fn fill(&mut self) -> io::Result<usize> {
        let mut input = vec![0; 64 << 10];
        let count = self.stream.read(&mut input)?;
        if count == 0 {
            self.session.end_of_input().map_err(io::Error::other)?;
        }
        self.session.feed_into(&input[..count], &mut self.plain).map_err(io::Error::other)?;
        self.flush()?;
        Ok(count)
    }

    /// Says `close_notify`, and takes what comes until the end of the other side.
    pub fn end(mut self) -> Vec<u8> {
        self.session.close();
        self.flush().expect("a write");
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        while self.fill().expect("a read") > 0 {}
        self.plain.split_off(self.at)
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        self.session.close();
        let _ = self.flush(); // the server may be gone
    }
}

impl Read for Blocking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.plain.len() {
            self.plain.clear();
            self.at = 0;
            if self.session.state() == SessionState::PeerClosed || self.fill()? == 0 {
                return Ok(0);
            }
        }
        let count = into.len().min(self.plain.len() - self.at);
        into[..count].copy_from_slice(&self.plain[self.at..][..count]);
        self.at += count;
        Ok(count)
    }
}

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = Vec::new();
        self.session.write_all(bytes, &mut out).map_err(io::Error::other)?;
        self.stream.write_all(&out)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        self.session.take_output(&mut out);
        self.stream.write_all(&out)
    }
}
