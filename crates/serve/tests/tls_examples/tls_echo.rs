//! The example `tls_echo`: its client at its server.

use std::io;

use windlass_serve::Server;
use windlass_serve::tls::{Pem, Tls};

#[path = "../../examples/tls_echo.rs"]
#[allow(dead_code)] // its `main`
mod example;

/// A certificate for `localhost`, and its key.
fn pair() -> (Pem, Pem) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
    (Pem::bytes(made.cert.pem()), Pem::bytes(made.signing_key.serialize_pem()))
}

#[test]
fn the_client_trusts_the_certificate_of_its_file_only() -> io::Result<()> {
    let (certificate, key) = pair();
    let tls = Tls::pem(certificate.clone(), key)?;
    let server = Server::new(|_loop| example::Echo).listen("tls://127.0.0.1:0")?.tls(tls);
    let running = server.signals(false).start()?;
    let port = running.addresses()[0].ip().expect("an internet address").port();
    example::client(port, certificate)?;
    let other = pair().0;
    assert!(example::client(port, other).is_err());
    running.remote().shutdown();
    let report = running.wait()?;
    assert_eq!(report.counters.handshakes.completed, 1);
    Ok(())
}
