//! The callbacks of a server.

use std::io;
use std::time::Duration;

use windlass::{Address, Buf, ErrorKind, Message};

use super::action::Action;
use super::conn::{Conn, Context};
use super::datagram::Datagram;
use super::ended::{Closed, Detached};
#[cfg(doc)]
use crate::engine::Engine;
#[cfg(doc)]
use crate::handles::remote::Remote;
use crate::words::cause::Cause;
use crate::words::event::Origin;
use crate::words::id::Id;
use crate::words::job::JobError;
use crate::words::op::Completed;

/// The callbacks of a server. Each loop has a handler of its own, which stays on its thread.
///
/// The first callback of a connection is `opened`, and its last is `closed` or `detached`, which is
/// called exactly once. (A connect that fails has `closed` only.) A loop calls one callback at a
/// time. A panic in a callback ends its connection with [`Cause::Panicked`], and the server goes
/// on.
///
/// ```
/// use windlass::Buf;
/// use windlass_serve::{Action, Conn, Handler};
///
/// struct Echo;
/// impl Handler for Echo {
///     type State = ();
///     fn data(&mut self, c: &mut Conn<'_, ()>, data: Buf) -> Action {
///         c.write(data);
///         Action::None
///     }
/// }
/// ```
#[allow(unused_variables)]
pub trait Handler: Sized {
    /// The state that the program keeps for each connection.
    type State: Default + 'static;

    /// The loop is about to serve. `addresses` are the bound addresses of the server, in the order
    /// in which the program added them. Each has the port that the kernel has chosen for port 0.
    fn serving(&mut self, server: &mut Context<'_, Self::State>, addresses: &[Address]) -> Action {
        Action::None
    }

    /// The shutdown begins: the loop accepts no more connections. It closes those that are open
    /// when their output is sent, after the [grace](crate::Server::grace) of the server. What is
    /// written here is sent first: a farewell, for example. A program that answers requests closes
    /// the connections that wait for one here, and each other one after its answer.
    ///
    /// Each loop and each thread calls this once.
    fn stopping(&mut self, server: &mut Context<'_, Self::State>) -> Action {
        Action::None
    }

    /// The [grace](crate::Server::grace) of a shutdown is over, or there is none: every connection
    /// that is open now closes. What is written here is sent first. A program answers here that it
    /// will not answer, and [aborts](Engine::abort) a connection whose peer would take a part of an
    /// answer for all.
    ///
    /// Each loop and each thread calls this once for a shutdown, and once more if the program stops
    /// it again in the grace.
    fn grace_over(&mut self, server: &mut Context<'_, Self::State>) -> Action {
        Action::None
    }

    /// A connection was accepted, or has connected.
    fn opened(&mut self, c: &mut Conn<'_, Self::State>, origin: Origin) -> Action {
        Action::None
    }

    /// Bytes have arrived. `data` is empty only if the default of [`wake`](Handler::wake) makes the
    /// call. For a [session](Engine::bind_datagram), `data` is one datagram, and can be empty.
    fn data(&mut self, c: &mut Conn<'_, Self::State>, data: Buf) -> Action {
        Action::None
    }

    /// A datagram has arrived at a `udp://` address, or at a datagram socket of the program. `data`
    /// has its bytes, and is empty for an empty datagram. [`Datagram::reply`] answers the sender.
    ///
    /// At an address with `?sessions=true`, each peer is a connection, and its datagrams are calls
    /// of [`data`](Handler::data): see [`Engine::bind_datagram`].
    ///
    /// Without sessions, datagrams belong to no connection. So they have no state and no other
    /// callback, and [`Action::Close`] and [`Action::Detach`] have no effect. The report counts a
    /// panic in this callback, and the socket goes on.
    fn datagram(&mut self, d: &mut Datagram<'_, Self::State>, data: Buf) -> Action {
        Action::None
    }

    /// The peer has shut down its output, and may still read. This is called only if
    /// [`close_on_eof`](crate::Config::close_on_eof) is off. The default closes the connection.
    fn eof(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        Action::Close
    }

    /// The peer has shut down its output while the connection is not read: only with
    /// [`Conn::watch_peer`]. It may still read, and data before its end may not have been delivered
    /// yet. See [`Engine::watch_peer`].
    fn peer_ended(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        Action::None
    }

    /// The waiting output was above the [high](crate::Limits::high) mark, if only until the flush
    /// of its turn, or [`Limits::files`](crate::Limits::files) files waited. Now the output is at
    /// or below the [low](crate::Limits::low) mark, and at most half as many files wait. So this
    /// follows after each time that the connection [was full](Conn::is_full).
    ///
    /// This is not called for a connection that closes. So a program that makes its answer here
    /// turns [`close_on_eof`](crate::Config::close_on_eof) off. Otherwise a peer that ends its side
    /// closes the connection, and gets an end of file after a part of the answer.
    fn drained(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        Action::None
    }

    /// The connection has gone over to TLS, after [`Conn::upgrade`]: both ends have agreed. What
    /// [`data`](Handler::data) gets from now on has come encrypted.
    #[cfg(feature = "tls")]
    fn upgraded(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        Action::None
    }

    /// The connection has reached a limit of its time: `cause` is [`Cause::Idle`], or
    /// [`Cause::TooSlow`] for those of [`Conn::limit`] and [`Conn::time_limit`]. The default ends
    /// it with this cause: bytes that wait are lost. Otherwise it goes on: see
    /// [`Event::LimitReached`].
    /// [`Engine::set_idle_timeout`] has an example.
    ///
    /// [`Event::LimitReached`]: crate::Event::LimitReached
    fn limit_reached(&mut self, c: &mut Conn<'_, Self::State>, cause: Cause) -> Action {
        c.engine.abort_as(c.id(), cause);
        Action::None
    }

    /// A connection has ended.
    fn closed(
        &mut self,
        server: &mut Context<'_, Self::State>,
        closed: Closed<Self::State>,
    ) -> Action {
        Action::None
    }

    /// The descriptor of a connection belongs to the program now, after [`Action::Detach`].
    fn detached(
        &mut self,
        server: &mut Context<'_, Self::State>,
        detached: Detached<Self::State>,
    ) -> Action {
        Action::None
    }

    /// A listener of [`Remote::add_listener`] serves, with this number, or could not be added: the
    /// errors are those of [`Engine::add_listener`].
    fn listener_added(
        &mut self,
        server: &mut Context<'_, Self::State>,
        added: io::Result<usize>,
    ) -> Action {
        Action::None
    }

    /// The kernel has taken all `len` bytes of a [file](Conn::send_file), also while the connection
    /// closes, detaches or fails. The default calls [`postwrite`](Handler::postwrite).
    fn file_sent(&mut self, c: &mut Conn<'_, Self::State>, len: u64) -> Action {
        let id = c.id();
        let remaining = c.engine().waiting(id);
        self.postwrite(c, usize::try_from(len).unwrap_or(usize::MAX), remaining)
    }

    /// Another thread has sent a [message](Remote::post) to this loop. The default drops it.
    fn message(&mut self, server: &mut Context<'_, Self::State>, message: Message) -> Action {
        Action::None
    }

    /// An operation of [`Engine::submit`] has ended, or has made one of several completions. It
    /// belongs to no connection: [`Context::conn`] finds the one that waits for it, if it has not
    /// ended. If this panics, no connection ends.
    fn completed(&mut self, server: &mut Context<'_, Self::State>, ended: Completed) -> Action {
        Action::None
    }

    /// An accept has failed. `listener` is the number of the listener, which accepts again after
    /// 100 ms.
    fn accept_failed(
        &mut self,
        server: &mut Context<'_, Self::State>,
        listener: usize,
        error: ErrorKind,
    ) -> Action {
        Action::None
    }

    /// The connection has moved from its thread to this loop: see [`Conn::move_to_loop`]. It has a
    /// new id. `from` is its old id, which is stale. Its next callbacks are those of this handler.
    fn moved(&mut self, c: &mut Conn<'_, Self::State>, from: Id) -> Action {
        Action::None
    }

    /// The server is about to send `amount` bytes, which were written in this turn. A write in this
    /// callback leaves with them. It is not called for datagrams.
    fn prewrite(&mut self, c: &mut Conn<'_, Self::State>, amount: usize) -> Action {
        Action::None
    }

    /// The server has submitted `amount` bytes to the watcher. Of these and of earlier writes, the
    /// kernel has not taken `remaining` bytes yet. A write in this callback leaves as another
    /// write. It is not called for datagrams.
    ///
    /// For a [file](Conn::send_file) it is called when the kernel has taken all `amount` bytes of
    /// it, also while the connection closes, detaches or fails. `remaining` does not include files.
    fn postwrite(
        &mut self,
        c: &mut Conn<'_, Self::State>,
        amount: usize,
        remaining: usize,
    ) -> Action {
        Action::None
    }

    /// This is called once before [`serving`](Handler::serving), and then after each delay that it
    /// returns. After `None` no delay begins until the program calls [`Engine::tick_after`], which
    /// also replaces a delay that runs. After a panic it is called again after the delay that it
    /// returned last, or after one second if it has not returned yet. During a shutdown the delay
    /// that it returns does not begin.
    fn tick(&mut self, server: &mut Context<'_, Self::State>) -> (Option<Duration>, Action) {
        (None, Action::None)
    }

    /// A job of [`Engine::execute`] has returned. `output` has its value. (A job of
    /// [`Conn::execute`] has a callback of its own.)
    fn executed(&mut self, c: &mut Conn<'_, Self::State>, output: Message) -> Action {
        Action::None
    }

    /// A job of the connection has panicked, or could not run. The default ends the connection,
    /// with [`Cause::Panicked`] or [`Cause::Rejected`].
    fn job_failed(&mut self, c: &mut Conn<'_, Self::State>, error: JobError) -> Action {
        let panicked = matches!(error, JobError::Panicked(_));
        let cause = if panicked { Cause::Panicked } else { Cause::Rejected };
        c.engine.abort_as(c.id(), cause);
        Action::None
    }

    /// The program has [woken](Remote::wake) the connection. The default calls
    /// [`data`](Handler::data) without bytes.
    fn wake(&mut self, c: &mut Conn<'_, Self::State>) -> Action {
        self.data(c, Buf::default())
    }
}
