//! A driver of your own that wraps another one: it prints every operation, and how each one ended.
//!
//! ```text
//! cargo run --example own_driver
//! ```
//!
//! A driver has two main methods, submit and complete, and owns the descriptors. This driver takes
//! each operation apart, prints the parts, rebuilds the operation, and passes it to the inner
//! driver. So it supports every operation of the inner driver. Submissions of other threads go
//! directly to the inner driver, so this driver sees only their completions.
//! (`tests/custom_driver.rs` has a driver that does the work itself.)

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use windlass::Watcher;
use windlass::driver::swap::Pool;
use windlass::driver::{Clock, Deadline, Driver, Explain, Wait};
use windlass::fd::BorrowedFd;
use windlass::fs::OpenOptions;
use windlass::net::{ConnectOptions, DatagramOptions, ListenOptions, SocketOption};
use windlass::{Address, AlignedBuf, Complete, Completion, Completions, Counters, Done};
use windlass::{Handle, Op, Refusal, Refused, Source, SourceKind, Submit, Submitter, Ticket};

/// The inner driver, and the operations in flight with the time of their submission.
struct Trace<D> {
    inner: D,
    started: HashMap<Ticket, Instant>,
}

impl<D: Driver> Submit for Trace<D> {
    type Op = Op;

    fn submit(&mut self, op: Op) -> Result<Ticket, Refused<Op>> {
        let parts = op.into_parts();
        let text = format!("{:?} on {:?}, job {:?}", parts.code, parts.source, parts.job);
        let quiet = parts.quiet;
        let answer = self.inner.submit(Op::from_parts(parts));
        match &answer {
            Ok(ticket) => {
                println!("→ {ticket:?}: {text}");
                // A quiet write that succeeds has no completion.
                if !quiet {
                    self.started.insert(*ticket, Instant::now());
                }
            }
            Err(refused) => println!("✗ {text}: {refused}"),
        }
        answer
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        self.inner.cancel(ticket)
    }
}

impl<D: Driver> Complete for Trace<D> {
    type Item = Completion;

    fn complete(&mut self, wait: Wait, out: &mut Completions) -> io::Result<usize> {
        let mut come = Completions::new();
        self.inner.complete(wait, &mut come)?;
        let mut come: Vec<Completion> = come.drain(..).collect();
        for c in &come {
            let started = match c.has_more() {
                true => self.started.get(&c.ticket()).copied(),
                false => self.started.remove(&c.ticket()),
            };
            let took = started.map(|started| started.elapsed());
            println!("← {:?}: {:?}, {took:?}", c.ticket(), c.result);
        }
        Ok(out.take_from(&mut come))
    }
}

/// All other methods are passed on.
macro_rules! pass_on {
    ($(fn $name:ident(&mut self $(, $what:ident: $type:ty)*) $(-> $out:ty)?;)*) => {
        $(fn $name(&mut self $(, $what: $type)*) $(-> $out)? { self.inner.$name($($what),*) })*
    };
}

impl<D: Driver> Driver for Trace<D> {
    pass_on! {
        fn attach(&mut self, handle: Handle) -> Result<Source, Refused<Handle>>;
        fn attach_shared(&mut self, handle: Handle) -> Result<Source, Refused<Handle>>;
        fn detach(&mut self, source: Source) -> Result<Handle, Refusal>;
        fn listen(&mut self, address: &Address, options: ListenOptions) -> io::Result<Source>;
        fn abort(&mut self, source: Source) -> bool;
        fn cancel_all(&mut self, source: Source) -> usize;
        fn close(&mut self);
        fn reinit_after_fork(&mut self) -> io::Result<()>;
        fn set_token(&mut self, source: Source, token: u64) -> Result<(), Refusal>;
        fn fd(&mut self, source: Source) -> Result<BorrowedFd<'_>, Refusal>;
        fn kind(&mut self, source: Source) -> Result<SourceKind, Refusal>;
        fn connect_datagram(&mut self, source: Source, peer: &Address) -> Result<(), Refusal>;
        fn set_option(&mut self, source: Source, option: SocketOption) -> Result<(), Refusal>;
        fn take_error(&mut self, source: Source) -> Result<Option<i32>, Refusal>;
        fn aligned_buf(&mut self, len: usize) -> AlignedBuf;
        fn pool(&mut self) -> Result<&mut Pool, Refusal>;
        fn update_now(&mut self) -> Instant;
        fn reschedule(&mut self, ticket: Ticket, due: Deadline) -> Result<(), Refusal>;
        fn set_idle_timeout(&mut self, source: Source, t: Option<Duration>) -> Result<(), Refusal>;
        fn next_timeout(&mut self) -> Option<Duration>;
        fn submitter(&mut self) -> Submitter;
        fn complete_one(&mut self, ticket: Ticket) -> io::Result<Completion>;
    }

    fn recv(&mut self, source: Source, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.inner.recv(source, to)
    }

    fn send(&mut self, source: Source, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.inner.send(source, parts)
    }

    fn connect(
        &mut self,
        addresses: Vec<Address>,
        options: ConnectOptions,
    ) -> Result<(Source, Ticket), Refusal> {
        self.inner.connect(addresses, options)
    }

    fn bind_datagram(&mut self, address: &Address, options: DatagramOptions) -> io::Result<Source> {
        self.inner.bind_datagram(address, options)
    }

    fn is_in_flight(&self, ticket: Ticket) -> Result<bool, Refusal> {
        self.inner.is_in_flight(ticket)
    }

    fn queued_bytes(&self, source: Source) -> Result<usize, Refusal> {
        self.inner.queued_bytes(source)
    }

    fn local_address(&self, source: Source) -> Result<Address, Refusal> {
        self.inner.local_address(source)
    }

    fn peer_address(&self, source: Source) -> Result<Address, Refusal> {
        self.inner.peer_address(source)
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn pollable(&self) -> Result<BorrowedFd<'_>, Refusal> {
        self.inner.pollable()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn explain(&self) -> Explain {
        self.inner.explain()
    }
}

fn main() -> io::Result<()> {
    let inner = Watcher::new()?.into_driver();
    let mut watcher = Watcher::with_driver(Trace { inner, started: HashMap::new() });
    let listener = watcher.listen(([127, 0, 0, 1], 0))?;
    let address = watcher.local_address(listener)?;
    watcher.submit(Op::accept(listener))?;
    watcher.submit(Op::connect(address))?;
    watcher.submit(Op::open("Cargo.toml", OpenOptions::new().read(true)))?;
    watcher.submit(Op::run(|| 6 * 7))?;
    let (mut client, mut file, mut done) = (None, None, Completions::new());
    let mut ended = 0;
    while ended < 6 {
        watcher.wait(&mut done)?;
        for c in done.drain(..) {
            ended += 1;
            match c.result? {
                Done::Accepted(socket) => {
                    let server = watcher.attach(socket)?;
                    watcher.submit(Op::read(server))?;
                }
                Done::Socket(socket) => client = Some(watcher.attach(socket)?),
                Done::Opened(opened) => file = Some(watcher.attach(opened)?),
                Done::Read(data) => {
                    assert!(data.starts_with(b"[package]"), "the file's first bytes");
                }
                _ => {} // the job's value, and what was sent
            }
            if let (Some(client), Some(file)) = (client, file.take_if(|_| client.is_some())) {
                watcher.submit(Op::send_file(client, file, 0, 9))?;
            }
        }
    }
    Ok(())
}
