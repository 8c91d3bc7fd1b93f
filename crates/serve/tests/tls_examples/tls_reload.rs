//! The example `tls_reload`: its files change while it serves, on every driver.

#[path = "../../examples/tls_reload.rs"]
mod example;

use std::cell::Cell;

use crate::common::{Bench, Harness, bench};
use crate::programs::Files;
use crate::tls::{Authority, Made, noon, parameters};
use example::Echo;
use rcgen::DnType;
use windlass::Source;
use windlass_serve::Server;
use windlass_serve::tls::{Session, TlsClient};

crate::every_driver! {
    new_handshakes_get_the_new_certificate
    what_is_no_certificate_keeps_the_old_one
}

/// The example, and clients that trust an authority.
struct Reloading<T: Harness> {
    bench: Bench<T::Driver, Echo>,
    authority: Authority,
    trust: TlsClient,
    files: Files,
}

/// A client whose handshake is done.
struct Peer {
    client: Source,
    session: Session,
    fed: usize,
    plain: Vec<u8>,
}

fn made(authority: &Authority, name: &str) -> Made {
    let mut parameters = parameters(&["localhost"]);
    parameters.distinguished_name.push(DnType::CommonName, name);
    authority.issue(&parameters)
}

impl<T: Harness> Reloading<T> {
    fn new(test: &str) -> Reloading<T> {
        let files = Files::new(&format!("{test}-{}", T::NAME));
        let authority = Authority::new("the root of a test");
        let first = made(&authority, "first");
        let certificate = files.write("server.pem", &first.certificate);
        let key = files.write("server.key", &first.key);
        let trust = TlsClient::builder().clock(noon).roots(authority.root()).build().unwrap();
        let reloaded = example::Files::open(&certificate, &key).expect("a certificate");
        let tls = reloaded.tls();
        let echo = Cell::new(Some(Echo { files: Some(reloaded), every: T::span(1.0) }));
        let server = Server::new(|_| echo.take().expect("one loop"));
        let server = server.listen("tcp://127.0.0.1:0").expect("an address").tls(tls);
        Reloading { bench: bench::<T, _, _>(server), authority, trust, files }
    }

    /// Writes both files, one after the other, with a look between them.
    fn write(&mut self, made: &Made) {
        self.files.write("server.pem", &made.certificate);
        self.told("is not the key of the certificate");
        self.files.write("server.key", &made.key);
        self.told("new connections get the new certificate");
    }

    /// Waits until this was printed.
    #[track_caller]
    fn told(&mut self, what: &str) {
        self.bench.until(what, |bench| {
            let files = bench.running.handler().files.as_ref().expect("it has the files");
            files.told.contains(what)
        });
    }

    fn open(&mut self) -> Peer {
        let session = Session::client(&self.trust, "localhost").expect("a session");
        let mut peer = Peer { client: self.bench.connect(), session, fed: 0, plain: Vec::new() };
        self.until(&mut peer, "the session is open", |peer| peer.session.is_open());
        peer
    }

    #[track_caller]
    fn until(&mut self, peer: &mut Peer, what: &str, ready: impl Fn(&Peer) -> bool) {
        self.bench.until(what, |bench| {
            let heard = &bench.client(peer.client).heard[peer.fed..];
            peer.fed += heard.len();
            peer.session.feed_into(heard, &mut peer.plain).expect("TLS");
            let mut out = Vec::new();
            if peer.session.take_output(&mut out) > 0 {
                bench.say(peer.client, out);
            }
            ready(peer)
        });
    }

    /// The name of the certificate that a new client gets.
    fn offered(&mut self) -> Option<String> {
        let peer = self.open();
        peer.session.peer_certificate_info().and_then(|info| info.common_name)
    }

    fn echoes(&mut self, peer: &mut Peer) {
        let mut out = Vec::new();
        peer.session.write_all(b"hello", &mut out).expect("an open session");
        self.bench.say(peer.client, out);
        let len = peer.plain.len() + 5;
        self.until(peer, "it is echoed", |peer| peer.plain.len() == len);
        assert!(peer.plain.ends_with(b"hello"));
    }
}

fn new_handshakes_get_the_new_certificate<T: Harness>() {
    let mut r = Reloading::<T>::new("new");
    let mut first = r.open();
    assert_eq!(r.offered().as_deref(), Some("first"));
    for name in ["second", "third"] {
        // A new trust: no session of the last certificate is resumed.
        r.trust = TlsClient::builder().clock(noon).roots(r.authority.root()).build().unwrap();
        let made = made(&r.authority, name);
        r.write(&made);
        assert_eq!(r.offered().as_deref(), Some(name));
        r.echoes(&mut first);
    }
    let info = first.session.peer_certificate_info().unwrap();
    assert_eq!(info.common_name.as_deref(), Some("first"));
}

fn what_is_no_certificate_keeps_the_old_one<T: Harness>() {
    let mut r = Reloading::<T>::new("old");
    let mut open = r.open();
    let second = made(&r.authority, "second");
    let half = &second.certificate[..second.certificate.len() / 2];
    let path = r.files.path("server.pem");
    for (content, why) in [
        (&b""[..], "it is empty"),
        (b"\0\xff\x80binary", "it is no PEM"),
        (half.as_bytes(), "damaged"),
        (second.key.as_bytes(), "no certificate"),
    ] {
        std::fs::write(&path, content).unwrap();
        r.told(why);
        r.told(&format!("the old certificate stays: {path}: "));
        assert_eq!(r.offered().as_deref(), Some("first"));
        r.echoes(&mut open);
    }
    std::fs::remove_file(&path).unwrap();
    r.told("No such file");
    assert_eq!(r.offered().as_deref(), Some("first"));
    r.write(&second);
    r.trust = TlsClient::builder().clock(noon).roots(r.authority.root()).build().unwrap();
    assert_eq!(r.offered().as_deref(), Some("second"));
    r.echoes(&mut open);
}
