//! A client with TLS: a session above a plain client of the bench.
#![allow(dead_code, unreachable_pub)] // each test uses its own part

use std::time::Duration;

use windlass::Source;
use windlass::driver::Driver;
use windlass_serve::Handler;
use windlass_serve::tls::{Session, SessionState, TlsClient};

use crate::common::Bench;

/// A client: a session above a plain one of the bench.
pub struct Peer {
    pub client: Source,
    pub session: Session,
    /// How much of what the client has heard went through the session.
    pub fed: usize,
    pub plain: Vec<u8>,
    /// Its output leaves in pieces of so many bytes.
    pub piece: usize,
}

impl Peer {
    pub fn new<D: Driver, H: Handler>(bench: &mut Bench<D, H>, tls: &TlsClient) -> Peer {
        let client = bench.connect();
        let session = Session::client(tls, "localhost").unwrap();
        Peer { client, session, fed: 0, plain: Vec::new(), piece: usize::MAX }
    }

    /// A client whose handshake is done.
    pub fn open<D: Driver, H: Handler>(bench: &mut Bench<D, H>, tls: &TlsClient) -> Peer {
        let mut peer = Peer::new(bench, tls);
        peer.until(bench, "the session is open", |peer, _| peer.session.is_open());
        peer
    }

    /// Passes what has come through the session, and sends what it says.
    pub fn pump<D: Driver, H: Handler>(&mut self, bench: &mut Bench<D, H>) {
        let heard = &bench.client(self.client).heard[self.fed..];
        let count = heard.len();
        let _ = self.session.feed_into(heard, &mut self.plain);
        self.fed += count;
        let mut out = Vec::new();
        self.session.take_output(&mut out);
        for piece in out.chunks(self.piece.min(out.len().max(1))) {
            bench.say(self.client, piece.to_vec());
            if self.piece < out.len() {
                bench.run_for(Duration::from_millis(1));
            }
        }
    }

    #[track_caller]
    pub fn until<D: Driver, H: Handler>(
        &mut self,
        bench: &mut Bench<D, H>,
        what: &str,
        ready: impl Fn(&mut Peer, &mut Bench<D, H>) -> bool,
    ) {
        self.pump(bench);
        bench.until(what, |bench| {
            self.pump(bench);
            ready(self, bench)
        });
    }

    pub fn say<D: Driver, H: Handler>(&mut self, bench: &mut Bench<D, H>, what: &[u8]) {
        let mut out = Vec::new();
        self.session.write_all(what, &mut out).unwrap();
        bench.say(self.client, out);
    }

    /// `close_notify`.
    pub fn end<D: Driver, H: Handler>(&mut self, bench: &mut Bench<D, H>) {
        self.session.close();
        self.pump(bench);
    }

    /// The server has said its end, and the connection has ended behind it.
    pub fn heard_the_end<D: Driver, H: Handler>(&mut self, bench: &mut Bench<D, H>) -> bool {
        let client = bench.client(self.client);
        client.eof && self.session.state() == SessionState::PeerClosed
    }
}
