//! A message beside bulk: how long a quiet connection waits for its echo while others stream.
//!
//! ```text
//! cargo bench --bench beside [-- FILTER]
//! ```
//!
//! One loop, one thread for each stream, one for the messages. With two processors this measures
//! which source is served first, not a speed. The streamed bytes are printed below each figure.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use windlass::{Completions, Done, DriverKind, Op, Source, Watcher};

const STREAM: u64 = 1;
const MESSAGE: u64 = 2;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .nresamples(10_000)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("message");
    for (name, driver) in [("epoll", DriverKind::Epoll), ("uring", DriverKind::Uring)] {
        for streams in [0, 8, 32] {
            let bytes = Arc::new(AtomicU64::new(0));
            let stop = Arc::new(AtomicBool::new(false));
            let (mut client, served) = serve(driver, streams, &bytes, &stop);
            let start = (Instant::now(), bytes.load(Ordering::Relaxed));
            group.bench_function(BenchmarkId::new(name, streams), |b| {
                b.iter(|| {
                    client.write_all(b"ping").expect("a message goes out");
                    client.read_exact(&mut [0; 4]).expect("and comes back");
                });
            });
            let gigabytes = (bytes.load(Ordering::Relaxed) - start.1) as f64 / 1e9;
            println!("{:>40.1} GB/s", gigabytes / start.0.elapsed().as_secs_f64());
            stop.store(true, Ordering::Relaxed);
            // The end of the messages is the end of the loop, and that of the streams.
            drop(client);
            served.join().expect("no panic").expect("a loop");
        }
    }
    group.finish();
    criterion.final_summary();
}

type Served = thread::JoinHandle<io::Result<()>>;

/// Starts a loop that hears out `streams` and echoes what one client says; the client.
fn serve(
    driver: DriverKind,
    streams: usize,
    bytes: &Arc<AtomicU64>,
    stop: &Arc<AtomicBool>,
) -> (TcpStream, Served) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("it is bound");
    let pair = || {
        let client = TcpStream::connect(address).expect("it listens");
        (client, listener.accept().expect("it connects").0)
    };
    let mut heard = Vec::new();
    for _ in 0..streams {
        let (mut client, server) = pair();
        heard.push(server);
        let stop = Arc::clone(stop);
        thread::spawn(move || {
            let much = vec![7; 1 << 20];
            while !stop.load(Ordering::Relaxed) && client.write_all(&much).is_ok() {}
        });
    }
    let (client, server) = pair();
    client.set_nodelay(true).expect("an option");
    server.set_nodelay(true).expect("an option");
    let bytes = Arc::clone(bytes);
    let served = thread::spawn(move || {
        let mut watcher = Watcher::builder().driver(driver).build()?;
        for stream in heard {
            let source = watcher.attach(stream)?;
            watcher.submit(Op::read(source).token(STREAM))?;
        }
        let source = watcher.attach(server)?;
        watcher.submit(Op::read(source).token(MESSAGE))?;
        run(&mut watcher, &bytes)
    });
    (client, served)
}

fn run(watcher: &mut Watcher, bytes: &AtomicU64) -> io::Result<()> {
    let mut done = Completions::new();
    let mut again: Vec<(Source, u64)> = Vec::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            match (c.token, c.result) {
                (STREAM, Ok(Done::Read(data))) if !data.is_eof() => {
                    bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                    again.push((c.source, STREAM));
                }
                (MESSAGE, Ok(Done::Read(data))) => {
                    if data.is_eof() {
                        return Ok(());
                    }
                    watcher.submit(Op::write(c.source, data))?;
                    again.push((c.source, MESSAGE));
                }
                _ => {}
            }
        }
        for (source, token) in again.drain(..) {
            watcher.submit(Op::read(source).token(token))?;
        }
    }
}
