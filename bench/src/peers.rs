//! Which servers there are, and how each is started.

mod web;
mod websocket;

pub use web::{block_servers, clients, file_servers, http_proxies};
#[cfg(feature = "deflate")]
pub use websocket::websocket_deflaters;
pub use websocket::{million_websockets, websocket_broadcasters, websockets};

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Servers that are part of this program, in the order of the tables; the first is the base of the
/// ratios.
const INSIDE: &[&str] = &[
    "raw-epoll",
    "raw-epoll-again",
    "raw-uring",
    "windlass",
    "windlass-uring",
    "mio",
    "tokio",
    "tokio-readable",
    "compio",
    "monoio",
];
/// Servers in Go, built where Go is installed.
const GO: &[&str] = &["gaio", "nbio", "gnet"];

/// A server and the command that starts it, or why it cannot run here.
pub struct Peer {
    pub name: String,
    pub command: Result<Vec<String>, String>,
}

/// The name of a server for a reader: with the buffer that each of its idle connections keeps.
pub fn label(name: &str) -> String {
    match name {
        "raw-epoll-again" => "raw-epoll, once more".into(),
        "tokio" | "compio" | "monoio" => format!("{name}, 16 KiB buffer"),
        "tokio-readable" => "tokio, readable()".into(),
        _ => name.into(),
    }
}

/// All servers that echo. Builds those that have to be built.
pub fn echo_servers() -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let mut peers: Vec<Peer> = INSIDE
        .iter()
        .map(|&name| {
            let words = [&ours, "serve", name, "{port}"].map(String::from).to_vec();
            Peer { name: name.into(), command: Ok(words) }
        })
        .collect();
    let words = |program: PathBuf| vec![program.to_string_lossy().into_owned(), "{port}".into()];
    peers.push(Peer { name: "libuv".into(), command: libuv("echo").map(words) });
    for &name in GO {
        peers.push(Peer { name: name.into(), command: go(name).map(words) });
    }
    Ok(peers)
}

/// Servers of keys and values for redis-benchmark; the first is the base of the ratios. The last
/// one sends `reply` for every `lines` lines.
pub fn redis_servers(lines: usize, reply: &str) -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let peer = |name: &str, command| Peer { name: name.into(), command };
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let path = |program: PathBuf| program.to_string_lossy().into_owned();
    let redis = ["redis-server", "--bind", "127.0.0.1", "--port", "{port}", "--save", ""];
    Ok(vec![
        peer("redis-server", installed("redis-server").map(|()| words(&redis))),
        peer("evio", go("evio-redis").map(|program| words(&[&path(program), "{port}"]))),
        peer(
            "windlass-serve",
            example("windlass-serve", "serve_redis")
                .map(|program| words(&[&path(program), "--port", "{port}"])),
        ),
        peer(
            "batches",
            Ok(words(&[&ours, "serve", "batches", "{port}", &lines.to_string(), reply])),
        ),
    ])
}

/// Proxies to a port of this host; the first is the base of the ratios.
pub fn proxies(to: u16) -> io::Result<Vec<Peer>> {
    let ours = |program: PathBuf| {
        let (program, to) = (program.to_string_lossy().into_owned(), format!("127.0.0.1:{to}"));
        [&program, "--port", "{port}", "--to", &to].map(String::from).to_vec()
    };
    Ok(vec![
        Peer { name: "haproxy".into(), command: haproxy("haproxy.cfg", HAPROXY, to) },
        Peer {
            name: "windlass-serve".into(),
            command: example("windlass-serve", "serve_proxy").map(ours),
        },
    ])
}

/// haproxy with a configuration, in which `PORT` is its port, and `TO` that of its server.
fn haproxy(name: &str, config: &str, to: u16) -> Result<Vec<String>, String> {
    installed("haproxy")?;
    let path = built()?.join(name);
    std::fs::write(&path, config).map_err(|error| error.to_string())?;
    let (path, to) = (path.to_string_lossy().into_owned(), format!("TO={to}"));
    Ok(["env", "PORT={port}", &to, "haproxy", "-f", &path].map(String::from).to_vec())
}

/// haproxy in TCP mode, with one thread.
const HAPROXY: &str = "global
    nbthread 1
    maxconn 4096
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen proxy
    bind 127.0.0.1:\"${PORT}\"
    server echo 127.0.0.1:\"${TO}\"
";

/// Echo servers with a thread for each connection, with a loop, and with both; the first is the
/// base of the ratios.
pub fn modes() -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let threads = [&ours, "serve", "threads", "{port}"].map(String::from).to_vec();
    let mut peers = vec![Peer { name: "std threads".into(), command: Ok(threads) }];
    // The server has one processor: more threads than that do not help a callback that never
    // blocks.
    for (mode, threads) in [("blocking", "10000"), ("nonblocking", "0"), ("mixed", "1")] {
        let words = |program: PathBuf| {
            let program = program.to_string_lossy().into_owned();
            let words = [&program, "--port", "{port}", "--mode", mode, "--threads", threads];
            words.map(String::from).to_vec()
        };
        peers.push(Peer {
            name: mode.into(),
            command: example("windlass-serve", "nbio_echo").map(words),
        });
    }
    let bare = [&ours, "serve", "raw-epoll", "{port}"].map(String::from).to_vec();
    peers.push(Peer { name: "raw epoll".into(), command: Ok(bare) });
    let nbio = |program: PathBuf| vec![program.to_string_lossy().into_owned(), "{port}".into()];
    peers.push(Peer { name: "nbio".into(), command: go("nbio").map(nbio) });
    Ok(peers)
}

/// Servers that send a message of `size` bytes to all connections every `interval` milliseconds;
/// the first is the base of the ratios.
pub fn broadcasters(size: usize, interval: usize) -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let (size, interval) = (size.to_string(), interval.to_string());
    let serve = |program: PathBuf| {
        let program = program.to_string_lossy().into_owned();
        [&program, "--port", "{port}", "--size", &size, "--interval", &interval]
            .map(String::from)
            .to_vec()
    };
    let bare = [&ours, "serve", "broadcast", "{port}", &size, &interval].map(String::from);
    Ok(vec![
        Peer { name: "windlass".into(), command: Ok(bare.to_vec()) },
        Peer {
            name: "windlass-serve".into(),
            command: example("windlass-serve", "serve_broadcast").map(serve),
        },
    ])
}

/// Servers of TLS, with this certificate and its key; the first is the base of the ratios.
pub fn tls(files: &[String; 2]) -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let inside = |name: &str, server: &str| {
        let words = [&ours, "serve", server, "{port}", &files[0], &files[1]].map(String::from);
        Peer { name: name.into(), command: Ok(words.to_vec()) }
    };
    let [certificate, key] = files;
    let config = NGINX.replace("CERTIFICATE", certificate).replace("KEY", key);
    Ok(vec![
        inside("raw-tls", "raw-tls"),
        inside("raw-tls-again", "raw-tls"),
        inside("windlass-serve", "windlass-tls"),
        Peer { name: "nginx".into(), command: configured("nginx-tls.conf.in", &config) },
    ])
}

/// Servers of HTTP; the first is the base of the ratios.
pub fn http() -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let inside = |name: &str, is_there: bool| {
        let words = [&ours, "serve", name, "{port}"].map(String::from).to_vec();
        let missing = || format!("it was built without the feature that has {name}");
        Peer { name: name.into(), command: is_there.then_some(words).ok_or_else(missing) }
    };
    let one_processor = |program: PathBuf| {
        let program = program.to_string_lossy().into_owned();
        ["env", "GOMAXPROCS=1", &program, "{port}"].map(String::from).to_vec()
    };
    let nginx = || configured("nginx-http.conf.in", NGINX_HTTP);
    let uwebsockets = || {
        let program = std::env::var("UWEBSOCKETS");
        let program = program.map_err(|_| "UWEBSOCKETS names no program".to_owned())?;
        Ok(vec![program, "{port}".into()])
    };
    Ok(vec![
        inside("http-floor", true),
        inside("windlass-web", true),
        inside("windlass-web-uring", true),
        inside("may_minihttp", cfg!(feature = "http")),
        inside("hyper", cfg!(feature = "http")),
        inside("ntex", cfg!(feature = "ntex")),
        Peer { name: "uWebSockets".into(), command: uwebsockets() },
        Peer { name: "nginx".into(), command: nginx() },
        Peer { name: "fasthttp".into(), command: go("fasthttp").map(one_processor) },
        Peer { name: "net/http".into(), command: go("nethttp").map(one_processor) },
    ])
}

/// nginx as one process that answers with a few bytes.
const NGINX_HTTP: &str = "daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 16384; }
http {
    access_log off;
    default_type text/plain;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    server {
        listen 127.0.0.1:PORT backlog=4096;
        location / { return 200 'Hello, World!'; }
    }
}
";

/// nginx with a configuration, in which `PORT` becomes its port.
fn configured(name: &str, config: &str) -> Result<Vec<String>, String> {
    installed("nginx")?;
    let directory = built()?;
    std::fs::write(directory.join(name), config).map_err(|error| error.to_string())?;
    let start = "cd $1 && sed s/PORT/$2/ $3 > nginx.conf && exec nginx -p $1 -c $1/nginx.conf";
    let directory = directory.to_string_lossy().into_owned();
    Ok(["sh", "-c", start, "sh", &directory, "{port}", name].map(String::from).to_vec())
}

/// nginx as one process that answers with a few bytes.
const NGINX: &str = "daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
    access_log off;
    keepalive_requests 1000000000;
    server {
        listen 127.0.0.1:PORT ssl backlog=4096;
        ssl_certificate CERTIFICATE;
        ssl_certificate_key KEY;
        ssl_protocols TLSv1.3;
        location / { return 200 'hello'; }
    }
}
";

/// Echo servers for as many connections as fit; the others are compared with the first.
pub fn million() -> io::Result<Vec<Peer>> {
    let ours = std::env::current_exe()?.to_string_lossy().into_owned();
    let serve = [&ours, "serve", "windlass-serve", "{port}"].map(String::from).to_vec();
    let nbio = |program: PathBuf| vec![program.to_string_lossy().into_owned(), "{port}".into()];
    Ok(vec![
        Peer { name: "windlass-serve".into(), command: Ok(serve) },
        Peer { name: "nbio".into(), command: go("nbio").map(nbio) },
    ])
}

/// Those of `peers` that can run here, and that `only` (if not empty) names. The others are printed
/// with the reason.
pub fn usable(peers: Vec<Peer>, only: &str) -> io::Result<Vec<(String, Vec<String>)>> {
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let mut usable = Vec::new();
    for peer in peers {
        if !only.is_empty() && !only.contains(&peer.name.as_str()) {
            continue;
        }
        match peer.command {
            Ok(command) => usable.push((peer.name, command)),
            Err(why) => println!("left out: {}: {why}", peer.name),
        }
    }
    if usable.is_empty() {
        return Err(crate::arguments::invalid("no server of these names can run here".into()));
    }
    Ok(usable)
}

pub fn list() -> io::Result<()> {
    for peer in echo_servers()? {
        println!("{:15} {}", peer.name, peer.command.map_or_else(|why| why, |_| "can run".into()));
    }
    Ok(())
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// The directory of the built servers.
fn built() -> Result<PathBuf, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers");
    std::fs::create_dir_all(&path).map_err(|error| error.to_string())?;
    Ok(path)
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} fails: {}", said.lines().next().unwrap_or_default()))
}

/// Whether a program can be started.
fn installed(name: &str) -> Result<(), String> {
    match Command::new(name).arg("-v").output() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Builds an example of a package.
fn example(package: &str, name: &str) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/examples");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "-p", package, "--example", name]);
    run(build.current_dir(root).arg("--target-dir").arg(&target))?;
    Ok(target.join("release/examples").join(name))
}

/// Builds a Go server of `peers/go`.
pub fn go(name: &str) -> Result<PathBuf, String> {
    let program = built()?.join(name);
    let package = format!("./{name}");
    let mut build = Command::new("go");
    run(build.current_dir(sources().join("go")).args(["build", "-o"]).arg(&program).arg(package))?;
    Ok(program)
}

/// Builds a program of `peers/libuv` against the installed library.
pub fn libuv(name: &str) -> Result<PathBuf, String> {
    let program = built()?.join(format!("libuv-{name}"));
    let source = sources().join("libuv").join(format!("{name}.c"));
    run(Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(source).arg("-luv"))?;
    Ok(program)
}
