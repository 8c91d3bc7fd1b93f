//! An echo server behind TLS.
//!
//! ```text
//! cargo run --release -p windlass-serve --features ring --example tls_echo -- \
//!     [--port N] [--loops N] [--cert FILE --key FILE]
//! openssl s_client -connect 127.0.0.1:7443 -quiet
//! ```
//!
//! Without files it makes a certificate for `localhost`, which it signs itself.

use std::error::Error;
use std::io;

use windlass::Buf;
use windlass_serve::tls::{Pem, Tls};
use windlass_serve::{Action, Conn, Handler, Server};

#[path = "common/mod.rs"]
mod common;

struct Echo;

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

fn main() -> io::Result<()> {
    let mut options =
        common::Options::new("tls_echo [--port N] [--loops N] [--cert FILE --key FILE]");
    let files = options.take("--cert").zip(options.take("--key"));
    let tls = tls(files).map_err(io::Error::other)?;
    let setup = common::Setup::new(options, 7443, 1);
    let server = Server::new(|_loop| Echo).listen(&setup.address())?.tls(tls);
    let report = setup.start(server)?;
    println!("{} connections", report.counters.accepted);
    Ok(())
}
