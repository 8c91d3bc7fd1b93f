//! Performs one operation of each kind. Then it prints which mechanism has served which operation,
//! why, and how often.
//!
//! ```text
//! cargo run --release --example explain
//! WINDLASS_DRIVER=epoll cargo run --release --example explain
//! ```

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use windlass::fs::OpenOptions;
use windlass::{AlignedBuf, Buf, Completion, Completions, Done, Op, Ready, Source, Watcher};

fn main() -> io::Result<()> {
    let mut watcher = Watcher::new()?;
    one(&mut watcher, Op::nop())?;
    one(&mut watcher, Op::timer(Duration::from_millis(1)))?;

    // A connection to ourselves.
    let listener = watcher.listen(([127, 0, 0, 1], 0))?;
    let address = watcher.local_address(listener)?;
    let client = socket(&mut watcher, Op::connect(address))?;
    let server = socket(&mut watcher, Op::accept(listener))?;
    let room = |bytes| Vec::<u8>::with_capacity(bytes);
    one(&mut watcher, Op::write(client, "onetwothree"))?;
    one(&mut watcher, Op::read_exact(server, room(3), 3))?;
    one(&mut watcher, Op::read_into(server, room(3)))?;
    one(&mut watcher, Op::read(server))?;
    let parts = vec![Buf::from("fo"), Buf::from("ur")];
    one(&mut watcher, Op::write_vectored(client, parts))?;
    one(&mut watcher, Op::read_vectored(server, vec![room(1), room(8)]))?;
    one(&mut watcher, Op::poll(client, Ready::WRITABLE))?;
    one(&mut watcher, Op::shutdown(client))?;
    one(&mut watcher, Op::read(server))?; // the end of file
    one(&mut watcher, Op::close(server))?;
    let ticket = watcher.submit(Op::accept(listener))?;
    watcher.cancel(ticket);
    show(&mut watcher)?;

    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let to = udp.local_addr()?;
    let udp = watcher.attach(udp)?;
    one(&mut watcher, Op::send_to(udp, "datagram", to))?;
    one(&mut watcher, Op::recv_from(udp))?;

    #[cfg(unix)]
    descriptors(&mut watcher)?;
    files(&mut watcher)?;

    println!("\n{}\n{:#?}", watcher.explain(), watcher.counters());
    Ok(())
}

/// Operations that only Unix sockets have.
#[cfg(unix)]
fn descriptors(watcher: &mut Watcher) -> io::Result<()> {
    let (a, b) = std::os::unix::net::UnixStream::pair()?;
    let passed = a.try_clone()?.into();
    let (a, b) = (watcher.attach(a)?, watcher.attach(b)?);
    one(watcher, Op::send_descriptors(a, "d", vec![passed]))?;
    one(watcher, Op::recv_descriptors(b))?;
    Ok(())
}

/// Operations on files, and work of threads. (Not every file system has direct I/O.)
fn files(watcher: &mut Watcher) -> io::Result<()> {
    let template = std::env::temp_dir().join("windlass-XXXXXX");
    let Ok(Done::Temporary(made)) = one(watcher, Op::create_temp_file(template))?.result else {
        return Ok(());
    };
    let (path, file) = *made;
    let file = watcher.attach(file)?;
    one(watcher, Op::write_at(file, vec![b'w'; 8192], 0))?;
    one(watcher, Op::sync_all(file))?;
    one(watcher, Op::read_at(file, vec![0; 4096], 0))?; // the page cache has it
    let direct = OpenOptions::new().read(true).direct(true);
    if let Ok(Done::Opened(file)) = one(watcher, Op::open(&path, direct))?.result {
        let file = watcher.attach(file)?;
        one(watcher, Op::read_at(file, AlignedBuf::with_capacity(4096, 4096), 4096))?;
    }
    one(watcher, Op::remove_file(path))?;
    one(watcher, Op::run(|| "what a job has computed"))?;
    Ok(())
}

/// Submits an operation and waits for its end.
fn one(watcher: &mut Watcher, op: Op) -> io::Result<Completion> {
    println!("{:?}", op.code());
    watcher.submit(op)?;
    show(watcher)
}

fn show(watcher: &mut Watcher) -> io::Result<Completion> {
    let mut done = Completions::new();
    watcher.wait(&mut done)?;
    let completion = done.drain(..).next().expect("a wait without a timeout brings one");
    println!("    {:?}", completion.result);
    Ok(completion)
}

/// As [`one`], for an operation that ends in a socket.
fn socket(watcher: &mut Watcher, op: Op) -> io::Result<Source> {
    match one(watcher, op)?.result {
        Ok(Done::Accepted(socket) | Done::Socket(socket)) => Ok(watcher.attach(socket)?),
        Ok(other) => Err(io::Error::other(format!("no socket: {other:?}"))),
        Err(error) => Err(error.into()),
    }
}
