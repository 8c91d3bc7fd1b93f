//! Echo servers, each in the way that its library's own examples show, and the raw loops of other
//! suites. `serve NAME PORT` starts one.

mod batches;
mod broadcast;
mod compio;
mod datagrams;
#[cfg(feature = "deflate")]
mod deflate;
mod file_floor;
mod http_answers;
mod http_floor;
#[cfg(feature = "http")]
mod http_peers;
mod mio;
mod monoio;
#[cfg(feature = "ntex")]
mod ntex;
pub mod raw_epoll;
mod raw_tls;
mod raw_uring;
mod threads;
mod tls;
mod tokio;
mod websocket_floor;
#[cfg(feature = "websocket")]
mod websocket_peers;
mod windlass;
mod windlass_serve;
mod windlass_web;

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;

use nix::sys::socket::sockopt::TcpNoDelay;
use nix::sys::socket::{self, Backlog};

use ::windlass::DriverKind;

use crate::arguments::{Arguments, invalid};

pub fn serve(arguments: &mut Arguments) -> io::Result<()> {
    let name: String = arguments.require("server")?;
    let port: u16 = arguments.require("port")?;
    match name.as_str() {
        "batches" => {
            let (lines, reply) = (arguments.require("count")?, arguments.require("reply")?);
            arguments.end()?;
            return batches::serve(port, lines, reply);
        }
        "broadcast" | "websocket-broadcast" => {
            let (size, interval) = (arguments.require("size")?, arguments.require("interval")?);
            arguments.end()?;
            return broadcast::serve(port, size, interval, name != "broadcast");
        }
        "datagrams" => {
            let how: String = arguments.require("way to serve")?;
            arguments.end()?;
            return datagrams::serve(port, how == "batches");
        }
        "file-floor" | "file-floor-read" => {
            let root: PathBuf = arguments.require("directory")?;
            arguments.end()?;
            let most_read = if name == "file-floor" { 0 } else { 64 << 10 };
            return file_floor::serve(port, &root, most_read);
        }
        "windlass-files" | "windlass-files-uring" => {
            let root: PathBuf = arguments.require("directory")?;
            arguments.end()?;
            return windlass_web::files(port, root, driver(&name));
        }
        "windlass-upload" | "windlass-upload-uring" => {
            let directory: PathBuf = arguments.require("directory")?;
            arguments.end()?;
            return windlass_web::upload(port, directory, driver(&name));
        }
        "http-answers" => {
            let head: String = arguments.require("kind of head")?;
            let body = arguments.require("number of bytes")?;
            arguments.end()?;
            return http_answers::serve(port, &head, body);
        }
        "windlass-proxy" | "windlass-proxy-uring" => {
            let to: u16 = arguments.require("port")?;
            arguments.end()?;
            return windlass_web::forward(port, to, driver(&name));
        }
        #[cfg(feature = "deflate")]
        "windlass-deflate" | "yawc-deflate" => {
            let (window, level) = (arguments.require("window")?, arguments.require("level")?);
            arguments.end()?;
            let serve = match name.as_str() {
                "yawc-deflate" => deflate::yawc,
                _ => deflate::windlass,
            };
            return serve(port, window, level);
        }
        "raw-tls" | "windlass-tls" => {
            let certificate: String = arguments.require("certificate")?;
            let key: String = arguments.require("key")?;
            arguments.end()?;
            let serve = if name == "raw-tls" { tls::raw } else { tls::windlass_serve };
            return serve(port, &certificate, &key);
        }
        _ => arguments.end()?,
    }
    match name.as_str() {
        "raw-epoll" | "raw-epoll-again" => raw_epoll::serve(port),
        "raw-uring" => raw_uring::serve(port),
        "windlass" | "windlass-uring" => windlass::serve(port, driver(&name)),
        "windlass-serve" => windlass_serve::serve(port),
        "mio" => mio::serve(port),
        "threads" => threads::serve(port),
        "tokio" => tokio::serve(port),
        "tokio-readable" => tokio::serve_readable(port),
        "compio" => compio::serve(port),
        "monoio" => monoio::serve(port),
        "http-floor" => http_floor::serve(port),
        "windlass-web" | "windlass-web-uring" => windlass_web::serve(port, driver(&name)),
        "websocket-floor" => websocket_floor::serve(port),
        "windlass-websocket" | "windlass-websocket-uring" => {
            windlass_web::websocket(port, driver(&name), Default::default())
        }
        #[cfg(feature = "websocket")]
        "fastwebsockets" => websocket_peers::fastwebsockets(port),
        #[cfg(feature = "websocket")]
        "yawc" => websocket_peers::yawc(port, Default::default()),
        #[cfg(feature = "websocket")]
        "sockudo-ws" => websocket_peers::sockudo(port),
        #[cfg(feature = "websocket")]
        "wtx" => websocket_peers::wtx(port),
        #[cfg(feature = "http")]
        "hyper" => http_peers::hyper(port),
        #[cfg(feature = "http")]
        "may_minihttp" => http_peers::may(port),
        #[cfg(feature = "ntex")]
        "ntex" => ntex::serve(port),
        other => Err(invalid(format!("{other:?} is no server"))),
    }
}

/// The driver of a server of windlass with this name.
pub fn driver(name: &str) -> DriverKind {
    if name.ends_with("-uring") { DriverKind::Uring } else { DriverKind::Auto }
}

/// A listener with a backlog that a storm of connections does not fill (std's is 128). The
/// connections that it accepts inherit TCP_NODELAY.
fn listen(port: u16) -> io::Result<TcpListener> {
    ::windlass::fd::raise_max_open_files()?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    // listen(2) once more changes the backlog.
    socket::listen(&listener, Backlog::new(4096)?)?;
    socket::setsockopt(&listener, TcpNoDelay, &true)?;
    Ok(listener)
}
