//! A server with TLS, whose certificate changes while it serves, and a plain port that sends
//! clients to it.
//!
//! ```text
//! cargo run --release -p windlass-web --features ring --example https -- \
//!     [--port N] [--plain-port N] [--loops N] [--cert FILE --key FILE]
//! curl --location --insecure http://localhost:8080/
//! ```
//!
//! On SIGHUP it reads the files again. Connections from then on get the new certificate. Open ones
//! keep theirs. If the files are wrong, it says so, and keeps the old certificate.
//!
//! The redirect goes to the name that the client has asked for. A server that knows its names
//! compares it with them first.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use windlass_web::tls::Tls;
use windlass_web::{App, Request, Response, Status};

#[path = "common/mod.rs"]
mod common;

/// Sends plain requests to the port of TLS. 308 keeps the method and the body.
fn to_tls(q: &Request<'_>, port: u16) -> Option<Response> {
    if q.is_tls() {
        return None;
    }
    let Some(host) = q.host() else { return Some(Status::BAD_REQUEST.into()) };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host, // without a port: `[::1]`, perhaps
    };
    let query = q.query_text().map(|text| format!("?{text}")).unwrap_or_default();
    let to = format!("https://{name}:{port}{}{query}", q.path());
    Some(Response::redirect(to).status(Status::PERMANENT_REDIRECT))
}

/// The application, at a listener with TLS and at a plain one.
pub(crate) fn app(tls: Tls, secure: TcpListener, plain: TcpListener) -> io::Result<App> {
    let port = secure.local_addr()?.port();
    let app = App::new()
        .before(move |_, q| to_tls(q, port))
        .get("/", |_, _| "Hello, World!")
        .listen((secure, tls.clone()))?
        .listen(plain)?;
    #[cfg(unix)]
    let app = app.on_signal(windlass_web::windlass::process::signal::SIGHUP, move |_| {
        // It reads two small files. On a network file system a thread would.
        match tls.reload() {
            Ok(()) => eprintln!("new connections get the new certificate"),
            Err(error) => eprintln!("the old certificate stays: {error}"),
        }
    });
    Ok(app)
}

#[allow(dead_code)] // a test uses the application
fn main() -> io::Result<()> {
    let mut options = common::Options::new(
        "https [--port N] [--plain-port N] [--loops N] [--cert FILE --key FILE]",
    );
    let port = options.take("--port").unwrap_or(8443);
    let plain_port = options.take("--plain-port").unwrap_or(8080);
    let loops: usize = options.take("--loops").unwrap_or(1);
    let tls = common::tls(options.take("--cert").zip(options.take("--key")))?;
    options.end();
    let secure = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let plain = TcpListener::bind((Ipv4Addr::LOCALHOST, plain_port))?;
    common::serve(app(tls, secure, plain)?.loops(loops))
}
