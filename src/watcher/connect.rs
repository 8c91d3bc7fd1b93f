//! Sources that connect by themselves.

use super::Watcher;
use crate::driver::Driver;
use crate::driver::endpoint::ConnectOptions;
use crate::words::address::Address;
use crate::words::error::Refusal;
use crate::words::source::{Source, Ticket};

impl<D: Driver> Watcher<D> {
    /// Makes a stream source that connects to the first of `addresses` that answers. The program
    /// has the source at once. Operations on it wait for the connection, and keep their order.
    ///
    /// The connect ends in one completion, with the returned ticket, the source, the code
    /// [`OpCode::Connect`](crate::driver::OpCode), and
    /// [`Done::Connected`](crate::Done::Connected) with the address that answered. Operations
    /// on the source complete after it, unless they expire or are cancelled before.
    ///
    /// ```
    /// use windlass::net::ConnectOptions;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let address = server.local_addr()?;
    /// let mut watcher = Watcher::new()?;
    /// let (source, ticket) = watcher.connect([address], ConnectOptions::default())?;
    /// watcher.submit(Op::write(source, "hello"))?; // waits for the connection
    /// let mut done = Completions::new();
    /// while done.len() < 2 {
    ///     watcher.wait(&mut done)?;
    /// }
    /// let mut done = done.drain(..);
    /// let connected = done.next().unwrap();
    /// assert_eq!((connected.ticket(), connected.source), (ticket, source));
    /// assert!(matches!(connected.result?, Done::Connected(to) if to.ip() == Some(address)));
    /// assert!(matches!(done.next().unwrap().result?, Done::Written { bytes: 5, .. }));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Several addresses
    ///
    /// The list is as [`Op::lookup_host`](crate::Op::lookup_host) returns it; `connect` looks no
    /// name up. IPv4 and IPv6 addresses alternate, beginning with the family of the first. The next
    /// attempt begins when one has failed, or has not succeeded for
    /// [`attempt_delay`](ConnectOptions::attempt_delay) (250 ms). The first attempt that succeeds
    /// ends the others (RFC 8305, section 5).
    ///
    /// # While it connects
    ///
    /// Writes count as [queued](Watcher::queued_bytes), and against the
    /// [limit](crate::Builder::write_limit). Deadlines run, so an operation may expire or be
    /// cancelled before the connect has ended. [`fd`](Watcher::fd), [`detach`](Watcher::detach),
    /// [`local_address`](Watcher::local_address) and [`peer_address`](Watcher::peer_address) fail
    /// with `ENOTCONN`. [`abort`](Watcher::abort) ends the connect and closes its sockets. So do a
    /// [`cancel`](Watcher::cancel) of the ticket, the [deadline](ConnectOptions::deadline) and
    /// [`close`](Watcher::close).
    ///
    /// # If it fails
    ///
    /// The connect ends with the errno of the attempt that failed last: `ECONNREFUSED`, and the
    /// others of [`Op::connect`](crate::Op::connect). An address that never answers ends with
    /// `ETIMEDOUT`, when the system gives up after minutes: give the connect a
    /// [timeout](ConnectOptions::timeout), after which it ends with
    /// [`ErrorKind::Deadline`](crate::ErrorKind::Deadline). Operations that wait on the source then
    /// end with 0 bytes and the errno of the connect: `ETIMEDOUT` after a deadline, `ECANCELED`
    /// after a cancel. Later submissions are refused with the same errno. The source stays until
    /// the program aborts it, or closes it by [`Op::close`](crate::Op::close). In a
    /// [forked child](Watcher::reinit_after_fork) a connect of the parent fails with `ECANCELED`.
    ///
    /// # Errors
    ///
    /// No source is made, with:
    ///
    /// - [`Refusal::NoAddress`]: the list is empty.
    /// - [`Refusal::Full`] with [`Limit::Sources`](crate::Limit::Sources),
    ///   [`Limit::Operations`](crate::Limit::Operations) or
    ///   [`Limit::Completions`](crate::Limit::Completions).
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    /// - [`Refusal::Unsupported`]: a driver of your own does not connect sources.
    ///
    /// # Platforms
    ///
    /// The same on every driver. In the simulation the delay is virtual time, and an address
    /// without a listener refuses the connect. A listener with a full backlog never answers there,
    /// as on Linux.
    pub fn connect<A: Into<Address>>(
        &mut self,
        addresses: impl IntoIterator<Item = A>,
        options: ConnectOptions,
    ) -> Result<(Source, Ticket), Refusal> {
        let addresses = addresses.into_iter().map(Into::into).collect();
        self.driver.connect(addresses, options)
    }
}
