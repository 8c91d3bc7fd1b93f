//! A driver around another one, which refuses submissions and ends accepts as it is told to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use windlass::driver::swap::Pool;
use windlass::driver::{Clock, Deadline, Driver, Explain, OpCode, Wait};
use windlass::net::{ConnectOptions, DatagramOptions, ListenOptions, SocketOption};
use windlass::{
    Address, Buf, Complete, Completion, Completions, Counters, Error, ErrorKind, Handle, Limit, Op,
    Refusal, Refused, Source, Submit, Submitter, Ticket,
};

/// What the driver is told, and what it has done.
#[derive(Clone, Default)]
pub struct Orders(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    /// How many more submissions of a kind are refused.
    refuse: HashMap<OpCode, usize>,
    refused: usize,
    /// The next completion of an accept is its end, with this errno.
    end_accept: Option<i32>,
    /// No option of a socket is set.
    refuses_options: bool,
}

impl Orders {
    /// Refuses so many submissions of a kind, as a full table does.
    pub fn refuse(&self, code: OpCode, count: usize) {
        self.0.borrow_mut().refuse.insert(code, count);
    }

    /// How many submissions were refused.
    pub fn refused(&self) -> usize {
        self.0.borrow().refused
    }

    /// Ends the next accept that completes, with this errno.
    pub fn end_accept(&self, errno: i32) {
        self.0.borrow_mut().end_accept = Some(errno);
    }

    /// Refuses all options of sockets from now on.
    pub fn refuse_options(&self) {
        self.0.borrow_mut().refuses_options = true;
    }

    fn refuses(&self, code: OpCode) -> bool {
        let mut inner = self.0.borrow_mut();
        let Some(left) = inner.refuse.get_mut(&code).filter(|left| **left > 0) else {
            return false;
        };
        *left -= 1;
        inner.refused += 1;
        true
    }
}

/// The driver.
pub struct Refusing<D> {
    inner: D,
    orders: Orders,
    /// Accepts that were ended: what still comes of them is dropped.
    ended: Vec<Ticket>,
}

impl<D> Refusing<D> {
    pub fn new(inner: D, orders: Orders) -> Refusing<D> {
        Refusing { inner, orders, ended: Vec::new() }
    }
}

impl<D: Driver> Submit for Refusing<D> {
    type Op = Op;

    fn submit(&mut self, op: Op) -> Result<Ticket, Refused<Op>> {
        if self.orders.refuses(op.code()) {
            let reason = Refusal::Full { limit: Limit::Operations, count: 1 };
            return Err(Refused { reason, value: op });
        }
        self.inner.submit(op)
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        self.inner.cancel(ticket)
    }
}

impl<D: Driver> Complete for Refusing<D> {
    type Item = Completion;

    fn complete(&mut self, wait: Wait, out: &mut Completions) -> io::Result<usize> {
        let mut come = Completions::new();
        self.inner.complete(wait, &mut come)?;
        let mut kept = Vec::new();
        for c in come.drain(..) {
            if self.ended.contains(&c.ticket()) {
                continue;
            }
            let errno = match c.code() {
                OpCode::Accept if c.has_more() => self.orders.0.borrow_mut().end_accept.take(),
                _ => None,
            };
            let Some(errno) = errno else {
                kept.push(c);
                continue;
            };
            self.inner.cancel(c.ticket());
            self.ended.push(c.ticket());
            let error = Err(Error::new(ErrorKind::Os(errno), 0, Buf::default()));
            kept.push(Completion::new(OpCode::Accept, c.source, c.ticket(), c.token, error));
        }
        Ok(out.take_from(&mut kept))
    }
}

/// All other methods are passed on.
macro_rules! pass_on {
    ($(fn $name:ident(&mut self $(, $what:ident: $type:ty)*) $(-> $out:ty)?;)*) => {
        $(fn $name(&mut self $(, $what: $type)*) $(-> $out)? { self.inner.$name($($what),*) })*
    };
}

impl<D: Driver> Driver for Refusing<D> {
    pass_on! {
        fn attach(&mut self, handle: Handle) -> Result<Source, Refused<Handle>>;
        fn attach_shared(&mut self, handle: Handle) -> Result<Source, Refused<Handle>>;
        fn detach(&mut self, source: Source) -> Result<Handle, Refusal>;
        fn listen(&mut self, address: &Address, options: ListenOptions) -> io::Result<Source>;
        fn bind_datagram(&mut self, at: &Address, options: DatagramOptions) -> io::Result<Source>;
        fn abort(&mut self, source: Source) -> bool;
        fn cancel_all(&mut self, source: Source) -> usize;
        fn close(&mut self);
        fn take_error(&mut self, source: Source) -> Result<Option<i32>, Refusal>;
        fn pool(&mut self) -> Result<&mut Pool, Refusal>;
        fn update_now(&mut self) -> Instant;
        fn reschedule(&mut self, ticket: Ticket, due: Deadline) -> Result<(), Refusal>;
        fn set_idle_timeout(&mut self, source: Source, t: Option<Duration>) -> Result<(), Refusal>;
        fn next_timeout(&mut self) -> Option<Duration>;
        fn submitter(&mut self) -> Submitter;
    }

    fn connect(
        &mut self,
        addresses: Vec<Address>,
        options: ConnectOptions,
    ) -> Result<(Source, Ticket), Refusal> {
        self.inner.connect(addresses, options)
    }

    fn set_option(&mut self, source: Source, option: SocketOption) -> Result<(), Refusal> {
        if self.orders.0.borrow().refuses_options {
            return Err(Refusal::Unsupported);
        }
        self.inner.set_option(source, option)
    }

    fn is_in_flight(&self, ticket: Ticket) -> Result<bool, Refusal> {
        self.inner.is_in_flight(ticket)
    }

    fn queued_bytes(&self, source: Source) -> Result<usize, Refusal> {
        self.inner.queued_bytes(source)
    }

    #[cfg(unix)]
    fn fd(&mut self, source: Source) -> Result<std::os::fd::BorrowedFd<'_>, Refusal> {
        self.inner.fd(source)
    }

    fn local_address(&self, source: Source) -> Result<Address, Refusal> {
        self.inner.local_address(source)
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn explain(&self) -> Explain {
        self.inner.explain()
    }
}
