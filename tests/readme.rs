//! The README's example, word for word, and the failures that it survives.

use windlass::{Completions, Done, Op, Refusal, Source, Watcher};

fn main() -> std::io::Result<()> {
    let mut watcher = Watcher::new()?;
    let listener = watcher.listen(([127, 0, 0, 1], 7007))?;
    watcher.submit(Op::accept(listener).multishot())?;
    serve(watcher, listener)
}

fn serve(mut watcher: Watcher, listener: Source) -> std::io::Result<()> {
    let mut done = Completions::new();
    loop {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            let next = match c.result {
                Ok(Done::Accepted(socket)) => Op::read(watcher.attach(socket)?),
                Ok(Done::Read(data)) if !data.is_eof() => Op::write(c.source, data), // no copy
                Ok(Done::Written { .. }) => Op::read(c.source),
                Err(_) if c.source == listener => Op::accept(listener).multishot(), // accept again
                _ => {
                    watcher.abort(c.source); // the end of file, or an error
                    continue;
                }
            };
            match watcher.submit(next) {
                // Stale: an earlier completion of this batch has aborted the source.
                Err(refused) if refused.reason != Refusal::Stale => return Err(refused.into()),
                _ => {}
            }
        }
    }
}

#[cfg(unix)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use windlass::{Completions, Op, Watcher};

    /// The README has the example above, word for word.
    #[test]
    fn the_readme_has_this_program() {
        let readme = include_str!("../README.md");
        let (_, code) = readme.split_once("```rust,no_run\n").expect("the example");
        let (code, _) = code.split_once("```").expect("its end");
        assert!(include_str!("readme.rs").contains(code), "tests/readme.rs and README.md differ");
        assert!(code.contains("fn main()") && code.lines().count() <= 40);
    }

    /// Runs the example's loop on a thread, with what `prepare` has submitted, and answers where it
    /// listens. The loop ends with the process.
    fn start<T: Send + 'static>(
        prepare: impl FnOnce(&mut Watcher) -> T + Send + 'static,
    ) -> (SocketAddr, T) {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut watcher = Watcher::new().unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let listener = watcher.attach(listener).unwrap();
            watcher.submit(Op::accept(listener).multishot()).unwrap();
            tell.send((address, prepare(&mut watcher))).unwrap();
            let ended = super::serve(watcher, listener);
            panic!("the server ended: {ended:?}");
        });
        told.recv().expect("the server has started")
    }

    fn echoes(address: SocketAddr) {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        for message in [&b"hello"[..], &[b'x'; 100_000]] {
            client.write_all(message).unwrap();
            let mut answer = vec![0; message.len()];
            client.read_exact(&mut answer).expect("the echo within a minute");
            assert_eq!(answer, message);
        }
    }

    #[test]
    fn it_echoes() {
        let (address, ()) = start(|_| ());
        echoes(address);
        echoes(address);
    }

    /// A write fails, and the same batch holds a read of the same source with bytes: the example
    /// aborts the source for the first, and its write for the second is stale.
    #[test]
    fn it_survives_two_operations_in_flight_on_one_source() {
        let (address, ()) = start(|watcher| {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(b"the last words").unwrap();
            drop(theirs);
            let source = watcher.attach(ours).unwrap();
            watcher.submit(Op::write(source, "to a peer that is gone")).unwrap();
            watcher.submit(Op::read(source)).unwrap();
            // Both are in one batch, in this order.
            let mut both = Completions::new();
            watcher.try_wait(&mut both).unwrap();
            let ended: Vec<bool> = both.iter().map(|c| c.result.is_ok()).collect();
            assert_eq!(ended, [false, true], "{both:?}");
            // The example meets the same with a source of its own.
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(b"the last words").unwrap();
            drop(theirs);
            let source = watcher.attach(ours).unwrap();
            watcher.submit(Op::write(source, "to a peer that is gone")).unwrap();
            watcher.submit(Op::read(source)).unwrap();
        });
        echoes(address);
    }

    /// The listener is shut down, so that the accept fails, and listens again.
    #[cfg(target_os = "linux")]
    #[test]
    fn it_survives_a_failed_accept() {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut watcher = Watcher::new().unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let same = socket2::Socket::from(listener.try_clone().unwrap());
            let listener = watcher.attach(listener).unwrap();
            watcher.submit(Op::accept(listener).multishot()).unwrap();
            // An accept on a socket that does not listen ends with EINVAL.
            same.shutdown(std::net::Shutdown::Read).unwrap();
            let mut done = Completions::new();
            watcher.wait_timeout(&mut done, Duration::from_secs(60)).unwrap();
            let failed = done.iter().filter(|c| c.result.is_err()).count();
            assert_eq!(failed, 1, "{done:?}");
            done.clear();
            watcher.submit(Op::accept(listener).multishot()).unwrap(); // fails at once
            tell.send(same).unwrap();
            let ended = super::serve(watcher, listener);
            panic!("the server ended: {ended:?}");
        });
        let same = told.recv().expect("the server has started");
        same.listen(16).unwrap();
        echoes(same.local_addr().unwrap().as_socket().unwrap());
    }
}
