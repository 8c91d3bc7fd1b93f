//! Clients of TLS, in blocking calls on one thread, or on four for handshakes. They compare every
//! byte that comes back.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};

use crate::arguments::{Arguments, invalid};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// What a client asks after a handshake. An echo server sends it back; a server of HTTP answers it.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// When the clients have done enough: this time is over, and there were so many handshakes or
/// rounds. A count is for counting a server's instructions.
#[derive(Clone, Copy)]
struct Until {
    span: Duration,
    count: u64,
}

impl Until {
    fn goes_on(self, begin: Instant, count: u64) -> bool {
        count < self.count || begin.elapsed() < self.span
    }
}

/// `tls-load full|resumed|echo|latency|flood|hold --port N --cert FILE --connections N --size N
/// --seconds S --count N`
pub fn run(arguments: &mut Arguments) -> io::Result<()> {
    let mode: String = arguments.require("mode")?;
    let port: u16 = arguments.option("--port", 0)?;
    let certificate: String = arguments.option("--cert", String::new())?;
    let connections: usize = arguments.option("--connections", 1)?;
    let size: usize = arguments.option("--size", 64)?;
    let seconds: f64 = arguments.option("--seconds", 1.0)?;
    let count: u64 = arguments.option("--count", 0)?;
    arguments.end()?;
    let config = config(&certificate, mode == "resumed")?;
    let span = Duration::from_secs_f64(seconds);
    match mode.as_str() {
        "full" | "resumed" => handshakes(&config, port, Until { span, count }, mode == "resumed"),
        "echo" => echo(&config, port, connections, size, Until { span, count }),
        "latency" => latency(&config, port, connections, span),
        "flood" => flood(&config, port, connections, span),
        "hold" => hold(&config, port, connections),
        other => Err(invalid(format!("{other:?} is no mode"))),
    }
}

fn config(certificate: &str, resumes: bool) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_reader_iter(BufReader::new(File::open(certificate)?)) {
        roots.add(one.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

fn connect(config: &Arc<ClientConfig>, port: u16) -> io::Result<Stream> {
    let name = "localhost".try_into().map_err(io::Error::other)?;
    let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(StreamOwned::new(tls, socket))
}

/// A handshake and one answer; whether it was a resumption.
fn once(config: &Arc<ClientConfig>, port: u16) -> io::Result<bool> {
    let mut stream = connect(config, port)?;
    stream.write_all(REQUEST)?;
    let mut answer = [0; 1 << 10];
    if stream.read(&mut answer)? == 0 {
        return Err(io::Error::other("the server has closed a connection"));
    }
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(stream.conn.handshake_kind() == Some(HandshakeKind::Resumed))
}

/// Handshakes on four threads until the time is over. Prints how many, and the seconds.
fn handshakes(
    config: &Arc<ClientConfig>,
    port: u16,
    until: Until,
    resumes: bool,
) -> io::Result<()> {
    for _ in 0..8 {
        once(config, port)?;
    }
    ready()?;
    let (begin, count, resumed) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let one = || {
            while until.goes_on(begin, count.load(Ordering::Relaxed)) {
                let was_resumed = once(config, port)?;
                count.fetch_add(1, Ordering::Relaxed);
                resumed.fetch_add(u64::from(was_resumed), Ordering::Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
    .map_err(|error: io::Error| error)?;
    let (count, resumed) = (count.into_inner(), resumed.into_inner());
    if resumes && resumed * 10 < count * 9 || !resumes && resumed > 0 {
        return Err(io::Error::other(format!("{resumed} of {count} handshakes were resumed")));
    }
    println!("{count} {}", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Rounds: a message on each connection, then its echo from each. Prints messages and seconds.
fn echo(
    config: &Arc<ClientConfig>,
    port: u16,
    connections: usize,
    size: usize,
    until: Until,
) -> io::Result<()> {
    let mut streams =
        (0..connections).map(|_| connect(config, port)).collect::<io::Result<Vec<_>>>()?;
    let message: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
    let mut space = vec![0; size];
    let mut round = || -> io::Result<()> {
        for stream in &mut streams {
            stream.write_all(&message)?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut space)?;
            if space != message {
                return Err(io::Error::other("the server has sent other bytes"));
            }
        }
        Ok(())
    };
    for _ in 0..8 {
        round()?;
    }
    ready()?;
    let (begin, mut rounds) = (Instant::now(), 0_u64);
    while until.goes_on(begin, rounds) {
        round()?;
        rounds += 1;
    }
    println!("{} {}", rounds * connections as u64, begin.elapsed().as_secs_f64());
    Ok(())
}

/// One request at a time, each on the next connection. Prints how many, the seconds, and the median
/// and the 99th percentile of the times in microseconds.
fn latency(
    config: &Arc<ClientConfig>,
    port: u16,
    connections: usize,
    span: Duration,
) -> io::Result<()> {
    let mut streams =
        (0..connections).map(|_| connect(config, port)).collect::<io::Result<Vec<_>>>()?;
    let mut answer = [0; 1 << 10];
    let mut ask = |stream: &mut Stream| -> io::Result<f64> {
        let sent = Instant::now();
        stream.write_all(REQUEST)?;
        match stream.read(&mut answer)? {
            0 => Err(io::Error::other("the server has closed a connection")),
            _ => Ok(sent.elapsed().as_secs_f64() * 1e6),
        }
    };
    for stream in &mut streams {
        ask(stream)?;
    }
    ready()?;
    let (begin, mut times) = (Instant::now(), Vec::new());
    for at in (0..connections).cycle() {
        if begin.elapsed() >= span {
            break;
        }
        times.push(ask(&mut streams[at])?);
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[(share * (times.len() - 1) as f64) as usize];
    println!("{} {} {} {}", times.len(), begin.elapsed().as_secs_f64(), at(0.5), at(0.99));
    Ok(())
}

/// One recorded hello, sent again on new connections by so many threads as fast as they can. Each
/// waits for the first byte of the answer, and goes. Prints how many were answered, and the
/// seconds.
fn flood(config: &Arc<ClientConfig>, port: u16, threads: usize, span: Duration) -> io::Result<()> {
    let name = "localhost".try_into().map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    let mut hello = Vec::new();
    tls.write_tls(&mut hello)?;
    ready()?;
    let (begin, answered) = (Instant::now(), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while begin.elapsed() < span {
                    // A server may shed the hello.
                    let answer = TcpStream::connect(("127.0.0.1", port)).and_then(|mut socket| {
                        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
                        socket.write_all(&hello)?;
                        socket.read(&mut [0])
                    });
                    answered.fetch_add(u64::from(matches!(answer, Ok(1))), Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} {}", answered.into_inner(), begin.elapsed().as_secs_f64());
    Ok(())
}

/// Holds connections that have had one answer each, until the process is ended.
fn hold(config: &Arc<ClientConfig>, port: u16, connections: usize) -> io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..connections {
        let mut stream = connect(config, port)?;
        stream.write_all(REQUEST)?;
        stream.read_exact(&mut [0; REQUEST.len()])?;
        streams.push(stream);
    }
    println!("holding");
    io::stdin().read_line(&mut String::new()).map(drop)
}

/// Says that the server has answered, and waits until the process that started this one has looked
/// at it.
fn ready() -> io::Result<()> {
    println!("served");
    io::stdin().read_line(&mut String::new()).map(drop)
}
