//! An echo server behind TLS, and a client of it.
//!
//! ```text
//! cargo run --release -p windlass-serve --features ring --example tls_echo -- \
//!     [--port N] [--loops N] [--cert FILE --key FILE]
//! openssl s_client -connect 127.0.0.1:7443 -quiet
//!
//! cargo run --release -p windlass-serve --features ring --example tls_echo -- \
//!     --client FILE [--port N]
//! ```
//!
//! Without files the server makes a certificate for `localhost`, which it signs itself. The client
//! trusts the certificates in its file. It says hello to the server at that port, prints what both
//! ends have agreed on and what comes back, and ends.

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use windlass::net::ConnectOptions;
use windlass::{Address, Buf};
use windlass_serve::tls::{Destination, Pem, Tls, TlsClient};
use windlass_serve::{Action, Cause, Closed, Conn, Context, Handler, Origin, Server};

#[path = "common/mod.rs"]
mod common;

pub(crate) struct Echo;

impl Handler for Echo {
    type State = ();

    fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
        c.write(data);
        Action::None
    }
}

/// The certificate and the key.
fn tls(files: Option<(String, String)>) -> Result<Tls, Box<dyn Error + Send + Sync>> {
    if let Some((certificate, key)) = files {
        return Ok(Tls::pem(Pem::file(certificate), Pem::file(key))?);
    }
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    Ok(Tls::pem(Pem::bytes(made.cert.pem()), Pem::bytes(made.signing_key.serialize_pem()))?)
}

/// Says hello to a server, once.
struct Hello {
    at: SocketAddr,
    server: Destination,
}

impl Handler for Hello {
    type State = ();

    fn serving(&mut self, context: &mut Context<'_, ()>, _: &[Address]) -> Action {
        let options = ConnectOptions::default();
        match context.engine().connect_tls([self.at], options, &self.server, ()) {
            Ok(_) => Action::None,
            Err(()) => Action::Shutdown,
        }
    }

    fn opened(&mut self, c: &mut Conn<'_, ()>, _: Origin) -> Action {
        if let Some(session) = c.tls() {
            println!("{:?}, {}", session.version(), session.suite().unwrap_or_default());
        }
        c.write("hello");
        Action::None
    }

    fn data(&mut self, _: &mut Conn<'_, ()>, data: Buf) -> Action {
        println!("{}", String::from_utf8_lossy(&data));
        Action::Close
    }

    fn closed(&mut self, _: &mut Context<'_, ()>, closed: Closed<()>) -> Action {
        match closed.tls_error {
            Some(error) => eprintln!("{error}"),
            None if closed.cause != Cause::Closed => eprintln!("{}", closed.cause),
            None => {}
        }
        Action::Shutdown
    }
}

/// A client that trusts these certificates, on a loop of its own. It fails if the connection has
/// ended otherwise than by the client.
pub(crate) fn client(port: u16, trusted: Pem) -> io::Result<()> {
    let server = TlsClient::builder().roots(trusted).build()?.to("localhost")?;
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let hello = move |_loop| Hello { at, server: server.clone() };
    let report = Server::new(hello).without_listener().run()?;
    match report.counters.ends.closed {
        1 => Ok(()),
        _ => Err(io::Error::other("there is no answer")),
    }
}

fn main() -> io::Result<()> {
    let mut options = common::Options::new(
        "tls_echo [--port N] [--loops N] [--cert FILE --key FILE | --client FILE]",
    );
    if let Some(trusted) = options.take::<String>("--client") {
        let port = options.take("--port").unwrap_or(7443);
        options.end();
        return client(port, Pem::file(trusted));
    }
    let files = options.take("--cert").zip(options.take("--key"));
    let tls = tls(files).map_err(io::Error::other)?;
    let setup = common::Setup::new(options, 7443, 1);
    let server = Server::new(|_loop| Echo).listen(&setup.address())?.tls(tls);
    let report = setup.start(server)?;
    println!("{} connections", report.counters.accepted);
    Ok(())
}
